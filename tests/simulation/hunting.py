"""Plays seeds until one fails, and says which: `python -m tests.simulation.hunting 3 7 8`.

Runs in a process of its own, which imports the code with a defect (see `defects`). Prints nothing
where no seed fails. A seed that does not end fails, too.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import msgspec

from tests.simulation.defects import Found
from tests.simulation.generate import generate
from tests.simulation.verdict import judge

SECONDS = 20.0
"""CPU seconds for a seed; a seed takes half a second."""


def main(*seeds: int) -> None:
    def say(seed: int, kind: str) -> None:
        found = Found(seed, kind, round(time.process_time(), 1))
        os.write(sys.stdout.fileno(), msgspec.json.encode(found))

    def give_up(*_: object) -> None:
        say(seed, "never ends")
        os._exit(0)  # threads of the world may be in an endless loop

    signal.signal(signal.SIGPROF, give_up)
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        kind = judge(generate(seed)).kind
        signal.setitimer(signal.ITIMER_PROF, 0)
        if kind:
            say(seed, kind)
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
