"""Play many seeds, or one scenario: `make simulate SEEDS=0-2000`, `make simulate SCENARIO=file.json`.

`SEEDS=today` are the 200 seeds of the date. With `--twice`, each seed is played under two hash seeds of
Python and has to take the same steps. A seed that fails is shrunk, and its scenario is written to the
directory `simulation-failures`. Exit with 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulation.facts import Scenario, decode, encode
from tests.simulation.generate import generate, generate_of_files
from tests.simulation.generate_losses import generate_of_losses
from tests.simulation.generate_moves import generate_of_moves
from tests.simulation.seeds import Generate, seeds_of, verdicts
from tests.simulation.shrink import shrink
from tests.simulation.verdict import judge
from tests.simulation.world import SECOND

FAILURES = Path("simulation-failures")
SHRINK_SECONDS = 120.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", default="0-200", help="first-last, last excluded; or today")
    parser.add_argument("--scenario", type=Path, help="play this file instead")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--twice", action="store_true", help="under two hash seeds")
    parser.add_argument("--files", action="store_true", help="programs that write files only")
    parser.add_argument("--names", action="store_true", help="names of the collector's are lost")
    parser.add_argument("--moves", action="store_true", help="clients move between collectors")
    options = parser.parse_args(arguments)
    if options.scenario:
        verdict = judge(decode(options.scenario.read_bytes()))
        _say(f"{verdict.about or 'nothing went wrong'} (trace {verdict.trace})")
        return int(verdict.kind is not None)
    made = generate_of_files if options.files else generate
    made = generate_of_losses if options.names else made
    made = generate_of_moves if options.moves else made
    hash_seeds = ["1", "2"] if options.twice else ["1"]
    return _play(made, seeds_of(options.seeds), options.jobs, hash_seeds)


def _play(made: Generate, seeds: range, jobs: int, hash_seeds: list[str]) -> int:
    _say(f"seeds {seeds.start}-{seeds.stop}, hash seeds {', '.join(hash_seeds)}")
    begun, age, done = time.monotonic(), 0, 0
    failed = set[int]()
    traces: dict[int, str] = {}
    for seed, verdict in verdicts(made, seeds, jobs, hash_seeds):
        done, age = done + 1, age + verdict.age
        about = verdict.about
        if traces.setdefault(seed, verdict.trace) != verdict.trace:
            about = f"another trace under another hash seed; {about}"
        if about:
            failed.add(seed)
            _say(f"seed {seed}: {about[:300]}")
        if sys.stderr.isatty() or not done % 1000:
            rate = age / SECOND / (time.monotonic() - begun)
            start, end = ("\r", " ") if sys.stderr.isatty() else ("", "\n")
            progress = f"{done} plays, {len(failed)} failed, {rate:.0f} times real time"
            sys.stderr.write(f"{start}{progress}{end}")
    seconds = time.monotonic() - begun
    for seed in sorted(failed):
        _say(f"seed {seed}: make simulate SCENARIO={_shrink(seed, made(seed))}")
    _say(
        f"{len(seeds)} seeds, {len(failed)} failed;"
        f" {age // SECOND} simulated seconds in {seconds:.0f} seconds of {jobs} processes"
    )
    return int(bool(failed))


def _shrink(seed: int, scenario: Scenario) -> Path:
    kind, deadline = judge(scenario).kind, time.monotonic() + SHRINK_SECONDS

    def fails(smaller: Scenario) -> bool:
        return time.monotonic() < deadline and judge(smaller).kind == kind

    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{seed}.json"
    path.write_bytes(encode(shrink(scenario, fails)))
    return path


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
