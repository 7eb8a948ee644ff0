"""Heat in a rod that the ranks of a job divide among themselves: `docs/tutorials/ranks.md` runs eight of them.

The launcher sets the rank (PMI_RANK) and the number of ranks (PMI_SIZE). The ranks exchange their borders through files
in the current directory, in place of MPI. Rank 5 has five times as many cells as the others. The rank in
TAILRACE_EXAMPLE_KILL kills itself half-way; its neighbours give up when no border arrives.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import tailrace_client as trace

RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
KILLED = os.environ.get("TAILRACE_EXAMPLE_KILL") == str(RANK)
STEPS = 20
CELLS = 20_000
LARGE = 5
PATIENCE_SECONDS = 60.0
BORDERS = Path("borders")


@trace.traced("compute")
def computed(cells: list[float], left: float, right: float) -> list[float]:
    """Return the cells after one step: each is the mean of its neighbours."""
    padded = [left, *cells, right]
    return [(padded[at] + padded[at + 2]) / 2 for at in range(len(cells))]


def send(step: int, to: str, border: float) -> None:
    """Leave a border for a neighbour. The file gets its name when it is complete."""
    path = BORDERS / f"{step}-{RANK}-{to}"
    path.with_suffix(".part").write_text(repr(border))
    path.with_suffix(".part").rename(path)


def received(step: int, rank: int, to: str) -> float:
    """Wait for the border of a neighbour, and return it. The ends of the rod are cold."""
    if rank not in range(SIZE):
        return 0.0
    path = BORDERS / f"{step}-{rank}-{to}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        # Ask first, because a rank sends its border before it goes.
        gone = (BORDERS / f"gone-{rank}").exists()
        if path.exists():
            return float(path.read_text())
        if gone or time.monotonic() > deadline:
            (BORDERS / f"gone-{RANK}").touch()
            sys.exit(f"rank {RANK}: no border of rank {rank} in step {step}")
        time.sleep(0.001)


def main() -> None:
    BORDERS.mkdir(exist_ok=True)
    cells = [1.0] * (5 * CELLS if RANK == LARGE else CELLS)
    for step in range(STEPS):
        if KILLED and step == STEPS // 2:
            trace.flush()
            (BORDERS / f"gone-{RANK}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with trace.span("step", number=step):
            send(step, "left", cells[0])
            send(step, "right", cells[-1])
            with trace.span("wait"):
                left = received(step, RANK - 1, "right")
                right = received(step, RANK + 1, "left")
            cells = computed(cells, left, right)


if __name__ == "__main__":
    main()
