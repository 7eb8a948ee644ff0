"""Handle the two forms of ET3 lines, and determine the form of a trace (docs/formats/et3.md).

The last field of a line is the logical clock in the specification's form, and the thread in the agents' form. Otherwise
lines of the two forms look alike.

**The agents' form.** Only deaths (lines about the end of an object) have a time. The decoder counts the clock itself:
one tick for each entry and exit, including those known to be missing. Two signs show missing lines, and each missing
line is reported once:

- An exit whose method has no open frame in its thread. The sign does not count if an exit of an outer frame has removed
  such a frame. The entry counts as missing (`unmatched_exit`) once a frame ends that was open when the exit came.
- A death whose time is greater than the counted clock. The difference is the number of missing lines (`death_ahead`).

Only a tool that adds deaths after the run gives them times of this clock. The second sign is therefore used (`trusted`)
only once one of these facts shows such a tool:

- The file name shows the tool.
- The times of `TRUST` successive deaths at different places exceed the clock by an equal difference.
- The time of a death is below the clock. Agents never write such a time.

The second sign is never used if the difference changes `DOUBT` times before. All its reports are taken back, and later
deaths are ignored, once a death has a lower time than an earlier death, with entries or exits between the two.

A frame without an exit is no sign of a missing line, because exceptions write no line. But such a frame may be the
entry of an earlier exit, in a file that was reversed or shuffled. If the entry of this exit was reported as missing,
the report is taken back. Instead, the beginning is reported as possibly missing (`no_start`).

The input may be the rest of a longer file that somebody split, and nothing in the input shows this. Lines that may lie
before the input are therefore not counted as missing. They are reported once, as a beginning that may be missing
(`no_start`). Such lines are:

- the entry of an exit, if its thread has no open frame,
- the lines that the first deaths show as missing. Once two deaths at different places have an equal difference, each
  further difference counts as lines that are missing in the input (`AgentForm.base`).

**The specification's form.** Entries and exits have the times 1, 2, 3, ... and any other line has the time of the
previous entry or exit. The clock is a 32-bit int: a negative time continues it from 2**31.

- A jump from t to u means that u-t-1 entries and exits are missing.
- A first time above 1 means that the beginning may be missing (`no_start`). The number of missing lines is unknown.
- A time of 1 after other times begins a new run of the program, unless the time 1 was missing.
- An entry or exit with any other time up to the clock has the flaw `late` if this time was missing, otherwise the flaw
  `repeated_time`. Any other line with a time below the clock is `late`. Such lines do not change the stack.

An unreadable line already has a malformed record, which reports one missing line. The next sign of missing lines
therefore reports one line less.

**The other form.** In a file that joins traces of both forms, a line of the other form is unreadable
(`OtherFormError`), because a thread read as a clock would show millions of missing lines. The decoder recognises such a
line in two ways:

- In the specification's form, the last field exceeds the clock by JUMP_MAX or more. If an entry or exit has such a
  field, and the next one a field higher by 1, the second line is not refused: the clock has jumped.
- In the agents' form, the last field is below CLOCK_LIKELY and no known thread, although a known thread has a number of
  CLOCK_LIKELY or more. One such field must begin or continue a clock first.

After such a line, the times of deaths are ignored, because the form of each death is unknown."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, NamedTuple

import msgspec

from tailrace.decoding.formats.et3.line import Line
from tailrace.decoding.formats.et3.stack import OpenFrame, Stacks
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

SPECIFICATION: Final = "specification"
AGENT: Final = "agent"
FormName = Literal["specification", "agent"]

CLOCK_LIKELY = 2**24
"""Limit that tells clock times from thread numbers, if nothing else shows which of the two the last field of a line is.
Times are below this limit, thread numbers are not.

Thread numbers are 31-bit identity hashes, so this guess is wrong for one thread in 128."""


JUMP_MAX = 2**20
"""If the last field of a line exceeds the clock by at least this much, the field is a thread and not a time: a trace
never lacks so many lines in a row."""


class OtherFormError(ValueError):
    """Signals that a line has another form than the other lines of its trace: it ends with a thread instead of a clock,
    or vice versa."""


LineContext = tuple[str, list[OpenFrame] | None, int, str | None]
"""The stream of a line, the open frames of the stream, the logical time, and the flaw of this time or None.

