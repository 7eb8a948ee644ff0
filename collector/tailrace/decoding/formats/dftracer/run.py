"""Determine the clock and the missing events of one run (program execution) of a traced process.

A file has one run, or several if the process replaced itself (exec). A run begins with a record `start`, with which the
ids begin at 1 again, and ends with a record `end`. Releases from 2.0.3 on give complete events the ids 1, 2, 3, … in
any order, and write the last id into `end`. A missing id then proves a missing event. A missing id proves nothing in a
run without `start` or `end` (threads write out of order), in a run with aggregates (records of several events, each of
which took an id), and in older releases. If ids repeat between `start` and `end`, the run gets a gap of unknown size.

Aggregates may come after `end`. Gaps are therefore reported only at a line with "]", at the next `start` or at the end
of the file; but already at `end` if the configuration in that record excludes aggregates.

- A run with `start` and without `end` is truncated.
- A run with neither record is truncated if the file has no "]" and begins with two blanks. Release 1.0 writes these
  blanks first, and replaces them by "[" at the end.
- If the events of a run with neither record have such ids, the file has a middle part of the run.

The metadata of a run comes before its `start`. If this metadata has a time_metric, the unit of time in it applies from
this run on."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from tailrace.decoding.formats.dftracer.line import RecordReading
from tailrace.model.gap import Reason
from tailrace.model.record import Kind, Missing, Record, RunPiece, SessionFacts, missing

HOLES_MAX = 4096
"""Maximum number of stored ranges of missing ids of one run. In a measured run of eight threads, some tens of ranges
were missing at once."""


class IdsState(msgspec.Struct):
    """The part of `Ids` that a checkpoint stores."""

    following: int = 1  # The highest id that has arrived, plus 1.
    firsts: list[int] = []  # First id of each missing range.
    lasts: list[int] = []  # Last id of each missing range.
    believed: bool = True  # Whether a missing id still proves a missing event.
    returned: bool = False  # Whether an id came twice or was below 1, and no gap reports this yet.


class Ids:
    """The ids of a run's events, stored as the ranges of ids that are still missing.

    `believed` becomes false if missing ids prove nothing any more, for example because ids repeat."""

    def __init__(self, state: IdsState | None = None) -> None:
        state = state or IdsState()
        self._following = state.following
        self._firsts = list(state.firsts)
        self._lasts = list(state.lasts)
        self.believed, self.returned = state.believed, state.returned
        self.given_up = 0  # number of ranges of missing ids that were dropped to save memory

    @property
    def state(self) -> IdsState:
        firsts, lasts = list(self._firsts), list(self._lasts)
        return IdsState(self._following, firsts, lasts, self.believed, self.returned)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The first and last id of each range of missing ids."""
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def came(self) -> tuple[tuple[int, int], ...]:
        """The first and last id of each range of ids that were seen."""
        begins = [1, *(last + 1 for last in self._lasts)]
        ends = [*(first - 1 for first in self._firsts), self._following - 1]
        return tuple((a, b) for a, b in zip(begins, ends, strict=True) if a <= b)

    @property
    def ranges(self) -> int:
        return len(self._firsts)

    def misses(self, number: int) -> bool:
        return number >= self._following or self.lacks(number)

    def lacks(self, number: int) -> bool:
        i = bisect_right(self._firsts, number) - 1
        return i >= 0 and number <= self._lasts[i]

    @property
    def begun(self) -> bool:
        """Whether the run's event with the id 1 was seen."""
        return self._following > 1 and not self.lacks(1)

    def add(self, numbers: Iterable[int]) -> None:
        """Mark ids as seen, in the order in which their events arrived."""
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
        """Mark sorted ranges of ids as seen. `breaks` counts the ids that did not directly follow the id that arrived
        before them.

        Return False and mark nothing if more than `HOLES_MAX` ranges of ids may have been missing at the same time.
        Sorted ranges do not show in which order the ids arrived, so the caller must then pass the ids in this order to
        `add`."""
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
        """Drop all ids and ignore later ones, because a missing id does not prove a missing event."""
        self._following, self._firsts, self._lasts, self.believed = 1, [], [], False

    def give_up(self) -> None:
        """Drop all ids and ignore later ones, to save memory."""
        self.given_up += self.ranges
        self.doubt()

    def _fill(self, begin: int, end: int) -> bool:
        """Mark missing ids as seen. Return False if they were not missing, or there are too many missing ranges."""
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
        if self.ranges > HOLES_MAX:
            self.give_up()
        elif not self.believed:
            self.doubt()


