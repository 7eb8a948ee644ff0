"""The two forms of ET3, their interface, and which of them a trace has.

**The agents' form.** Each line ends with the thread, and only deaths have a time. So the clock is counted here, as the tools do that add the deaths: one tick for each entry and exit, those
known to be missing included. Missing lines show in two ways, and the first one that notices a line
claims it (docs/formats/et3.md):

- An exit whose method is nowhere on its thread's stack: its entry is missing (`unmatched_exit`),
  unless an exit of a frame below seems to have passed over a frame of this method.
- A death ahead of the counted clock, by as much as it is ahead (`death_ahead`). This holds where
  deaths were added after the run, at their time or all at the end. Agents that wrote deaths during
  the run used another clock. So deaths are `trusted` only in three cases: their file's name says that
  they were added; TRUST of them at different places agree on how far they are ahead; or a death is
  behind, as a running agent's never is. If they disagree too often before that, they prove nothing.

An unreadable line counts as missing by itself, and explains one exit and one tick of the clock. Frames
that an exit passed over and frames that were never left prove nothing: exceptions have no line.
A new run of the program cannot be seen.

**The specification's form.** Each line ends with the logical clock, and no line names a thread. The clock counts entries and exits: they have the times 1, 2, 3, ... and any other line has the time of
the last of them. So missing entries and exits are known exactly, except at a trace's end, and nothing
is known of other missing lines (docs/formats/et3.md). A jump from t to u means that u-t-1 are missing, at
the beginning as `late_join`; any other line that is ahead proves the same earlier. A time of 1 after
other times is a new run of the program. A time below the last one is `late` if it was missing, which
heals the gap, and else `repeated_time`; such lines stand outside the stack.

An unreadable line counts as missing by itself. So a hole in the clock claims only what the unreadable
lines since the last good one do not explain.

The agents' clock is an int of 32 bits. A negative time counts on from 2**31.

**The other form.** Where traces were joined, a line may have the form that its trace does not have. It is unreadable
(`OtherFormError`): a thread is no clock, and the jump to it would claim millions of lines; a clock is no thread.
In the specification's form these are lines JUMP_MAX or more ahead, until two entries or exits rise by 1. In the agents'
form they are lines with numbers below CLOCK_LIKELY that no thread has, from the first two on that rise by 1, or the
first at 1, if some thread has a larger number. From then on deaths prove nothing, since nobody knows of which form they are.

A line's last field is the logical clock in the specification's form, and the thread in the agents'
form; otherwise the lines look the same (docs/formats/et3.md).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from tailrace.decoding.formats.et3.line import Line
from tailrace.decoding.formats.et3.stack import OpenFrame, Stacks
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

SPECIFICATION: Final = "specification"
AGENT: Final = "agent"
FormName = Literal["specification", "agent"]

CLOCK_LIKELY = 2**24
"""A number below this is likely a clock, any other a thread. Threads are named by identity hashes of 31
bits, so this is wrong for one in 128. Used only where no two lines could be compared."""


JUMP_MAX = 2**20
"""A clock that jumps so far is likely a thread: no file lacks as many lines in its middle."""


class OtherFormError(ValueError):
    """A line has not the form of its trace."""


LinePlace = tuple[str, list[OpenFrame] | None, int, str | None]
"""The place of a line: its stream and the stream's open frames, the logical time, the flaw of the place.
Frames are None for a line out of order, which can neither open nor close one."""


class MissingLines(NamedTuple):
    """Lines known to be missing (`heal`: or come after all), from `first` on by the trace's clock."""

    lines: int
    reason: Reason = Reason.NETWORK
    first: int | None = None
    detail: str | None = None
    of: str | None = None
    stream: str = ""
    heal: bool = False


class Form(Protocol):
    """One trace as far as it was read. The last line adds to `found` what it proves to be missing, or None
    for the beginning of a new run; the reader of the lines empties it."""

    stacks: Stacks
    found: list[MissingLines | None]
    time: int

    @property
    def name(self) -> FormName: ...

    def tick(self, last: str) -> LinePlace:
        """Return the place of an entry or exit with this last field. Raise OtherFormError for a line of the other form,
        each time that it is read."""
        ...

    def at(self, last: str) -> LinePlace:
        """Return the place of any other line except a death; raise as `tick` does."""
        ...

    def death(self, time: int) -> int:
        """Take a death with the time that it gives; return the time for its column."""
        ...

    def unmatched(self, stream: str, method: str) -> None:
        """Note an exit whose entry is not on its stack."""
        ...

    def unreadable(self) -> None:
        """Note an unreadable line, which is counted as missing elsewhere."""
        ...

    def hole(self) -> None:
        """Note that the beginning of the trace was taken away, so that it begins in the middle."""
        ...

    def expects(self, letter: str, last: str) -> bool:
        """Return whether this last field is the likely one, which a field cut short is not."""
        ...


