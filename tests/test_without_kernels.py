"""Each folder of tests is said to reach a kernel or not, and whatever runs only once reaches none, or would say the same."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import grimp
import pytest

from tailrace.decoding.contract import packs
from tailrace.decoding.formats import FORMATS
from tests.without_kernels import ALIKE, ONCE, ROOT, TWICE, files, named, runs_twice

NAMES_ONLY = {"tailrace.metrics.contract", "tailrace.metrics.observed", "tailrace.sources.source"}
"""Modules from which tests that reach no kernel take the names of metrics, or the size of a chunk."""

READERS = {"tailrace.analysis.innermost"}
"""Modules of the readers that choose. Their own tests run twice and compare both choices; whoever else reaches them
would say the same."""

SAME = NAMES_ONLY | READERS

ONCE_FILES = [path for path in files() if named(path) in ONCE]
TWICE_FILES = [path for path in files() if runs_twice(path)]


@cache
def imports():
    return grimp.build_graph("tailrace")


@cache
def choosing():
    """The modules that ask whether kernels run and are not content with the word for it."""
    found = set()
    for name in imports().find_modules_that_directly_import("tailrace.kernels"):
        path = ROOT / "collector" / name.replace(".", "/")
        source = (
            path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        )
        if "active" in source.read_text():
            found.add(name)
    return found


def reached(modules):
    """Which of the modules that choose a kernel these modules import, over whatever many others."""
    return {
        up for name in modules for up in {name, *imports().find_upstream_modules(name)}
    } & choosing()


def test_those_that_choose_are_known():
    assert len(choosing()) >= 12
    assert {"tailrace.rows.batch", "tailrace.ingest.incarnation_rows"} <= choosing()
    assert reached({"tailrace.daemon.service"}) >= {
        "tailrace.rows.batch",
        "tailrace.sources.udp",
    }


def test_each_folder_is_named_once():
    assert not TWICE.keys() & ONCE.keys()
    assert not ALIKE.keys() & (TWICE | ONCE).keys()
    assert [name for name in TWICE | ONCE | ALIKE if not (ROOT / name).exists()] == []
    folders = {str(Path(path).parent) for path in files()} - {"tests"}
    # A folder in another one may rely on that; each below `tests` is named itself, or all of its files are.
    unnamed = {
        folder
        for folder in folders
        if not {folder, str(Path(folder).parent)} & ((TWICE | ONCE | ALIKE).keys() - {"tests"})
    }
    assert unnamed == set()


@pytest.mark.parametrize("folder", [name for name in ONCE if name.startswith("tests/")])
def test_the_package_of_a_folder_that_runs_once_reaches_no_kernel(folder):
    package = folder.replace("tests/", "tailrace.")
    if package == "tailrace.cli" or package not in imports().modules:
        return  # the commands reach everything; `test_a_file_that_runs_once_…` tells of each file
    assert reached({package, *imports().find_descendants(package)}) - SAME == set()


@pytest.mark.parametrize("path", ONCE_FILES)
def test_a_file_that_runs_once_calls_nothing_that_reaches_one(path):
    assert reached(of_collector(ROOT / path, set()) - NAMES_ONLY) - SAME == set()


@pytest.mark.parametrize("module", sorted(choosing()))
def test_what_chooses_has_tests_of_its_package_that_run_twice(module):
    package = module.split(".")[1]
    own = [path for path in TWICE_FILES if path.startswith(f"tests/{package}/")]
    assert any(module in reached(of_collector(ROOT / path, set())) for path in own)


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
def test_what_is_fed_is_read_by_python_with_kernels_too(format_):
    decoder = format_.decoder(4096, None)
    if packs(decoder):
        assert not {"feed", "end", "document", "give_up"} & vars(type(decoder)).keys()


def of_collector(path, seen):
    """The collector's modules that a file imports, and those that the helpers of tests that it imports do."""
    seen.add(path)
    found = set()
    for name in imported(path):
        if name.startswith("tailrace."):
            module = name if name in imports().modules else name.rpartition(".")[0]
            found |= {module} & imports().modules - {"tailrace"}
        elif name.startswith("tests."):
            place = ROOT / name.replace(".", "/")
            helper = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if helper.exists() and helper not in seen:
                found |= of_collector(helper, seen)
    return found


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
