"""Check the order of a stream's events, and find the cause of a clock that goes back.

The events of a thread are ordered by clock, except between `OU[` and `OU]`, where events are written late. At other
places, a clock that goes back has one of these causes:

- `duplicate`: the process forked. Parent and child share a buffer and a file offset, and write the buffered events
  twice. The copy equals stored events.
- `stale_tail`: a later run has overwritten an earlier run's file without truncating it. The events from this position
  on belong to the earlier run. They follow the end of the thread, or are older than the stream's first event.
- `clock_back`: the cause is unknown.

The first events of the stream and of the last few buffers are stored. `OF[` begins a buffer."""

from __future__ import annotations

import msgspec

OPENINGS_MAX, OPENING_MAX = 4, 2048
"""Maximum number of stored openings, and maximum size (bytes) of each. An opening is the first events of the stream or
of one of its buffers. A fork may copy these events into the stream again."""

STATES = frozenset({b"OHx", b"OHp", b"OHr", b"OHc", b"OHw", b"OHe"})
"""Events that change the state of the thread, by MCV (model, category and value)."""

LATE_BEGIN, LATE_END = b"OU[", b"OU]"

TURNS = STATES | {LATE_BEGIN, LATE_END, b"OF["}
"""Events that change how `EventOrder` checks later events, by MCV (model, category and value)."""

CLOCK_MIN = -(2**63)


class EventOrder(msgspec.Struct):
    """Checks the order of the events of one stream. A checkpoint stores it."""

    first: int = 0  # Clock of the first event.
    last: int | None = None  # Minimum clock of the next event; None before the first event.
    late: bool = False  # Whether the next event is between `OU[` and `OU]`.
    ran: bool = False  # Whether there was an event `OHx`, with which a thread begins.
    ended: bool = False  # Whether the last state of the thread is dead.
    stale: bool = False  # Whether the next event belongs to an earlier run.
    cut: bool = False  # Whether events of an earlier run came before the later run had ended.
    # First events of the stream and of the last buffers.
    openings: list[bytes] = msgspec.field(default_factory=lambda: [b""])
    # While a fork's copy is read: the index in `openings`, and the offset there, of the event that must come next.
    copy: tuple[int, int] | None = None

    @property
    def floor(self) -> int | None:
        """Minimum clock of the next event, unless this event is one of `TURNS`, which change how events are checked.
        None if `take` must check each event."""
        if self.stale or self.copy:
            return None
        return CLOCK_MIN if self.late else self.last

    @property
    def sorts(self) -> bool:
        """Whether the next events must be sorted by clock, because they are between `OU[` and `OU]`."""
        return self.late and not self.stale and not self.copy

    def reach(self, clock: int) -> None:
        """Record the clock of the last of the events that were read without a call of `take`."""
        if not self.late:
            self.last = clock

    def remember(self, buffer: bytes | bytearray, begin: int, stop: int) -> None:
        """Store the events in `buffer[begin:stop]`, because a fork may copy them later, up to `OPENING_MAX` bytes of
        each buffer of libovni."""
        openings = self.openings
        room = OPENING_MAX - len(openings[-1])
        if room and stop > begin:
            openings[-1] += bytes(buffer[begin : min(stop, begin + room)])

    def take(self, mcv: bytes, clock: int, event: bytes) -> tuple[str | None, bool]:
        """Return the flaw of the next event (the rule that it breaks) or None. Also return whether the event is the
        first of an earlier run's events, or of the events that a fork has copied."""
        if mcv == LATE_END:
            self.late = False
        found = self._place(clock, event)
        if self.last is None:
            self.first = clock
        if not self.late:
            self.last = clock
        if mcv == LATE_BEGIN:
            self.late = True
        elif mcv == b"OF[" and not self.copy:
            first, *later = self.openings
            self.openings = [first, *later[2 - OPENINGS_MAX :], b""]
        elif mcv in STATES:
            self.ended = mcv == b"OHe"
            self.ran = self.ran or mcv == b"OHx"
        return found

    def _place(self, clock: int, event: bytes) -> tuple[str | None, bool]:
        if self.copy:
            opening, place = self.copy
            if self.openings[opening].startswith(event, place):
                self.copy = (opening, place + len(event))
                return "duplicate", False
            self.copy = None
        if self.late or self.last is None or clock >= self.last:
            return "stale_tail" if self.stale else None, False
        for opening, events in enumerate(self.openings):
            place = events.find(event)
            if place >= 0:
                self.copy = (opening, place + len(event))
                self.ended = False
                return "duplicate", True
        cut = not self.ended and not self.stale and 0 <= clock < self.first
        begins = self.ended or cut
        self.ended = False
        self.stale = self.stale or begins
        self.cut = self.cut or cut
        return "stale_tail" if self.stale else "clock_back", begins
