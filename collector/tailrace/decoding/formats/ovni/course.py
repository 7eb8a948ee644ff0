"""How a stream goes on: whether its clock may go back, and what that means where it may not.

A thread's events come in the order of their clock, but for those between `OU[` and `OU]`: they are
written late and have the time at which they happened. Anywhere else, a clock that goes back says

- that the process forked: parent and child share a buffer and an offset in the file, so what was
  buffered is written twice. The first event that comes again is found among those remembered, and
  the copy goes on as long as its events do: `duplicate`;
- else, after the thread's end (`OHe`) or if it goes back to before the stream's first event, that a
  later run has written over an earlier one's file without cutting it off; from here on it is the
  earlier run's: `stale_tail`;
- else nothing that is known: `clock_back`.

Remembered are the first bytes of the stream and of the last few buffers. An `OF[` opens a buffer:
it tells of the flush that emptied the one before.
"""

from __future__ import annotations

import msgspec

OPENINGS_MAX, OPENING_MAX = 4, 2048
"""Beginnings of buffers that are remembered, the stream's own among them, and bytes of each."""

STATES = frozenset({b"OHx", b"OHp", b"OHr", b"OHc", b"OHw", b"OHe"})
"""Events that tell the thread's state."""

TURNS = STATES | {b"OU[", b"OU]", b"OF["}
"""Events after which the course is another."""

CLOCK_MIN = -(2**63)


class CourseState(msgspec.Struct):
    """`first` is the clock of the first event; `last` the one that the next event's is held against,
    None before the first.

    `late` is true between OU[ and OU]; `ran` from the first OHx on; `ended` while the thread's last
    state is dead; `stale` in what an earlier run left, and `cut` if the later one had not ended there.
    `copy` is which opening is being read again, and the next place in it.
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


class Course:
    """The course of one stream."""

    def __init__(self, state: CourseState) -> None:
        self.state = state

    @property
    def floor(self) -> int | None:
        """The least clock of an event of which no more is to be said than that it comes next; None
        where something is to be said of every event, and of those in `TURNS` always."""
        state = self.state
        if state.stale or state.copy:
            return None
        return CLOCK_MIN if state.late else state.last

    def reach(self, clock: int) -> None:
        """Events above the floor have been read, up to a clock."""
        if not self.state.late:
            self.state.last = clock

    def remember(self, buffer: bytearray, begin: int, stop: int) -> None:
        """Take note of the events in `buffer[begin:stop]`, which were read."""
        openings = self.state.openings
        room = OPENING_MAX - len(openings[-1])
        if room and stop > begin:
            openings[-1] += bytes(buffer[begin : min(stop, begin + room)])

    def take(self, mcv: bytes, clock: int, event: bytes) -> tuple[str | None, bool]:
        """The flaw of the place of an event, and whether something begins here that must be told."""
        state = self.state
        if mcv == b"OU]":
            state.late = False
        found = self._place(clock, event)
        if state.last is None:
            state.first = clock
        if not state.late:
            state.last = clock
        if mcv == b"OU[":
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
