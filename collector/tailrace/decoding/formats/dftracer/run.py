"""One run of a traced process, as its DFTracer file tells it: its clock, and which events are missing.

A file holds one run, or several if the process replaced itself (exec): the ids begin anew with each
`start`. Releases from 2.0.3 on give complete events the ids 1, 2, 3, … and write the last id into `end`;
events may come in any order. Ids prove nothing in these cases: a run without `end`, a run that wrote
aggregates (calls that were not written took ids), an older release, an id above that of `end`.
Aggregates may come after `end`. So unless `end` rules them out, gaps wait for `]`, the next `start`
or the end of the file. An event that comes after its gap heals the gap.

A run with `start` and without `end` was cut off. So was a run without both whose file begins with the
two blanks of 1.0 and has no `]`: 1.0 replaces the blanks by "[" when it finishes.

Every release that counts events writes `start` first and `end` last. A file of such a release without a `start` is the
rest of a longer one: its beginning was joined late, and lacks an unknown number of events. Since threads write out of
order, a hole behind that beginning may lie before it, too; so only `start` and `end` together make holes certain. A run
without both is cut off at both ends. Where ids come twice without a `start`, two runs stand one behind the other, and an `end`
is only that of one.

A run's metadata comes before its `start`, and so in the session of the run before. Its names hold for
the whole source; a time_metric is kept for the run that it is about.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from tailrace.decoding.formats.dftracer.line import RecordReading
from tailrace.model.gap import Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind, Missing, Record, RunPiece, SessionFacts, missing

HOLES_MAX = 4096
"""How many holes are remembered. A run of eight threads had some tens at once."""


class IdsState(msgspec.Struct):
    """The number above all that have come, the holes below it, and whether the numbers are `believed`. `returned`: they are
    not, since one came twice or was below 1."""

    following: int = 1
    firsts: list[int] = []
    lasts: list[int] = []
    believed: bool = True
    returned: bool = False


class Ids:
    """The numbers seen. A number that comes twice, is below 1 or makes too many holes shows that the numbers
    are no counter, or too scattered to remember: from then on they are not `believed`."""

    def __init__(self, state: IdsState | None = None) -> None:
        state = state or IdsState()
        self._following = state.following
        self._firsts = list(state.firsts)
        self._lasts = list(state.lasts)
        self.believed, self.returned = state.believed, state.returned
        self.given_up = 0
        """How many holes were forgotten because there were too many."""

    @property
    def state(self) -> IdsState:
        firsts, lasts = list(self._firsts), list(self._lasts)
        return IdsState(self._following, firsts, lasts, self.believed, self.returned)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """First and last number of each hole."""
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def came(self) -> tuple[tuple[int, int], ...]:
        """First and last number of each range of numbers that came."""
        begins = [1, *(last + 1 for last in self._lasts)]
        ends = [*(first - 1 for first in self._firsts), self._following - 1]
        return tuple((a, b) for a, b in zip(begins, ends, strict=True) if a <= b)

    @property
    def ranges(self) -> int:
        return len(self._firsts)

    def lacks(self, number: int) -> bool:
        """Return whether this number is in a hole."""
        i = bisect_right(self._firsts, number) - 1
        return i >= 0 and number <= self._lasts[i]

    @property
    def begun(self) -> bool:
        """Whether the first number has come."""
        return self._following > 1 and not self.lacks(1)

    def add(self, numbers: Iterable[int]) -> None:
        """Add numbers in the order in which they came."""
        if not self.believed:
            return
        following = self._following
        for number in numbers:
            if number == following:
                following += 1
            elif number > following:
                self._firsts.append(following)
                self._lasts.append(number - 1)
                following = number + 1
                if len(self._firsts) > HOLES_MAX:
                    break
            elif not self._fill(number, number):
                break
        self._following = following
        self._judge()

    def add_ranges(self, ranges: Iterable[tuple[int, int]], breaks: int) -> bool:
        """Add ranges of numbers that came in some order, with so many `breaks` between a number and one that does not
        follow it. Return False, with nothing added, if that order may matter."""
        if not self.believed:
            return True
        if self.ranges + breaks >= HOLES_MAX:
            return False
        for first, last in ranges:
            begin = first
            if begin < self._following:
                begin = min(last + 1, self._following)
                self._fill(first, begin - 1)
            if begin > self._following:
                self._firsts.append(self._following)
                self._lasts.append(begin - 1)
            self._following = max(self._following, last + 1)
        self._judge()
        return True

    def doubt(self) -> None:
        """Forget everything: these numbers mean nothing."""
        self._following, self._firsts, self._lasts, self.believed = 1, [], [], False

    def give_up(self) -> None:
        """Forget everything for want of room."""
        self.given_up += self.ranges
        self.doubt()

    def _fill(self, begin: int, end: int) -> bool:
        """Fill a hole, or a part of it, with the numbers from `begin` to `end`. Return whether more may be added."""
        i = bisect_right(self._firsts, begin) - 1
        if i < 0 or end > self._lasts[i]:
            self.believed, self.returned = False, True
            return False
        first, last = self._firsts[i], self._lasts[i]
        parts = [(a, b) for a, b in ((first, begin - 1), (end + 1, last)) if a <= b]
        self._firsts[i : i + 1] = [a for a, _ in parts]
        self._lasts[i : i + 1] = [b for _, b in parts]
        return len(self._firsts) <= HOLES_MAX

    def _judge(self) -> None:
        """Forget the numbers if they cannot be a counter's, or have too many holes."""
        if self.ranges > HOLES_MAX:
            self.give_up()
        elif not self.believed:
            self.doubt()


