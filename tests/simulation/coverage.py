"""Find out which branches of the code under test the seeds reach, and which no seed reaches.

    python -m tests.simulation.coverage --seeds 0-50

writes COVERAGE.md: for each file, the number of branches, of reached branches, and of those that at most one seed in
fifty reaches. Then it lists the lines whose branches no seed reaches, and prints the seeds that reach a rare branch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

from tests.simulation.defects import ROOT
from tests.simulation.mutants import seeds_of

TABLE = Path(__file__).parent / "COVERAGE.md"
_INGEST = "collector/tailrace/ingest"
_CLIENT = "clients/python/src/tailrace_client"
FILES = [
    "collector/tailrace/ledger/*.py",
    *(f"{_INGEST}/{name}.py" for name in (
        "announced", "clocks", "generations", "incarnation", "incarnation_rows", "limits", "lives", "machine",
        "returning", "session", "shared", "succession",
    )),
    *(f"{_CLIENT}/_{name}.py" for name in (
        "link", "queue", "recorder", "session", "settlement",
    )),
    *(f"collector/tailrace/spool/{name}.py" for name in ("checkpoint", "segment", "spool")),
    "collector/tailrace/daemon/loops/decode.py",
    "collector/tailrace/daemon/conditions.py",
    *(f"collector/tailrace/daemon/loops/{name}.py" for name in ("acknowledge", "commit")),
]  # fmt: skip
RARE = 50
"""A branch is rare if at most one seed in this number reaches it."""


class Branch(NamedTuple):
    file: str
    line: int
    to: int
    """Number of the line that follows the branch; negative if the function ends."""


class Reach:
    """All branches, and for each the seeds that reach it."""

    def __init__(self) -> None:
        self.seeds: dict[Branch, list[int]] = defaultdict(list)
        self.played = 0

    def add(self, seed: int, report: dict[str, dict[str, list[list[int]]]]) -> None:
        """Add the branches that one seed reached, and those that it did not reach."""
        self.played += 1
        for file, about in report.items():
            for line, to in about["executed_branches"]:
                self.seeds[Branch(file, line, to)].append(seed)
            for line, to in about["missing_branches"]:
                self.seeds[Branch(file, line, to)] += []

    def of(self, file: str) -> list[list[int]]:
        """Return the seeds that reach each branch of a file."""
        return [seeds for branch, seeds in self.seeds.items() if branch.file == file]

    def is_rare(self, seeds: list[int]) -> bool:
        return 0 < len(seeds) <= max(1, self.played // RARE)

    @property
    def rare_seeds(self) -> list[int]:
        """Return the seeds that reach a rare branch."""
        return sorted({seeds[0] for seeds in self.seeds.values() if self.is_rare(seeds)})

    def table(self, which: str) -> str:
        """Return the content of COVERAGE.md."""
        lines = [
            "# Branches that the simulator reaches",
            "",
            f"Seeds {which}, by `python -m tests.simulation.coverage`. Rare: reached by one seed in {RARE} or fewer.",
            "",
            "| file | branches | reached | rare | lines with a branch that no seed reaches |",
            "|---|---|---|---|---|",
        ]
        for file in sorted({branch.file for branch in self.seeds}):
            of = self.of(file)
            lost = {b.line for b, seeds in self.seeds.items() if b.file == file and not seeds}
            places = ", ".join(map(str, sorted(lost))) or "none"
            if not any(of):
                places = "all: not simulated"
            rare = sum(map(self.is_rare, of))
            lines.append(f"| `{file}` | {len(of)} | {sum(map(bool, of))} | {rare} | {places} |")
        return "\n".join(lines) + "\n"


@contextmanager
def measured(report: dict[str, dict[str, list[list[int]]]]) -> Iterator[None]:
    """Measure the code that runs within the `with` block, and add its branches to a report."""
    coverage = Coverage(
        data_file=None, config_file=False, branch=True, include=[f"{ROOT}/{f}" for f in FILES]
    )
    coverage.start()
    try:
        yield
    finally:
        coverage.stop()
    with tempfile.NamedTemporaryFile("r") as file:
        coverage.json_report(outfile=file.name, morfs=_paths())
        files = json.load(file)["files"]
    report |= {str((Path.cwd() / name).relative_to(ROOT)): about for name, about in files.items()}


def _paths() -> list[str]:
    return [str(path) for pattern in FILES for path in sorted(ROOT.glob(pattern))]


def reach(seeds: Iterable[int]) -> Reach:
    """Play seeds, and return the branches that they reach."""
    # Import this here. Otherwise code that runs at the import would count as reached by the first seed alone.
    from tests.simulation.generate import generate
    from tests.simulation.verdict import judge

    found = Reach()
    for seed in seeds:
        report: dict[str, dict[str, list[list[int]]]] = {}
        with measured(report):
            judge(generate(seed))
        found.add(seed, report)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.coverage", description=__doc__)
    parser.add_argument("--seeds", default="0-50", help="3,7,10-20: the last of a range excluded")
    options = parser.parse_args(arguments)
    found = reach(seeds_of(options.seeds))
    TABLE.write_text(found.table(options.seeds))
    sys.stdout.write(f"seeds that reach a rare branch: {found.rare_seeds}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
