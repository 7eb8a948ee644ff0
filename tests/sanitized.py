"""Run the tests of the kernels with kernels that were built with sanitizers.

    python -m tests.sanitized DIRECTORY

`DIRECTORY` is where these kernels are. `make sanitize` builds them, and loads the sanitizers' libraries first.
Exits with 1 if a test fails, is skipped, or runs with another kernel.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TESTS = {
    "analysis/_innermost": ["analysis/test_innermost.py"],
    "decoding/formats/dftracer/_kernel": [
        "decoding/test_kernels.py",
        "decoding/test_dftracer_kernel.py",
    ],
    "decoding/formats/et3/_kernel": ["decoding/test_kernels.py", "decoding/test_et3_kernel.py"],
    "decoding/formats/heph/_kernel": ["decoding/test_kernels.py", "decoding/test_heph_kernel.py"],
    "decoding/formats/jets/_kernel": ["decoding/test_kernels.py", "decoding/test_jets_kernel.py"],
    "decoding/formats/ovni/_kernel": ["decoding/test_kernels.py", "decoding/test_ovni_kernel.py"],
    "ingest/_match": ["ingest/test_span_blocks.py", "ingest/test_blocks.py"],
    "ledger/_observe": ["ledger/test_block_count.py", "ingest/test_vector_rows.py"],
    "rows/_columns": ["rows/test_columns_kernel.py", "rows/test_block.py"],
    "sources/_pump": ["sources/test_pump.py"],
    "rows/_joined": ["rows/test_joining.py", "store/test_data_files.py"],
}
"""For each kernel, the files of tests that give it valid input, and input that it must refuse."""


class Skips:
    """Counts the tests that did not run."""

    def __init__(self) -> None:
        self.count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.skipped

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.count += report.skipped


def files() -> list[str]:
    """Return the files of tests, each once."""
    names = [name for each in TESTS.values() for name in each]
    return [f"tests/{name}" for name in dict.fromkeys(names)]


def foreign(library: Path) -> list[str]:
    """Return the kernels in this process that are not from a directory."""
    modules = {name: sys.modules["tailrace." + name.replace("/", ".")] for name in TESTS}
    return [
        name
        for name, module in modules.items()
        if not Path(module.__file__).is_relative_to(library)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    library = parser.parse_args().library.resolve()
    from tests.decoding.kernel_inputs import load_all

    load_all(library)
    skips = Skips()
    # A sanitizer prints its report and ends the process. The report must not go to a file of pytest.
    options = ("-q", "-p", "no:cacheprovider", "--capture=sys")
    code = pytest.main([*options, *files()], plugins=[skips])
    if others := foreign(library):
        sys.exit(f"other kernels ran: {', '.join(others)}")
    sys.exit(f"{skips.count} tests were skipped" if skips.count and not code else int(code))


if __name__ == "__main__":
    main()
