"""The order of a stream's events: where the clock may go back, and what it means elsewhere.

A thread's events come in the order of their clock, except between `OU[` and `OU]`: those are written
late and have the time at which they happened. Anywhere else a clock that goes back means one of these:

- `duplicate`: the process forked. Parent and child share a buffer and an offset in the file, so the
  buffered events are written twice. The first repeated event is found among those remembered, and the
  copy goes on as long as the following events repeat, too.
- `stale_tail`: a later run has written over an earlier run's file without cutting it off; from here on
  the events are the earlier run's. This is so after the thread's end (`OHe`), or if the clock goes back to
  before the stream's first event.
- `clock_back`: the cause is unknown.

The first bytes of the stream and of the last few buffers are remembered. An `OF[` opens a buffer: it is
about the flush that emptied the buffer before.
"""

from __future__ import annotations

import msgspec

OPENINGS_MAX, OPENING_MAX = 4, 2048
"""How many beginnings of buffers are remembered, the stream's own among them, and how many bytes of each."""

STATES = frozenset({b"OHx", b"OHp", b"OHr", b"OHc", b"OHw", b"OHe"})
"""Events that tell the thread's state."""

LATE_BEGIN, LATE_END = b"OU[", b"OU]"

TURNS = STATES | {LATE_BEGIN, LATE_END, b"OF["}
"""Events that change the rules for the events after them."""

CLOCK_MIN = -(2**63)


class EventOrderState(msgspec.Struct):
    """`first` is the clock of the first event; `last` the clock that the next event's must not be below, None
    before the first.

    `late`: between OU[ and OU]. `ran`: an OHx has come. `ended`: the thread's last state is dead. `stale`:
    in an earlier run's rest; `cut`: the later run had not ended before it. `copy`: which opening is being
    repeated, and the next place in it.
    """

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
    """The order of one stream's events."""

    def __init__(self, state: EventOrderState) -> None:
        self.state = state

    @property
    def floor(self) -> int | None:
        """The clock from which on an event, unless it is in `TURNS`, is simply the next one; None where every
        event must be checked."""
        state = self.state
        if state.stale or state.copy:
            return None
        return CLOCK_MIN if state.late else state.last

    @property
    def sorts(self) -> bool:
        """Whether the next events are late and belong to the order of their clocks: neither an earlier run's nor a copy."""
        state = self.state
        return state.late and not state.stale and not state.copy

    def reach(self, clock: int) -> None:
        """Note that events above the floor have been read, up to a clock."""
        if not self.state.late:
            self.state.last = clock

    def remember(self, buffer: bytes | bytearray, begin: int, stop: int) -> None:
        """Remember the events in `buffer[begin:stop]`, which were read."""
        openings = self.state.openings
        room = OPENING_MAX - len(openings[-1])
        if room and stop > begin:
            openings[-1] += bytes(buffer[begin : min(stop, begin + room)])

    def take(self, mcv: bytes, clock: int, event: bytes) -> tuple[str | None, bool]:
        """Take the next event; return the flaw of its place, and whether a stale tail or a fork begins here."""
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