class Votes:
    """Tells the form by the last fields of a trace's first lines.

    If the last fields of two successive entries or exits rise by exactly 1, they are a clock; if the second
    is the same or less, a thread. A larger rise is a clock with losses, or two threads.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._highest = -1

    def add(self, line: Line) -> FormName | None:
        """Add a line; return the form if this line decides it."""
        if line.kind == "et1":
            return AGENT
        letter = line.fields[0] if line.kind == "event" else ""
        if letter in {"", "D"}:
            return None
        last = int(line.fields[-1])
        self._highest = max(self._highest, last)
        if letter not in "MEX":
            return None
        before, self._before = self._before, last
        if before is None:
            return None
        if last == before + 1:
            return SPECIFICATION
        return AGENT if last <= before else None

    def guess(self) -> FormName:
        """Return the form by the size of the numbers, since comparing them did not tell."""
        return SPECIFICATION if 0 <= self._highest < CLOCK_LIKELY else AGENT


TRUST = 3
"""How many deaths must agree. Two neighbours may agree on a running agent's clock as well, which runs
about 17 times as fast as the lines that it writes."""

DOUBT = 3
"""After so many disagreements no agreement counts."""

TIME_MAX = 2**62
"""The latest time of a death that the clock can be set to."""


class AgentForm(msgspec.Struct, tag=AGENT):
    """The counted clock stands at `time`. `lost` of its ticks are missing lines, the others were read.

    ahead, agreeing, agreed_at: how far the last deaths were ahead of the lines read, how many of
        them agreed on this, and how many lines had been read at the latest of them.
    disagreements: how often `ahead` changed before deaths were trusted.
    unread: unreadable lines since deaths and clock last agreed.
    excused: exits that need no entry, because a line that may be it is counted as missing.
    reason: of missing entries; in a trace that begins in the middle, they came before it.
    mixed: lines of the other form have come. `clock`: the last number that may have been their clock.
    """

    stacks: Stacks = msgspec.field(default_factory=Stacks)
    time: int = 0
    lost: int = 0
    trusted: bool = False
    ahead: int = 0
    agreeing: int = 0
    agreed_at: int = -1
    disagreements: int = 0
    unread: int = 0
    excused: int = 0
    reason: Reason = Reason.NETWORK
    found: list[MissingLines | None] = []
    mixed: bool = False
    clock: int = 0

    @property
    def name(self) -> FormName:
        return AGENT

    def tick(self, last: str) -> LinePlace:
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 1)
            frames = self.stacks.of(last)
        time = self.time = self.time + 1
        return last, frames, time, None

    def at(self, last: str) -> LinePlace:
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 0)
        return last, frames, self.time, None

    def death(self, time: int) -> int:
        if self.mixed or time > TIME_MAX:
            return time  # of another clock, or a damaged number: the clock could not count on from there
        if 0 <= time < self.time:
            self._behind()
        elif self.trusted:
            self._claim(time - self.time)
        elif time >= 0:
            self._weigh(time - (self.time - self.lost))
        return time

    def unmatched(self, stream: str, method: str) -> None:
        if not self.stacks.proves(stream, method):
            return
        if self.excused:
            self.excused -= 1
        else:
            self.found.append(
                MissingLines(1, self.reason, detail="unmatched_exit", of=Kind.BEGIN, stream=stream)
            )
            self.time += 1
            self.lost += 1

    def unreadable(self) -> None:
        self.unread += 1
        self.excused += 1

    def hole(self) -> None:
        self.reason = Reason.LATE_JOIN

    def expects(self, letter: str, last: str) -> bool:
        return int(last) == self.time if letter == "D" else last in self.stacks.frames

    def _refuse_clock(self, number: int, step: int) -> None:
        """Raise if a number that is no known thread is a clock, which has gone on by `step` with its line."""
        if not 0 <= number < CLOCK_LIKELY:
            return
        if not any(int(thread) >= CLOCK_LIKELY for thread in self.stacks.frames):
            return
        self.mixed = self.mixed or number in (step, self.clock + step)
        if self.mixed:
            raise OtherFormError
        if step:
            self.clock = number

    def _behind(self) -> None:
        """Trust deaths: they were added after the run, and so was a death that was ahead at this place."""
        if self.disagreements >= DOUBT:
            return
        if not self.trusted and self.agreed_at == self.time - self.lost:
            self._claim(max(0, self.ahead - self.lost))
        self.trusted = True

    def _weigh(self, ahead: int) -> None:
        """Compare a death with those before it, by how far it is ahead of the lines, until deaths are trusted."""
        lines = self.time - self.lost
        if ahead != self.ahead:
            self.disagreements += self.agreeing > 0
            self.ahead, self.agreeing, self.agreed_at = ahead, 1, lines
        elif lines != self.agreed_at:
            self.agreeing += 1
            self.agreed_at = lines
        if self.agreeing >= TRUST and self.disagreements < DOUBT:
            self.trusted = True
            self._claim(ahead - self.lost)

    def _claim(self, ahead: int) -> None:
        """Claim so many entries and exits as missing as the clock is `ahead` of the count.

        Unreadable lines are some of them; if there were more, the others were lines of other kinds."""
        count = ahead - self.unread
        if count > 0:
            self.found.append(MissingLines(count, detail="death_ahead"))
        self.excused = max(0, self.excused + count)
        self.lost += ahead
        self.time += ahead
        self.unread = 0


HOLES_MAX = 256
"""How many holes late lines can heal; beyond, the oldest are forgotten."""


class ClockHole(msgspec.Struct, array_like=True):
    """Times of missing entries and exits, both included, and how many of them were claimed."""

    first: int
    last: int
    reason: Reason
    claimed: int


class SpecificationForm(msgspec.Struct, tag=SPECIFICATION):
    """The clock stands at `time`. `unread` lines since then could not be read.

    other: the last field of the last entry or exit that was too far ahead, -1 if only other lines were.
    """

    stacks: Stacks = msgspec.field(default_factory=Stacks)
    time: int = 0
    begun: bool = False
    unread: int = 0
    holes: list[ClockHole] = []
    found: list[MissingLines | None] = []
    other: int | None = None

    @property
    def name(self) -> FormName:
        return SPECIFICATION

    def tick(self, last: str) -> LinePlace:
        time = int(last)
        if time == self.time + 1:
            self.time = time
            if self.unread or not self.begun:
                self.begun, self.unread = True, 0
            return "", self.stacks.frames.get("") or self.stacks.of(""), time, None
        time = _unwrapped(time)
        if time <= self.time:
            return self._back(time)
        if self._is_too_far(time) and time - 1 != self.other:
            self.other = time
            raise OtherFormError
        self._ahead(time - 1)
        self.time = time
        return "", self.stacks.of(""), time, None

    def at(self, last: str) -> LinePlace:
        time = int(last)
        if time != self.time:
            time = _unwrapped(time)
            if time < self.time:
                return "", None, time, "late"
            if self._is_too_far(time):
                self.other = -1 if self.other is None else self.other
                raise OtherFormError
            self._ahead(time)
        if self.unread:
            self.unread = 0
        return "", self.stacks.frames.get(""), time, None

    def death(self, time: int) -> int:
        """Take a death. All deaths may be written at the end, so one that is behind proves nothing."""
        time = _unwrapped(time)
        if time > self.time and self.other is None and not self._is_too_far(time):
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

    def _is_too_far(self, time: int) -> bool:
        return self.begun and time - self.time >= JUMP_MAX

    def _ahead(self, time: int) -> None:
        """Claim the entries and exits up to and including `time`: they happened and were not seen."""
        reason = Reason.NETWORK if self.begun else Reason.LATE_JOIN
        first, count = self.time + 1, time - self.time - self.unread
        if count > 0:
            self.found.append(MissingLines(count, reason, first, "clock"))
        self.holes.append(ClockHole(first, time, reason, max(0, count)))
        del self.holes[:-HOLES_MAX]
        self.time, self.begun, self.unread = time, True, 0

    def _back(self, time: int) -> LinePlace:
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
