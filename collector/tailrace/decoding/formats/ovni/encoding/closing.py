"""Track the open spans of an ovni stream that is being encoded, and write the missing end events.

Added events have the stream's latest clock. They end the open spans, the last one first, resume a paused thread, and
end a thread that has begun."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tailrace.decoding.formats.ovni.encoding.event_bytes import (
    Half,
    Members,
    layout_of,
    plain_bytes,
    values_of,
)
from tailrace.decoding.formats.ovni.event_type import EventType
from tailrace.decoding.formats.ovni.order import LATE_BEGIN, LATE_END, STATES
from tailrace.decoding.formats.ovni.stack import OPEN_MAX
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind, Record

_ENDS = {event.begin: event.mcv for event in EVENTS.values() if event.opens is False}
_RESUME, _DIE = "OHr", "OHe"
_HALTED = frozenset({"OHp", "OHw"})


class OpenEvent(NamedTuple):
    """A begin event whose end has not been written. `channel` is the result of `EventType.channel_of`."""

    id: int | None
    event: EventType
    channel: str
    members: Members


class OpenStream:
    """The open spans and the state of one thread. `added` counts added ends by MCV (model, category and value)."""

    def __init__(self, added: Counter[str]) -> None:
        self.models: set[str] = set()
        self._added = added
        self._open: list[OpenEvent] = []
        self._clock = 0
        self._late = False
        self._state = ""

    def whole(self, half: Half, id_: int | None) -> Half:
        """Return an end event with all fields. If the end is stored in a row of its own, the row lacks the fields that
        the end shares with its begin."""
        event = EVENTS.get(half.mcv.encode())
        if half.ends and event and layout_of(event, half.members, "<") is None:
            begun = next((each for each in reversed(self._open) if each.id == id_), None)
            if begun is not None:
                return half._replace(members=begun.members | half.members)
        return half

    def take(self, record: Record, half: Half) -> None:
        """Update the open spans and the state of the thread with an event that is being written."""
        mcv = half.mcv.encode()
        event = EVENTS.get(mcv)
        clock = (record.end if half.ends else record.start) or 0
        self._late = self._late and mcv != LATE_END
        if not self._late:
            self._clock = max(self._clock, clock)
        self._late = self._late or mcv == LATE_BEGIN
        if mcv in STATES:
            self._state = half.mcv
        if event is None:
            return
        self.models.add(event.model)
        if record.kind == Kind.BEGIN:
            layout = layout_of(event, half.members, "<")
            names = layout.names if layout else ()
            members = {name: half.members[name] for name in names}
            channel = event.channel_of(tuple(members.values()))
            self._open.append(OpenEvent(record.id, event, channel, members))
            if len(self._open) > 2 * OPEN_MAX:
                del self._open[0]
        elif half.ends and (inside := self._inside(record.id)):
            ended, *crossed = inside
            self._open = [each for each in self._open if each is not ended and each not in crossed]

    def ends_before(self, record: Record, half: Half, order: str) -> bytes | None:
        """Return the ends that are missing before the end `half` of a span; None if the span has no begin."""
        if not half.ends:
            return b""
        inside = self._inside(record.id)
        if not inside:
            return None
        return b"".join(self._end(each, record.end or 0, order) for each in reversed(inside[1:]))

    def close(self, order: str) -> bytes:
        """Return the missing end events of the open spans, and the events that end the thread."""
        events = [self._end(each, self._clock, order) for each in reversed(self._open)]
        self._open.clear()
        if self._state and self._state != _DIE:
            states = [_RESUME, _DIE] if self._state in _HALTED else [_DIE]
            events += [self._made(mcv, self._clock, b"", order) for mcv in states]
        return b"".join(events)

    def _inside(self, id_: int | None) -> list[OpenEvent]:
        """Return the open span with this id, and the open spans of the same channel that began after it."""
        for i in range(len(self._open) - 1, -1, -1):
            ended = self._open[i]
            if id_ is not None and ended.id == id_:
                return [ended, *(e for e in self._open[i + 1 :] if e.channel == ended.channel)]
        return []

    def _end(self, begun: OpenEvent, clock: int, order: str) -> bytes:
        mcv = _ENDS[begun.event.begin]
        layout = layout_of(EVENTS[mcv.encode()], begun.members, order)
        payload = layout.struct.pack(*values_of(layout, begun.members)) if layout else b""
        return self._made(mcv, clock, payload, order)

    def _made(self, mcv: str, clock: int, payload: bytes, order: str) -> bytes:
        self._added[mcv] += 1
        return plain_bytes(mcv, clock, payload, order)
