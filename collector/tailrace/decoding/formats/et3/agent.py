"""The agents' form of ET3: each line ends with the thread; there is no time but that of deaths.

The clock is counted here, as the tools do that add the deaths: the entries and exits read so far,
and those known to be missing. What is missing shows in two ways, and a line is claimed by the first of
them only (docs/formats/et3.md):

- An exit whose method is nowhere on its thread's stack: its entry is missing (`unmatched_exit`),
  unless a frame of this method was passed over by an exit that only seemed to be of a frame below.
- A death ahead of the counted clock, by as much as it is ahead (`death_ahead`). This holds where
  deaths were added after the run, at their time or all at the end. Agents that wrote deaths during
  the run used another clock, so deaths are `trusted` only when their file's name says what it is,
  when TRUST of them at different places agree on how far they are ahead, or when one is behind: a
  running agent's never is. If they disagree too often first, nothing they say is a claim.

A line that could not be read counts as missing by itself, and explains one exit and one line of
the clock. Frames passed over by an exit and frames never left say nothing: exceptions have no line.
A new run of the program cannot be seen.
"""

from __future__ import annotations

import msgspec

from tailrace.decoding.formats.et3.form import AGENT, FormName, Loss, Place
from tailrace.decoding.formats.et3.stack import Stacks
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

TRUST = 3
"""Deaths that must agree; of a running agent's clock, which runs about 17 times as fast as the
lines it writes, two neighbours may."""

DOUBT = 3
"""Disagreements after which no agreement counts."""

TIME_MAX = 2**62
"""The last time of a death that the clock can be set to."""


class AgentForm(msgspec.Struct, tag=AGENT):
    """The counted clock stands at `time`; so many lines of it were `lost`, the others read.

    ahead, agreeing, agreed_at: how far the last deaths were ahead of the lines read, how many of
        them agreed in this, and how many lines were read at the latest.
    disagreements: how often that changed before deaths were trusted.
    unread: lines that could not be read since deaths and clock were last in step.
    excused: exits that need no entry, because a line that may have been it is counted as missing.
    reason: of entries that are missing; those of a trace that begins in the middle came before it.
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
    found: list[Loss | None] = []

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
                Loss(1, self.reason, detail="unmatched_exit", of=Kind.BEGIN, stream=stream)
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
        """Added after the run. One that was ahead at this place was so, too."""
        if self.disagreements >= DOUBT:
            return
        if not self.trusted and self.agreed_at == self.time - self.lost:
            self._claim(max(0, self.ahead - self.lost))
        self.trusted = True

    def _weigh(self, ahead: int) -> None:
        """A death before deaths are trusted. What counts is how far it is ahead of the lines."""
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
        """The clock is `ahead` of what was counted: so many entries and exits are missing. Lines
        that could not be read are some of them; if there were more, those were of other kinds."""
        count = ahead - self.unread
        if count > 0:
            self.found.append(Loss(count, detail="death_ahead"))
        self.excused = max(0, self.excused + count)
        self.lost += ahead
        self.time += ahead
        self.unread = 0
