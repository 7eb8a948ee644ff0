"""The interface of ET3's two forms, and which of them a trace has.

A line's last field is the logical clock in the specification's form, and the thread in the agents'
form; otherwise the lines look the same (docs/formats/et3.md).
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
"""A number below this is likely a clock, any other a thread. Threads are named by identity hashes of 31
bits, so this is wrong for one in 128. Used only where no two lines could be compared."""


Place = tuple[str, list[Frame] | None, int, str | None]
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

    def tick(self, last: str) -> Place:
        """Return the place of an entry or exit with this last field."""
        ...

    def at(self, last: str) -> Place:
        """Return the place of any other line except a death."""
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
