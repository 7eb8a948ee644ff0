"""Play many seeds, or one scenario: `make simulate SEEDS=0-2000`, `make simulate SCENARIO=file.json`.

A seed that fails is shrunk, and its scenario is written to the directory `simulation-failures`. Exit with 1
if a seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.facts import Scenario, decode, encode
from tests.simulation.generate import generate
from tests.simulation.shrink import shrink
from tests.simulation.verdict import Verdict, judge

FAILURES = Path("simulation-failures")
SHRINK_SECONDS = 120.0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", default="0-200", help="first-last, last excluded")
    parser.add_argument("--scenario", type=Path, help="play this file instead")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.scenario:
        verdict = judge(decode(options.scenario.read_bytes()))
        _say(f"{verdict.about or 'nothing went wrong'} (trace {verdict.trace})")
        return int(verdict.kind is not None)
    first, _, last = options.seeds.partition("-")
    return _play(range(int(first), int(last or int(first) + 1)), options.jobs)


def _play(seeds: range, jobs: int) -> int:
    begun, age, failed = time.monotonic(), 0, []
    with ProcessPoolExecutor(jobs) as pool:
        for done, (seed, verdict) in enumerate(pool.map(_judge, seeds, chunksize=4), 1):
            age += verdict.age
            if verdict.kind:
                failed.append(seed)
                _say(f"\nseed {seed}: {verdict.about[:300]}")
            seconds = time.monotonic() - begun
            rate = age / 1e9 / seconds
            sys.stderr.write(
                f"\r{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.0f} times real time"
            )
        sys.stderr.write("\n")
        for seed, path in zip(failed, pool.map(_shrink, failed), strict=True):
            _say(f"seed {seed}: make simulate SCENARIO={path}")
    _say(f"{len(seeds)} seeds, {len(failed)} failed")
    return int(bool(failed))


def _judge(seed: int) -> tuple[int, Verdict]:
    return seed, judge(generate(seed))


def _shrink(seed: int) -> Path:
    scenario = generate(seed)
    kind, deadline = judge(scenario).kind, time.monotonic() + SHRINK_SECONDS

    def fails(smaller: Scenario) -> bool:
        return time.monotonic() < deadline and judge(smaller).kind == kind

    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{seed}.json"
    path.write_bytes(encode(shrink(scenario, fails)))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
