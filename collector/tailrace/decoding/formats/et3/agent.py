"""The agents' form of ET3: each line ends with the thread, and only deaths have a time.

So the clock is counted here, as the tools do that add the deaths: one tick for each entry and exit, those
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
"""

from __future__ import annotations

import msgspec

from tailrace.decoding.formats.et3.form import AGENT, FormName, MissingLines, Place
from tailrace.decoding.formats.et3.stack import Stacks
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

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

    @property
    def name(self) -> FormName:
        return AGENT

    def tick(self, last: str) -> Place:
        time = self.time = self.time + 1
        frames = self.stacks.frames.get(last)
        return last, self.stacks.of(last) if frames is None else frames, time, None

    def at(self, last: str) -> Place:
        return last, self.stacks.frames.get(last), self.time, None

    def death(self, time: int) -> int:
        if time > TIME_MAX:
            return time  # a damaged number: the clock could not count on from there
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
