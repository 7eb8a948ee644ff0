"""Decode ovni: binary streams of events, one file a thread, in a directory tree with metadata files.

    v3   TRACE/loom.LOOM/proc.PID/thread.TID/stream.obs   stream.json
    v2   TRACE/loom.LOOM/proc.PID/thread.TID.obs          thread.TID.json, metadata.json
    v1   TRACE/loom.LOOM/proc.PID/thread.TID.obs          metadata.json
    all  TRACE/clock-offsets.txt

The stream is `LOOM/PID/TID`. Its bytes are the same in all versions (module `frame`). Each event becomes one record
(module `event`), and the stream header a session record "header". Further records have size 0:

    session  metadata      the content of the metadata after each change
             clock_offset  the offset to add to the clock (ns)
             fork          a fork of the process has copied the following events
    name                   titles of the program's marks, and labels of their values
    gap      truncated     stale_tail: an earlier run wrote the following events, and its beginning was overwritten
                           finished_without_data: the producer finished and had written no event
                           unfinished: the end of the thread is missing, with up to 2 MiB of events

The last two gaps come at the end of the input, because metadata may mark a thread as finished before its last bytes
arrive. Events between `OU[` and `OU]` are written late, and are sorted by clock, at most `LATE_MAX` bytes at a time.
Bytes that cannot begin an event are malformed up to the next event. The maximum size of an event (`limit`) counts as 64
bytes if it is lower."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from tailrace import kernels
from tailrace.decoding.formats.ovni.document import OFFSETS, DocumentsState, StreamDocuments
from tailrace.decoding.formats.ovni.event import PLANS, EventPlan, EventReader, plan_of
from tailrace.decoding.formats.ovni.files import StreamOrigin, read_path
from tailrace.decoding.formats.ovni.frame import (
    HEAD,
    HEADER,
    JUMBO_HEAD,
    NUMBERS,
    ORDERS,
    event_size,
    find_event,
)
from tailrace.decoding.formats.ovni.names import (
    Names,
    NamesState,
    Naming,
    around_task,
)
from tailrace.decoding.formats.ovni.order import (
    CLOCK_MIN,
    LATE_BEGIN,
    LATE_END,
    TURNS,
    EventOrder,
)
from tailrace.decoding.formats.ovni.stack import OPEN_MAX, Stack, StackState
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.gap import Reason
from tailrace.model.holding import Holding
from tailrace.model.record import Record, SessionFacts, malformed, missing, session_record
from tailrace.rows.block import ROWS_MIN, Block

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.ovni._kernel import Scanner

_CLOCKS = {
    "<": '{"clock":"monotonic_ns","ticks_per_second":1000000000}',
    ">": '{"clock":"monotonic_ns","ticks_per_second":1000000000,"byte_order":"big"}',
}
"""Attributes of the record of a stream header, by byte order."""

LATE_MAX = 1 << 16
"""Maximum size (bytes) of late events (between `OU[` and `OU]`) that are sorted together. Measured traces have 2 KB."""


class OvniState(msgspec.Struct):
    """The state of an ovni decoder between calls of `feed`."""

    offset: int = 0
    waiting: bytes = b""
    fault: str = ""  # Reason why the waiting bytes cannot begin an event.
    order: str = ""  # The byte order, or "" before the stream header.
    place: StreamOrigin = StreamOrigin()
    told: bool = False  # Whether a gap record for the missing end of the thread was returned.
    course: EventOrder = msgspec.field(default_factory=EventOrder)
    stack: StackState = msgspec.field(default_factory=StackState)
    names: NamesState = msgspec.field(default_factory=NamesState)
    documents: DocumentsState = msgspec.field(default_factory=DocumentsState)


class OvniDecoder:
    """Decodes the ovni stream of one thread. `limit` is the maximum size (bytes) of an event."""

    def __init__(self, limit: int, state: OvniState | None = None) -> None:
        self._state = state = state or OvniState()
        self._limit = max(limit, 64)
        self._waiting = bytearray(state.waiting)
        self._searched = 0  # Number of waiting bytes that were searched: no event begins there.
        self._need = 0  # Number of waiting bytes that the next decoding step needs.
        self._gathered = 0  # Size (bytes) of the complete late events in `_waiting`.
        self._over = False  # Whether to decode late events without further input.
        self._order = state.course
        self._stack = Stack(state.stack)
        self._names = Names(state.names)
        self._documents = StreamDocuments(state.documents, self._names)
        self._set_out()

    @property
    def state(self) -> OvniState:
        self._state.waiting = bytes(self._waiting)
        return self._state

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def holdings(self) -> tuple[Holding, ...]:
        return self._names, self._stack

    @property
    def asked(self) -> Collection[str]:
        return self._names.asked.missing

    @property
    def stream(self) -> str:
        return self._state.place.stream

    @property
    def lacking(self) -> str:
        order = self._order
        ended = (order.ended or order.stale) and not order.cut
        if ended or self._state.fault == "bad_header":
            return ""
        if not self._state.documents.finished:
            return "unfinished"
        if order.last is None:
            return "finished_without_data"
        return "unfinished" if order.ran else ""

    def begin(self, path: str, dialect: str) -> None:  # noqa: ARG002 - there is only one
        self._state.place = read_path(path)
        self._state.names.process = self._state.place.process
        self._set_out()

    def document(self, name: str, data: bytes) -> list[Record]:
        offset, place = self._state.offset, self._state.place
        if posixpath.basename(name) == OFFSETS:
            return self._documents.clock_offsets(offset, place.stream, data, place.host)
        return self._documents.metadata(offset, place.stream, name, data)

    def feed(self, data: bytes) -> list[Record]:
        self._waiting += data
        records: list[Record] = []
        if len(self._waiting) >= self._need:
            self._decode(records)
        return records

    def end(self) -> list[Record]:
        """Decode the waiting bytes. Incomplete events become `truncated`. A missing end of the thread becomes a gap."""
        state, waiting = self._state, self._waiting
        records = self._decode_late()
        while waiting:
            stop, fault = len(waiting), state.fault
            if not fault:
                # Another event inside the incomplete one shows that the size of the incomplete one is wrong.
                place, found = find_event(waiting, 1, stop, self._numbers, self._limit)
                stop, fault = place if found else stop, "truncated"
            if not state.order and not any(header.startswith(waiting) for header in ORDERS):
                fault = "bad_header"
            self._decode(records, self._malformed(0, stop, fault, records))
            records += self._decode_late()
        records += self._documents.end(state.offset, state.place.stream)
        if not state.told and (lacking := self.lacking):
            state.told = True
            records.append(self._gap(state.offset, lacking))
        state.fault = ""
        self._searched = self._need = 0
        return records

    def give_up(self) -> list[Record]:
        """Return the waiting bytes as malformed. Only an incomplete stream header continues to wait."""
        state, records = self._state, self._decode_late()
        if self._waiting and (state.order or state.fault):
            state.fault = state.fault or "too_long"
            stop = self._malformed(0, len(self._waiting), state.fault, records)
            self._waiting.clear()
            state.offset += stop
            self._searched = self._need = 0
        return records

    def _set_out(self) -> None:
        order = self._state.order or "<"
        self._numbers = NUMBERS[order]
        self._reader = EventReader(self._state.place.stream, order, self._stack, self._names)

    def _decode(self, records: list[Record], at: int = 0) -> None:
        """Decode and remove the waiting bytes from `at` on, as far as they form whole records."""
        state = self._state
        before = None
        while before != (before := (at, state.fault, state.order)):
            if state.fault:
                at = self._search(at, records)
            elif state.order:
                at = self._events(at, records)
            elif len(header := bytes(self._waiting[at : at + HEADER])) == HEADER:
                state.order = ORDERS.get(header, "<")
                self._set_out()
                if header not in ORDERS:
                    state.fault = "bad_header"
                    continue
                facts = SessionFacts(clock="monotonic_ns", ticks_per_second=1e9)
                about = _CLOCKS[state.order]
                records.append(
                    session_record(
                        state.offset + at, HEADER, "header", about, stream=self.stream, facts=facts
                    )
                )
                at += HEADER
        del self._waiting[:at]
        state.offset += at

    def _events(self, at: int, records: list[Record]) -> int:
        """Read whole events from `at` on. Return the position of the first bytes that are not a whole event."""
        state, order, waiting = self._state, self._order, self._waiting
        numbers, usual = self._numbers, self._reader.read_usual
        noted = at
        while True:
            if order.sorts:
                stop = self._late_end(at)
                if stop is None:
                    break
                if stop > at:
                    noted = self._late(at, stop, noted, records)
                    at = stop
                    continue
            floor = order.floor
            if floor is not None:
                at, clock = usual(waiting, at, state.offset, floor, records)
                order.reach(clock)
            size = event_size(waiting, at, numbers)
            if isinstance(size, str):
                state.fault = size
                break
            if size > self._limit:
                state.fault = "too_long"
                break
            if not size or at + size > len(waiting):
                self._need = size
                break
            order.remember(waiting, noted, at)
            noted = at
            self._event(at, size, records)
            at += size
        order.remember(waiting, noted, at)
        return at

    def _decode_late(self) -> list[Record]:
        """Decode the complete late events that wait to be sorted together with further events, because perhaps no
        further event follows."""
        records: list[Record] = []
        if self._order.sorts and not self._state.fault:
            self._over = True
            self._decode(records)
            self._over = False
        return records

    def _late_end(self, at: int) -> int | None:
        """Return the end of the late events from `at` on that are sorted together; None if more bytes are needed.

        These events end before `OU]`, before bytes that are not an event, and at `LATE_MAX` bytes."""
        waiting, numbers = self._waiting, self._numbers
        most = at + min(self._limit - JUMBO_HEAD, LATE_MAX)
        stop = at + self._gathered
        while True:
            size = event_size(waiting, stop, numbers)
            if isinstance(size, str) or (size and waiting[stop + 1 : stop + 4] == LATE_END):
                break
            if size > self._limit or (stop + size > most and stop > at):
                break
            if not size or stop + size > len(waiting):
                if self._over and stop > at:
                    break
                self._gathered = stop - at
                head = HEAD if len(waiting) - stop < HEAD else JUMBO_HEAD
                self._need = self._gathered + (size or head)
                return None
            stop += size
        self._gathered = 0
        return stop

    def _late(self, at: int, stop: int, noted: int, records: list[Record]) -> int:
        """Read the late events (between `OU[` and `OU]`) from `at` to `stop`, sorted by clock. Return the new value of
        `noted`: the position from which on `EventOrder.remember` has not stored events."""
        waiting, numbers, order = self._waiting, self._numbers, self._order
        places: list[tuple[int, int, int]] = []
        while at < stop:
            # `event_size` returns a number here, because `_late_end` returns only whole events
            size = int(event_size(waiting, at, numbers))
            head, clock = numbers.head.unpack_from(waiting, at)
            if head[1:] in TURNS:
                order.remember(waiting, noted, at)
                noted = at
                order.take(head[1:], clock, bytes(waiting[at : at + size]))
            places.append((clock, at, size))
            at += size
        places.sort()
        begin = end = places[0][1]
        for _, at, size in [*places, (0, -1, 0)]:
            if at != end:
                self._in_order(begin, end, records)
                begin = at
            end = at + size
        return noted

    def _in_order(self, at: int, stop: int, records: list[Record]) -> None:
        """Read adjacent late events (between `OU[` and `OU]`), whose clocks must not decrease."""
        offset = self._state.offset + at
        part = self._waiting[at:stop]
        at = 0
        while True:
            at, _ = self._reader.read_usual(part, at, offset, CLOCK_MIN, records)
            if at == len(part):
                return
            size = int(event_size(part, at, self._numbers))
            records.append(self._reader.read(offset + at, bytes(part[at : at + size]), None))
            at += size

    def _event(self, at: int, size: int, records: list[Record]) -> None:
        offset = self._state.offset + at
        event = bytes(self._waiting[at : at + size])
        head, clock = self._numbers.head.unpack_from(event)
        flaw, begins = self._order.take(head[1:], clock, event)
        if begins and flaw == "stale_tail":
            self._stack.clear()
        records.append(self._reader.read(offset, event, flaw))
        if begins and flaw == "stale_tail":
            records.append(self._gap(offset + size, flaw))
        elif begins:
            records.append(session_record(offset + size, 0, "fork", stream=self.stream))

    def _search(self, at: int, records: list[Record]) -> int:
        """Add the bytes from `at` up to the next event as malformed. Return the position after these bytes."""
        state, waiting = self._state, self._waiting
        stop = min(len(waiting), at + self._limit)
        begin = at + self._searched
        place, found = find_event(waiting, begin, stop, self._numbers, self._limit)
        self._searched = place - at
        self._need = 0
        if not found and stop < at + self._limit:
            return at
        self._searched = 0
        at = self._malformed(at, place, state.fault, records)
        if found:
            state.fault = ""
        return at

    def _malformed(self, at: int, stop: int, reason: str, records: list[Record]) -> int:
        if stop > at:
            data = bytes(self._waiting[at:stop])
            state = self._state
            records.append(malformed(state.offset + at, data, reason, state.place.stream))
        return stop

    def _gap(self, offset: int, detail: str) -> Record:
        stream = self._state.place.stream
        return missing(offset, Reason.TRUNCATED, 0, stream=stream, detail=detail)


# The decoder with the compiled kernel

_SEARCHED = 4096
"""Number of bytes that Python decodes at once while it searches for the next event after unreadable bytes."""


_NAMINGS: dict[Naming | None, int] = {None: 0, Names.of_task: 1, Names.of_created: 2}
"""Numbers that tell the compiled kernel which function determines the name of an event. The number 3 stands for any
other function."""


def _usual(key: bytes, plan: EventPlan) -> tuple[object, ...]:
    """Return the tuple that describes one type of event to `Scanner`. `key` has the event's flags and MCV (model,
    category and value)."""
    fields = plan[-1]
    types = cast(Struct, fields.unpack.__self__).format[1:] if fields else ""  # type: ignore[attr-defined] # it is a method of a Struct
    naming = _NAMINGS.get(fields.naming, 3) if fields else 0
    late = {LATE_BEGIN: 1, LATE_END: 2}.get(key[1:], 0)
    return (key, *plan, types, naming, late)


_LATE = {
    b"\0" + mcv: plan_of(EVENTS[mcv], EVENTS[mcv].layouts["<"][0]) for mcv in (LATE_BEGIN, LATE_END)
}
"""Descriptions of the events `OU[` and `OU]` for the compiled kernel. `EventReader.read_usual` does not read these
events. Clocks may go back between these events."""

_ABOUT = [_usual(key, plan) for key, plan in (PLANS["<"] | _LATE).items()]

if TYPE_CHECKING or kernels.active():
    _scan = Scanner(_ABOUT, OPEN_MAX).scan
    """The compiled kernel's scanner, which all decoders share. Its caches never change the results."""