The open frames are None for a line with a late or repeated time, which changes no frame."""


class MissingLines(NamedTuple):
    """A number of lines that are missing, or that came late after they were reported as missing (`heal`)."""

    lines: int
    reason: Reason = Reason.NETWORK
    first: int | None = None  # Clock time of the first missing or late line, if known.
    detail: str | None = None
    of: str | None = None
    stream: str = ""
    heal: bool = False


NO_START = MissingLines(0, Reason.LATE_JOIN, detail="no_start")
"""A loss of unknown size: the beginning of the input may be missing, for example because it is in another file."""


class Votes:
    """Determines the form of a trace from the last fields of two successive entries or exits.

    - The second field is 1 higher: a clock. Fields of at least CLOCK_LIKELY must rise by 1 twice in succession, because
      two threads may have adjacent numbers.
    - The second field is 1 lower, and both are below CLOCK_LIKELY: a clock, in a reversed file.
    - The fields are equal: threads.
    - The second field is lower, but at least CLOCK_LIKELY: threads. Lower fields show nothing: the file may be sorted.

    The rule is stricter if the configuration states `SPECIFICATION` (`asked`), because a clock may begin anew, and
    lines may come late or twice. Then a first field of 1 shows a clock, and only equal fields of at least CLOCK_LIKELY
    show threads."""

    def __init__(self, asked: FormName | None = None) -> None:
        self._asked = asked
        self._before: int | None = None
        self._rose = False  # whether the last field read was 1 higher than the previous one
        self._highest = -1

    def add(self, line: Line | str) -> FormName | None:
        """Take the next line of the trace. Return the form of the trace if this line shows it, otherwise None."""
        if isinstance(line, Line) and line.kind == "et1":
            return AGENT
        if isinstance(line, str) or line.kind != "event" or line.fields[0] == "D":
            return None
        letter, last = line.fields[0], int(line.fields[-1])
        self._highest = max(self._highest, last)
        if letter not in "MEX":
            return None
        before, self._before = self._before, last
        if before is None:
            return SPECIFICATION if self._asked and last == 1 else None
        rose, self._rose = self._rose, last == before + 1
        if (self._rose and (rose or last < CLOCK_LIKELY)) or before == last + 1 < CLOCK_LIKELY:
            return SPECIFICATION
        lowest = CLOCK_LIKELY if self._asked or last < before else 0
        threads = lowest <= last == before if self._asked else lowest <= last <= before
        return AGENT if threads else None

    def guess(self) -> FormName:
        """Return the form that the configuration states. If it states none, guess the form from the last fields of the
        lines."""
        if self._asked:
            return self._asked
        return SPECIFICATION if self._rose or 0 <= self._highest < CLOCK_LIKELY else AGENT


TRUST = 3
"""If this many successive deaths (lines about the end of an object) have an equal `AgentForm.ahead`, a tool has added
the deaths after the run. Two deaths may have an equal `ahead` by chance."""

DOUBT = 3
"""If `AgentForm.ahead` (the time of a death minus the entries and exits read before it) changes this often, the times
of deaths are never trusted."""

TIME_MAX = 2**62
"""Maximum time of a death (the end of an object). A larger time is damaged, and does not change the clock."""


class AgentForm(msgspec.Struct, tag=AGENT):
    """The clock, the open frames and the losses of a trace whose lines end with a thread."""

    name: ClassVar[FormName] = AGENT
    stacks: Stacks = msgspec.field(default_factory=Stacks)
    time: int = 0  # Number of entries and exits that were read or are known to be missing.
    lost: int = 0  # Number of entries and exits in `time` that are missing.
    trusted: bool = False  # Whether the times of deaths show missing lines.
    ahead: int = 0  # Time of the last death minus the number of entries and exits read before it.
    # Number of successive deaths with equal `ahead`. Between two of them, there are entries or exits.
    agreeing: int = 0
    agreed_at: int = -1  # Number of entries and exits read before the last death in `agreeing`.
    disagreements: int = 0  # How often `ahead` changed before deaths were trusted.
    unread: int = 0  # Number of unreadable lines since the last trusted death.
    # Once two deaths agree (have an equal `ahead`): the number of missing lines that they show. Unreadable lines are
    # subtracted. These lines may lie before the input. -1 as long as no deaths agree.
    base: int = -1
    late: bool = False  # Whether `NO_START` is reported.
    excused: int = 0  # Number of unmatched exits whose entry may be an unreadable line.
    died: int = 0  # Highest time of a death.
    died_at: int = -1  # Number of entries and exits read before this death.
    claimed: int = 0  # Number of lines that deaths report as missing; -1 once deaths are out of order and ignored.
    # Missing and late lines that became known with the last line. None stands for a new run of the program.
    found: list[MissingLines | None] = []
    mixed: bool = False  # Whether there were lines that end with a clock.
    clock: int = 0  # Last field of the last line that may end with a clock.

    def tick(self, last: str) -> LineContext:
        """Count an entry or exit whose last field is `last`. Return its stream, open frames and time (`LineContext`).

        Raise OtherFormError if `last` is probably a clock, as in the other form of ET3 (`SpecificationForm`). A second
        call for the same line raises the error again."""
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 1)
            frames = self.stacks.of(last)
        time = self.time = self.time + 1
        return last, frames, time, None

    def at(self, last: str) -> LineContext:
        """Return stream, open frames and time (`LineContext`) of a line that is neither an entry, nor an exit, nor a
        death of an object.

        Raise OtherFormError if the last field is probably a clock, as in the other form of ET3
        (`SpecificationForm`)."""
        frames = self.stacks.frames.get(last)
        if frames is None:
            self._refuse_clock(int(last), 0)
        return last, frames, self.time, None

    def death(self, time: int) -> int:
        """Process the death (end) of an object. Its time, `time`, may show that lines are missing. Return the time for
        the record of the death."""
        if self.mixed or self.claimed < 0 or time > TIME_MAX:
            return time  # The time of the death is damaged or from another clock, so it must not change the counted clock.
        lines = self.time - self.lost
        if 0 <= time < self.died and lines > self.died_at:
            self._forget_deaths()
            return time
        if time >= self.died:
            self.died, self.died_at = time, lines
        if 0 <= time < self.time:
            self._behind()
        elif time >= 0:
            self._weigh(time - (self.time - self.lost))
        return time

    def unmatched(self, stream: str, method: str) -> None:
        """Handle an exit from a method that has no open frame. If its entry is not in the input, remember the exit in
        `stacks` or, if the thread has no open frame at all, report that the beginning may be missing."""
        if not self.stacks.lacks(stream, method):
            return
        if frames := self.stacks.frames[stream]:
            self.stacks.doubt(stream, frames, method)
        else:
            self._begin_late()

    def matched(self, stream: str, number: int) -> int:
        """Report the missing entries that the exit of frame `number` proves. Return by how many ticks they advance the
        clock."""
        count = self.stacks.proven(stream, number, self.excused)
        excused = min(count, self.excused)
        self.excused -= excused
        count -= excused
        if count:
            self.found.append(
                MissingLines(count, detail="unmatched_exit", of=Kind.BEGIN, stream=stream)
            )
            self.time += count
            self.lost += count
        return count

    def take_back(self) -> None:
        """Take back reports of missing entries, because these entries may be in the file, after their exits
        (`Stacks.behind`). Report instead that the beginning may be missing."""
        for stream, count in self.stacks.behind.items():
            self._heal(MissingLines(count, detail="unmatched_exit", of=Kind.BEGIN, stream=stream))
        self.stacks.behind.clear()
        self._begin_late()

    def settle(self, *, ended: bool) -> None:
        """Take back each report of a missing entry if this entry may be a frame that is still open. The input pauses or
        has `ended`."""
        for stream, frames in self.stacks.frames.items():
            self.stacks.explain(stream, frames)
        self.stacks.settled = self.stacks.number
        if self.stacks.behind:
            self.take_back()
        if ended and self.stacks.doubts > self.excused:
            self._begin_late()

    def unreadable(self) -> None:
        """Count an unreadable line, whose malformed record already reports one missing line."""
        self.unread += 1
        self.excused += 1

    def hole(self) -> None:
        """Do nothing, because any trace may lack its beginning."""

    def expects(self, letter: str, last: str) -> bool:
        """Return whether `last` is the expected clock or a known thread, so that the line is probably whole."""
        return int(last) == self.time if letter == "D" else last in self.stacks.frames

    def _refuse_clock(self, number: int, step: int) -> None:
        """Raise OtherFormError if the last field is probably a clock. `step` is 1 for an entry or exit, else 0."""
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
        """Trust the times of deaths, because only a tool writes a time below the clock. Do not trust them if `ahead`,
        the lead of these times over the lines read, has changed `DOUBT` times."""
        if self.disagreements >= DOUBT:
            return
        if not self.trusted and self.agreed_at == self.time - self.lost:
            # Since the last death, whose time was above the clock, no line of an entry or exit was read.
            self._claim(max(0, self.ahead - self.lost))
        self.trusted = True

    def _weigh(self, ahead: int) -> None:
        """Trust the times of deaths after `TRUST` deaths with equal `ahead` (time minus the number of entries and exits
        read before). If these times are trusted, report the missing lines that they show."""
        lines = self.time - self.lost
        if self.trusted:
            self._claim(ahead - self.lost)
            if self.base >= 0:
                return
        if ahead != self.ahead:
            self.disagreements += self.agreeing > 0
            self.ahead, self.agreeing, self.agreed_at = ahead, 1, lines
        elif lines != self.agreed_at:
            self.agreeing += 1
            self.agreed_at = lines
            if self.base < 0 and self.agreeing > 1:
                self.base = max(0, ahead - self.lost - self.unread)
        if self.agreeing >= TRUST and self.disagreements < DOUBT and not self.trusted:
            self.trusted = True
            self._claim(ahead - self.lost)

    def _claim(self, ahead: int) -> None:
        """Advance the clock by `ahead` ticks. Report the missing lines, except those that may be unreadable lines or
        may lie before the input (`base`)."""
        count = ahead - self.unread
        certain = 0 if self.base < 0 else max(0, count - self.base)
        if certain > 0:
            self.claimed += certain
            self.found.append(MissingLines(certain, detail="death_ahead"))
        if count > certain:
            self._begin_late()
        self.excused = max(0, self.excused + (certain if count > 0 else count))
        self.base = min(self.base, 0)
        self.lost += ahead
        self.time += ahead
        self.unread = 0

    def _forget_deaths(self) -> None:
        """Take back the reports of missing lines that were inferred from the times of deaths, and ignore later deaths:
        the lines are out of order."""
        if self.claimed:
            self._heal(MissingLines(self.claimed, detail="death_ahead"))
        if self.claimed or self.disagreements < DOUBT:
            # The cause may be one damaged time. From here on, deaths show no missing lines, so report a gap of
            # unknown size.
            self._begin_late()
        self.claimed = -1

    def _heal(self, loss: MissingLines) -> None:
        if loss.lines:
            self.found.append(loss._replace(heal=True))
        # If lines are missing after all, a later death with a valid time shows this, and they are reported again.
        back = max(0, min(loss.lines, self.lost))
        self.lost -= back
        self.time -= back

    def _begin_late(self) -> None:
        if not self.late:
            self.late = True
            self.found.append(NO_START)


HOLES_MAX = 256
"""Maximum number of stored ranges of missing clock times. If there are more, the oldest range is removed, and a late
line in this range no longer takes a gap back."""


class ClockHole(msgspec.Struct, array_like=True):
    """Clock times without an entry or exit. `claimed` is the number of lines that are reported as missing."""

    first: int
    last: int
    reason: Reason
    claimed: int


class SpecificationForm(msgspec.Struct, tag=SPECIFICATION):
    """The clock, the open frames and the losses of a trace whose lines end with a clock (see `AgentForm`)."""

    name: ClassVar[FormName] = SPECIFICATION
    stacks: Stacks = msgspec.field(default_factory=Stacks)
    time: int = 0
    begun: bool = False  # Whether the clock was seen; false if the beginning was removed.
    unread: int = 0  # Number of unreadable lines since the clock reached `time`.
    holes: list[ClockHole] = []  # Ranges of missing clock times.
    found: list[MissingLines | None] = []
    # None if no line had the agents' form. Otherwise the thread of the last entry or exit in this form, or -1 if only
    # lines of other kinds had it.
    other: int | None = None

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
        if self.unread or not self.begun:
            self.begun, self.unread = True, 0
        return "", self.stacks.frames.get(""), time, None

    def death(self, time: int) -> int:
        """Read the death of an object. A time below the clock proves nothing: a tool may write all deaths last."""
        time = _unwrapped(time)
        if time > self.time and self.other is None and not self._is_too_far(time):
            self._ahead(time)
        return time

    def unmatched(self, stream: str, method: str) -> None:
        """Do nothing: in this form, a jump of the clock already shows missing entries."""

    def matched(self, stream: str, number: int) -> int:  # noqa: ARG002 - a jump of the clock shows them
        return 0

    def take_back(self) -> None:
        """Do nothing: when a late line is read, the gap that reported this line missing is taken back at once."""

    def settle(self, *, ended: bool) -> None:
        """Do nothing: when a late line is read, the gap that reported this line missing is taken back at once."""

    def unreadable(self) -> None:
        self.unread += 1

    def hole(self) -> None:
        self.begun = False

    def expects(self, letter: str, last: str) -> bool:
        return int(last) == self.time + (letter in "MEX")

    def _is_too_far(self, time: int) -> bool:
        return self.begun and time - self.time >= JUMP_MAX

    def _ahead(self, time: int) -> None:
        """Move the clock to `time`. Report the skipped ticks as missing lines, except for unreadable lines, which have
        records already. If this is the first time in the input, report instead that the beginning may be missing."""
        reason = Reason.NETWORK if self.begun else Reason.LATE_JOIN
        first, count = self.time + 1, max(0, time - self.time - self.unread)
        known = self.begun or self.time > 0
        if count:
            lines = MissingLines(count, reason, first, "clock")
            self.found.append(lines if known else NO_START)
        self.holes.append(ClockHole(first, time, reason, count if known else 0))
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
        """Remove a late line's time from the range `holes[at]`, and take back the report of one missing line if lines
        of the range were reported."""
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


Form = AgentForm | SpecificationForm


def _unwrapped(time: int) -> int:
    return time + 2**32 if -(2**31) <= time < 0 else time
