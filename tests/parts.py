"""The parts in which CI runs the suite, so that each test runs once with kernels and half of them are measured.

    python -m tests.parts plain      # with kernels, not measured
    python -m tests.parts measured   # with kernels, measured: readers, commands, and the Python around kernels
    python -m tests.parts twice      # without kernels, measured: those of `tests.without_kernels`
    python -m tests.parts bounded    # without kernels, not measured

Each prints the tests of a part. A test that bounds memory, or counts imported modules, is never measured: measuring
adds to both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.without_kernels import files, runs_twice

MEASURED = (
    "analysis", "bundle", "cli", "config", "export", "importing", "job", "query", "reading", "rollups", "run", "security",
    "serving", "store", "view",
)  # fmt: skip
"""Folders whose tests are measured with kernels: they tell most of the code that `twice` does not reach."""

COUNTING = {
    "tests/cli/test_query.py": "test_an_empty_store_is_asked_with_few_modules",
}
"""A test, in a file that is measured, which counts modules."""


def bounds_memory(path: str) -> bool:
    return path.endswith("/test_memory.py")


def is_measured(path: str) -> bool:
    """Return whether a file is measured with kernels."""
    folder = path.removeprefix("tests/").partition("/")[0]
    return path.startswith("tests/") and folder in MEASURED and not bounds_memory(path)


def plain() -> list[str]:
    rest = [path for path in files() if not is_measured(path)]
    return rest + [f"{path}::{test}" for path, test in COUNTING.items()]


def measured() -> list[str]:
    left_out = [f"--deselect={path}::{test}" for path, test in COUNTING.items()]
    return [path for path in files() if is_measured(path)] + left_out


def twice() -> list[str]:
    return [path for path in files() if runs_twice(path) and not bounds_memory(path)]


def bounded() -> list[str]:
    return [path for path in files() if runs_twice(path) and bounds_memory(path)]


PARTS: dict[str, Callable[[], list[str]]] = {
    "plain": plain,
    "measured": measured,
    "twice": twice,
    "bounded": bounded,
}

if __name__ == "__main__":
    sys.stdout.write(" ".join(PARTS[sys.argv[1]]()) + "\n")
