"""Write Perfetto's protobuf format, without a protobuf library (see `drawing` for the layout of tracks)."""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from tailrace.export.drawing import Details, DrawnProcess, DrawnThread, TrackIds, draw
from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected

VARINT, FIXED64, BYTES = 0, 1, 2

_SMALL = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(2**14)]
_MASK = 2**64 - 1


def varint(number: int) -> bytes:
    """Return a 64-bit number as a protobuf varint; a negative one is encoded as its two's complement."""
    if 0 <= number < 2**14:
        return _SMALL[number]
    number &= _MASK
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    return key(field, VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return key(field, FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    return key(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


TABLE_BYTES = 4 * 2**20
"""Maximum size (bytes) of Perfetto's table of interned names, after which the writer starts a new one."""

_BOOT_TIME, _REAL_TIME = 6, 1
_BEGIN, _END, _INSTANT, _COUNTER = (integer(9, type_) for type_ in range(1, 5))
_PACKET, _TIMESTAMP = key(1, 2), key(8, 0)
_SEQUENCE = integer(10, 1)
_CLEARED, _NEEDED = integer(13, 3), integer(13, 2)
_CATEGORIES, _EVENT_NAMES, _ARGUMENT_NAMES = 1, 2, 3


def write(selected: Selected, output: Output, progress: RowCount) -> Left:
    timeline = DrawnRows(selected, progress)
    draw(timeline, PerfettoTrace(output.main(), timeline.first, TrackIds(timeline.names.pids)))
    return timeline.left


class PerfettoTrace:
    """An implementation of `Canvas` that writes Perfetto's trace packets, all in one packet sequence."""

    def __init__(self, out: BinaryIO, first: int, ids: TrackIds) -> None:
        self._out = out
        self._tracks = 0
        self._ids = ids
        self._pids: dict[int, int] = {}
        self._forget()
        clocks = b"".join(
            message(1, integer(1, clock) + integer(2, first)) for clock in (_BOOT_TIME, _REAL_TIME)
        )
        self._packet(integer(8, first) + _SEQUENCE + message(6, clocks))

    def summary(self, name: str) -> int:
        return self._describe(text(2, name))

    def process(self, process: DrawnProcess) -> int:
        number = self._ids.process(process.names.pid)
        described = integer(1, number) + integer(3, process.names.number) + text(6, process.title)
        labels = b"".join(text(8, label) for label in process.labels)
        track = self._describe(message(3, described + labels))
        self._pids[track] = number
        return track

    def thread(self, process: int, thread: DrawnThread) -> int:
        session, pid = thread.session, self._pids[process]
        number = self._ids.thread(pid, thread.names.tid)
        described = integer(1, pid) + integer(2, number) + text(5, thread.names.title)
        ids = f"source {session.source}; session {session.session}; stream {thread.stream}"
        return self._describe(integer(5, process) + message(4, described) + text(14, ids))

    def track(self, parent: int, name: str) -> int:
        return self._describe(text(2, name) + integer(5, parent))

    def counter(self, parent: int, name: str) -> int:
        return self._describe(text(2, name) + integer(5, parent) + message(8, b""))

    def begin(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._named(_BEGIN, track, time, name, category, of)

    def end(self, track: int, time: int) -> None:
        self._event(time, _END + integer(11, track))

    def instant(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._named(_INSTANT, track, time, name, category, of)

    def count(self, track: int, time: int, value: float) -> None:
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        counted = integer(30, int(value)) if whole else double(44, float(value))
        self._event(time, _COUNTER + integer(11, track) + counted)

    def _named(
        self, type_: bytes, track: int, time: int, name: str, category: str | None, of: Details
    ) -> None:
        new: list[bytes] = []
        parts = [type_, integer(11, track), integer(10, self._number(_EVENT_NAMES, name, new))]
        if category is not None:
            parts.append(integer(3, self._number(_CATEGORIES, category, new)))
        for member, value in of.items():
            number = integer(1, self._number(_ARGUMENT_NAMES, member, new))
            parts.append(message(4, number + _argument(value)))
        self._event(time, b"".join(parts), message(12, b"".join(new)) if new else b"")
        if self._interned > TABLE_BYTES:
            self._forget()

    def _number(self, field: int, name: str, new: list[bytes]) -> int:
        """Return the interning id by which events refer to a name. For a new name, append its entry to `new`."""
        names = self._numbers[field]
        number = names.get(name)
        if number is None:
            number = names[name] = len(names) + 1
            entry = message(field, integer(1, number) + text(2, name))
            new.append(entry)
            self._interned += len(entry)
        return number

    def _forget(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {
            field: {} for field in (_CATEGORIES, _EVENT_NAMES, _ARGUMENT_NAMES)
        }
        self._interned = 0
        self._cleared = True

    def _describe(self, described: bytes) -> int:
        self._tracks += 1
        self._packet(_SEQUENCE + message(60, integer(1, self._tracks) + described))
        return self._tracks

    def _event(self, time: int, event: bytes, interned: bytes = b"") -> None:
        flags = _CLEARED if self._cleared else _NEEDED
        self._cleared = False
        self._packet(_TIMESTAMP + varint(time) + _SEQUENCE + flags + interned + message(11, event))

    def _packet(self, packet: bytes) -> None:
        self._out.write(_PACKET + varint(len(packet)) + packet)


def _argument(value: object) -> bytes:
    """Return the protobuf field of a debug annotation for a value. Nested values become JSON text."""
    match value:
        case bool():
            return integer(2, value)
        case int() if -(2**63) <= value < 2**63:
            return integer(4, value)
        case int() if 0 <= value < 2**64:
            return integer(3, value)
        case float():
            return double(5, value)
        case str():
            return text(6, value)
        case _:
            return text(6, msgspec.json.encode(value).decode())
