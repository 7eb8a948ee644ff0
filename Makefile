# Everything runs from a virtual environment in .venv, made on first use and again when a
# requirement changes. Nothing but Python 3.11 or newer and make is needed.

PYTHON ?= python3
COMMA := ,
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
READY := $(VENV)/ready
DEV := $(VENV)/ready-dev
PRODUCERS := $(VENV)/producers/ready
PEERS := $(VENV)/peers/ready
ENGINES := $(VENV)/engines/ready
SITE := $(VENV)/site/ready
RELEASE := $(VENV)/release/ready
FUZZER := $(VENV)/fuzzer/ready
# The files of tests, shared among six processes: two cores, and some of the time is waiting. The core waits for little,
# and each process collects all tests. The files that take longest begin first (tests/order.py).
PROCESSES := 6
PARALLEL = --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder
# The client's compiled part and the collector's kernels, built where there is a C compiler.
NATIVE := $(wildcard setup.py clients/python/setup.py clients/python/src/tailrace_client/*.[ch]) $(shell find collector -name '*.p[xy][dx]')

.PHONY: setup dev help demo test test-all test-slow lint simulate coverage coverage-decoding sanitize fuzz mutants bench reference producers peers engines site release dist release-check requirements clean

setup: $(READY)  ## install the collector and the Python client into .venv

dev: $(DEV)  ## the same, and the tools that tests and lint need

help:  ## print this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "%-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY)  ## send all formats to a collector, query the table, compare found losses with injected ones
	$(BIN)/tailrace demo

test: PROCESSES := 3
test: $(DEV)  ## run the core of the tests, within five minutes on two cores; ARGS go to pytest
	$(BIN)/python -m pytest $(PARALLEL) $$($(BIN)/python -m tests.parts core) $(ARGS)

test-all: $(DEV)  ## run all tests, which takes some 25 minutes; ARGS go to pytest
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-slow: $(DEV)  ## run all tests with their long forms
	$(BIN)/python -m pytest --slow $(PARALLEL) $(ARGS)

lint: $(DEV)  ## check formatting, style, import directions and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

simulate: $(DEV)  ## play SEEDS=0-2000 (or today), or one SCENARIO=file.json, in virtual time (tests/simulation/README.md)
	$(BIN)/python -m tests.simulation $(if $(SCENARIO),--scenario $(SCENARIO),--seeds $(or $(SEEDS),0-200)) $(ARGS)

# Measured are the tests that may reach a kernel, without kernels, since nothing can look into these, and with kernels
# the readers and the Python around kernels (tests/parts.py).
MEASURE = $(BIN)/python -m coverage run -m pytest $(PARALLEL) $(ARGS)

coverage: $(DEV)  ## measure the branches of the collector that the suite reaches; fail below the floor in pyproject.toml
	rm -f .coverage .coverage.*
	failed=0; \
	TAILRACE_KERNELS=off $(MEASURE) $$($(BIN)/python -m tests.parts twice) || failed=1; \
	$(MEASURE) $$($(BIN)/python -m tests.parts measured) || failed=1; \
	$(BIN)/python -m tests.combine || exit; \
	$(BIN)/python -m coverage report --sort=cover > $(VENV)/coverage.txt || failed=1; \
	echo "least covered, of $(VENV)/coverage.txt:"; sed -n '1,12p;$$p' $(VENV)/coverage.txt | cut -c 1-120; grep ^TOTAL $(VENV)/coverage.txt; \
	exit $$failed

coverage-decoding: $(DEV)  ## fail unless the vectors reach the branches of the decoders (tests/decoding/coverage.py)
	$(BIN)/python -m tests.decoding.coverage

# Each bytes object has memory of its own, so that a read behind its end is seen. Python itself never frees all of its memory.
# Libraries in C++ find the preloaded sanitizer in their way unless C++'s own library is there before them.
SANITIZED := LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so) $$(gcc -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc $(BIN)/python -m
sanitize: $(DEV)  ## build kernels with sanitizers, run their tests, compare them with Python on INPUTS=200000 damaged inputs of SEED=1
	TAILRACE_KERNELS=require CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1" \
	  $(BIN)/python setup.py --quiet build_ext --force --build-lib $(VENV)/sanitized --build-temp $(VENV)/sanitized/temp
	TAILRACE_KERNELS=require $(SANITIZED) tests.sanitized $(VENV)/sanitized
	for format in $(or $(FORMAT),dftracer et3 heph jets ovni); do \
	  $(SANITIZED) tests.decoding.kernel_inputs $$format $(or $(INPUTS),200000) --seed $(or $(SEED),1) --library $(VENV)/sanitized || exit; \
	done

# With SANITIZER=asan reads outside of memory are seen, too, at a third of the speed. libFuzzer is in the preloaded library.
SANITIZER ?= ubsan
fuzz: $(DEV) $(FUZZER)  ## let libFuzzer look for an input on which kernels and Python differ: FORMAT=heph INPUTS=1000000 (needs clang)
	TAILRACE_KERNELS=require LDSHARED="cc -shared" \
	  CC="clang -O1 -g1 -fsanitize=$(if $(filter asan,$(SANITIZER)),address$(COMMA)undefined,undefined) -fsanitize=fuzzer-no-link -fno-sanitize-recover=all" \
	  $(BIN)/python setup.py --quiet build_ext --force --build-lib $(VENV)/$(SANITIZER) --build-temp $(VENV)/$(SANITIZER)/temp
	for format in $(or $(FORMAT),dftracer et3 heph jets ovni); do \
	  LD_PRELOAD=$(VENV)/fuzzer/$(SANITIZER)_with_fuzzer.so ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$(VENV)/fuzzer \
	    $(BIN)/python -m tests.decoding.fuzz $$format $(or $(INPUTS),1000000) --library $(VENV)/$(SANITIZER) || exit; \
	done

mutants: $(DEV)  ## run mutation tests of a group of modules, ARGS=ledger (tests/MUTANTS.md)
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(DEV)  ## measure throughput, memory and idle cost beside peers (benchmarks/README.md)
	$(BIN)/python -m benchmarks $(ARGS)

reference: $(DEV)  ## write collector/REFERENCE.md and the manual pages in share/man from the code
	$(BIN)/python -m tests.docs.reference > collector/REFERENCE.md
	$(BIN)/python -m tests.docs.manual

producers: $(PRODUCERS)  ## install real producers for the tests that trace them (CPython 3.11 on Linux only)

peers: $(PEERS)  ## install what benchmarks measure beside the collector (rsyslog comes from the system)

engines: $(ENGINES)  ## install distributed engines for the tests that let them read the table (900 MB)

release: $(RELEASE)  ## install what builds a release, and what its tests need

site: $(SITE)  ## build the documentation as a site that needs no network into build/site (docs/site/)
	$(VENV)/site/bin/python -m docs.site build/site

dist: $(RELEASE)  ## build all files of a release into dist/, for PYTHONS=3.11,3.12 or all that are here (docs/release.md)
	@$(VENV)/release/bin/python -m release.dist $(if $(PYTHONS),--pythons $(PYTHONS))

release-check: $(DEV) $(RELEASE)  ## check that this commit and dist/ can be published (docs/release.md)
	@$(BIN)/python -m release.check

requirements:  ## pin the requirements anew; needs pip-tools in the environment
	for name in build dev engines fuzz object-store peers producers release runtime site; do \
	  source=requirements/$$name.in; [ $$name = runtime ] && source=pyproject.toml; \
	  pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o requirements/$$name.txt $$source || exit 1; \
	done
	sed -i '/^dftracer-utils==/,/[^\\]$$/d' requirements/producers.txt

clean:  ## remove .venv, caches and built files
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis clients/python/build clients/python/src/tailrace_client/*.so
	find collector -name '_*.so' -delete

# The first run takes minutes, so each step is announced.
$(READY): pyproject.toml clients/python/pyproject.toml requirements/runtime.txt requirements/build.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailrace needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "set-up 1/3: create the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "set-up 2/3: download and install $$(cat requirements/build.txt requirements/runtime.txt | grep -c ==) packages"
	@$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@if command -v $${CC:-cc} >/dev/null && [ "$$TAILRACE_KERNELS" != off ]; then echo "set-up 3/3: compile $$(find collector -name '_*.pyx' | wc -l) kernels, which takes a few minutes, and install Tailrace"; \
	  else echo "set-up 3/3: install Tailrace without kernels: there is no C compiler, or TAILRACE_KERNELS is off"; fi
	@$(PIP) --no-deps --no-build-isolation --editable . --editable clients/python
	@touch $@

$(DEV): $(READY) requirements/dev.txt
	@echo "set-up: download and install $$(grep -c == requirements/dev.txt) packages for tests and lint"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(PRODUCERS): requirements/producers.txt
	$(PYTHON) -m venv $(VENV)/producers
	$(VENV)/producers/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/producers.txt
	@touch $@

$(PEERS): requirements/peers.txt
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/peers.txt
	@touch $@

$(ENGINES): requirements/engines.txt
	$(PYTHON) -m venv $(VENV)/engines
	$(VENV)/engines/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/engines.txt
	@touch $@

$(SITE): requirements/site.txt
	$(PYTHON) -m venv $(VENV)/site
	$(VENV)/site/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/site.txt
	@touch $@

$(RELEASE): requirements/release.txt
	@echo "set-up: download and install $$(grep -c == requirements/release.txt) packages that build a release"
	@$(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/release.txt
	@touch $@

$(FUZZER): requirements/fuzz.txt
	$(PIP) --require-hashes --no-deps --target $(VENV)/fuzzer -r requirements/fuzz.txt
	@touch $@
