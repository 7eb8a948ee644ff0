"""Determine from the rank logs of a job's nodes how each rank ended."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, structs

from tailrace.run.ranks import NodeBegan, NodeEnded, RankCame, RankLeft, RankLine

NAMED_MAX = 100_000
"""Maximum number of ranks of one job that are checked for entries in the rank logs. Those without an entry are
listed one by one as missing."""

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


class NodePresence(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node of a job, as the job certificate describes it. `collectors` were started on the node; `collectors_ended`
    of them ended by themselves, the others were killed."""

    job: str | None
    node: str
    host: str
    ranks: int
    collectors: int
    collectors_ended: int
    no_room: int = 0
    """Number of connections and datagrams that were refused because a configured limit was reached."""
    empty: int | None = 0
    """Number of trace files that programs of the node left without content; None if they could not be searched for."""

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
                    node = NodePresence(
                        job=line.job, node=line.node, host=line.host, ranks=0, collectors=0, collectors_ended=0
                    )  # fmt: skip
                    nodes.setdefault((line.job, line.node), node).collectors += 1
                case NodeEnded() if began:
                    node = nodes[began.job, began.node]
                    node.collectors_ended += 1
                    node.no_room += sum(line.no_room.values())
                    found = (node.empty, line.empty)
                    node.empty = None if None in found else sum(filter(None, found))
                case RankCame() if began:
                    key = (line.job, line.rank)
                    if line.size is not None:
                        sizes[line.job] = max(line.size, sizes.get(line.job, 0))
                    if key not in ranks or (ranks[key].came or 0) <= line.time:
                        at = began.node
                        ranks[key] = RankPresence(*key, at, RankState.UNKNOWN, came=line.time)
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
    counts = Counter((rank.job, rank.node) for rank in ranks.values())
    return Presence(
        [structs.replace(nodes[key], ranks=counts[key]) for key in sorted(nodes, key=_order)],
        sorted([*ranks.values(), *missing], key=_order),
        sizes,
    )


def _gone(came: RankPresence, line: RankLeft) -> RankPresence:
    status = line.exit_status
    if status is None:
        return came._replace(state=RankState.KILLED, left=line.time)
    by = status - 128
    name = _SIGNAL_NAMES.get(by, f"signal {by}") if 0 < by <= 64 else None
    state = RankState.KILLED if name else RankState.ENDED
    return came._replace(state=state, exit_status=status, signal=name, left=line.time)


def _order(key: tuple[object, ...]) -> tuple[str, object]:
    return (str(key[0] or ""), key[1])
