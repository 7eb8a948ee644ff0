"""The specification's form of ET3: each line ends with the logical clock, and no line names a thread.

The clock counts entries and exits: they have the times 1, 2, 3, ... and any other line has the time of
the last of them. So missing entries and exits are known exactly, except at a trace's end, and nothing
is known of other missing lines (docs/formats/et3.md). A jump from t to u means that u-t-1 are missing, at
the beginning as `late_join`; any other line that is ahead proves the same earlier. A time of 1 after
other times is a new run of the program. A time below the last one is `late` if it was missing, which
heals the gap, and else `repeated_time`; such lines stand outside the stack.

An unreadable line counts as missing by itself. So a hole in the clock claims only what the unreadable
lines since the last good one do not explain.

The agents' clock is an int of 32 bits. A negative time counts on from 2**31.
"""

from __future__ import annotations

import msgspec

from tailrace.decoding.formats.et3.form import SPECIFICATION, FormName, MissingLines, Place
from tailrace.decoding.formats.et3.stack import Stacks
from tailrace.model.gap import Reason

HOLES_MAX = 256
"""How many holes late lines can heal; beyond, the oldest are forgotten."""


class ClockHole(msgspec.Struct, array_like=True):
    """Times of missing entries and exits, both included, and how many of them were claimed."""

    first: int
    last: int
    reason: Reason
    claimed: int


class SpecificationForm(msgspec.Struct, tag=SPECIFICATION):
    """The clock stands at `time`. `unread` lines since then could not be read."""

    stacks: Stacks = msgspec.field(default_factory=Stacks)
    time: int = 0
    begun: bool = False
    unread: int = 0
    holes: list[ClockHole] = []
    found: list[MissingLines | None] = []

    @property
    def name(self) -> FormName:
        return SPECIFICATION

    def tick(self, last: str) -> Place:
        time = int(last)
        if time == self.time + 1:
            self.time = time
            if self.unread or not self.begun:
                self.begun, self.unread = True, 0
            return "", self.stacks.frames.get("") or self.stacks.of(""), time, None
        time = _unwrapped(time)
        if time <= self.time:
            return self._back(time)
        self._ahead(time - 1)
        self.time = time
        return "", self.stacks.of(""), time, None

    def at(self, last: str) -> Place:
        time = int(last)
        if time != self.time:
            time = _unwrapped(time)
            if time < self.time:
                return "", None, time, "late"
            self._ahead(time)
        if self.unread:
            self.unread = 0
        return "", self.stacks.frames.get(""), time, None

    def death(self, time: int) -> int:
        """Take a death. All deaths may be written at the end, so one that is behind proves nothing."""
        time = _unwrapped(time)
        if time > self.time:
            self._ahead(time)
        return time

    def unmatched(self, stream: str, method: str) -> None:
        """Do nothing: the clock shows the missing entry."""

    def unreadable(self) -> None:
        self.unread += 1

    def hole(self) -> None:
        self.begun = False

    def expects(self, letter: str, last: str) -> bool:
        return int(last) == self.time + (letter in "MEX")

    def _ahead(self, time: int) -> None:
        """Claim the entries and exits up to and including `time`: they happened and were not seen."""
        reason = Reason.NETWORK if self.begun else Reason.LATE_JOIN
        first, count = self.time + 1, time - self.time - self.unread
        if count > 0:
            self.found.append(MissingLines(count, reason, first, "clock"))
        self.holes.append(ClockHole(first, time, reason, max(0, count)))
        del self.holes[:-HOLES_MAX]
        self.time, self.begun, self.unread = time, True, 0

    def _back(self, time: int) -> Place:
        at = next((i for i, h in enumerate(self.holes) if h.first <= time <= h.last), None)
        if at is not None:
            self._fill(at, time)
            return "", None, time, "late"
        if time == 1 < self.time:
            self.stacks.clear()
            self.time, self.unread, self.holes = 1, 0, []
            self.found.append(None)
            return "", self.stacks.of(""), time, None
        return "", None, time, "repeated_time"

    def _fill(self, at: int, time: int) -> None:
        """Heal one time of a hole, whose line has come after all.

        If unreadable lines explained a part of the hole, only as many lines as were claimed heal it."""
        hole = self.holes[at]
        if hole.claimed:
            self.found.append(MissingLines(1, hole.reason, time, "clock", heal=True))
        claimed = max(0, hole.claimed - 1)
        low = min(claimed, time - hole.first)
        rest = [
            ClockHole(hole.first, time - 1, hole.reason, low),
            ClockHole(time + 1, hole.last, hole.reason, claimed - low),
        ]
        self.holes[at : at + 1] = [part for part in rest if part.first <= part.last]


def _unwrapped(time: int) -> int:
    return time + 2**32 if -(2**31) <= time < 0 else time
