"""One run of a traced process as its DFTracer file tells it: its clock, and which events are missing.

A file holds one run, or several when the process replaced itself (exec): its numbers begin anew
with each `start`. Releases from 2.0.3 on number complete events 1, 2, 3, … and write the number of
the last one into `end`; they may come in any order. Nothing is claimed of a run without `end`, of
one that wrote aggregates (calls that were not written took numbers), nor of older releases, nor of
numbers above that of `end`. Aggregates may come after `end`; so unless it says that there are none,
the claim waits for `]`, the next `start` or the end of the file. An event that comes after it was
claimed to be missing heals the gap.

A run with `start` and without `end` was cut off; so was one without either whose file begins with
the two blanks of 1.0, which writes "[" there when it finishes, and has no `]`.

The metadata of a run comes before its `start`, and so in the session of the run before. What it says
of names holds for the whole source, a time_metric is kept for the run it is about.
"""

from __future__ import annotations

import re

import msgspec

from tailrace.decoding.formats.dftracer.ids import Ids, IdsState
from tailrace.decoding.formats.dftracer.line import Reading
from tailrace.model.gap import Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind, Record, SessionFacts, missing

GAPS_MAX = 256
"""So many holes are named one by one; the last of them stands for all further ones."""

_NUMBERED = re.compile(rb'\s*\{"id":([0-9]{1,18}),')
_BEGINS = re.compile(rb'\s*\{"(?:id|name)":')


RANGE_BYTES = 160
"""What a range of numbers takes."""

NO_END = "no_end"
"""Why a run may lack more than its numbers say: its `end` has not come."""


class RunState(msgspec.Struct):
    """stage: before (no `start` yet), open, ended (claims wait), settled.

    `ticks` a second are this run's unit, `coming` that of the next; `told` says whether a record
    told it, `measured` whether a time_metric did. `blanks`: the file begins as 1.0 leaves it until it
    finishes. `counts`: whether ids are known to count events.
    `last` is the number of `end`; `unnumbered` malformed records of this run show no number; of the
    ranges `claimed` gaps have been told."""

    stage: str = "before"
    ticks: int = 10**6
    coming: int | None = None
    told: bool = False
    measured: bool = False
    blanks: bool = False
    counts: bool | None = None
    last: int = 0
    unnumbered: int = 0
    claimed: list[tuple[int, int]] = []
    ids: IdsState = msgspec.field(default_factory=IdsState)


