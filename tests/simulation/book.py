"""Read the rows of the table in the order in which commits bring them.

Check that no row takes back an earlier one, and that gaps add up.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.simulation.spans import Spans
from tests.simulation.tail import format_of
from tests.simulation.traces import TRACES
from tests.simulation.violation import demand
from tests.simulation.words import Event, event_of

Row = dict[str, Any]


class Numbers:
    """Sets of events, by program and stream. `count` is the number of different events."""

    def __init__(self) -> None:
        self.of: defaultdict[tuple[int, int], Spans] = defaultdict(Spans)
        self.count = 0

    def add(self, event: Event) -> None:
        program, stream, number = event
        self.count += self.of[program, stream].put(number)

    def __contains__(self, event: Event) -> bool:
        spans = self.of.get((event.program, event.stream))
        return spans is not None and event.number in spans


class _Range(NamedTuple):
    """A gap over a range of numbers of which only some are missing."""

    numbers: range
    reason: str


class _Stream:
    """A stream of a session, as the rows read so far describe it."""

    def __init__(self) -> None:
        self.stored = Spans()
        self.missing: dict[int, str] = {}
        """By number in a gap that has not healed: the reason of the gap."""
        self.ranges: Counter[_Range] = Counter()
        """By gap over a range: how many of its events are still missing."""

    def gap(self, row: Row, about: dict[str, Any]) -> None:
        first, count, reason = row["seq"], about["count"], row["name"]
        if about.get("of_range"):
            self.ranges[_Range(range(first, about["last"] + 1), reason)] += count
            return
        again = [number for number in range(first, first + count) if number in self.missing]
        demand(not again, "in two gaps", row)
        self.missing |= dict.fromkeys(range(first, first + count), reason)

    def heal(self, row: Row, about: dict[str, Any]) -> None:
        for number in range(row["seq"], row["seq"] + about["count"]):
            reason = self.missing.pop(number, None)
            if reason is None:
                gap = self._range_of(number, row["name"])
                demand(gap is not None, "healed and never missing", row)
                self.ranges[gap] -= 1  # type: ignore[index]  # the line above
            else:
                demand(reason == row["name"], "healed for another reason", (row, reason))

    def stands(self, row: Row, count: int) -> bool:
        """Return whether events that a gap's row names as missing are stored, although no heal takes them out of the
        gap.
        """
        if not self.missing:
            return False
        first = row["seq"]
        if count == 1:
            return first in self.missing and first in self.stored
        stored = set(range(first, first + count))
        for span in self.stored.missing(first, first + count):
            stored.difference_update(range(*span))
        return not stored.isdisjoint(self.missing)

    def _range_of(self, number: int, reason: str) -> _Range | None:
        fitting = (gap for gap, left in self.ranges.items() if left and gap.reason == reason)
        return next((gap for gap in fitting if number in gap.numbers), None)


class _Named(NamedTuple):
    """A row that names `count` numbers of a stream.

    `known` states that the collector then knew which of these numbers had arrived.
    """

    stream: _Stream
    row: Row
    count: int
    known: bool


class Book:
    """All rows of the table up to some commit, added up."""

    def __init__(self, *, forgets: bool = False) -> None:
        """`forgets` states that the collector may forget gaps.

        Then events of sessions without an announcement that come from forgotten gaps are stored, and their gaps stay
        (ARCHITECTURE.md, "Blind spots").
        """
        self._forgets = forgets
        self._announced: set[str] = set()
        self.stored = Numbers()
        self.spans: Counter[str] = Counter()
        """By source, the number of events in the table."""
        self.missing: Counter[str] = Counter()
        """By source, the number of events that its gaps name as missing, less those that heals take back."""
        self.evicted: set[str] = set()
        """Sessions that evicted state to save memory."""
        self._streams: defaultdict[tuple[str, str], _Stream] = defaultdict(_Stream)
        self._read = 0

    def reason(self, row: Row, number: int) -> str | None:
        """Return the reason with which a number is missing in the stream of a row.

        Return None if the number is not missing.
        """
        return self._streams[row["session"], row["stream"]].missing.get(number)

    def go_on(self, rows: Sequence[Row]) -> None:
        """Read the new rows; `rows` are all rows of the table. Raise Violation if they contradict earlier rows."""
        new = rows[self._read :]
        self._read = len(rows)
        came: list[_Named] = []
        for row in new:
            kind = row["kind"]
            if format_of(row["source"]) in TRACES:
                continue  # `oracle_files` checks rows of files
            if kind == "span":
                self._span(row, came)
            elif kind in ("gap", "heal"):
                self._finding(row, came)
            elif kind == "session" and row["name"] == "evicted":
                self.evicted.add(row["session"])
            elif kind == "session" and row["name"] == "tailrace.session":
                self._announced.add(row["session"])
        for stream, row, count, known in came:
            standing = stream.stands(row, count) and row["session"] not in self.evicted
            demand(not (standing and known), "stored and in a gap", row)

    def _named(self, stream: _Stream, row: Row, count: int) -> _Named:
        known = not self._forgets or row["session"] in self._announced
        return _Named(stream, row, count, known)

    def _span(self, row: Row, came: list[_Named]) -> None:
        self.stored.add(event_of(row))
        self.spans[row["source"]] += 1
        if row["seq"] is None:
            return
        stream = self._streams[row["session"], row["stream"]]
        stream.stored.put(row["seq"])
        if stream.missing:
            came.append(self._named(stream, row, 1))

    def _finding(self, row: Row, came: list[_Named]) -> None:
        about = json.loads(row["attributes"])
        sign = 1 if row["kind"] == "gap" else -1
        self.missing[row["source"]] += sign * about["count"]
        if row["seq"] is not None:
            stream = self._streams[row["session"], row["stream"]]
            if sign < 0:
                stream.heal(row, about)
                return
            stream.gap(row, about)
            if not about.get("of_range"):
                came.append(self._named(stream, row, about["count"]))
