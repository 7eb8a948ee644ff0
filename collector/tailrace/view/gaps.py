"""What is missing, and between which times."""

from __future__ import annotations

from tailrace.export.lost import Placed, placed
from tailrace.export.progress import Progress
from tailrace.export.selected import Selected
from tailrace.export.timeline import Timeline
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters
from tailrace.view import wire
from tailrace.view.answering import cut, shown
from tailrace.view.converting import decimal, whole
from tailrace.view.desk import Snapshot, Turn
from tailrace.view.questions import OfGaps, OfNextGap, Selected as Asked


def gaps(turn: Turn, asked: OfGaps) -> wire.Gaps:
    """Return the gaps that may lie within the times; one whose place nobody knows lies within any."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = [each for each in _all(snapshot, asked) if _overlaps(each, asked.from_, asked.to)]
    within.sort(key=lambda each: (each.begin is not None, each.begin or 0))
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(within),
        gaps=[_gap(each) for each in within[: asked.limit]],
    )


def next_gap(turn: Turn, asked: OfNextGap) -> wire.Gaps:
    """Return the gap that begins next after a time, or before it; none if there is none."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    placed_gaps = [
        each
        for each in _all(snapshot, asked)
        if _overlaps(each, asked.from_, asked.to) and each.begin is not None
    ]
    if asked.backwards:
        candidates = [each for each in placed_gaps if (each.begin or 0) < asked.after]
        chosen = max(candidates, key=lambda each: each.begin or 0, default=None)
    else:
        candidates = [each for each in placed_gaps if (each.begin or 0) > asked.after]
        chosen = min(candidates, key=lambda each: each.begin or 0, default=None)
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(candidates),
        gaps=[] if chosen is None else [_gap(chosen)],
    )


def _all(snapshot: Snapshot, asked: Asked) -> list[Placed]:
    filters = Filters(*asked.filters[:3])
    selected = Selected(
        snapshot.engine, filters, Patience(snapshot.engine, None), snapshot.live, demand=False
    )
    return list(placed(Timeline(selected, Progress(None))))


def _overlaps(each: Placed, since: int | None, until: int | None) -> bool:
    if each.begin is None or each.end is None:
        return True
    return (since is None or each.end >= since) and (until is None or each.begin < until)


def _gap(each: Placed) -> wire.Gap:
    gap = each.gap
    return wire.Gap(
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
        placed=each.how,
    )
