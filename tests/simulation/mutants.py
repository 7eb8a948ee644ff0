"""Keep mutants that today's tests do not kill, and find seeds that kill them.

    python -m tests.simulation.mutants survivors GROUP STAGE    take the mutants that mutmut left alive (tests/MUTANTS.md)
    python -m tests.simulation.mutants hunt --seeds 0-300       play seeds with each mutant, and write MUTANTS.md

`mutants.json` holds the mutants, each as a change of a file, so mutmut is not needed to play them. A mutant without any
visible effect has a reason under `equivalent`, and is not played.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.simulation.defects import Defect, Found, hunt
from tests.simulation.generate import generate
from tests.simulation.verdict import judge

HERE = Path(__file__).parent
MUTANTS = HERE / "mutants.json"
TABLE = HERE / "MUTANTS.md"
SOURCES = {"tailrace": "collector", "tailrace_client": "clients/python/src"}
"""By package, the directory that contains it."""


class Mutant(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    """The name that mutmut gives to the mutant."""
    file: str
    mended: str
    """A piece of the unchanged file, which occurs there exactly once."""
    broken: str
    area: str = ""
    """The area of the code from which the mutant was drawn."""
    equivalent: str = ""
    """Why the change has no visible effect."""
    note: str = ""
    """Why the simulator does not find the change, or what was needed to find it."""
    found: Found | None = None

    @property
    def defect(self) -> Defect:
        return Defect(self.file, self.mended, self.broken)


def load() -> list[Mutant]:
    """Return the mutants in `mutants.json`."""
    return msgspec.json.decode(MUTANTS.read_bytes(), type=list[Mutant])


def save(mutants: list[Mutant]) -> None:
    data = msgspec.json.format(msgspec.json.encode(mutants), indent=1)
    MUTANTS.write_bytes(data + b"\n")
    TABLE.write_text(table(mutants))


def change(before: str, after: str) -> tuple[str, str]:
    """Return the difference between two texts, with as many whole lines around it as are needed to make this piece
    unique in the first text.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    head = blocks[0].size if blocks[0].a == blocks[0].b == 0 else 0
    tail = blocks[-2].size if len(blocks) > 1 and blocks[-2].a + blocks[-2].size == len(old) else 0
    while True:
        mended = "".join(old[head : len(old) - tail])
        if mended and before.count(mended) == 1:
            return mended, "".join(new[head : len(new) - tail])
        head, tail = max(0, head - 1), max(0, tail - 1)


def survivors(group: str, stage: Path) -> list[Mutant]:
    """Return the mutants that a run of mutmut in a stage left alive (see `tests.mutants`)."""
    found = []
    for path in sorted(stage.glob("mutants/**/*.meta")):
        codes = json.loads(path.read_text())["exit_code_by_key"]
        for name in [name for name, code in codes.items() if code == 0]:
            package = name.split(".")[0]
            source = stage / path.relative_to(stage / "mutants").with_suffix("")
            before = source.read_text()
            subprocess.run([sys.executable, "-m", "mutmut", "apply", name], cwd=stage, check=True)
            mended, broken = change(before, source.read_text())
            source.write_text(before)
            file = f"{SOURCES[package]}/{source.relative_to(stage)}"
            found.append(Mutant(name=name, file=file, mended=mended, broken=broken))
    return found


def table(mutants: list[Mutant]) -> str:
    """Return the content of MUTANTS.md."""
    lines = ["# Mutants that the older tests let live", ""]
    lines += ["Written by `python -m tests.simulation.mutants hunt`, from `mutants.json`.", ""]
    drawn = [m for m in mutants if m.area and not m.equivalent]
    lines += ["## Ledger, announced sessions, client queue and recovery", "", *_DRAWN, ""]
    lines += [_killed(drawn), "", *_HEAD, *map(_hunted, drawn), ""]
    others = [m for m in mutants if not m.area and not m.equivalent]
    lines += ["## Links, courses, owners and runs", "", _killed(others), ""]
    lines += [*_HEAD, *map(_hunted, others)]
    lines += [
        "",
        "## Mutants that change nothing",
        "",
        "| mutant | change | why |",
        "|---|---|---|",
    ]
    lines += [f"| {_label(m)} | {_said(m)} | {m.equivalent} |" for m in mutants if m.equivalent]
    return "\n".join(lines) + "\n"


