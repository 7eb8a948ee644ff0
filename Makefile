# Everything runs from a virtual environment in .venv, made on first use and again when a
# requirement changes. Nothing but Python 3.11 or newer and make is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
READY := $(VENV)/ready
DEV := $(VENV)/ready-dev
PRODUCERS := $(VENV)/producers/ready
# The files of tests, shared among three processes: two cores, and much of the time is waiting.
PARALLEL := --numprocesses=3 --dist=loadfile
# The client's compiled part, built where there is a C compiler.
NATIVE := $(wildcard clients/python/setup.py clients/python/src/tailrace_client/*.[ch])

.PHONY: setup demo test test-slow lint simulate coverage coverage-decoding mutants bench reference producers requirements clean

setup: $(READY)  ## the collector and the Python client, in .venv

demo: $(READY)  ## all formats into a local table, a first query and the ledger
	$(BIN)/tailrace demo

test: $(DEV)  ## the whole test suite
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-slow: $(DEV)  ## with the long forms of the tests that have one
	$(BIN)/python -m pytest --slow $(PARALLEL) $(ARGS)

lint: $(DEV)  ## format, lint, import directions, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

simulate: $(DEV)  ## seeds in virtual time, SEEDS=0-2000 or today, or one SCENARIO=file.json (tests/simulation/README.md)
	$(BIN)/python -m tests.simulation $(if $(SCENARIO),--scenario $(SCENARIO),--seeds $(or $(SEEDS),0-200)) $(ARGS)

# Not the tests that take long, most of which start daemons and programs.
SLOW_TESTS := $(addprefix --ignore=tests/,c deploy docs run simulation system traffic)

coverage: $(DEV)  ## the branches that the quick tests reach, with a floor (pyproject.toml); some ten minutes
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -q $(PARALLEL) $(SLOW_TESTS) $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

coverage-decoding: $(DEV)  ## fail unless the vectors reach the branches of the decoders (tests/decoding/coverage.py)
	$(BIN)/python -m tests.decoding.coverage

mutants: $(DEV)  ## mutation tests of a group of modules, ARGS=ledger (tests/MUTANTS.md)
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(DEV)  ## throughput and idle cost, beside peers measured in the same run
	$(BIN)/python -m benchmarks $(ARGS)

reference: $(DEV)  ## write collector/REFERENCE.md from the code
	$(BIN)/python -m tests.docs.reference > collector/REFERENCE.md

producers: $(PRODUCERS)  ## real producers for the tests that trace them (CPython 3.11 on Linux only)

requirements:  ## pin anew; needs pip-tools in the environment
	for name in build dev producers runtime; do \
	  source=requirements/$$name.in; [ $$name = runtime ] && source=pyproject.toml; \
	  pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o requirements/$$name.txt $$source || exit 1; \
	done
	sed -i '/^dftracer-utils==/,/[^\\]$$/d' requirements/producers.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis clients/python/build clients/python/src/tailrace_client/*.so

$(READY): pyproject.toml clients/python/pyproject.toml requirements/runtime.txt requirements/build.txt $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailrace needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(PIP) --no-deps --no-build-isolation --editable . --editable clients/python
	@touch $@

$(DEV): $(READY) requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(PRODUCERS): requirements/producers.txt
	$(PYTHON) -m venv $(VENV)/producers
	$(VENV)/producers/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/producers.txt
	@touch $@
