"""Handle the two forms of ET3 lines, and determine the form of a trace.

The last field of a line is the logical clock in the specification's form, and the thread in the agents' form. Otherwise
lines of both forms look alike (docs/formats/et3.md).

**The agents' form.** Each line ends with the thread. Only deaths (lines about the end of an object) have a time. The
decoder therefore counts the clock itself, like the tools that add the deaths after the run: one tick for each entry and
exit, including entries and exits that are known to be missing. Two signs show missing lines. Each missing line is
reported only once (docs/formats/et3.md):

- An exit whose method is not on the stack of its thread: the entry is missing (`unmatched_exit`). The sign is not valid
  if an exit of an outer frame has removed a frame of this method before.
- A death whose time is greater than the counted clock: the difference is the number of missing lines (`death_ahead`).
  The sign is valid only if a tool added the deaths after the run, because agents that write deaths during the run use
  another clock.

The second sign is therefore used (`trusted`) only in three cases:

- The file name shows that a tool added the deaths.
- The times of `TRUST` deaths at different places exceed the clock by the same difference.
- The time of a death is below the counted clock. A running agent never writes such a death.

If the difference changes `DOUBT` times before one of these cases occurs, the second sign is never used.

An unreadable line itself counts as missing. The next exit without an entry and the next tick that deaths show are
therefore not reported. Frames without an exit are no sign of missing lines, because exceptions write no line. The
decoder cannot recognise a new run of the program.

**The specification's form.** Each line ends with the logical clock, and no line names a thread. The clock counts
entries and exits: they have the times 1, 2, 3, ... and any other line has the time of the previous entry or exit. The
number of missing entries and exits is therefore exact, except at the end of a trace. The number of other missing lines
is unknown (docs/formats/et3.md). A jump from t to u means that u-t-1 entries and exits are missing. At the beginning of
a trace, the gap that reports them has the reason `late_join`. Any other line with a time greater than the clock shows
missing lines, too. A time of 1 after other times begins a new run of the program. Any other earlier time is `late` if
it was missing, otherwise a `repeated_time`. A late line is subtracted from the reported gap. Late and repeated lines do
not change the stack.

An unreadable line itself counts as missing. At a jump of the clock, the unreadable lines since the last readable line
are therefore subtracted from the number of missing lines.

The agents' clock is a 32-bit int. A negative time continues the clock from 2**31.

**The other form.** In a file that joins traces of both forms, some lines have the other form. Such a line is unreadable
(`OtherFormError`). A thread that was read as a clock would show millions of missing lines.

In a trace of the specification's form, a line has the other form if its last field exceeds the clock by JUMP_MAX or
more. If the next such entry or exit has a field that is 1 higher, however, its field is the clock.

In a trace of the agents' form, a line may have the other form if its last field is below CLOCK_LIKELY and not a known
thread, and if a known thread has a number of CLOCK_LIKELY or more. The first line that has the other form must also
have the number 1, or a number that is 1 higher than in the previous such line. From then on, the times of deaths are
ignored, because the form of each death is unknown."""

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
"""Limit between clock times and thread numbers in the last field of a line. A number below the limit is probably a
time, and a larger number is probably a thread. Thread numbers are 31-bit identity hashes, so that the guess is wrong
for one thread in 128. The limit is used only if the comparison of successive lines shows nothing."""


JUMP_MAX = 2**20
"""If the last field of a line exceeds the clock by at least this number, the field is probably a thread. If the field
were a time, so many successive lines would be missing, which does not occur."""


class OtherFormError(ValueError):
    """Signals that a line has another form than its trace. Lines of one form end with a clock, lines of the other form
    with a thread."""


LineContext = tuple[str, list[OpenFrame] | None, int, str | None]
"""The context in which a line is read: its stream, the open frames of the stream, the logical time, and the flaw
(broken rule) of this time, or None.

The open frames are None for a line with a late or repeated time, which cannot open or close a frame."""


class MissingLines(NamedTuple):
    """A number of lines that are missing, or of lines that were reported as missing and have come late (`heal`).

    `first` is the clock time of the first of these lines, if the time is known."""

    lines: int
    reason: Reason = Reason.NETWORK
    first: int | None = None
    detail: str | None = None
    of: str | None = None
    stream: str = ""
    heal: bool = False


