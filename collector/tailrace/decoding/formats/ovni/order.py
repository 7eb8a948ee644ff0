"""Check the order of a stream's events, and find the cause of a clock that goes back.

The events of a thread are ordered by clock, except between `OU[` and `OU]`. Events there are written
late, with their original time. At other places, a clock that goes back has one of these causes:

- `duplicate`: the process forked. Parent and child share a buffer and a file offset, and write the
  buffered events twice. The decoder finds the first repeated event among the stored events. The
  copy continues as long as the following events repeat, too.
- `stale_tail`: a later run has overwritten an earlier run's file without truncating the file. The events
  from this position on belong to the earlier run. This is the case after the end of the thread (`OHe`), or if the clock goes
  back to a time before the stream's first event.
- `clock_back`: the cause is unknown.

The decoder stores the first bytes of the stream and of the last few buffers. An `OF[` is the first event of a buffer, and
describes the flush of the previous buffer.
"""

from __future__ import annotations

import msgspec

OPENINGS_MAX, OPENING_MAX = 4, 2048
"""Maximum number of stored beginnings, and maximum size (bytes) of each. A beginning has the first events of the
stream, or of one of the thread's last few buffers. If a fork has copied events, the copies equal stored events.
"""

STATES = frozenset({b"OHx", b"OHp", b"OHr", b"OHc", b"OHw", b"OHe"})
"""MCVs (model, category and value) of the events that change the state of the thread."""

LATE_BEGIN, LATE_END = b"OU[", b"OU]"

TURNS = STATES | {LATE_BEGIN, LATE_END, b"OF["}
"""MCVs (model, category and value) of the events that change how `EventOrder` checks later events."""

CLOCK_MIN = -(2**63)


class EventOrderState(msgspec.Struct):
    """The state of `EventOrder`.

    `first`: the clock of the first event.
    `last`: the minimum clock of the next event, or None before the first event.
    `late`: whether the next event is between `OU[` and `OU]`, where clocks may go back.
    `ran`: whether there was an event `OHx`, with which a thread begins.
    `ended`: whether the last state of the thread is dead.
    `stale`: whether the next event belongs to an earlier run, whose file a later run has overwritten in part.
    `cut`: whether events of an earlier run came although the later run had not ended.
    `openings`: the stored first events of the stream and of the thread's last few buffers.
    `copy`: while a fork's copy repeats stored events, the place of the next one: an index in `openings`, and a position
        in this item. None otherwise."""

    first: int = 0
    last: int | None = None
    late: bool = False
    ran: bool = False
    ended: bool = False
    stale: bool = False
    cut: bool = False
    openings: list[bytes] = msgspec.field(default_factory=lambda: [b""])
    copy: tuple[int, int] | None = None


class EventOrder:
    """Checks the order of the events of one stream."""

    def __init__(self, state: EventOrderState) -> None:
        self.state = state

    @property
    def floor(self) -> int | None:
        """Minimum clock of the next event in a correct order. The value is not valid for events in `TURNS`.

        None if `take` must check each event."""
        state = self.state
        if state.stale or state.copy:
            return None
        return CLOCK_MIN if state.late else state.last

    @property
    def sorts(self) -> bool:
        """Whether the caller must sort the next events by clock. This is the case between `OU[` and `OU]`, except for
        events of an earlier run and events that a fork has copied."""
        state = self.state
        return state.late and not state.stale and not state.copy

    def reach(self, clock: int) -> None:
        """Take the clock of the last event that the caller has read without `take`. It becomes the minimum clock of the
        next event, except between `OU[` and `OU]`."""
        if not self.state.late:
            self.state.last = clock

    def remember(self, buffer: bytes | bytearray, begin: int, stop: int) -> None:
        """Append the events in `buffer[begin:stop]` to the stored beginning of the current buffer, up to `OPENING_MAX`
        bytes. A later event that equals a stored event is a copy by a fork."""
        openings = self.state.openings
        room = OPENING_MAX - len(openings[-1])
        if room and stop > begin:
            openings[-1] += bytes(buffer[begin : min(stop, begin + room)])

    def take(self, mcv: bytes, clock: int, event: bytes) -> tuple[str | None, bool]:
        """Check the order of the next event. Return its flaw (broken rule) or None, and a bool. The bool is true if
        this is the first event of an earlier run, or the first event that a fork has copied."""
        state = self.state
        if mcv == LATE_END:
            state.late = False
        found = self._place(clock, event)
        if state.last is None:
            state.first = clock
        if not state.late:
            state.last = clock
        if mcv == LATE_BEGIN:
            state.late = True
        elif mcv == b"OF[" and not state.copy:
            first, *later = state.openings
            state.openings = [first, *later[2 - OPENINGS_MAX :], b""]
        elif mcv in STATES:
            state.ended = mcv == b"OHe"
            state.ran = state.ran or mcv == b"OHx"
        return found

    def _place(self, clock: int, event: bytes) -> tuple[str | None, bool]:
        state = self.state
        if state.copy:
            opening, place = state.copy
            if state.openings[opening].startswith(event, place):
                state.copy = (opening, place + len(event))
                return "duplicate", False
            state.copy = None
        if state.late or state.last is None or clock >= state.last:
            return "stale_tail" if state.stale else None, False
        for opening, events in enumerate(state.openings):
            place = events.find(event)
            if place >= 0:
                state.copy = (opening, place + len(event))
                state.ended = False
                return "duplicate", True
        cut = not state.ended and not state.stale and 0 <= clock < state.first
        begins = state.ended or cut
        state.ended = False
        state.stale = state.stale or begins
        state.cut = state.cut or cut
        return "stale_tail" if state.stale else "clock_back", begins
