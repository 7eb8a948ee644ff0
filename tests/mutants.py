"""Run mutation tests of a group of modules: see tests/MUTANTS.md.

A copy of the sources and tests is laid out as mutmut wants it, below .venv/mutants. In this copy
property tests draw few examples and never shrink: a mutant is killed by the first that fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
                "answers", "datagram_records", "departures", "generations", "incarnation", "owning",
                "record_rows", "session", "succession", "unreadable",
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
    "client": (
        ["tailrace_client/_session.py", "tailrace_client/_queue.py"],
        [f"{_CLIENT}{n}.py" for n in ("session", "queue", "forgotten")],
    ),
    "link": (["tailrace_client/_link.py"], [f"{_CLIENT}{n}.py" for n in ("link", "sender")]),
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
    """Copy what a group needs, and return where it is."""
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


def main() -> int:
    group, *names = sys.argv[1:] or [""]
    if group not in GROUPS:
        print(f"mutants: give a group, one of {', '.join(GROUPS)}: make mutants ARGS=ledger", file=sys.stderr)  # noqa: T201 # fmt: skip
        return 2
    beside = str(Path(sys.executable).parent)
    mutmut = shutil.which("mutmut", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if mutmut is None:
        print(f"mutants: mutmut is not installed: {sys.executable} -m pip install mutmut==3.8.1", file=sys.stderr)  # noqa: T201 # fmt: skip
        return 2
    stage = lay_out(group)
    ran = subprocess.run([mutmut, "run", *names], cwd=stage, check=False)
    subprocess.run([mutmut, "results"], cwd=stage, check=False)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
