"""Parts of the suite: the core, those that CI runs a second time, by the date, and those that `make coverage` measures.

    python -m tests.parts core              # what `make test` runs
    python -m tests.parts without-kernels   # of the files that may reach a kernel, the date's half
    python -m tests.parts long              # the date's files in their long form
    python -m tests.parts measured          # with kernels: readers, commands, and the Python around kernels
    python -m tests.parts twice             # without kernels: those of `tests.without_kernels`

Each prints the tests of a part. A test that bounds memory, or counts imported modules, is never measured: measuring
adds to both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from zlib import crc32

from tailrace.clock import SystemClock
from tests.order import LONGEST
from tests.without_kernels import ROOT, files, runs_twice

DAY = 86_400 * 10**9
LONG = (
    ("tests/deploy/test_fresh.py", "tests/packaging/test_collector_wheel.py"),
    (
        "tests/deploy/test_image.py", "tests/packaging/test_client_wheel.py",
        "tests/packaging/test_dist.py", "tests/packaging/test_kernels.py",
    ),
)  # fmt: skip
"""Files whose long form CI runs, too: one list for even days, and one for odd days."""

MEASURED = (
    "analysis", "bundle", "cli", "config", "export", "importing", "job", "query", "reading", "rollups", "run", "security",
    "serving", "store", "view",
)  # fmt: skip
"""Folders whose tests are measured with kernels: they run most of the code that `twice` does not reach."""

CORE = frozenset({
    "config", "contract", "decoding", "ingest", "ledger", "metrics", "query", "rows", "security", "serving", "sources",
    "spool", "store",
})  # fmt: skip
"""Folders of the core. The core has each file of these folders, and of the Python client's tests, that starts no process
and is not among `order.LONGEST`.
"""
CORE_FILES = frozenset({
    "tests/decoding/test_conformance.py", "tests/docs/test_citations.py", "tests/docs/test_class_names.py",
    "tests/docs/test_decisions.py", "tests/docs/test_reference.py", "tests/system/test_lifecycle.py",
    "tests/upgrade/test_shapes.py",
})  # fmt: skip
"""Further files of the core: all vectors, checks of the documents, and a daemon from its start to its stop."""
_STARTING = re.compile(r"\b(subprocess|multiprocessing|tests\.program|tests\.system)\b")
"""Pattern of the modules with which a test starts processes."""

COUNTING = {
    "tests/cli/test_commands.py": "test_a_command_loads_only_what_it_needs",
}
"""A test that counts modules, in a file that is otherwise measured."""


def today() -> int:
    """Return the current date as a number of days since 1970."""
    return SystemClock().wall_ns() // DAY


def half_of(day: int, paths: list[str]) -> list[str]:
    """Return the half of the files that is run on a day. The other half is run on the next day."""
    return [path for path in paths if (crc32(path.encode()) + day) % 2]


def bounds_memory(path: str) -> bool:
    return path.endswith("/test_memory.py")


def is_measured(path: str) -> bool:
    """Return whether a file is measured with kernels."""
    folder = path.removeprefix("tests/").partition("/")[0]
    return path.startswith("tests/") and folder in MEASURED and not bounds_memory(path)


def without_kernels(day: int | None = None) -> list[str]:
    return half_of(today() if day is None else day, [*filter(runs_twice, files())])


def long(day: int | None = None) -> list[str]:
    """Return the files of `LONG` for a day, and half of the properties whose long form has more examples."""
    day = today() if day is None else day
    properties = [
        path
        for path in files()
        if path.startswith("tests/ingest/test_") and "tests.forms" in (ROOT / path).read_text()
    ]
    return [*LONG[day % 2], *half_of(day, properties)]


def is_core(path: str) -> bool:
    """Return whether a file belongs to the core."""
    if path in CORE_FILES:
        return True
    folder = path.removeprefix("tests/").partition("/")[0]
    of_core = folder in CORE or path.startswith("clients/python/tests/")
    return of_core and path not in LONGEST and not _STARTING.search((ROOT / path).read_text())


def core() -> list[str]:
    return [*filter(is_core, files())]


def measured() -> list[str]:
    left_out = [f"--deselect={path}::{test}" for path, test in COUNTING.items()]
    return [path for path in files() if is_measured(path)] + left_out


def twice() -> list[str]:
    return [path for path in files() if runs_twice(path) and not bounds_memory(path)]


PARTS: dict[str, Callable[[], list[str]]] = {
    "core": core,
    "without-kernels": without_kernels,
    "long": long,
    "measured": measured,
    "twice": twice,
}

if __name__ == "__main__":
    sys.stdout.write(" ".join(PARTS[sys.argv[1]]()) + "\n")
