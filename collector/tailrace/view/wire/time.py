"""Answers of the timeline.

Columns are lists of one length. Their times are numbers of nanoseconds from the frame's `from`; a number beyond 2^53
is not exact in JavaScript, and so far out of sight that no pixel shows it.
"""

from __future__ import annotations

import msgspec

from tailrace.view.wire.parts import Ns, Ticks, Whole


class LaneName(msgspec.Struct, kw_only=True):
    """The name of a lane: a stream of a session, or one of its substreams. An empty stream is no known one."""

    source: str
    session: str
    stream: str
    substream: Ticks | None


class ShownLane(LaneName, kw_only=True):
    """A lane and what is in it.

    `first` and `last` are on the lane's `axis`: `wall`, or an axis of its own for a clock that is not tied to wall
    time; `clock` says so in words. `depths` is how many rows of spans have a recorded depth. `missing` and `unknown`
    are the stream's, and stand at its lane without a substream."""

    format: str
    depths: int
    events: int
    open: int
    first: Ns | None
    last: Ns | None
    missing: int
    unknown: bool
    axis: str
    clock: str


class Lanes(msgspec.Struct, kw_only=True):
    version: int
    whole: Whole
    lanes: list[ShownLane]


class SpanColumns(msgspec.Struct, kw_only=True):
    """Spans, and buckets of several spans that are shorter than a bucket is wide.

    `lane` is a place in the frame's lanes, `name` one in its names: of several spans, that of the longest. `busy` is
    the sum of their durations. `end` is null of an open span. `offset` is null of several spans; with the lane's
    source and session it is the place of the row."""

    lane: list[int]
    depth: list[int]
    begin: list[int]
    end: list[int | None]
    name: list[int]
    count: list[int]
    busy: list[int]
    offset: list[int | None]
    open: list[bool]


class InstantColumns(msgspec.Struct, kw_only=True):
    """Events without a duration; `kind`, `name` and `offset` are null of several in a bucket."""

    lane: list[int]
    time: list[int]
    count: list[int]
    kind: list[str | None]
    name: list[int | None]
    offset: list[int | None]


class CounterColumns(msgspec.Struct, kw_only=True):
    """The least, greatest and latest value of counters in each bucket."""

    lane: list[int]
    name: list[int]
    time: list[int]
    count: list[int]
    least: list[float]
    most: list[float]
    latest: list[float]


class FrameGap(msgspec.Struct, kw_only=True):
    """A gap in sight, or `count` gaps of one stream that begin in one bucket and end in one bucket.

    `begin` and `end` are numbers as in columns, or null where nothing tells. `remaining` is the sum of what is missing, as
    far as it is known; `unknown` gaps lack an unknown number of events. `reason` is null of several reasons; `placed` says
    how exact the place is. It, `detail`, `first`, `last` and `of` are null of several gaps."""

    source: str
    session: str
    stream: str
    count: int
    reason: str | None
    detail: str | None
    first: Ticks | None
    last: Ticks | None
    remaining: int | None
    unknown: int
    of: str | None
    begin: int | None
    end: int | None
    placed: str | None


class FrameAnswer(msgspec.Struct, kw_only=True):
    """The content of a window: every long span, buckets of short ones, and the gaps.

    `bucket` is the width of a bucket in ns; `coarse` says that it is wider than a pixel, for want of room."""

    version: int
    from_: Ns = msgspec.field(name="from")
    to: Ns
    bucket: int
    coarse: bool
    lanes: list[LaneName]
    names: list[str]
    spans: SpanColumns
    instants: InstantColumns
    counters: CounterColumns
    gaps: list[FrameGap]
