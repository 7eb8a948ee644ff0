"""Which kernels run, and that compiled code does not lie idle."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tailrace
from tailrace import kernels
from tailrace.errors import ConfigError
from tests import sanitized
from tests.packaging.installing import has_compiler

PACKAGE = Path(tailrace.__file__).parent
REBUILD = "make clean dev"


def command(*arguments, **environ):
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_source_is_a_kernel_that_is_known():
    sources = {str(p.relative_to(PACKAGE).with_suffix("")) for p in PACKAGE.rglob("_*.pyx")}
    assert sources == set(kernels.KERNELS)


def test_every_kernel_has_its_types():
    for name in kernels.KERNELS:
        assert (PACKAGE / f"{name}.pyi").is_file()


def test_every_kernel_is_tested_with_sanitizers():
    """`make sanitize` builds what `setup.py` builds, and runs these files."""
    assert set(sanitized.TESTS) == set(kernels.KERNELS)
    assert all(sanitized.TESTS.values())
    for file in sanitized.files():
        assert (sanitized.ROOT / file).is_file()


@pytest.mark.skipif(
    not has_compiler(), reason="no C compiler with Python's headers: apt install gcc python3-dev"
)
@pytest.mark.skipif(os.environ.get(kernels.VARIABLE) == kernels.OFF, reason="kernels are off")
def test_where_a_compiler_is_the_kernels_run():
    assert kernels.missing(PACKAGE) == [], REBUILD
    assert kernels.word() == "compiled"
    for name in kernels.KERNELS:
        module = import_module("tailrace." + name.replace("/", "."))
        built, source = Path(module.__file__), PACKAGE / f"{name}.pyx"
        assert built.suffix == ".so"
        assert built.stat().st_mtime >= source.stat().st_mtime, REBUILD


def test_they_run_when_all_are_built_unless_they_are_off():
    assert kernels.decide("", [])
    assert kernels.decide("require", [])
    assert not kernels.decide("off", [])
    assert not kernels.decide("", ["ledger/_observe"])
    assert not kernels.decide("off", ["ledger/_observe"])


def test_what_is_required_and_missing_is_named():
    with pytest.raises(ConfigError, match=r"=require: not built .*: ledger/_observe; install a C"):
        kernels.decide("require", ["ledger/_observe"])


def test_a_directory_without_libraries_has_no_kernels(tmp_path):
    assert kernels.missing(tmp_path) == list(kernels.KERNELS)


def test_another_word_is_wrong_usage():
    done = command("--version", TAILRACE_KERNELS="on")
    assert done.returncode == 2
    assert done.stderr == (
        'TAILRACE_KERNELS: \'on\' is not allowed; allowed: "off", "require", or unset\n'
    )


def test_the_version_says_what_runs():
    assert command("--version", TAILRACE_KERNELS="off").stdout.endswith(", kernels: python\n")
    assert command("--version").stdout.endswith(f", kernels: {kernels.word()}\n")


@pytest.mark.parametrize("mode", ["", "off"])
def test_the_log_and_the_metrics_say_what_runs(collector_of, mode):
    expected = kernels.word() if mode == "" else "python"
    environ = {kernels.VARIABLE: mode or os.environ.get(kernels.VARIABLE, "")}
    collector = collector_of(environ=environ)
    line = f"tailrace {tailrace.__version__}, kernels: {expected}\n"
    collector.logged(line)
    assert f'kernels="{expected}"' in collector.metrics()
