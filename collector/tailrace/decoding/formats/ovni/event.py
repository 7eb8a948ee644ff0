"""Turn one event of ovni into one record.

| role (`table`) | kind       | columns                                       |
|----------------------|------------|-----------------------------------------------|
| of begin and end     | begin, end | name, id, parent (of a begin), start or end   |
| at, state            | instant    | name, parent, start                           |
| set, deltas          | counter    | name, parent, start                           |
| create, type         | name       | name, parent, start; the key in the attributes |
| unknown              | instant    | name (the MCV), parent, start                 |

`category` is the name of the model. Attributes are the MCV (model, category and value) under `mcv`, or `end_mcv` for an
end, then the fields of the payload. An end that matches its begin lacks these fields. `payload` is the part of the
payload after the fields, in hexadecimal. `flags` is present only if the flags are unusual. An event that creates a task
or names a type is a `name` row, because events of other threads refer to the name."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring as quote
from struct import Struct
from typing import Any, NamedTuple, cast

from tailrace.decoding.formats.ovni.frame import HEAD, JUMBO, JUMBO_HEAD, NUMBERS, USUAL_JUMBO
from tailrace.decoding.formats.ovni.names import Named, Names, Naming, gives, naming
from tailrace.decoding.formats.ovni.order import TURNS
from tailrace.decoding.formats.ovni.stack import OPEN_MAX, Stack
from tailrace.decoding.formats.ovni.table import EVENTS, OWN, EventType, PayloadLayout
from tailrace.model.record import Kind, Record

KINDS = {
    "at": Kind.INSTANT, "state": Kind.INSTANT, "set": Kind.COUNTER, "deltas": Kind.COUNTER,
    "create": Kind.NAME, "type": Kind.NAME,
}  # fmt: skip
"""Record kinds of the events that neither begin nor end a span, by `EventType.role` (kind of event in the module
`table`)."""

STATES = {
    "x": "running",
    "p": "paused",
    "r": "running",
    "c": "cooling",
    "w": "warming",
    "e": "dead",
}
"""Thread state after an event that changes the state (`role` is `state`), by the third character of the event's MCV
(model, category and value)."""


_Payload = tuple[tuple[int, ...], str, str, bytes]
"""The payload of an event: the values of its fields; the values as JSON members; the values as text, which is equal for
a begin and its end; and the bytes after the fields."""


class _Reading(NamedTuple):
    """The columns of an event's record that depend on `EventType.role` (kind of event in the module `table`)."""

    kind: Kind
    name: str | None
    members: str
    rest: bytes
    id: int | None = None
    parent: int | None = None
    flaw: str | None = None


BEGIN, END = Kind.BEGIN, Kind.END

ROLES = frozenset({"call", "thread", "task", "pause", "alone", "mark", "set", "create", "at"})

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)


class Fields(NamedTuple):
    """How to read an event that has a payload, or whose spans nest only in spans of the same channel (`own`)."""

    size: int
    unpack: Callable[..., tuple[Any, ...]]
    members: str
    key: str
    naming: Naming | None
    own: bool
    event: EventType


EventPlan = tuple[Kind, str, str, str, str, str, Fields | None]
"""How to read an event: kind, name, category and attributes of its record; its channel; for an end, the MCV (model,
category and value) of the matching begin; and its `Fields` or None."""


def plan_of(event: EventType, layout: PayloadLayout) -> EventPlan:
    ends = event.opens is False
    kind = KINDS[event.role] if event.opens is None else END if ends else BEGIN
    mcv = f'{{"{"end_mcv" if ends else "mcv"}":"{event.mcv}"'
    fields = None
    if layout.size or event.role in OWN:
        fields = Fields(
            HEAD + layout.size, layout.struct.unpack_from, layout.members, layout.key,
            naming(event), event.role in OWN, event,
        )  # fmt: skip
    whole = ends or not fields
    return (
        kind, event.name, event.model, mcv + "}" if whole else mcv, event.channel, event.begin, fields
    )  # fmt: skip