class Form(Protocol):
    """The clock and the open frames of one ET3 trace, in one of the two forms of lines.

    `found` lists what the last line has shown: missing lines, late lines, and None for the begin of a new run of the
    program. The reader of the lines reports and clears it after each line."""

    stacks: Stacks
    found: list[MissingLines | None]
    time: int

    @property
    def name(self) -> FormName: ...

    def tick(self, last: str) -> LineContext:
        """Count an entry or exit whose last field is `last`. Return the line's stream, open frames and logical time
        (`LineContext`).

        Raise OtherFormError, also at a second call for the line, if the last field shows that the line has another form
        than the trace."""
        ...

    def at(self, last: str) -> LineContext:
        """Return stream, open frames and logical time (`LineContext`) of a line that is neither an entry, nor an exit,
        nor a death of an object. `last` is the last field of the line. Raise OtherFormError if this field shows that
        the line has another form than the trace."""
        ...

    def death(self, time: int) -> int:
        """Read the death of an object, whose `time` may show that lines are missing.

        Return the time for the death's record."""
        ...

    def unmatched(self, stream: str, method: str) -> None:
        """Handle an exit whose entry is not on the stack. If the entry is certainly missing, add it to `found`."""
        ...

    def unreadable(self) -> None:
        """Count an unreadable line, whose malformed record already reports one missing line. The next gap therefore
        reports one line less."""
        ...

    def hole(self) -> None:
        """Mark the trace as one whose beginning was removed."""
        ...

    def expects(self, letter: str, last: str) -> bool:
        """Return whether `last` is the expected last field of a next line with this letter: the expected clock, or a
        known thread. If a line was truncated, its last field differs."""
        ...


class Votes:
    """Determines the form of a trace: whether its lines end with a clock or with a thread. The last fields of two
    successive entries or exits decide.

    If the second field is 1 higher, the fields are a clock. If it is equal or lower, the fields are threads. Any other
    second field decides nothing: the fields are a clock with missing lines, or two threads.

    `asked` is the form in the configuration, or None. If `asked` is `SPECIFICATION`, a first field of 1 already shows a
    clock. Only two equal fields of at least CLOCK_LIKELY then show threads, because a clock may begin anew, and lines
    may come late or twice."""

    def __init__(self, asked: FormName | None = None) -> None:
        self._asked = asked
        self._before: int | None = None
        self._highest = -1

    def add(self, line: Line) -> FormName | None:
        """Take the next line of the trace. Return the form of the trace (lines end with a clock or with a thread) if
        this line shows it, otherwise None."""
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
            return SPECIFICATION if self._asked and last == 1 else None
        if last == before + 1:
            return SPECIFICATION
        threads = last <= before if not self._asked else CLOCK_LIKELY <= last == before
        return AGENT if threads else None

    def guess(self) -> FormName:
        """Return the likely form of a trace whose lines did not decide the form (`add`). The form in the configuration
        comes first. Without it, return `SPECIFICATION` if the last fields of all lines are below `CLOCK_LIKELY`, or
        else `AGENT`."""
        if self._asked:
            return self._asked
        return SPECIFICATION if 0 <= self._highest < CLOCK_LIKELY else AGENT


TRUST = 3
"""Number of successive deaths (lines about the end of an object) that show that a tool has added the deaths after the
run. The time of each must exceed the number of entries and exits before it by the same difference (`AgentForm.ahead`).
Two deaths that an agent wrote during the run may have the same difference by chance."""

DOUBT = 3
"""Number of changes of `AgentForm.ahead` after which the decoder never trusts the times of deaths (lines about the end
of an object). `ahead` is the difference between the time of a death and the number of entries and exits before it."""

TIME_MAX = 2**62
"""Maximum time of a death (a line about the end of an object). A larger time is damaged, and does not change the
decoder's clock (`AgentForm.time`)."""