GAPS_MAX = 256
"""Maximum number of gap records for the missing ids of one run. If there are more ranges, the last gap counts all
further ones together."""

_NUMBERED = re.compile(rb'[\s\[,]*\{\s*"id"\s*:\s*([0-9]{1,18})\s*,')
_BEGINS = re.compile(rb'[\s\[,]*\{\s*"(?:args|cat|id|name)"\s*:')


RANGE_BYTES = 160
"""Memory (bytes) of one stored range of ids."""

NO_END, NO_START = "no_end", "no_start"
"""Gap details for a run without `end`, and for a run without `start`."""


class TracedRunState(msgspec.Struct):
    stage: str = "before"  # "before", "open" (after `start`), "ended", or "settled" (gaps reported)
    ticks: int = 10**6  # Ticks per second of this run's clock.
    coming: int | None = None  # Ticks per second of the next run's clock.
    told: bool = False  # Whether a session record already states the unit of time.
    measured: bool = False  # Whether a time_metric has stated the unit.
    blanks: bool = (
        False  # Whether the file begins with two blanks (an unfinished file of release 1.0).
    )
    counts: bool | None = (
        None  # Whether the tracer's release gives ids to its events; None if unknown.
    )
    phase: str = ""  # Spelling of `ph` ("1" or "X") in the record that states the unit of time.
    last: int = 0  # Id of the record `end`.
    unnumbered: int = 0  # Number of malformed records whose id is not visible.
    # Ranges of ids that were reported as gaps and have not come.
    claimed: list[tuple[int, int]] = []
    numbered: bool = False  # Whether an event had an id.
    headless: bool = False  # Whether `end` came without `start`.
    whole: bool = False  # Whether `end` says that the configuration excludes aggregates.
    at: int | None = None  # Time of the process's last `start` or `end`.
    backward: bool = False  # Whether `start` came after `end`, as in a reversed file.
    mixed: bool = False  # Whether times show that lines of several runs are out of order.
    ids: IdsState = msgspec.field(default_factory=IdsState)