class _Thread(NamedTuple):
    stack: StackState
    names: Names
    stream: str
    asks: bytes
    gives: bytes
    behind: bytes


class OvniBlockDecoder(OvniDecoder):
    def _set_out(self) -> None:
        super()._set_out()
        texts = (text.encode() for text in around_task(self._names))
        self._thread = _Thread(self._stack.state, self._names, self.stream, *texts)

    @property
    def block_min(self) -> int:
        return ROWS_MIN * HEAD

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        at, have, order = 0, len(data), self._order
        while at < have:
            if self._waiting:
                at = self._give(data, at, self._lacking, found)
                continue
            block, stop = None, at
            in_order = order.last is not None and not (order.stale or order.copy)
            if (
                in_order
                and not self._state.fault
                and self._state.order == "<"
                and have - at >= ROWS_MIN * HEAD
            ):
                block, stop = _scan(data, at, self._state.offset, order, self._thread, ROWS_MIN)
            if block is None:
                size = stop - at + self._size_at(data, stop)
                at = self._give(data, at, max(size, self._copied), found)
                continue
            found.append(block)
            self._order.remember(data, at, stop)
            self._state.offset += stop - at
            at = stop
        return found

    def _give(self, data: bytes, at: int, size: int, found: list[Block | Record]) -> int:
        stop = min(at + size, len(data))
        found += super().feed(data[at:stop])
        return stop

    @property
    def _copied(self) -> int:
        """Minimum number of bytes that Python decodes before the compiled kernel is called again. Decoding them takes
        about as long as the kernel takes in each call to copy all open spans."""
        stack = self._stack.state
        return (len(stack.nested) + len(stack.alone)) // 2

    @property
    def _lacking(self) -> int:
        """Number of bytes that are still needed to complete the event whose first bytes wait or, if its size is
        unknown, its header."""
        have = len(self._waiting)
        if self._state.fault or (self._order.sorts and have >= HEAD):
            return _SEARCHED
        head = HEADER if not self._state.order else HEAD if have < HEAD else JUMBO_HEAD
        return max((self._need or head) - have, 1)

    def _size_at(self, data: bytes, at: int) -> int:
        """Return the number of bytes from `at` on that Python must decode, because the compiled kernel cannot read an
        event there."""
        if not self._state.order:
            return HEADER
        if self._order.stale:
            return len(data)
        size = event_size(data, at, self._numbers)
        if isinstance(size, str):
            return _SEARCHED
        return size or len(data)
