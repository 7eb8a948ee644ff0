"""Which tests run a second time without kernels: those that reach code that chooses between a kernel and Python.

    TAILRACE_KERNELS=off make test-all ARGS="$(python -m tests.without_kernels)"

The longest path that is named here decides on a file. `test_without_kernels.py` demands that each folder is
named, that whatever runs once reaches no such code or is named as `ALIKE`, and that each module that chooses has
tests of its own package that run twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

TWICE = {
    "tests/analysis/test_flame.py": "how the time of lanes is divided",
    "tests/analysis/test_innermost.py": "how the time of lanes is divided",
    "tests/analysis/test_statistics.py": "self times",
    "tests/cli/test_commands.py": "commands that decode",
    "tests/daemon": "the loops around sockets, ingest and store",
    "tests/decoding/test_conformance.py": "Python's decoders alone, at every place of a vector",
    "tests/demo": "a daemon reads all formats",
    "tests/deploy/test_memory.py": "a daemon below a limit of memory",
    "tests/deploy/test_sandbox.py": "a daemon in its sandbox",
    "tests/docs/test_formats.py": "the pages' examples are decoded",
    "tests/doctor": "sockets, and the rate at which they are read",
    "tests/export/test_original.py": "the ingest reads again what encoders wrote",
    "tests/export/test_original_lines.py": "the ingest reads again what encoders wrote",
    "tests/export/test_original_ovni.py": "the ingest reads again what encoders wrote",
    "tests/faults": "daemons that are killed, and disks that fail",
    "tests/ingest": "rows, blocks of rows and matched spans",
    "tests/ledger": "counters of blocks",
    "tests/metrics": "figures of sources",
    "tests/rows": "blocks",
    "tests/packaging/test_kernels.py": "which kernels run, or that none does",
    "tests/simulation": "clients, ingest and store in virtual time",
    "tests/query/test_moved.py": "ingests make the rows of each collector",
    "tests/query/test_own_rows.py": "decoders and ingests make the rows of producers",
    "tests/sources": "sockets and the thread that reads them",
    "tests/store/test_arrow.py": "columns that become Arrow's",
    "tests/store/test_data_files.py": "columns that become files",
    "tests/store/test_table.py": "rows that are committed",
    "tests/system": "real daemons",
    "tests/test_overview.py": "a daemon's figures",
    "tests/upgrade": "a daemon goes on with what an earlier one left",
}
"""Folders and files that run twice, and what in them may reach a kernel."""

ALIKE = {
    "tests/analysis/test_intervals.py": "what tables lack, whoever has made the rows",
    "tests/bundle": "packs what a daemon says; `tests/system` has daemons without kernels",
    "tests/c": "the C client's bytes, which decoders are fed: Python reads these with kernels, too",
    "tests/ceph": "a daemon whose table is in an object store, whoever has made the rows",
    "tests/cli/test_terminal.py": "what commands may write to a terminal",
    "tests/cli/test_top.py": "how figures are shown",
    "tests/cli/test_verify.py": "damage of files, which is no question of who has written them",
    "tests/contract": "the Python client's bytes, as the C client's",
    "tests/decoding": "decoders are fed, and read in Python with kernels, too; tests of kernels are skipped",
    "tests/deploy/test_prometheus.py": "alerts, on a daemon's metrics",
    "tests/deploy/test_systemd.py": "what the service manager does to a process",
    "tests/engines": "other engines' readers, of rows that are the same",
    "tests/examples": "programs, whose events a daemon takes as those of `tests/system`",
    "tests/formats": "the format that is added has no kernel",
    "tests/importing": "which files are chosen; `tests/system/test_import.py` reads them",
    "tests/job": "tables that are merged, whoever has made their rows",
    "tests/producers": "lines of the real DFTracer; vectors have them, too",
    "tests/query/test_announced.py": "views of rows, which are the same (`tests/ingest/test_vector_rows.py`)",
    "tests/query/test_views.py": "views of rows, which are the same (`tests/ingest/test_vector_rows.py`)",
    "tests/reading/test_beside_a_daemon.py": "a reader beside a writer",
    "tests/run": "processes and certificates around a daemon",
    "tests/store": "logs, locks, damage and upkeep of files, whoever has made the columns",
    "tests/system/test_admin.py": "who may ask a daemon, and over which connection",
    "tests/system/test_bucket.py": "what collectors do to a table in an object store, whoever has made the rows",
    "tests/system/test_bucket_killed.py": "the same, killed",
    "tests/system/test_damaged_store.py": "damage of files, whoever has written them",
    "tests/system/test_elsewhere.py": "what readers know of collectors of other hosts, whoever has made the rows",
    "tests/system/test_service_manager.py": "what a service manager does to a process",
    "tests/system/test_upkeep.py": "files that are merged, whoever has made their rows",
}
"""Folders and files that reach such code and run only once, with the reason why the results would be the same without
kernels.
"""

ONCE = {
    "clients/python/tests": "the client shares no code with the collector",
    "tests": "the clock, the log, units, and tools of the tests",
    "tests/analysis": "reads tables",
    "tests/benchmarks": "tools that measure; both kinds of decoder are measured by hand",
    "tests/cli": "commands that read tables",
    "tests/config": "configuration",
    "tests/deploy": "units, containers, alerts",
    "tests/docs": "documents",
    "tests/doctor/object_store": "requests to an object store",
    "tests/export": "reads tables",
    "tests/packaging": "wheels, with kernels and without",
    "tests/program": "processes",
    "tests/query": "reads tables",
    "tests/reading": "reads tables",
    "tests/rollups": "reads tables",
    "tests/security": "certificates, tokens, networks",
    "tests/serving": "HTTP",
    "tests/spool": "bytes that nobody decodes",
    "tests/traffic": "relays and growing files of the tests",
    "tests/view": "reads tables",
}
"""Folders that reach no such code, and what they contain."""


def named(path: str) -> str:
    """Return the name in these lists that decides on a file of tests. It is a path from the root."""
    place = Path(path)
    return next(str(each) for each in (place, *place.parents) if str(each) in TWICE | ONCE | ALIKE)


def runs_twice(path: str) -> bool:
    """Return whether a file of tests runs with kernels and without."""
    return named(path) in TWICE


def files() -> Iterator[str]:
    """Yield all files of tests, as paths from the root."""
    for place in ("tests", "clients/python/tests"):
        for path in sorted((ROOT / place).rglob("test_*.py")):
            yield str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.stdout.write(" ".join(filter(runs_twice, files())) + "\n")
