"""One event of ovni to one record.

| role (`table`) | kind       | columns                                       |
|----------------------|------------|-----------------------------------------------|
| of a pair            | begin, end | name, id, parent (of a begin), start or end   |
| at, state            | instant    | name, parent, start                           |
| set, deltas          | counter    | name, parent, start                           |
| create, type         | name       | name, parent, start; the key in the attributes |
| unknown              | instant    | name (the MCV), parent, start                 |

`category` is the model's name; `start` and `end` are the clock, bit-cast. Attributes begin with the
MCV (`mcv`, of an end `end_mcv`, because a span shows both) and the payload's fields, which an end
that matches its begin does not repeat. `payload` is the rest of the payload in hexadecimal: what no
field is made of. `flags` is there if they have bits that say nothing.

What creates a task or names a type is a name, because other threads' events ask for it.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quote
from struct import Struct
from typing import NamedTuple

from tailrace.decoding.formats.ovni.frame import HEAD, JUMBO, JUMBO_HEAD, NUMBERS
from tailrace.decoding.formats.ovni.names import Named, Names, gives, naming
from tailrace.decoding.formats.ovni.stack import Stack
from tailrace.decoding.formats.ovni.table import EVENTS, OWN, Event
from tailrace.model.record import Kind, Record

KINDS = {
    "at": Kind.INSTANT, "state": Kind.INSTANT, "set": Kind.COUNTER, "deltas": Kind.COUNTER,
    "create": Kind.NAME, "type": Kind.NAME,
}  # fmt: skip
"""What an event of no pair becomes, by its role."""

STATES = {
    "x": "running",
    "p": "paused",
    "r": "running",
    "c": "cooling",
    "w": "warming",
    "e": "dead",
}
"""What the thread is after an event of the role `state`, by its value."""

USUAL_JUMBO = JUMBO | 3
"""The flags of every jumbo that libovni writes."""


class _Payload(NamedTuple):
    """The values of the fields, these as members of the attributes and in a pair's key, and the bytes
    after them."""

    values: tuple[int, ...]
    members: str
    key: str
    rest: bytes


class _Reading(NamedTuple):
    """What is made of an event, but for what all have."""

    kind: Kind
    name: str | None
    members: str
    rest: bytes
    id: int | None = None
    parent: int | None = None
    flaw: str | None = None


class EventReader:
    """Reads the events of one thread, whose numbers are in the byte order `order`."""

    def __init__(self, stream: str, order: str, stack: Stack, names: Names) -> None:
        self._stream = stream
        self._order = order
        self._head = NUMBERS[order].head.unpack_from
        self._stack = stack
        self._names = names

    def read(self, offset: int, event: bytes, flaw: str | None) -> Record:
        """A whole event; `flaw` is that of its place."""
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

    def _payload(self, event: Event, data: bytes) -> _Payload | None:
        """None if it is shorter than the table says."""
        for layout in event.layouts[self._order]:
            if len(data) >= layout.size:
                values = layout.struct.unpack_from(data)
                members, key = layout.members % values, layout.key % values
                return _Payload(values, members, key, data[layout.size :])
        return None

    def _unread(self, name: str, data: bytes, flaw: str) -> _Reading:
        return _Reading(Kind.INSTANT, name, "", data, None, self._stack.innermost, flaw)

    def _copy(self, event: Event, payload: _Payload) -> _Reading:
        """What a fork has copied opens and closes nothing, and tells nothing new."""
        kind = Kind.END if event.opens is False else Kind.INSTANT
        return _Reading(kind, event.name, payload.members, payload.rest)

    def _pair(self, event: Event, payload: _Payload) -> _Reading:
        """A begin or an end; values tell one task, or value of a mark, from another."""
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

    def _single(self, event: Event, payload: _Payload, *, stale: bool) -> _Reading:
        values, members, _, rest = payload
        kind, parent = KINDS[event.role], self._stack.innermost
        name: str | None = event.name
        if stale and kind == Kind.NAME:  # of another run's task or type
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

    def _type(self, event: Event, type_: int, data: bytes) -> tuple[str, str, bytes]:
        """The label, which is text up to a zero, what it names, and the bytes if they are more."""
        model = event.mcv[0]
        text, _, beyond = data.partition(b"\0")
        label = text.decode(errors="replace")
        rest = b"" if not beyond and label.encode() == text else data
        label = label or f"type {type_}"
        self._names.learn_type(model, type_, label)
        return label, gives(self._names.type_key(model, type_)), rest

    def _named(self, event: Event, values: tuple[int, ...]) -> Named:
        how = naming(event)
        return how(self._names, event, values) if how else (event.name, "")
