"""Show the gaps: what is missing, and between which times."""

from __future__ import annotations

from tailrace.rollups.gaps import PlacedGap
from tailrace.view import wire
from tailrace.view.answering import cut, decimal, shown, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfGaps, OfNextGap, OfSelection


def gaps(turn: DeskTurn, asked: OfGaps) -> wire.Gaps:
    """Return the gaps that may lie within the times; one whose place nobody knows lies within any."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = _within(turn, asked)
    within.sort(key=lambda each: (each.begin is not None, each.begin or 0))
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(within),
        gaps=[_gap(each) for each in within[: asked.limit]],
    )


def next_gap(turn: DeskTurn, asked: OfNextGap) -> wire.Gaps:
    """Return the gap that begins next after a time, or before it; none if there is none."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = _within(turn, asked)
    if asked.axis:
        sessions = turn.timeline().on(asked.axis)
        within = [each for each in within if each.gap.place[:2] in sessions]
    begins = [(each.begin, each) for each in within if each.begin is not None]
    if asked.backwards:
        there = [(begin, each) for begin, each in begins if begin < asked.after]
        chosen = max(there, key=lambda pair: pair[0], default=None)
    else:
        there = [(begin, each) for begin, each in begins if begin > asked.after]
        chosen = min(there, key=lambda pair: pair[0], default=None)
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(there),
        gaps=[] if chosen is None else [_gap(chosen[1])],
    )


def _within(turn: DeskTurn, asked: OfSelection) -> list[PlacedGap]:
    """Return the gaps that may concern what is selected."""
    placed = asked.placed(turn.snapshot().engine)
    return [
        each
        for each in turn.timeline().gaps
        if asked.concerns(*each.gap.place, placed) and _overlaps(each, asked.from_, asked.to)
    ]


def _overlaps(each: PlacedGap, since: int | None, until: int | None) -> bool:
    if each.begin is None or each.end is None:
        return True
    return (since is None or each.end >= since) and (until is None or each.begin < until)


def _gap(each: PlacedGap) -> wire.ShownGap:
    gap = each.gap
    return wire.ShownGap(
        source=cut(gap.source),
        format=cut(gap.format),
        session=cut(gap.session),
        stream=cut(gap.stream),
        reason=cut(gap.reason),
        detail=shown(gap.detail),
        first=decimal(gap.first),
        last=decimal(gap.last),
        remaining=gap.remaining,
        of=shown(gap.of),
        id=decimal(gap.id),
        begins=decimal(each.begin),
        ends=decimal(each.end),
        placed=each.placed,
    )
