"""The timeline over HTTP: lanes, and what a window of time has of them (`rollups`)."""

from __future__ import annotations

import msgspec

from tailrace.errors import QueryError
from tailrace.rollups.frame import Frame, frame as of_window
from tailrace.rollups.gaps import SeenGap
from tailrace.rollups.scale import Range
from tailrace.rollups.snapshot import LaneKey
from tailrace.view import wire
from tailrace.view.answers import cut, from_attributes, from_row, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfFrame, OfLanes

NAME_MAX = 300
"""Characters of a name in a frame. The row itself has more of it."""

LANES_MAX = 1000
"""Lanes of one frame."""


def lanes(turn: DeskTurn, asked: OfLanes) -> wire.Lanes:
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.scope)
    placed = asked.placed(snapshot.engine)
    timeline = turn.timeline()
    chosen = [each for each in timeline.lanes if asked.has(*each.key[:3], placed)]
    return wire.Lanes(
        version=snapshot.version,
        whole=whole(found),
        lanes=[from_row(wire.ShownLane, (*each.key, *each[1:])) for each in chosen],
    )


def frame(turn: DeskTurn, asked: OfFrame) -> wire.FrameAnswer:
    if asked.to <= asked.from_:
        raise QueryError("an empty window: to must be greater than from")
    keys = [_key(text) for text in asked.lanes]
    if len(keys) > LANES_MAX:
        raise QueryError(f"{len(keys)} lanes are too many for a frame: ask for {LANES_MAX} at most")
    timeline = turn.timeline()
    if not keys:
        keys = [each.key for each in timeline.lanes[:LANES_MAX]]
    return _frame(of_window(timeline, Range(asked.from_, asked.to), asked.pixels, keys))


def _key(text: str) -> LaneKey:
    """Return the lane that a text names: a list of JSON. Raise QueryError."""
    try:
        return LaneKey(
            *msgspec.json.decode(text, type=tuple[str, str, str, int | None], strict=False)
        )
    except msgspec.DecodeError as error:
        raise QueryError(
            f'{cut(text, 100)!r} is no lane: write ["source", "session", "stream", substream or null]'
        ) from error


def _frame(found: Frame) -> wire.FrameAnswer:
    zero = found.window.begin
    return wire.FrameAnswer(
        version=found.version,
        from_=str(zero),
        to=str(found.window.end),
        bucket=found.bucket,
        coarse=found.coarse,
        lanes=[from_row(wire.LaneName, key) for key in found.lanes],
        names=[cut(name, NAME_MAX) for name in found.names],
        spans=found.spans,
        instants=found.instants,
        counters=found.counters,
        gaps=[_gap(each, zero) for each in found.gaps],
    )


def _gap(each: SeenGap, zero: int) -> wire.FrameGap:
    gap, single = each.first.gap, each.gaps == 1
    return from_attributes(
        wire.FrameGap,
        gap if single else gap._replace(detail=None, first=None, last=None, of=None),
        count=each.gaps,
        reason=each.reason,
        remaining=each.remaining,
        unknown=each.unknown,
        begin=None if each.begin is None else each.begin - zero,
        end=None if each.end is None else each.end - zero,
        placed=each.first.placed if single else None,
    )
