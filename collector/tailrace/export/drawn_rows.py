"""Read the rows of an export's timeline, ordered by lane (a stream or substream) and time, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from heapq import merge
from typing import Any, NamedTuple, TypedDict

import msgspec

from tailrace.export.output import RowCount
from tailrace.export.selected import Left, Selected
from tailrace.query.names import ProgramNames
from tailrace.query.views import EVENTS
from tailrace.store.notes import Note
from tailrace.timeline import DRAWN, FACTS, Extent, Facts, SessionClock, SessionKey, placed

_Row = tuple[Any, ...]

_COLUMNS = (
    'source, session, stream, substream, kind, name, category, id, parent, seq, start, "end", time, aligned,'
    ' open, attributes, numbers, "offset"'
)
_FORGOTTEN = "attributes IS NOT NULL AND contains(attributes, 'begin_forgotten')"
"""SQL condition for the end rows that are not drawn: for these, the view `spans` already has the whole spans."""

_ORDER = """
ORDER BY source, session, stream, substream NULLS FIRST, coalesce(start, "end") NULLS FIRST, "end" DESC NULLS FIRST, "offset", seq
"""

_WHOLE = f"""
SELECT {{columns}} FROM (
  SELECT *, false AS open, CASE WHEN kind = 'counter' THEN part.numbers(attributes) END AS numbers FROM events
  WHERE kind IN ('span', 'instant', 'counter', 'annotation', 'end') AND NOT (kind = 'end' AND {_FORGOTTEN}) AND ({{events}})
)
{_ORDER}
"""  # noqa: S608 - our own words
"""SQL for the rows to draw, without begin rows. The condition on the kind excludes begin rows before DuckDB evaluates
views. The rows come from a single scan: a sort of several scans would need more memory than DuckDB's limit."""

_BEGUN = f"""
SELECT {{columns}} FROM (
  SELECT b.* REPLACE ('span' AS kind), NULL AS numbers, try_cast(b.start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned
  FROM part.timed_begun AS b LEFT JOIN part.clocks AS c USING (source, session)
)
WHERE {{events}}
{_ORDER}
"""  # noqa: S608 - our own words
"""SQL for spans for which the table has a begin row, but no row of the whole span. A table has few such spans."""

_EXTENTS = """
SELECT source, session, any_value(format), min(time),
  min(start) FILTER (time IS NOT NULL),
  max(greatest(start, coalesce("end", start))) FILTER (time IS NOT NULL),
  min(aligned) FILTER (time IS NULL),
  max(aligned::HUGEINT + greatest(coalesce("end"::HUGEINT - start, 0), 0)) FILTER (time IS NULL),
  min("end") FILTER (start IS NULL), max("end") FILTER (start IS NULL)
FROM events WHERE {drawn} AND ({chosen})
GROUP BY source, session ORDER BY source, session
"""


class Number(TypedDict):
    """One number of a counter. `member` is the name of the number, or None if the counter has only one number. `value`
    is JSON text."""

    member: str | None
    value: str


class Lane(NamedTuple):
    session: SessionClock
    stream: str
    substream: int | None


class Item(NamedTuple):
    """One row to draw, with times in ns. `end` is None for a row without a duration and for an open span."""

    lane: Lane
    kind: str
    name: str
    category: str | None
    id: int | None
    parent: int | None
    seq: int | None
    begin: int
    end: int | None
    open: bool
    attributes: str | None
    numbers: list[Number] | None = None
    """Numbers of a counter row, as in the view `counters`; None for a row of another kind."""

    @property
    def is_span(self) -> bool:
        return self.kind == "span"

    def members(self) -> dict[str, Any]:
        """Return the members of the attributes. If the attributes are not a JSON object, return their text under the
        name `attributes`."""
        if self.attributes is None:
            return {}
        try:
            found = msgspec.json.decode(self.attributes)
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {"attributes": self.attributes}

    def values(self) -> dict[str, int | float]:
        """Return the values of a counter by name; an empty dict if the counter has no number."""
        found: dict[str, int | float] = {}
        for number in self.numbers or ():
            member = number["member"]
            with suppress(ValueError):  # msgspec cannot represent every number.
                value = msgspec.json.decode(number["value"], type=int | float)
                found[self.name if member is None else f"{self.name}.{member}"] = value
        return found


