"""Decode ovni with the compiled kernel, which packs the most frequent events into blocks. Python decodes all else."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, cast

from tailrace.decoding.formats.ovni._kernel import Scanner
from tailrace.decoding.formats.ovni.decoder import OvniDecoder, OvniState
from tailrace.decoding.formats.ovni.frame import HEAD, HEADER, JUMBO_HEAD, event_size
from tailrace.decoding.formats.ovni.names import Names, Naming, around_task, created_name, task_name
from tailrace.decoding.formats.ovni.order import LATE_BEGIN, LATE_END
from tailrace.decoding.formats.ovni.stack import OPEN_MAX, StackState
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.decoding.formats.ovni.usual import PLANS, EventPlan, plan_of
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

_SEARCHED = 4096
"""Number of bytes that Python decodes at once while it searches for the next event after unreadable bytes."""


_NAMINGS: dict[Naming | None, int] = {None: 0, task_name: 1, created_name: 2}
"""Numbers by which the compiled kernel knows the functions that name an event. Any other function has the number 3."""


def _usual(key: bytes, plan: EventPlan) -> tuple[object, ...]:
    """Return the tuple that describes one type of event to `Scanner`. `key` has flags and MCV (model, category and
    value)."""
    fields = plan[-1]
    types = cast(Struct, fields.unpack.__self__).format[1:] if fields else ""  # type: ignore[attr-defined] # it is a method of a Struct
    naming = _NAMINGS.get(fields.naming, 3) if fields else 0
    late = {LATE_BEGIN: 1, LATE_END: 2}.get(key[1:], 0)
    return (key, *plan, types, naming, late)


_LATE = {
    b"\0" + mcv: plan_of(EVENTS[mcv], EVENTS[mcv].layouts["<"][0]) for mcv in (LATE_BEGIN, LATE_END)
}
"""Plans by which the compiled kernel reads the events `OU[` and `OU]`, which the module `usual` does not read. Clocks
may go back between these events."""

_scan = Scanner([_usual(key, plan) for key, plan in (PLANS["<"] | _LATE).items()], OPEN_MAX).scan
"""The compiled kernel's scanner, which all decoders share. Its caches never change the results."""


class _Thread(NamedTuple):
    stack: StackState
    names: Names
    stream: str
    asks: bytes
    gives: bytes
    behind: bytes


class OvniBlockDecoder(OvniDecoder):
    """An ovni decoder whose compiled kernel packs the most frequent events into blocks."""

    def __init__(self, limit: int, state: OvniState | None = None) -> None:
        super().__init__(limit, state)
        self._note_thread()

    def begin(self, path: str, dialect: str) -> None:
        super().begin(path, dialect)
        self._note_thread()

    @property
    def block_min(self) -> int:
        return ROWS_MIN * HEAD

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        at, have, order = 0, len(data), self._order.state
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

    def _note_thread(self) -> None:
        stream, names = self._state.place.stream, self._names
        texts = (text.encode() for text in around_task(names))
        self._thread = _Thread(self._stack.state, names, stream, *texts)

    def _give(self, data: bytes, at: int, size: int, found: list[Block | Record]) -> int:
        stop = min(at + size, len(data))
        found += super().feed(data[at:stop])
        return stop

    @property
    def _copied(self) -> int:
        """Number of bytes that Python decodes in the time in which a call of the compiled kernel copies the open
        spans."""
        stack = self._stack.state
        return (len(stack.nested) + len(stack.alone)) // 2

    @property
    def _lacking(self) -> int:
        """Number of bytes that complete the event whose first bytes wait, or its header if its size is unknown."""
        have = len(self._waiting)
        if self._state.fault or (self._order.sorts and have >= HEAD):
            return _SEARCHED
        head = HEADER if not self._state.order else HEAD if have < HEAD else JUMBO_HEAD
        return max((self._need or head) - have, 1)

    def _size_at(self, data: bytes, at: int) -> int:
        """Return the number of bytes to decode in Python from `at` on, where the kernel cannot read an event."""
        if not self._state.order:
            return HEADER
        if self._order.state.stale:
            return len(data)
        size = event_size(data, at, self._numbers)
        if isinstance(size, str):
            return _SEARCHED
        return size or len(data)
