"""One event of ovni to one record.

| role (`ovni_events`) | kind       | columns                                       |
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
from typing import Any, NamedTuple

from tailrace.decoding.ovni_events import EVENTS, OWN, Event
from tailrace.decoding.ovni_frame import HEAD, JUMBO, JUMBO_HEAD, NUMBERS
from tailrace.decoding.ovni_names import Names
from tailrace.decoding.ovni_stack import Stack
from tailrace.model.record import KEY, SCOPE, Kind, Record

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
    """The values of the fields, these as members of the attributes, and the bytes after them."""

    values: tuple[Any, ...] = ()
    members: str = ""
    rest: bytes = b""


class _Reading(NamedTuple):
    """What the role of an event makes of it."""

    kind: Kind
    name: str | None
    members: str
    id: int | None = None
    parent: int | None = None
    flaw: str | None = None
    rest: bytes = b""


class EventReader:
    """Reads the events of one thread, whose numbers are in the byte order `order`."""

    def __init__(self, stream: str, order: str, stack: Stack, names: Names) -> None:
        self._stream = stream
        self._order = order
        self._head = NUMBERS[order].head.unpack_from
        self._stack = stack
        self._names = names
        self._roles = {
            "at": self._instant,
            "state": self._state,
            "set": self._set,
            "deltas": self._deltas,
            "create": self._create,
            "type": self._type,
        }

    def read(self, offset: int, event: bytes, flaw: str | None) -> Record:
        """A whole event; `flaw` is that of its place."""
        head, clock = self._head(event)
        flags, mcv = head[0], head[1:]
        known = EVENTS.get(mcv)
        jumbo = bool(flags & JUMBO)
        data = event[JUMBO_HEAD if jumbo else HEAD :]
        if known is None:
            name, category = mcv.decode(), None
            reading = self._plain(name, data, "unknown_event")
        else:
            name, category = known.mcv, known.model
            payload = self._payload(known, data) if jumbo == known.jumbo else None
            if payload is None:
                reading = self._plain(known.name, data, "bad_payload")
            elif known.opens is not None:
                reading = self._pair(known, payload, copied=flaw == "duplicate")
            elif flaw == "stale_tail" and known.role in {"create", "type"}:  # another run's
                reading = self._instant(known, payload)
            else:
                reading = self._roles[known.role](known, payload)
        ends = reading.kind == Kind.END
        members = reading.members
        if flags & 0xE0 or (jumbo and flags != USUAL_JUMBO):
            members += f',"flags":{flags}'
        if reading.rest:
            members += f',"payload":"{reading.rest.hex()}"'
        attributes = f'{{"{"end_mcv" if ends else "mcv"}":{quote(name)}{members}}}'
        return Record(
            offset, len(event), reading.kind, self._stream, None, None, reading.name, category,
            reading.id, reading.parent, None if ends else clock, clock if ends else None,
            attributes, flaw or reading.flaw, None,
        )  # fmt: skip

    def _payload(self, event: Event, data: bytes) -> _Payload | None:
        """None if it is shorter than the table says."""
        for layout in event.layouts[self._order]:
            if len(data) >= layout.size:
                values = layout.struct.unpack_from(data)
                return _Payload(values, layout.members % values, data[layout.size :])
        return None

    # Roles

    def _plain(self, name: str, data: bytes, flaw: str) -> _Reading:
        return _Reading(Kind.INSTANT, name, "", None, self._stack.innermost, flaw, data)

    def _instant(self, event: Event, payload: _Payload) -> _Reading:
        parent = self._stack.innermost
        return _Reading(Kind.INSTANT, event.name, payload.members, None, parent, None, payload.rest)

    def _state(self, event: Event, payload: _Payload) -> _Reading:
        members = f'{payload.members},"state":"{STATES[event.mcv[2]]}"'
        return self._instant(event, payload)._replace(members=members)

    def _set(self, event: Event, payload: _Payload) -> _Reading:
        value, type_ = payload.values
        name, about = self._names.of_set(type_, value)
        return self._instant(event, payload)._replace(
            kind=Kind.COUNTER, name=name, members=payload.members + about
        )

    def _deltas(self, event: Event, payload: _Payload) -> _Reading:
        numbers = Struct(f"{self._order}{len(payload.rest) // 8}q")
        deltas = ",".join(map(str, numbers.unpack_from(payload.rest)))
        return self._instant(event, payload)._replace(
            kind=Kind.COUNTER, members=f',"deltas":[{deltas}]', rest=payload.rest[numbers.size :]
        )

    def _create(self, event: Event, payload: _Payload) -> _Reading:
        model = event.mcv[0]
        task, type_ = payload.values
        self._names.learn_task(model, task, type_)
        name, ask = self._names.of_type(model, type_)
        key = self._names.task_key(model, task)
        return self._instant(event, payload)._replace(
            kind=Kind.NAME, name=name, members=payload.members + ask + _gives(key)
        )

    def _type(self, event: Event, payload: _Payload) -> _Reading:
        """A label is text up to a zero; what else there is is kept as bytes."""
        model = event.mcv[0]
        (type_,) = payload.values
        text, _, beyond = payload.rest.partition(b"\0")
        label = text.decode(errors="replace")
        plain = not beyond and label.encode() == text
        label = label or f"type {type_}"
        self._names.learn_type(model, type_, label)
        members = payload.members + _gives(self._names.type_key(model, type_))
        return self._instant(event, payload)._replace(
            kind=Kind.NAME, name=label, members=members, rest=b"" if plain else payload.rest
        )

    def _pair(self, event: Event, payload: _Payload, *, copied: bool) -> _Reading:
        """A begin or an end. What a fork has copied opens and closes nothing, and begins nothing that
        would stay open."""
        channel, key = event.channel, event.begin
        name: str | None = event.name
        members = payload.members
        if event.role == "mark":
            value, type_ = payload.values
            name, about = self._names.of_mark(type_, value)
            members += about if event.opens else ""
            channel = f"{channel} {type_}"
        elif event.role == "task" and event.opens:
            name, ask = self._body(event, payload.values[0])
            members += ask
        if payload.values:
            key = f"{key} {payload.values}"
        own = event.role in OWN
        if copied:
            kind = Kind.INSTANT if event.opens else Kind.END
            return _Reading(kind, name, members, rest=payload.rest)
        if event.opens:
            id_, parent = self._stack.begin(channel, key, own=own)
            return _Reading(Kind.BEGIN, name, members, id_, parent, None, payload.rest)
        ended, flaw = self._stack.end(channel, key, own=own)
        members = members if ended is None else ""
        return _Reading(Kind.END, name, members, ended, None, flaw, payload.rest)

    def _body(self, event: Event, id_: int) -> tuple[str | None, str]:
        if event.begin == "PQx":
            return self._names.of_type("P", id_)
        return self._names.of_task(event.mcv[0], id_)


def _gives(key: str) -> str:
    return f',"{KEY}":{quote(key)},"{SCOPE}":"group"'
