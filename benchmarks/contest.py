"""Run contests: several sides take turns on the same input, so that noise of the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.peers.peer import Peer
from benchmarks.results import Case, Role, Run, Side


class Contender(NamedTuple):
    """A side of a contest before its runs. `run` measures it once."""

    side: Side
    run: Callable[[], Run]


def ours(does: str, run: Callable[[], Run], name: str = "Tailrace") -> Contender:
    """Return a contender for our own collector."""
    return Contender(Side(name=name, role=Role.OURS, does=does), run)


def beside(peer: Peer, run: Callable[[], Run]) -> Contender:
    """Return a contender for a peer, another program that users choose instead."""
    side = Side(
        name=peer.name, role=Role.PEER, does=peer.does, version=peer.version,
        configuration=peer.configuration, absent=peer.absent,
    )  # fmt: skip
    return Contender(side, run)


def reference(name: str, does: str, run: Callable[[], Run]) -> Contender:
    """Return a contender for a reference, the least work that any collector must do."""
    return Contender(Side(name=name, role=Role.REFERENCE, does=does), run)


def contest(
    label: str, contenders: Sequence[Contender], runs: int, at: float | None = None
) -> Case:
    """Run all contenders that are installed, in turns."""
    case = Case(label=label, sides=[contender.side for contender in contenders], at=at)
    for side in case.sides:
        side.runs = []
    for number in range(runs):
        for side, run in contenders:
            if not side.absent:
                print(f"  {label}: {side.name}, {number + 1} of {runs}", flush=True)
                side.runs.append(run())
    return case


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a directory that exists for the time of a contest."""
    with TemporaryDirectory(prefix="tailrace-bench-") as directory:
        yield Path(directory)
