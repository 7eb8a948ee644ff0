"""Run mutation tests of a group of modules: see tests/MUTANTS.md.

A copy of the sources and tests is laid out as mutmut wants it, below .venv/mutants. In this copy
property tests draw few examples and never shrink: a mutant is killed by the first that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
STAGES = ROOT / ".venv" / "mutants"

_CLIENT = "clients/python/tests/test_"
GROUPS = {
    "ledger": (["tailrace/ledger/*.py"], ["tests/ledger"]),
    "announced": (
        ["tailrace/ingest/announced.py"],
        [f"tests/ingest/test_{n}.py" for n in ("announced", "announced_wild", "telling", "departures", "restarts")],
    ),
    "succession": (
        [
            f"tailrace/ingest/{name}.py"
            for name in (
                "generations", "incarnation", "incarnation_rows", "lives", "returning", "session", "succession",
            )
        ],
        [
            f"tests/ingest/test_{name}.py"
            for name in (
                "announced", "announced_wild", "attribution", "clock", "copies", "datagrams", "departures",
                "machine", "network", "places", "restarts", "telling", "wild",
            )
        ],
    ),
    "recovery": (
        [f"tailrace/{name}.py" for name in (
            "spool/segment", "spool/checkpoint", "spool/spool", "daemon/loops/decode",
        )],
        [
            f"tests/spool/test_{n}.py"
            for n in ("recovery", "checkpoint", "entry", "recent", "spool", "spool_model", "disk_order")
        ],
    ),
    "client": (
        ["tailrace_client/_session.py", "tailrace_client/_queue.py"],
        [f"{_CLIENT}{n}.py" for n in ("session", "queue", "forgotten")],
    ),
    "link": (
        [f"tailrace_client/_{n}.py" for n in ("link", "settlement")],
        [f"{_CLIENT}{n}.py" for n in ("link", "sender")],
    ),
}  # fmt: skip

_EXAMPLES = 20

_CONFTEST = f"""
from hypothesis import Phase, settings

settings.register_profile(
    "mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, database=None,
    deadline=None, report_multiple_bugs=False, max_examples={_EXAMPLES},
)
settings.load_profile("mutants")
"""

_SETUP = """
[mutmut]
source_paths =
    tailrace
    tailrace_client
also_copy =
    clients
    conftest.py
    tailrace
    tailrace_client
pytest_add_cli_args =
    --import-mode=importlib
    --numprocesses=0
    -knot second_life_whose and not sleeps and not never_answers and not sixteen
timeout_multiplier = 5
timeout_constant = 2
track_dependencies = false
use_git_change_detection = false
only_mutate =
{modules}
pytest_add_cli_args_test_selection =
{tests}
"""


def lay_out(group: str) -> Path:
    """Copy what a group needs. Return the directory."""
    modules, tests = GROUPS[group]
    stage = STAGES / group
    shutil.rmtree(stage, ignore_errors=True)
    without = shutil.ignore_patterns("__pycache__", "*.so")
    for source, name in [
        ("collector/tailrace", "tailrace"),
        ("clients/python/src/tailrace_client", "tailrace_client"),
        ("clients/python/tests", "clients/python/tests"),
        ("tests", "tests"),
    ]:
        shutil.copytree(ROOT / source, stage / name, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", stage)
    for path in stage.rglob("test_*.py"):
        text = path.read_text()
        path.write_text(re.sub(r"max_examples=\d+", f"max_examples={_EXAMPLES}", text))
    (stage / "conftest.py").write_text(_CONFTEST)
    lines = ["\n".join(f"    {name}" for name in names) for names in (modules, tests)]
    (stage / "setup.cfg").write_text(_SETUP.format(modules=lines[0], tests=lines[1]))
    return stage


def drawn(stage: Path, mutmut: str, places: range, seed: int) -> list[str]:
    """Return the names of the mutants at these places in the list of all, in an order that the seed determines."""
    made = [mutmut, "run", "none of them"]  # This makes all mutants, and runs none.
    subprocess.run(made, cwd=stage, check=False, capture_output=True)
    metas = sorted(stage.glob("mutants/**/*.meta"))
    names = sorted(
        name for meta in metas for name in json.loads(meta.read_text())["exit_code_by_key"]
    )
    Random(seed).shuffle(names)
    return names[places.start : places.stop]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants ARGS=...", description=__doc__)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument(
        "names", nargs="*", help="mutants, patterns among them; all if there are none"
    )
    parser.add_argument(
        "--drawn", default="", help="0-100: mutants at these places of a drawn order"
    )
    parser.add_argument("--seed", type=int, default=1, help="of that order")
    options = parser.parse_args(arguments)
    beside = str(Path(sys.executable).parent)
    mutmut = shutil.which("mutmut", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if mutmut is None:
        print(f"mutants: mutmut is not installed: {sys.executable} -m pip install mutmut==3.8.1", file=sys.stderr)  # noqa: T201 # fmt: skip
        return 2
    first, _, last = options.drawn.partition("-")
    goes_on = bool(first) and int(first) > 0
    stage = STAGES / options.group if goes_on else lay_out(options.group)
    names = options.names
    if options.drawn:
        names = drawn(stage, mutmut, range(int(first), int(last)), options.seed)
        print(f"mutants: seed {options.seed}, {options.drawn}:", *names, sep="\n    ")  # noqa: T201
    ran = subprocess.run([mutmut, "run", "--max-children=2", *names], cwd=stage, check=False)
    subprocess.run([mutmut, "results"], cwd=stage, check=False)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