class AgentForm(msgspec.Struct, tag=AGENT):
    """The clock, the open frames and the losses of a trace whose lines end with a thread. The decoder counts the clock
    itself, because only deaths (lines about the end of an object) have a time.

    time: the counted clock: the number of entries and exits that were read or are known to be missing.
    lost: the number of these entries and exits that are missing.
    trusted: whether deaths have times of the counted clock. A greater time then shows missing lines.
    ahead: the time of the last death minus the number of entries and exits read before it.
    agreeing: the number of successive deaths with an equal `ahead` and with entries or exits between them.
    agreed_at: the number of entries and exits read before the last of these deaths.
    disagreements: how often `ahead` changed before deaths were trusted.
    unread: the number of unreadable lines since the clock was last compared with the time of a trusted death.
    excused: the number of exits without an entry that are not reported, because an unreadable line may be the entry.
    reason: the reason of gaps for missing entries: `LATE_JOIN` if the beginning of the trace was removed.
    mixed: whether there were lines in the specification's form, which end with a clock.
    clock: the last field, read as a clock, of the last line that may have the specification's form."""

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

    def tick(self, last: str) -> LineContext:
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 1)
            frames = self.stacks.of(last)
        time = self.time = self.time + 1
        return last, frames, time, None

    def at(self, last: str) -> LineContext:
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 0)
        return last, frames, self.time, None

    def death(self, time: int) -> int:
        if self.mixed or time > TIME_MAX:
            return time  # The time of the death is damaged or from another clock, so it must not change the counted clock.
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
        """Raise OtherFormError if the last field of a line is probably a clock instead of a thread. `step` is the
        number of ticks by which a line of this type advances the clock: 1 for an entry or exit, otherwise 0."""
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
        """Set `trusted`, because a death (a line about the end of an object) has a time below the counted clock. Only
        tools that add deaths after the run write such a time.

        If the time of the previous death was above the clock, and no entry or exit was read since, report the lines
        that are missing according to this time."""
        if self.disagreements >= DOUBT:
            return
        if not self.trusted and self.agreed_at == self.time - self.lost:
            self._claim(max(0, self.ahead - self.lost))
        self.trusted = True

    def _weigh(self, ahead: int) -> None:
        """Compare a death (a line about the end of an object) with earlier deaths. `ahead` is the death's time minus
        the number of entries and exits read.

        After `TRUST` deaths with an equal `ahead`, set `trusted`: the same number of lines is missing before each of
        them."""
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
        """Advance the clock by `ahead` ticks, because the time of a death (a line about the end of an object) shows
        that so many entries and exits are missing. Report their number less the number of unreadable lines before,
        because these lines are reported already."""
        count = ahead - self.unread
        if count > 0:
            self.found.append(MissingLines(count, detail="death_ahead"))
        self.excused = max(0, self.excused + count)
        self.lost += ahead
        self.time += ahead
        self.unread = 0


HOLES_MAX = 256
"""Maximum number of stored ranges of missing clock times. If there are more, the oldest ranges are removed. A late line
in a removed range is then not subtracted from the reported gap."""


class ClockHole(msgspec.Struct, array_like=True):
    """A range of clock times, `first` to `last`, for which no entry or exit has arrived. A gap has reported the range,
    with the reason `reason` and `claimed` missing entries and exits."""

    first: int
    last: int
    reason: Reason
    claimed: int


class SpecificationForm(msgspec.Struct, tag=SPECIFICATION):
    """The clock, the open frames and the losses of a trace whose lines end with a clock.

    time: the current clock.
    begun: whether the clock was seen. Becomes false if the beginning of the trace was removed (`hole`).
    unread: the number of unreadable lines since the clock reached `time`.
    holes: the ranges of missing clock times. If a line with such a time comes late, a heal record subtracts the line
    from the reported gap. other: the last field of the last entry or exit that had the other form (a thread); -1 if
    only lines of other kinds had this form; None if no line had this form."""

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

    def tick(self, last: str) -> LineContext:
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

    def at(self, last: str) -> LineContext:
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
        """Read the death of an object. If the death's `time` is after the last entry or exit, report the entries and
        exits up to this time as missing.

        An earlier time proves nothing, because a tool may write all deaths at the end of the trace."""
        time = _unwrapped(time)
        if time > self.time and self.other is None and not self._is_too_far(time):
            self._ahead(time)
        return time

    def unmatched(self, stream: str, method: str) -> None:
        """Do nothing for an exit without an entry, because a jump of the clock shows missing entries."""

    def unreadable(self) -> None:
        self.unread += 1

    def hole(self) -> None:
        self.begun = False

    def expects(self, letter: str, last: str) -> bool:
        return int(last) == self.time + (letter in "MEX")

    def _is_too_far(self, time: int) -> bool:
        return self.begun and time - self.time >= JUMP_MAX

    def _ahead(self, time: int) -> None:
        """Move the clock forward to `time`, and report the skipped entries and exits as missing, without unreadable
        lines: the records of these lines already report them."""
        reason = Reason.NETWORK if self.begun else Reason.LATE_JOIN
        first, count = self.time + 1, time - self.time - self.unread
        if count > 0:
            self.found.append(MissingLines(count, reason, first, "clock"))
        self.holes.append(ClockHole(first, time, reason, max(0, count)))
        del self.holes[:-HOLES_MAX]
        self.time, self.begun, self.unread = time, True, 0

    def _back(self, time: int) -> LineContext:
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
        """Remove `time` from the range `holes[at]` of missing clock times, because the line with this time has arrived
        late.

        Add a heal to `found`, which takes one line of the reported gap back. A gap does not count unreadable lines, so
        it may have fewer lines than the range has times. Add no heal if all lines of the gap have arrived."""
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
