"""Play seeds until one fails, and print its number: `python -m tests.simulation.hunting 3 7 8`.

This runs in a process of its own, which imports the code with a defect (see `defects`). It prints nothing if no seed
fails. A seed that does not end counts as failed.
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
"""Maximum CPU time (seconds) of a seed. A usual seed takes half a second."""


def main(*seeds: int) -> None:
    def say(seed: int, kind: str) -> None:
        found = Found(seed, kind, round(time.process_time(), 1))
        os.write(sys.stdout.fileno(), msgspec.json.encode(found))

    def give_up(*_: object) -> None:
        say(seed, "never ends")
        os._exit(0)  # Exit at once, because threads of the world may be in an endless loop.

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