class DrawnRows:
    """The rows of a selection that a timeline draws. `left` counts the rows without a time, which are not drawn."""

    def __init__(self, selected: Selected, progress: RowCount) -> None:
        self.selected = selected
        self.left = Left()
        self._progress = progress

    @cached_property
    def sessions(self) -> dict[SessionKey, SessionClock]:
        rows = self.selected.condition(EVENTS)
        sql = _EXTENTS.format(drawn=DRAWN, chosen=rows.sql)
        extents = [Extent(*row) for row in self.selected.few(sql, rows.values)]
        chosen = self.selected.filters.selection._replace(streams=None).condition
        sql = FACTS.format(chosen=chosen.sql)
        facts = [Facts(*row) for row in self.selected.few(sql, chosen.values)]
        return placed(extents, facts)

    @cached_property
    def names(self) -> ProgramNames:
        """Titles of the processes and threads that wrote the selected sessions."""
        chosen = self.selected.filters.selection._replace(streams=None).condition
        return ProgramNames.read(self.selected.few, chosen)

    @cached_property
    def first(self) -> int:
        """Earliest time of all sessions and notes, in Unix nanoseconds."""
        firsts = [max(s.first, 0) for s in self.sessions.values() if s.first is not None]
        return min([*firsts, *(note.from_ for note in self.notes)], default=0)

    @cached_property
    def notes(self) -> list[Note]:
        """Notes of users that may concern the selection, except those about times before 1970, which `left` counts."""
        notes = self.selected.notes.notes
        placed = [note for note in notes if note.from_ >= 0]
        if len(placed) < len(notes):
            self.left["note about a time before 1970"] += len(notes) - len(placed)
        return placed

    @property
    def asked(self) -> dict[str, Any]:
        """The filters by which the user has selected the rows, by name."""
        return {k: v for k, v in self.selected.filters._asdict().items() if v is not None}

    def session(self, source: str, session: str, format_: str) -> SessionClock:
        """Return the clock of a session, with default values if the session has only gaps."""
        return self.sessions.get((source, session)) or SessionClock(source, format_, session)

    def items(self) -> Iterator[Item]:
        """Yield the rows to draw, ordered by lane (stream or substream), ascending start and descending end."""
        chosen = self.selected.condition(EVENTS)
        # Query the clocks before the rows, because no other query can run while the rows are read.
        places = self.sessions
        sql = _BEGUN.format(columns=_COLUMNS, events=chosen.sql)
        open_rows = list(self._rows(sql, chosen.values, RowCount(None)))
        sql = _WHOLE.format(columns=_COLUMNS, events=chosen.sql)
        rows = self._rows(sql, chosen.values, self._progress)
        if open_rows:
            rows = merge(rows, open_rows, key=_place)
        lane: Lane | None = None
        drawn = 0
        for source, session, stream, substream, kind, name, category, *rest in rows:
            if lane is None or (source, session, stream, substream) != (
                lane.session.source, lane.session.session, lane.stream, lane.substream,
            ):  # fmt: skip
                lane = Lane(places[source, session], stream, substream)
            *ids, start, end, time, aligned, open_, attributes, numbers, _ = rest
            begin = lane.session.place(time, aligned)
            if kind == "end" and begin is None and end is not None:
                begin = lane.session.place_tick(end)
            if begin is None:
                self.left[f"{kind} without a time"] += 1
                continue
            ends = None
            if kind == "span" and start is not None and end is not None:
                ends = lane.session.end(begin, start, end)
            shown = name if name is not None else f"({kind} without a name)"
            drawn += 1
            times = begin, ends, open_
            yield Item._make((lane, kind, shown, category, *ids, *times, attributes, numbers))
        self._progress.written(drawn)

    def _rows(self, sql: str, values: tuple[object, ...], progress: RowCount) -> Iterator[_Row]:
        for batch in self.selected.batches(self.selected.arrow(sql, values), progress):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _place(row: _Row) -> tuple[object, ...]:
    """Return a key by which Python sorts rows in the same order as the SQL in `_ORDER`."""
    source, session, stream, substream, _, _, _, _, _, seq, start, end, *_, offset = row
    at = end if start is None else start
    return (
        source, session, stream, *_first_if_null(substream), *_first_if_null(at),
        *_first_if_null(None if end is None else -end), offset, seq is None, seq or 0,
    )  # fmt: skip


def _first_if_null(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0