_HEAD = ["| mutant | change | killed by | CPU s |", "|---|---|---|---|"]
_DRAWN = [
    "mutmut 3.8.1 made all mutants of each area, and ran them against the tests of the area (`tests/MUTANTS.md`), none of which",
    "is a test of the simulator: 2326 of the ledger, 398 of announced sessions and answers, 778 of the client's queue and session,",
    'and 160 of 725 of recovery (`make mutants ARGS="recovery --drawn 0-160 --seed 1"`). Survivors were shuffled',
    "(`random.Random(1)`, the names in order), and judged in that order: 42 places of 132 of the ledger, 41 of 48 of announced",
    "sessions, all of the client and of recovery. Left out was what changes nothing that anybody could see, by plain reading",
    "(below, but for what is in `tests/MUTANTS.md` and for words), and what the wider tests kill: most of `tests/ingest`, with 8",
    "examples, for ledger and answers; `test_link`, `test_sender`, `test_emitter` and `test_process` for the client. The part of",
    "recovery that no test of the group reaches (replay) fails at each start, and `tests/system` starts; it was not run against these mutants.",
    "All that was left is here: more than twenty.",
    "The model of the table stands in for the store's recovery (`store/recovery.py`), which is not played.",
]


def _killed(hunted: list[Mutant]) -> str:
    killed = sum(m.found is not None for m in hunted)
    return f"The simulator kills {killed} of the {len(hunted)} that change something."


def _hunted(mutant: Mutant) -> str:
    by, seconds = f"not: {mutant.note}", ""
    if mutant.found:
        by, seconds = (
            f"seed {mutant.found.seed}: {mutant.found.kind}",
            f"{mutant.found.seconds:.0f}",
        )
    return f"| {_label(mutant)} | {_said(mutant)} | {by} | {seconds} |"


def _label(mutant: Mutant) -> str:
    return f"`{mutant.name.replace('xǁ', '').replace('ǁ', '.').replace('.x_', '.').replace('__mutmut', '')}`"


def _said(mutant: Mutant) -> str:
    """Return the lines that differ between the two pieces."""
    old, new = mutant.mended.splitlines(), mutant.broken.splitlines()
    gone = " ".join(line.strip() for line in old if line not in new)
    come = " ".join(line.strip() for line in new if line not in old)
    return f"`{gone}` → `{come}`".replace("|", "\\|")


def kill(mutant: Mutant, seeds: list[int]) -> Found | None:
    """Return the first seed that fails with a mutant and does not fail without it."""
    seconds = 0.0
    while seeds and (found := hunt(mutant.defect, seeds)):
        seconds += found.seconds
        if judge(generate(found.seed)).kind is None:
            return found._replace(seconds=round(seconds, 1))
        seeds = seeds[seeds.index(found.seed) + 1 :]
    return None


def seeds_of(text: str) -> list[int]:
    """Return the seeds that a text such as `3,7,10-20` names, in its order."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or int(first) + 1))
    return seeds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("survivors")
    taking.add_argument("group")
    taking.add_argument("stage", type=Path)
    hunting = commands.add_parser("hunt")
    hunting.add_argument("--seeds", default="0-300", help="3,7,10-20: the last of a range excluded")
    hunting.add_argument("--only", default="", help="mutants whose names hold this")
    hunting.add_argument("--again", action="store_true", help="those, too, that were found before")
    options = parser.parse_args(arguments)
    mutants = load() if MUTANTS.exists() else []
    if options.command == "survivors":
        known = {mutant.name for mutant in mutants}
        mutants += [m for m in survivors(options.group, options.stage) if m.name not in known]
        save(mutants)
        return 0
    seeds = seeds_of(options.seeds)
    for mutant in mutants:
        if mutant.equivalent or options.only not in mutant.name:
            continue
        if mutant.found is None or options.again:
            mutant.found = kill(mutant, seeds)
            sys.stdout.write(f"{_label(mutant)}: {mutant.found}\n")
            sys.stdout.flush()
            save(mutants)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
