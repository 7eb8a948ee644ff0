"""`python -m benchmarks.report DIRECTORY`: write the page again from the results in a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.report.page import RESULTS, write
from benchmarks.results import Results

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    write(Results.load(directory / RESULTS), directory)
