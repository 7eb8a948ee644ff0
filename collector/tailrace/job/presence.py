"""Say of each rank of a job how it ended, from the logs of its nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.run.ranks import NodeBegan, NodeEnded, RankCame, RankLeft, RankLine

NAMED_MAX = 100_000
"""Ranks that never came and are named."""

_SIGNALS = 128
_SIGNAL_MAX = 64
_SIGNAL_NAMES = {number.value: number.name for number in signal.Signals}


class RankState(StrEnum):
    ENDED = "ended"
    """Its program ended by itself, with this exit status."""
    KILLED = "killed"
    """A signal ended its program, or it vanished without a word."""
    UNKNOWN = "unknown"
    """Its node's collector was killed while it was there."""
    MISSING = "never came"
    """It was never started, or was not traced."""


class RankPresence(NamedTuple):
    """One rank. Times are Unix nanoseconds."""

    job: str | None
    rank: int
    node: str | None
    state: RankState
    exit_status: int | None = None
    signal: str | None = None
    """The signal that ended its program, if that is known."""
    came: int | None = None
    left: int | None = None


class NodePresence(NamedTuple):
    """A node of a job, whose collector began `began` times and ended in order `ended` times. It had no room for `no_room`
    connections and datagrams."""

    job: str | None
    node: str
    host: str
    ranks: int
    began: int
    ended: int
    no_room: int = 0


class Presence(NamedTuple):
    """All that logs say. `sizes` has the number of ranks of each job whose launcher says it."""

    nodes: list[NodePresence]
    ranks: list[RankPresence]
    sizes: dict[str | None, int]


def presence(logs: Iterable[Sequence[RankLine]], *, whole: bool = True) -> Presence:
    """Return who was there. A rank that came twice counts as it came last.

    The logs are those of the `whole` job, or else a rank that is in none of them may have been elsewhere."""
    nodes: dict[tuple[str | None, str], NodePresence] = {}
    ranks: dict[tuple[str | None, int], RankPresence] = {}
    sizes: dict[str | None, int] = {}
    for log in logs:
        began: NodeBegan | None = None
        for line in log:
            match line:
                case NodeBegan():
                    began = line
                    nodes[line.job, line.node] = _begun(nodes.get((line.job, line.node)), line)
                case NodeEnded() if began:
                    key = (began.job, began.node)
                    no_room = nodes[key].no_room + sum(line.no_room.values())
                    nodes[key] = nodes[key]._replace(ended=nodes[key].ended + 1, no_room=no_room)
                case RankCame() if began:
                    if line.size is not None:
                        sizes[line.job] = max(line.size, sizes.get(line.job, 0))
                    came = RankPresence(
                        line.job, line.rank, began.node, RankState.UNKNOWN, came=line.time
                    )
                    before = ranks.get((line.job, line.rank))
                    if before is None or (before.came or 0) <= line.time:
                        ranks[line.job, line.rank] = came
                case RankLeft():
                    # Without its beginning, nobody knows of which life of the rank this is the end.
                    known = ranks.get((line.job, line.rank))
                    if known is not None and (known.came or 0) <= line.time:
                        ranks[line.job, line.rank] = _gone(known, line)
                case _:  # before the log says its node
                    pass
    missing = [
        RankPresence(job, rank, None, RankState.MISSING)
        for job, size in sizes.items()
        for rank in range(min(size, NAMED_MAX))
        if whole and (job, rank) not in ranks
    ]
    counts = {key: sum((r.job, r.node) == key for r in ranks.values()) for key in nodes}
    return Presence(
        [nodes[key]._replace(ranks=counts[key]) for key in sorted(nodes, key=_order)],
        sorted([*ranks.values(), *missing], key=_order),
        sizes,
    )


def _begun(before: NodePresence | None, line: NodeBegan) -> NodePresence:
    if before is None:
        return NodePresence(line.job, line.node, line.host, 0, 1, 0)
    return before._replace(began=before.began + 1)


def _gone(came: RankPresence, line: RankLeft) -> RankPresence:
    status = line.exit_status
    if status is None:
        return came._replace(state=RankState.KILLED, left=line.time)
    by = status - _SIGNALS
    name = None
    if 0 < by <= _SIGNAL_MAX:
        name = _SIGNAL_NAMES.get(by, f"signal {by}")
    state = RankState.KILLED if name else RankState.ENDED
    return came._replace(state=state, exit_status=status, signal=name, left=line.time)


def _order(key: tuple[object, ...]) -> tuple[str, object]:
    return (str(key[0] or ""), key[1])
