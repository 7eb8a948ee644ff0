"""Read the metadata packets in which a Heph client describes its session, and write the collector's acknowledgements.

The value of each option below is one JSON object in UTF-8 (clients/PROTOCOL.md). Unknown members are ignored:

    tailrace.session   {"session":"32 hexadecimal digits","turn":u32,"acknowledge":bool,"now":number,
                        "clock":"logical","ticks_per_second":number}
    tailrace.report    {"ranges":[[u32, u32, u32],…],"discarded":{"reason":number},"elsewhere":bool}
    tailrace.goodbye   {"streams":{"u32":u32,…},"more":bool,"part":number,"discarded":{"reason":number}}
    tailrace.ack       {"session":…,"turn":u32,"streams":{"u32":u32,…},
                        "holes":[[u32, u32, u32],…],"goodbye":bool,
                        "given_up":{"u32":number,…},"uncounted":[u32,…]}    ; from the collector

Only the member `session` is required. A value of another shape has no effect on the session; its record has the flaw
`bad_session`. Anyone with the id of a session can continue it. Records therefore have a digest instead of the id
(`stored_name`)."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from struct import Struct
from typing import Annotated, Any, Literal

import msgspec

from tailrace.decoding.contract import Acknowledgement
from tailrace.decoding.json_object import read_object
from tailrace.model.record import Announcement, Goodbye, SessionFacts

_METADATA, _OPTION = 0x75D11D4D, b"tailrace.ack"
_head = Struct(">IIH").pack

PARTS_MAX = 2**13
"""Maximum number of packets of one goodbye, in which a client states the end of each stream: enough for more than
300,000 streams."""

_U32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**32)]
_COUNT_MAX = 2**63 - 1
_Discarded = dict[str, Annotated[int, msgspec.Meta(ge=0, le=_COUNT_MAX)]]

_SENT = frozenset({"given_up", "lost", "refused", "uncounted"})
"""Reasons for which a client discards events that it has already sent, with sequence numbers."""


class _Session(msgspec.Struct):
    session: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Fa-f]{32}\Z")]
    turn: _U32 = 0
    acknowledge: bool = False
    now: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    clock: Literal["logical"] | None = None
    ticks_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e18)] | None = None

    @property
    def facts(self) -> SessionFacts:
        announces = Announcement(self.session, self.turn, self.acknowledge, self.now)
        rate = self.ticks_per_second if self.clock else None
        return SessionFacts(clock=self.clock, ticks_per_second=rate, announces=announces)


class _Report(msgspec.Struct):
    ranges: list[tuple[_U32, _U32, _Count]] = []
    discarded: _Discarded = {}
    elsewhere: bool = False

    @property
    def facts(self) -> SessionFacts:
        ranges = tuple((str(stream), first, count) for stream, first, count in self.ranges)
        never_sent = _never_sent(self.discarded)
        return SessionFacts(discarded=ranges, elsewhere=self.elsewhere, never_sent=never_sent)


class _Goodbye(msgspec.Struct):
    streams: dict[Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,9})\Z")], _U32] = {}
    more: bool = False
    part: Annotated[int, msgspec.Meta(ge=0, lt=PARTS_MAX)] | None = None
    discarded: _Discarded = {}

    @property
    def facts(self) -> SessionFacts:
        goodbye = Goodbye(self.streams, self.more, self.part)
        return SessionFacts(goodbye=goodbye, never_sent=_never_sent(self.discarded))


def _never_sent(discarded: _Discarded) -> int:
    """Return how many of the discarded events the client never sent. `discarded` has the number of events for each
    reason."""
    sum_ = sum(count for reason, count in discarded.items() if reason not in _SENT)
    return min(sum_, _COUNT_MAX)


_SHAPES: dict[str, type[_Session | _Report | _Goodbye]] = {
    "tailrace.session": _Session,
    "tailrace.report": _Report,
    "tailrace.goodbye": _Goodbye,
}
OPTIONS = frozenset(_SHAPES)

OURS = "tailrace."
"""Prefix of the names of the options that Tailrace's own clients send, in all versions."""

STORED_DIGITS = 24
"""Number of hexadecimal digits of a stored name. An id has more digits, so no client can use a stored name as an id."""

_ID = re.compile(rb"(?<![0-9A-Fa-f])[0-9A-Fa-f]{32}(?![0-9A-Fa-f])")


def stored_name(id_: str) -> str:
    """Return the text that replaces a session's id in tables: the first digits of the id's SHA-256."""
    return sha256(id_.encode()).hexdigest()[:STORED_DIGITS]


def veiled(value: bytes) -> bytes:
    """Return the value of an option with `stored_name` in place of each text of 32 hexadecimal digits."""
    return _ID.sub(lambda id_: stored_name(id_[0].decode()).encode(), value)


def read(option: str, value: bytes) -> tuple[str | None, SessionFacts] | None:
    """Return the attributes and the `SessionFacts` of an option in `OPTIONS`; None if the value has another shape."""
    fields = read_object(value)
    if isinstance(fields, str):
        return None
    members: dict[str, Any] = {field.key: field.value for field in fields}
    try:
        facts = msgspec.convert(members, _SHAPES[option]).facts
    except msgspec.ValidationError:
        return None
    if facts.goodbye and any(int(stream) >= 2**32 for stream in facts.goodbye.streams):
        return None
    texts = []
    for key, given, text in fields:
        is_id = key == "session" and isinstance(given, str)
        texts.append(f"{json.dumps(key)}:{json.dumps(stored_name(given)) if is_id else text}")
    return veiled(f"{{{','.join(texts)}}}".encode()).decode() if texts else None, facts


def acknowledge(answer: Acknowledgement) -> bytes:
    """Return the collector's answer to a client as a metadata packet."""
    fields: dict[str, object] = {
        "session": answer.session,
        "turn": answer.turn,
        "streams": answer.streams,
        "holes": [(int(stream), first, count) for stream, first, count in answer.holes],
        "goodbye": answer.goodbye,
    }
    if answer.given_up:
        fields["given_up"] = answer.given_up
    if answer.uncounted:
        fields["uncounted"] = [int(stream) for stream in answer.uncounted]
    value = msgspec.json.encode(fields)
    size = 10 + len(_OPTION) + len(value)
    return _head(_METADATA, size, len(_OPTION)) + _OPTION + value