PLANS: dict[str, dict[bytes, EventPlan]] = {
    order: {
        bytes([max(layout.size - 1, 0)]) + mcv: plan_of(event, layout)
        for mcv, event in EVENTS.items()
        if event.role in ROLES and mcv not in TURNS
        for layout in event.layouts[order]
    }
    for order in NUMBERS
}
"""Instructions for reading each type of event (`EventPlan`), by byte order, then by flags and MCV (model, category and
value)."""


class EventReader:
    """Reads the events of one thread into records. `order` is the byte order of the numbers."""

    def __init__(self, stream: str, order: str, stack: Stack, names: Names) -> None:
        self._stream = stream
        self._order = order
        self._head = NUMBERS[order].head.unpack_from
        self._plans = PLANS[order]
        self._stack = stack
        self._names = names

    def read(self, offset: int, event: bytes, flaw: str | None) -> Record:
        """Return the record of a whole event. `flaw` is the rule that the event's position in the stream breaks."""
        head, clock = self._head(event)
        flags, mcv = head[0], head[1:].decode()
        known = EVENTS.get(head[1:])
        jumbo = bool(flags & JUMBO)
        data = event[JUMBO_HEAD if jumbo else HEAD :]
        if known is None or jumbo != known.jumbo or (payload := self._payload(known, data)) is None:
            name, bad = (known.name, "bad_payload") if known else (mcv, "unknown_event")
            innermost = self._stack.innermost
            reading = _Reading(Kind.INSTANT, name, "", data, None, innermost, bad)
        elif flaw == "duplicate":
            # A fork wrote the event again. The copy opens and closes no span, and defines no name.
            kind = Kind.END if known.opens is False else Kind.INSTANT
            reading = _Reading(kind, known.name, payload[1], payload[3])
        elif known.opens is not None:
            reading = self._pair(known, payload)
        else:
            reading = self._single(known, payload, stale=flaw == "stale_tail")
        ends = reading.kind == Kind.END
        members = reading.members
        if flags & 0xE0 or (jumbo and flags != USUAL_JUMBO):
            members += f',"flags":{flags}'
        if reading.rest:
            members += f',"payload":"{reading.rest.hex()}"'
        return Record(
            offset, len(event), reading.kind, self._stream, None, None, reading.name,
            known.model if known else None, reading.id, reading.parent, None if ends else clock,
            clock if ends else None, f'{{"{"end_mcv" if ends else "mcv"}":{quote(mcv)}{members}}}',
            flaw or reading.flaw, None,
        )  # fmt: skip

    def _payload(self, event: EventType, data: bytes) -> _Payload | None:
        for layout in event.layouts[self._order]:
            if len(data) >= layout.size:
                values = layout.struct.unpack_from(data)
                members, key = layout.members % values, layout.key % values
                return values, members, key, data[layout.size :]
        return None

    def _pair(self, event: EventType, payload: _Payload) -> _Reading:
        values, members, key, rest = payload
        channel, key = event.channel_of(values), event.begin + key
        own = event.role in OWN
        if event.opens:
            name, about = self._named(event, values)
            id_, parent = self._stack.begin(channel, key, own=own)
            return _Reading(Kind.BEGIN, name, members + about, rest, id_, parent)
        ended, flaw = self._stack.end(channel, key, own=own)
        members = members if ended is None else ""
        return _Reading(Kind.END, event.name, members, rest, ended, None, flaw)

    def _single(self, event: EventType, payload: _Payload, *, stale: bool) -> _Reading:
        values, members, _, rest = payload
        kind, parent = KINDS[event.role], self._stack.innermost
        name: str | None = event.name
        # a task or task type of an earlier run must not name events of this run
        if stale and kind == Kind.NAME:
            kind = Kind.INSTANT
        elif event.role == "type":
            model, data = event.mcv[0], rest
            text, _, beyond = data.partition(b"\0")
            label = text.decode(errors="replace")
            # The attribute `payload` has all bytes if the label is not UTF-8 or bytes follow its zero byte.
            rest = b"" if not beyond and label.encode() == text else data
            name = label or f"type {values[0]}"
            self._names.learn_type(model, values[0], name)
            members += gives(self._names.type_key(model, values[0]))
        elif event.role == "deltas":
            numbers = Struct(f"{self._order}{len(rest) // 8}q")
            members = f',"deltas":[{",".join(map(str, numbers.unpack_from(rest)))}]'
            rest = rest[numbers.size :]
        elif event.role == "state":
            members += f',"state":"{STATES[event.mcv[2]]}"'
        else:
            name, about = self._named(event, values)
            members += about
        return _Reading(kind, name, members, rest, None, parent)

    def _named(self, event: EventType, values: tuple[int, ...]) -> Named:
        how = naming(event)
        return how(self._names, event, values) if how else (event.name, "")

    def read_usual(  # noqa: PLR0912 - runs once an event: calls would cost more than their work
        self, buffer: bytearray, at: int, offset: int, last: int, records: list[Record]
    ) -> tuple[int, int]:
        """Read events from `at` on in bulk, as long as they have a plan (an entry in `PLANS`), and append the same
        records as `read`. Return the position of the first event that was not read, and the clock of the last event
        that was read.

        Stop before an event that is incomplete, has no plan, has a lower clock than the event before it (`last` for
        the first event), or is an end that does not match the last open span."""
        head, plans, append, stream = self._head, self._plans.get, records.append, self._stream
        state = self._stack.state
        nested = state.nested
        final = len(buffer) - HEAD
        name: str | None
        while at <= final:
            key, clock = head(buffer, at)
            plan = plans(key)
            if plan is None or clock < last:
                break
            kind, name, category, attributes, channel, begin, fields = plan
            ends = kind is END
            size, id_, parent = HEAD, None, None
            if fields:
                size = fields.size
                if at + size > len(buffer):
                    break
                read = self._read_fields(plan, fields, fields.unpack(buffer, at + HEAD))
                if read is None:
                    break
                name, attributes, id_, parent = read
            elif ends:
                if not nested or nested[-1][1] != begin:
                    break
                id_ = nested.pop()[2]
            else:
                if nested:
                    parent = nested[-1][2]
                if kind is BEGIN:
                    state.begun = id_ = state.begun + 1
                    nested.append((channel, begin, id_))
                    if len(nested) > OPEN_MAX:
                        del nested[0]
            append(
                _record(
                    Record,
                    (
                        offset + at, size, kind, stream, None, None, name, category, id_, parent,
                        None if ends else clock, clock if ends else None, attributes, None, None,
                    ),
                )
            )  # fmt: skip
            last = clock
            at += size
        return at, last

    def _read_fields(
        self, plan: EventPlan, fields: Fields, values: tuple[int, ...]
    ) -> tuple[str | None, str, int | None, int | None] | None:
        """Return an event's name, attributes, id and parent; None for an end without a matching last open span."""
        kind, attributes, channel, begin = plan[0], plan[3], plan[4], plan[5]
        stack = self._stack
        name: str | None = plan[1]
        if kind is END:
            spans = stack.state.alone if fields.own else stack.state.nested
            if not spans or spans[-1][1] != begin + fields.key % values:
                return None
            return name, attributes, spans.pop()[2], None
        about = ""
        if fields.naming:
            name, about = fields.naming(self._names, fields.event, values)
        attributes = f"{attributes}{fields.members % values}{about}}}"
        if kind is not BEGIN:
            return name, attributes, None, stack.innermost
        key = begin + fields.key % values
        channel = fields.event.channel_of(values)
        return name, attributes, *stack.begin(channel, key, own=fields.own)