GAPS_MAX = 256
"""How many holes become gaps of their own; the last gap stands for all further holes."""

_NUMBERED = re.compile(rb'[\s\[,]*\{\s*"id"\s*:\s*([0-9]{1,18})\s*,')
_BEGINS = re.compile(rb'[\s\[,]*\{\s*"(?:args|cat|id|name)"\s*:')


RANGE_BYTES = 160
"""The size of a range of numbers."""

NO_END, NO_START = "no_end", "no_start"
"""The details of a run that may lack more than its ids say: its `end` or its `start` has not come."""


class TracedRunState(msgspec.Struct):
    """stage: before (no `start` yet), open, ended (gaps wait), settled.

    `ticks` a second is this run's unit, `coming` the next run's; `told` says whether a record told it,
    `measured` whether a time_metric did. `blanks`: the file begins as 1.0 leaves it until it finishes.
    `counts`: whether ids are known to count events. `last`: the id of `end`. `unnumbered`: how many
    malformed records of this run show no id. `claimed`: the ranges that were reported as gaps. `numbered`: an event with
    an id has come. `headless`: the run's `end` came without its `start`."""

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
    numbered: bool = False
    headless: bool = False
    ids: IdsState = msgspec.field(default_factory=IdsState)


class TracedRun:
    """The run that the file is in, as far as it was read."""

    what = Evicted.NUMBERS

    def __init__(self, state: TracedRunState) -> None:
        self._state = state
        self._given_up = 0
        self.ids = Ids(state.ids)
        self.pid = self.host = ""
        """The process that the run is of."""

    @property
    def state(self) -> TracedRunState:
        return msgspec.structs.replace(self._state, ids=self.ids.state)

    @property
    def held(self) -> int:
        return RANGE_BYTES * (self.ids.ranges + len(self._state.claimed))

    def give_way(self, size: int) -> None:
        """Evict the ids: report no more gaps by ids."""
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
        """Whether a record has told the unit of the times."""
        return self._state.told

    @property
    def usual(self) -> bool:
        """Whether a usual event changes nothing but the ids: the clock is known, and no reported gap waits for events."""
        return self.clocked and not self.claims

    def clock(self) -> SessionFacts:
        """Return the facts that times are in the run's unit since 1970, and note that they were told."""
        self._state.told = True
        return SessionFacts(clock="unix_ns", ticks_per_second=float(self._state.ticks), epoch=0)

    def saw(self, reading: RecordReading) -> None:
        """Note a readable record."""
        state = self._state
        if reading.counts is not None:
            state.counts = reading.counts and state.counts is not False
        if reading.role in {"event", "start", "end"} and reading.id is not None:
            self.ids.add((reading.id,))
            state.numbered = True
        elif reading.role in {"event", "start", "end", "aggregate"}:
            self.ids.doubt()

    def came(self, ids: list[int], *, counts: bool) -> None:
        """Note the ids of usual events. `counts`: some record shows a release that counts events by ids."""
        self.ids.add(ids)
        self.shown(numbered=bool(ids), counts=counts)

    def shown(self, *, numbered: bool, counts: bool) -> None:
        """Note whether usual records had ids, and whether some show a release that counts events by ids."""
        state = self._state
        state.numbered = state.numbered or numbered
        if counts:
            state.counts = state.counts is not False

    def distrust(self) -> None:
        """Take ids for no counter, in later runs either: they may be of several processes."""
        self._state.counts = False

    def unfinished(self) -> None:
        """Note that the file begins with the blanks that 1.0 replaces when it finishes."""
        self._state.blanks = True

    def measured(self, reading: RecordReading) -> SessionFacts | None:
        """Read a time_metric: return the facts about this run, or None if it is about the next run, whose
        metadata comes before its `start`."""
        state = self._state
        if reading.ticks is None:
            return None
        if state.measured and state.stage != "before":
            state.coming = reading.ticks
            return None
        state.ticks, state.measured = reading.ticks, True
        return self.clock()

    def begins(self, offset: int, reading: RecordReading) -> tuple[list[Record], SessionFacts]:
        """Begin a run at its `start`: return the gaps of the run before, and the facts of the new one."""
        old = self._state
        old.blanks = False
        gaps = self.over(offset)
        if old.stage != "before":
            self._state = TracedRunState(
                ticks=old.coming or old.ticks, measured=old.coming is not None, counts=old.counts
            )
            self._given_up = self.evicted
            self.ids = Ids()
        again = old.stage != "before"
        self._state.stage = "open"
        self.saw(reading)
        return gaps, msgspec.structs.replace(self.clock(), starts=again)

    def ends(self, offset: int, reading: RecordReading) -> list[Record]:
        """End the run at an `end` record, which stops at `offset`; return its gaps if they are certain already."""
        self.saw(reading)
        if self._state.stage == "before" and not self.ids.begun:
            self._state.headless = True
        self._state.stage, self._state.last = "ended", reading.id or 0
        self._state.blanks = False
        return self.settle(offset) if reading.whole else []

    def settle(self, offset: int) -> list[Record]:
        """Return the gaps of a run that has ended, once no aggregates can come."""
        self._state.blanks = False
        if self._state.stage != "ended":
            return []
        self._state.stage = "settled"
        if self._state.headless:
            if not self._state.counts:
                return []
            # The `end` is that of a run whose ids have begun again. The run before it has none.
            open_ = (
                [missing(offset, Reason.TRUNCATED, 0, detail=NO_END)] if self.ids.returned else []
            )
            return [self._late(offset), *open_]
        if not self._state.counts or not self.ids.believed:
            return []
        ranges = self._state.claimed = self._unexplained()
        one_by_one = ranges if len(ranges) <= GAPS_MAX else ranges[: GAPS_MAX - 1]
        rest = ranges[len(one_by_one) :]
        gaps = [_gap(offset, first, last - first + 1, "ids") for first, last in one_by_one]
        if rest:
            count = sum(last - first + 1 for first, last in rest)
            gaps.append(_gap(offset, rest[0][0], count, "scattered_ids", rest[-1][1]))
        if gaps and isinstance(about := gaps[-1].detail, Missing):
            gaps[-1] = gaps[-1]._replace(detail=msgspec.structs.replace(about, piece=self.piece))
        return gaps

    @property
    def claims(self) -> bool:
        """Whether reported gaps exist whose events may still come."""
        return bool(self._state.claimed)

    def heals(self, offset: int, reading: RecordReading) -> list[Record]:
        """Return the heal of an event that stops at `offset` if it was reported missing; call this before `saw`.

        A thread may be in a call while another thread ends the run."""
        number = reading.id or 0
        late = any(first <= number <= last for first, last in self._state.claimed)
        if reading.role != "event" or not late or not self.ids.lacks(number):
            return []
        return [_gap(offset, number, 1, "ids")._replace(kind=Kind.HEAL)]

    @property
    def due(self) -> bool:
        """Whether `settle` may change anything."""
        return self._state.stage == "ended" or self._state.blanks

    def over(self, offset: int) -> list[Record]:
        """Return the gaps of the run at the end of its part of the file."""
        if self.lacking:
            late = [self._late(offset)] if self._is_middle and not self.ids.begun else []
            self._state.stage, self._state.blanks = "settled", False
            return [*late, missing(offset, Reason.TRUNCATED, 0, detail=NO_END, piece=self.piece)]
        return self.settle(offset)

    @property
    def lacking(self) -> str | None:
        """The missing part of the run's end; None without a `start` or ids that count, since older tracers write none."""
        if self._state.stage == "open" or self._state.blanks or self._is_middle:
            return NO_END
        return None if self._state.stage == "before" else ""

    @property
    def piece(self) -> RunPiece | None:
        """The part of the run that the file has. None of a run without ids, with those of a release that counts nothing by
        them, or with first and last event and ids that prove nothing."""
        state = self._state
        if state.counts is False or not state.numbered:
            return None
        if state.last and not state.headless and not self.ids.believed:
            return None
        came = self.ids.came
        if state.headless and came and came[0][0] == 1:
            # The record is no `start`: the beginning of a torn line, or damaged.
            came = tuple((max(first, 2), last) for first, last in came if last > 1)
            if not came:
                return None
        counts = bool(state.counts)
        settled = counts and state.stage == "settled" and state.last > 0 and not state.headless
        waits = state.stage == "ended" and not state.headless
        return RunPiece(
            pid=self.pid, host=self.host, ranges=came, last=state.last,
            counts=counts, unnumbered=state.unnumbered, settled=settled, waits=waits,
        )  # fmt: skip

    def _late(self, offset: int) -> Record:
        return missing(offset, Reason.LATE_JOIN, 0, of=Kind.SPAN, detail=NO_START, piece=self.piece)

    @property
    def _is_middle(self) -> bool:
        """Whether the file has events of a run, and neither its `start` nor its `end`."""
        state = self._state
        return state.stage == "before" and state.numbered and bool(state.counts)

    def lost(self, data: bytes) -> None:
        """Note a malformed record, which counts as one missing event already.

        An id that it shows is not a hole. If it can only be the rest of a record, it explains one hole."""
        numbered = _NUMBERED.match(data)
        if numbered:
            self.ids.add((int(numbered[1]),))
        elif not _BEGINS.match(data):
            self._state.unnumbered += 1

    def _unexplained(self) -> list[tuple[int, int]]:
        """Return the holes, without as many ids as malformed records without an id may have had."""
        explained = self._state.unnumbered
        ranges: list[tuple[int, int]] = []
        for first, stop in self.ids.holes:
            last = min(stop, self._state.last)
            used = min(explained, max(last - first + 1, 0))
            explained -= used
            if first + used <= last:
                ranges.append((first + used, last))
        return ranges


def _gap(offset: int, first: int, count: int, detail: str, last: int | None = None) -> Record:
    return missing(
        offset, Reason.NETWORK, count, first=first, of=Kind.SPAN, detail=detail, last=last
    )
