"""What the two forms of ET3 have in common, and which of them a trace is in.

In the specification's form the last field of a line is the logical clock, in that of the agents
the thread; the lines look the same (docs/formats/et3.md).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from tailrace.decoding.formats.et3.line import Line
from tailrace.decoding.formats.et3.stack import Frame, Stacks
from tailrace.model.gap import Reason

SPECIFICATION: Final = "specification"
AGENT: Final = "agent"
FormName = Literal["specification", "agent"]

CLOCK_LIKELY = 2**24
"""Of a number alone: a clock if below this, else a thread. One thread in 128 is not seen by this:
threads are called by identity hashes of 31 bits. Used only where no two lines could be compared."""


Place = tuple[str, list[Frame] | None, int, str | None]
"""Where a line stands: its stream and the frames open there, the logical time, the rule it breaks.
No frames for a line out of its order, which can neither open nor close one."""


class Loss(NamedTuple):
    """Lines known to be missing (or `heal`ed: come after all), `first` by the trace's clock."""

    lines: int
    reason: Reason = Reason.NETWORK
    first: int | None = None
    detail: str | None = None
    of: str | None = None
    stream: str = ""
    heal: bool = False


class Form(Protocol):
    """One trace as far as it was read. `found` gets what the line just read proves: what is
    missing, or None, that it begins a new run; whoever reads the lines empties it."""

    stacks: Stacks
    found: list[Loss | None]
    time: int

    @property
    def name(self) -> FormName: ...

    def tick(self, last: str) -> Place:
        """A line of an entry or exit, with its last field."""
        ...

    def at(self, last: str) -> Place:
        """Any other line but a death."""
        ...

    def death(self, time: int) -> int:
        """A death, with its time as given; the time for its column."""
        ...

    def unmatched(self, stream: str, method: str) -> None:
        """An exit whose entry was not found on its stack."""
        ...

    def unreadable(self) -> None:
        """A line that cannot be read, which is counted as missing elsewhere."""
        ...

    def hole(self) -> None:
        """What the trace held before was taken away: it begins in the middle."""
        ...

    def expects(self, letter: str, last: str) -> bool:
        """Whether this is a likely last field: one that was cut short is none."""
        ...


class Votes:
    """Tells the form by the last fields of its lines, the first of a trace on.

    Two entries or exits that follow one another by exactly 1 have a clock; where the second's is
    the same or less, it is a thread. Rises by more are a clock with losses or several threads.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._highest = -1

    def add(self, line: Line) -> FormName | None:
        """The form, if this line decides it."""
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
        """The form by the size of the numbers, if they did not tell."""
        return SPECIFICATION if 0 <= self._highest < CLOCK_LIKELY else AGENT