class TracedRun:
    """The current run of a process in a file."""

    def __init__(self, state: TracedRunState, pid: str = "", host: str = "") -> None:
        self.stored = state
        self._given_up = 0
        self.ids = Ids(state.ids)
        self.pid, self.host = pid, host  # PID of the process, and hash of its host's name

    @property
    def state(self) -> TracedRunState:
        return msgspec.structs.replace(self.stored, ids=self.ids.state)

    @property
    def held(self) -> int:
        return RANGE_BYTES * (self.ids.ranges + len(self.stored.claimed))

    def give_up(self) -> None:
        """Evict the ranges of missing ids and of reported ids. If there were any, the run returns no more gaps for
        ids."""
        if self.held:
            self._given_up += len(self.stored.claimed)
            self.stored.claimed = []
            self.ids.give_up()

    @property
    def evicted(self) -> int:
        return self._given_up + self.ids.given_up

    @evicted.setter
    def evicted(self, count: int) -> None:
        self._given_up, self.ids.given_up = count, 0

    @property
    def usual(self) -> bool:
        """Whether the compiled kernel may read events of this run: a session record states the unit of time, and no id
        is reported as missing, so that no gap has to be taken back."""
        return self.stored.told and not self.stored.claimed

    def clock(self) -> SessionFacts:
        """Return the clock and its tick rate for a session record, and remember that this record states the unit of
        time."""
        self.stored.told = True
        return SessionFacts(clock="unix_ns", ticks_per_second=float(self.stored.ticks), epoch=0)

    @property
    def other_phase(self) -> str:
        """Spelling ("1" or "X") of the field `ph` in those complete events that Python must read; "" if there are none.

        While it is unknown whether the tracer's release gives ids to events, an event with this spelling shows it. The
        compiled kernel cannot find this out."""
        if self.stored.counts is not None:
            return ""
        return {"1": "X", "X": "1"}.get(self.stored.phase, "")

    def saw(self, reading: RecordReading) -> None:
        """Update the state of the run with a readable record."""
        state = self.stored
        if reading.counts is not None:
            state.counts = reading.counts and state.counts is not False
        if reading.role in {"event", "start", "end"} and reading.id is not None:
            self.ids.add((reading.id,))
            state.numbered = True
        elif reading.role in {"event", "start", "end", "aggregate"}:
            self.ids.doubt()
        elif reading.role == "other" and reading.id is not None and self.ids.misses(reading.id):
            self.ids.add((reading.id,))

    def shown(self, *, numbered: bool, counts: bool) -> None:
        """Update the run with events that the compiled kernel has read. `numbered` states whether these events have
        ids, `counts` whether they prove that the tracer's release gives ids to events."""
        state = self.stored
        state.numbered = state.numbered or numbered
        if counts:
            state.counts = state.counts is not False

    def measured(self, reading: RecordReading) -> SessionFacts | None:
        """Read a time_metric. Return the session's clock, or None if the unit is unknown or is that of the next run.

        A run's metadata comes before its `start`; a second time_metric after `start` is therefore of the
        next run."""
        state = self.stored
        if reading.ticks is None:
            return None
        if state.measured and state.stage != "before":
            state.coming = reading.ticks
            return None
        state.ticks, state.measured = reading.ticks, True
        return self.clock()

    def begins(
        self, offset: int, reading: RecordReading
    ) -> tuple[list[Record], SessionFacts] | None:
        """Begin a new run at a `start` record. In a reversed file, `end` precedes `start`: begin a run at an `end`
        record that follows the `start` of a later run.

        Return the gaps of the previous run, and the facts of the new run. Return None if the record begins no run."""
        old = self.stored
        if reading.role == "end" and old.backward:
            return self.over(offset), self._renew()
        if reading.role != "start":
            return None
        old.blanks = False
        if old.headless and old.at is not None and (reading.start or 0) < old.at:
            # The `start` stands behind the `end` of its run, as in a reversed file.
            claimed = old.stage == "settled" and bool(old.counts)
            old.headless, old.backward, old.stage, old.at = False, True, "ended", reading.start
            self.saw(reading)
            # Take back the gap that `_late` has reported. If the ids do not show which part of the run is in this file,
            # the record states the part without ids.
            piece = self.piece or RunPiece(pid=self.pid, host=self.host, ranges=())
            about = Missing(count=0, of=Kind.SPAN, detail=NO_START, piece=piece)
            late = [self._late(offset)._replace(kind=Kind.HEAL, detail=about)] if claimed else []
            return late + (self.settle(offset) if old.whole else []), self.clock()
        gaps = self._is_mixed(offset, mixed=old.backward) + self.over(offset)
        facts = self._renew()
        self.stored.stage, self.stored.at = "open", reading.start
        self.saw(reading)
        return gaps, facts

    def _renew(self) -> SessionFacts:
        """Begin a new run, unless the current one has neither `start` nor `end` yet. Return the facts of the run."""
        old = self.stored
        again = old.stage != "before"
        if again:
            self.stored = TracedRunState(
                ticks=old.coming or old.ticks, measured=old.coming is not None, counts=old.counts,
                at=old.at, mixed=old.mixed,
            )  # fmt: skip
            self._given_up = self.evicted
            self.ids = Ids()
        return msgspec.structs.replace(self.clock(), starts=again)

    def _is_mixed(self, offset: int, *, mixed: bool) -> list[Record]:
        """Record that lines of several runs are out of order, if `mixed`. Missing ids then prove nothing, so take back
        the gaps of the reported ids."""
        self.stored.mixed = self.stored.mixed or mixed
        return self._take_back(offset) if self.stored.mixed else []

    def ends(self, offset: int, reading: RecordReading) -> list[Record]:
        """End the run at an `end` record. Return the run's gaps, unless aggregates (of several events) may still
        follow."""
        state = self.stored
        again = state.stage in {"ended", "settled"}
        early = state.stage == "open" and state.at is not None and (reading.start or 0) < state.at
        taken = self._is_mixed(offset, mixed=again or early)
        self.saw(reading)
        if self.stored.stage == "before" and not self.ids.begun:
            self.stored.headless = True
        self.stored.stage, self.stored.last, self.stored.at = (
            "ended",
            reading.id or 0,
            reading.start,
        )
        self.stored.whole, self.stored.blanks = reading.whole, False
        return taken + (self.settle(offset) if reading.whole else [])

    def settle(self, offset: int) -> list[Record]:
        """Return the gaps of an ended run. Call it only when no aggregates (of several events) can follow."""
        self.stored.blanks = False
        if self.stored.stage != "ended":
            return []
        self.stored.stage = "settled"
        if self.stored.headless:
            if not self.stored.counts:
                return []
            # The `end` belongs to a second run, whose ids begin at 1 again. The first run has no `end`.
            open_ = (
                [missing(offset, Reason.TRUNCATED, 0, detail=NO_END)] if self.ids.returned else []
            )
            return [self._late(offset), *open_]
        if not self.stored.counts or not self.ids.believed:
            return self._again(offset)
        ranges = self._unexplained()
        if ranges and self.stored.mixed:
            return [missing(offset, Reason.NETWORK, 0, of=Kind.SPAN, detail="ids")]
        self.stored.claimed = ranges
        one_by_one = ranges if len(ranges) <= GAPS_MAX else ranges[: GAPS_MAX - 1]
        rest = ranges[len(one_by_one) :]
        gaps = [_gap(offset, first, last - first + 1, "ids") for first, last in one_by_one]
        if rest:
            count = sum(last - first + 1 for first, last in rest)
            gaps.append(_gap(offset, rest[0][0], count, "scattered_ids", rest[-1][1]))
        if gaps and isinstance(about := gaps[-1].detail, Missing):
            gaps[-1] = gaps[-1]._replace(detail=msgspec.structs.replace(about, piece=self.piece))
        return gaps

    def heals(self, offset: int, number: int | None) -> list[Record]:
        """Return the heals (records that take gaps back) that follow from a record with the id `number`, or without an
        id. Take back this id if it was reported as missing, or all reported ids if ids prove nothing any more."""
        claimed = self.stored.claimed
        if not claimed:
            return []
        if not (self.ids.believed or self.ids.returned):
            return self._take_back(offset)
        i = bisect_right(claimed, (number or 0, 2**63)) - 1
        if number is None or i < 0 or number > claimed[i][1]:
            return []
        first, last = claimed[i]
        parts = (first, number - 1), (number + 1, last)
        claimed[i : i + 1] = [(a, b) for a, b in parts if a <= b]
        return [_gap(offset, number, 1, "ids")._replace(kind=Kind.HEAL)]

    def _take_back(self, offset: int) -> list[Record]:
        """Return heals, which take back the gaps for all reported ids that have not come, and one gap of unknown size
        in place of these gaps. Return nothing if there are no such ids."""
        claimed, self.stored.claimed = self.stored.claimed, []
        if not claimed:
            return []
        heals = [_gap(offset, a, b - a + 1, "ids")._replace(kind=Kind.HEAL) for a, b in claimed]
        self.ids.returned = False
        return [*heals, missing(offset, Reason.NETWORK, 0, of=Kind.SPAN, detail="ids")]

    @property
    def due(self) -> bool:
        """Whether `settle` must still be called: the run has ended, or the file begins with the two blanks that release
        1.0 writes."""
        return self.stored.stage == "ended" or self.stored.blanks

    def over(self, offset: int) -> list[Record]:
        """Return the gaps of the run at the next `start` or at the end of the file."""
        if self.lacking:
            late = [self._late(offset)] if self._is_middle and not self.ids.begun else []
            self.stored.stage, self.stored.blanks = "settled", False
            # The gap `NO_END` of unknown size also covers ids that came twice.
            self.ids.returned = False
            return [*late, missing(offset, Reason.TRUNCATED, 0, detail=NO_END, piece=self.piece)]
        return self.settle(offset) or self._again(offset)

    def _again(self, offset: int) -> list[Record]:
        """Return a gap of unknown size if ids repeat between `start` and `end`.

        Either lines were copied, or the ids belong to two runs. In both cases, it is unknown which ids are missing."""
        state = self.stored
        if state.stage != "settled" or state.headless or not (state.counts and self.ids.returned):
            return []
        self.ids.returned = False
        return [missing(offset, Reason.NETWORK, 0, of=Kind.SPAN, detail="ids")]

    @property
    def lacking(self) -> str | None:
        """`NO_END` if the run's end is missing, "" if the run has its `end`, None if its release may write no `end`."""
        if self.stored.stage == "open" or self.stored.blanks or self._is_middle:
            return NO_END
        return None if self.stored.stage == "before" else ""

    @property
    def piece(self) -> RunPiece | None:
        """Return the part of the run that is in this file, as ranges of ids; None if the ids of the run's events are
        absent or unreliable."""
        state = self.stored
        if state.counts is False or not state.numbered or state.mixed:
            return None
        if state.last and not state.headless and not self.ids.believed:
            return None
        came = self.ids.came
        if state.headless and came and came[0][0] == 1:
            # The id 1 belongs to the record `start`, which is not in this file. An event with this id is damaged, or
            # its line was truncated.
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
        """Whether the file has events of the run, but neither the `start` nor the `end` of the run."""
        state = self.stored
        return state.stage == "before" and state.numbered and bool(state.counts)

    def lost(self, offset: int, data: bytes, number: int | None) -> list[Record]:
        """Mark the id of a malformed record, if visible, as seen, because the record itself is already reported as
        missing.

        `number` is the id, if the record is JSON. If the id was reported as missing before, return a heal, which takes
        this gap back."""
        if number is None and (numbered := _NUMBERED.match(data)):
            number = int(numbered[1])
        if number is not None:
            self.ids.add((number,))
            return self.heals(offset, number)
        if _BEGINS.match(data):
            return []
        self.stored.unnumbered += 1
        return self.heals(offset, self.stored.claimed[0][0] if self.stored.claimed else None)

    def _unexplained(self) -> list[tuple[int, int]]:
        """Return the missing ids up to the id of `end`. Leave out one id for each malformed record without a visible
        id."""
        explained = self.stored.unnumbered
        ranges: list[tuple[int, int]] = []
        for first, stop in self.ids.holes:
            last = min(stop, self.stored.last)
            used = min(explained, max(last - first + 1, 0))
            explained -= used
            if first + used <= last:
                ranges.append((first + used, last))
        return ranges


def _gap(offset: int, first: int, count: int, detail: str, last: int | None = None) -> Record:
    return missing(
        offset, Reason.NETWORK, count, first=first, of=Kind.SPAN, detail=detail, last=last
    )