class Run:
    """What has come of the run that the file is in."""

    what = Evicted.NUMBERS

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._given_up = 0
        self.ids = Ids(state.ids)

    @property
    def state(self) -> RunState:
        return msgspec.structs.replace(self._state, ids=self.ids.state)

    @property
    def held(self) -> int:
        return RANGE_BYTES * (self.ids.ranges + len(self._state.claimed))

    def give_way(self, size: int) -> None:
        """Claim nothing by numbers any more."""
        if size > 0:
            self._given_up += len(self._state.claimed)
            self._state.claimed = []
            self.ids.give_up()

    @property
    def evicted(self) -> int:
        return self._given_up + self.ids.given_up

    @evicted.setter
    def evicted(self, count: int) -> None:
        self._given_up, self.ids.given_up = count, 0

    @property
    def clocked(self) -> bool:
        """Whether a record has said what the unit of the times is."""
        return self._state.told

    def clock(self) -> SessionFacts:
        """Said from here on: times are in the run's unit, from 1970 on."""
        self._state.told = True
        return SessionFacts(clock="unix_ns", ticks_per_second=float(self._state.ticks), epoch=0)

    def saw(self, reading: Reading) -> None:
        """Take notice of a readable record."""
        state = self._state
        if reading.counts is not None:
            state.counts = reading.counts and state.counts is not False
        if reading.role in {"event", "start", "end"} and reading.id is not None:
            self.ids.add((reading.id,))
        elif reading.role in {"event", "start", "end", "aggregate"}:
            self.ids.doubt()

    def unfinished(self) -> None:
        """The file's first bytes are those that are written over when it is finished."""
        self._state.blanks = True

    def measured(self, reading: Reading) -> SessionFacts | None:
        """A time_metric: the facts it tells of this run, None if it is about the next one, whose
        metadata comes before its `start`."""
        state = self._state
        if reading.ticks is None:
            return None
        if state.measured and state.stage != "before":
            state.coming = reading.ticks
            return None
        state.ticks, state.measured = reading.ticks, True
        return self.clock()

    def begins(self, offset: int, reading: Reading) -> tuple[list[Record], SessionFacts]:
        """At `start`: what the run before it lacks, and the facts of the new one."""
        old = self._state
        old.blanks = False
        gaps = self.over(offset)
        if old.stage != "before":
            self._state = RunState(
                ticks=old.coming or old.ticks, measured=old.coming is not None, counts=old.counts
            )
            self._given_up = self.evicted
            self.ids = Ids()
        again = old.stage != "before"
        self._state.stage = "open"
        self.saw(reading)
        return gaps, msgspec.structs.replace(self.clock(), starts=again)

    def ends(self, offset: int, reading: Reading) -> list[Record]:
        """At `end`, whose record stops at `offset`: what the run lacks, if that is certain already."""
        self.saw(reading)
        self._state.stage, self._state.last = "ended", reading.id or 0
        self._state.blanks = False
        return self.settle(offset) if reading.whole else []

    def settle(self, offset: int) -> list[Record]:
        """What a run that has ended lacks; no aggregates will come."""
        self._state.blanks = False
        if self._state.stage != "ended":
            return []
        self._state.stage = "settled"
        if not self._state.counts or not self.ids.believed:
            return []
        ranges = self._state.claimed = self._unexplained()
        one_by_one = ranges if len(ranges) <= GAPS_MAX else ranges[: GAPS_MAX - 1]
        rest = ranges[len(one_by_one) :]
        gaps = [_gap(offset, first, last - first + 1, "ids") for first, last in one_by_one]
        if rest:
            count = sum(last - first + 1 for first, last in rest)
            gaps.append(_gap(offset, rest[0][0], count, "scattered_ids"))
        return gaps

    @property
    def claims(self) -> bool:
        """Whether events are claimed to be missing that may come after all."""
        return bool(self._state.claimed)

    def heals(self, offset: int, reading: Reading) -> list[Record]:
        """At an event that stops at `offset`, before it is seen: whether it was thought missing. A
        thread may be in a call while another one ends the run."""
        number = reading.id or 0
        late = any(first <= number <= last for first, last in self._state.claimed)
        if reading.role != "event" or not late or not self.ids.lacks(number):
            return []
        return [_gap(offset, number, 1, "ids")._replace(kind=Kind.HEAL)]

    def over(self, offset: int) -> list[Record]:
        """What the run lacks at the end of its part of the file."""
        if self.lacking:
            self._state.stage, self._state.blanks = "settled", False
            return [missing(offset, Reason.TRUNCATED, 0, detail=NO_END)]
        return self.settle(offset)

    @property
    def lacking(self) -> str | None:
        """What of its end a run lacks so far; None before a `start`, since older tracers write none."""
        if self._state.stage == "open" or self._state.blanks:
            return NO_END
        return None if self._state.stage == "before" else ""

    def lost(self, data: bytes) -> None:
        """A malformed record: it is one missing event already. Its number, where it shows one, is
        no hole; if it can only be the rest of a record, it explains one hole."""
        numbered = _NUMBERED.match(data)
        if numbered:
            self.ids.add((int(numbered[1]),))
        elif not _BEGINS.match(data):
            self._state.unnumbered += 1

    def _unexplained(self) -> list[tuple[int, int]]:
        """The holes but for as many numbers as malformed records without one may have had."""
        explained = self._state.unnumbered
        ranges: list[tuple[int, int]] = []
        for first, stop in self.ids.holes:
            last = min(stop, self._state.last)
            used = min(explained, max(last - first + 1, 0))
            explained -= used
            if first + used <= last:
                ranges.append((first + used, last))
        return ranges


def _gap(offset: int, first: int, count: int, detail: str) -> Record:
    return missing(offset, Reason.NETWORK, count, first=first, of=Kind.SPAN, detail=detail)
