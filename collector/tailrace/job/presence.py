"""Determine from the rank logs of a job's nodes how each rank ended."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.run.ranks import NodeBegan, NodeEnded, RankCame, RankLeft, RankLine

NAMED_MAX = 100_000
"""Maximum number of ranks of one job that are checked for entries in the rank logs. Those without an entry are
listed one by one as missing."""

_SIGNALS = 128
_SIGNAL_MAX = 64
_SIGNAL_NAMES = {number.value: number.name for number in signal.Signals}


class RankState(StrEnum):
    ENDED = "ended"
    """The rank's program ended by itself, with an exit status."""
    KILLED = "killed"
    """A signal ended the rank's program, or its connection ended without a message about the exit status."""
    UNKNOWN = "unknown"
    """No rank log contains the rank's end: its node's collector was killed first, or only the table has the rank."""
    MISSING = "never came"
    """No rank log contains the rank's start. Its program was never started, or not traced."""


class RankPresence(NamedTuple):
    """When and where one rank of a job ran, and how it ended. Times are Unix nanoseconds."""

    job: str | None
    rank: int
    node: str | None
    state: RankState
    exit_status: int | None = None
    signal: str | None = None
    """Name of the signal that ended the rank's program; None if no signal ended it, or the signal is unknown."""
    came: int | None = None
    left: int | None = None


class NodePresence(NamedTuple):
    """One node of a job. `began` collectors were started on it, and `ended` of them ended by themselves. `no_room`
    is the number of connections and datagrams that they refused because a limit was reached. `empty` is the number
    of trace files that programs left without content, or None if unknown."""

    job: str | None
    node: str
    host: str
    ranks: int
    began: int
    ended: int
    no_room: int = 0
    empty: int | None = 0

    @property
    def unknown(self) -> bool:
        """Whether the node may have had events that no stream shows."""
        return self.no_room > 0 or self.empty != 0


class Presence(NamedTuple):
    """The nodes and ranks in the rank logs of one or more jobs. `sizes` has the number of ranks of each job whose
    launcher states it."""

    nodes: list[NodePresence]
    ranks: list[RankPresence]
    sizes: dict[str | None, int]


def presence(logs: Iterable[Sequence[RankLine]], *, whole: bool = True) -> Presence:
    """Return the nodes and ranks in the given rank logs. If a rank started twice, only its later start counts. If
    `whole`, `logs` are those of all nodes of the job, and ranks without an entry are listed as missing."""
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
                    node = nodes[began.job, began.node]
                    nodes[began.job, began.node] = node._replace(
                        ended=node.ended + 1,
                        no_room=node.no_room + sum(line.no_room.values()),
                        empty=_sum(node.empty, line.empty),
                    )
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
                    # Ignore an end that precedes the rank's latest known start: it belongs to an earlier start.
                    known = ranks.get((line.job, line.rank))
                    if known is not None and (known.came or 0) <= line.time:
                        ranks[line.job, line.rank] = _gone(known, line)
                case _:
                    # Ignore a line before the log's first `NodeBegan`, because it is unknown to which node the line
                    # belongs.
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


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


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
