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

from json.encoder import encode_basestring as quote
from struct import Struct
from typing import NamedTuple

from tailrace.decoding.formats.ovni.event_type import OWN, EventType
from tailrace.decoding.formats.ovni.frame import HEAD, JUMBO, JUMBO_HEAD, NUMBERS
from tailrace.decoding.formats.ovni.names import Named, Names, gives, naming
from tailrace.decoding.formats.ovni.stack import Stack
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind, Record

KINDS = {
    "at": Kind.INSTANT, "state": Kind.INSTANT, "set": Kind.COUNTER, "deltas": Kind.COUNTER,
    "create": Kind.NAME, "type": Kind.NAME,
}  # fmt: skip
"""Record kinds of the events that neither begin nor end a span, by `EventType.role`."""

STATES = {
    "x": "running",
    "p": "paused",
    "r": "running",
    "c": "cooling",
    "w": "warming",
    "e": "dead",
}
"""Thread state after an event of the role `state`, by the third character of its MCV (model, category and value)."""

USUAL_JUMBO = JUMBO | 3
"""The flags that libovni writes for a jumbo, an event with a size field."""


class _Payload(NamedTuple):
    """The payload of an ovni event, and the values of its fields."""

    values: tuple[int, ...]  # Values of the payload's fields.
    members: str  # The field values as JSON members.
    key: str  # The field values as text; an end and its begin must have equal ones.
    rest: bytes  # The bytes of the payload after the fields.


class _Reading(NamedTuple):
    """The columns of an event's record that depend on the role of the event."""

    kind: Kind
    name: str | None
    members: str
    rest: bytes
    id: int | None = None
    parent: int | None = None
    flaw: str | None = None


class EventReader:
    """Reads the events of one thread into records. `order` is the byte order of the numbers."""

    def __init__(self, stream: str, order: str, stack: Stack, names: Names) -> None:
        self._stream = stream
        self._order = order
        self._head = NUMBERS[order].head.unpack_from
        self._stack = stack
        self._names = names

    def read(self, offset: int, event: bytes, flaw: str | None) -> Record:
        """Return the record of a whole event. `flaw` is the rule that the event's position in the stream breaks."""
        head, clock = self._head(event)
        flags, mcv = head[0], head[1:].decode()
        known = EVENTS.get(head[1:])
        jumbo = bool(flags & JUMBO)
        data = event[JUMBO_HEAD if jumbo else HEAD :]
        if known is None:
            reading = self._unread(mcv, data, "unknown_event")
        elif jumbo != known.jumbo or (payload := self._payload(known, data)) is None:
            reading = self._unread(known.name, data, "bad_payload")
        elif flaw == "duplicate":
            reading = self._copy(known, payload)
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
                return _Payload(values, members, key, data[layout.size :])
        return None

    def _unread(self, name: str, data: bytes, flaw: str) -> _Reading:
        return _Reading(Kind.INSTANT, name, "", data, None, self._stack.innermost, flaw)

    def _copy(self, event: EventType, payload: _Payload) -> _Reading:
        """Read an event that a fork wrote again. It opens and closes no span, and defines no name."""
        kind = Kind.END if event.opens is False else Kind.INSTANT
        return _Reading(kind, event.name, payload.members, payload.rest)

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
            name, about, rest = self._type(event, values[0], rest)
            members += about
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

    def _type(self, event: EventType, type_: int, data: bytes) -> tuple[str, str, bytes]:
        """Store the label of a task type. Return the label, its JSON members, and the bytes of the attribute `payload`.

        The attribute has all of `data` if the label is not UTF-8 or bytes follow its zero byte; otherwise no bytes."""
        model = event.mcv[0]
        text, _, beyond = data.partition(b"\0")
        label = text.decode(errors="replace")
        rest = b"" if not beyond and label.encode() == text else data
        label = label or f"type {type_}"
        self._names.learn_type(model, type_, label)
        return label, gives(self._names.type_key(model, type_)), rest

    def _named(self, event: EventType, values: tuple[int, ...]) -> Named:
        how = naming(event)
        return how(self._names, event, values) if how else (event.name, "")
