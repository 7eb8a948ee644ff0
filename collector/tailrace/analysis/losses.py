"""Count the lost events that may belong to each group of spans, and find the stored spans whose duration is in doubt.

A gap *touches* a selection if one of its missing events may be a selected span. A range of time selects the spans that
begin in it. A gap before the range does not touch the selection, but a gap after it does: a long missing span may have
begun in the range. A gap without a time touches the range, unless its session ended long before (`MARGIN`).

A span without an end is in doubt if a gap of its session touches the selection, or its format is in `UNNUMBERED_ENDS`.
In formats in which an end belongs to the last begin (`STACKED`), spans around a gap are in doubt, too. Spans in doubt
count as lost. Losses of which the table has no trace are not counted (ARCHITECTURE, blind spots)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from tailrace.analysis.bounds import LostCount, total_loss
from tailrace.model.gap import DAMAGED_SESSION
from tailrace.query.completeness import has_rows, open_then
from tailrace.query.filters import OpenRange, RowCondition, all_of, any_of, one_of, quoted

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness, Window
    from tailrace.query.engine import Engine

EventNumber = tuple[str, str]

ORDERS: dict[str, EventNumber | None] = {
    "heph": ("seq", '"end"'),
    "jets": None,
    "ovni": ('"offset"', "start"),
    "dftracer": None,
    "et3": ("start", "start"),
}
"""For each format, two SQL expressions over a row of `events`: the event's number in its stream, and a time (ticks)
that rises with it. They turn a gap's numbers into bounds of its time.

- JETS: None, because lines have no number, and their clock may go back.
- DFTracer: None, because the threads of a process share the event ids.
- Heph: an event gets its number when it ends. Threads that share a stream may take the number some time after they
  read the clock, so the numbers count as ordered by time only in announced sessions, and not in stream 0.
- ET3: the number of a line is its tick. ET3 has no wall time."""

SMALLEST = {"heph": 40, "ovni": 12, "et3": 6}
"""Size (bytes) of the smallest event, for formats in which an unreadable range of bytes may hold several events."""

STACKED = ("et3", "ovni")
"""Formats in which the end of a span names no begin, and belongs to the last begin whose span is still open."""

COMMON_TICKS = ("et3",)
"""Formats without a clock, whose ticks count events: a loss in one stream shifts times in all streams of a session."""

UNNUMBERED_ENDS = ("jets",)
"""Formats in which the end of a span has no number, so that a lost end may leave no gap. Each span without an end is in
doubt."""

NUMBERED = ("heph", "dftracer")
"""Formats whose events are whole spans, numbered by stream, so that a gap in a stream changes no span of another one."""

OTHER_KINDS = ("annotation", "counter", "instant")
"""Kinds of events that are neither a span nor the begin or end of a span."""

PLACES = ("source", "session", "format", "stream")
"""Keys for grouping spans that are also columns of `gaps`. A gap counts only in the groups that have the same value of
the key as the gap."""

RENAMED = ("name", "category")
"""Keys for grouping spans. A separate record may define the value of such a key. If this record is missing, a span may
be in a wrong group."""

ANY = ""
"""The text in the column `stream` of a gap whose stream is unknown."""

COLUMNS = (*RENAMED, *PLACES, "substream", "day", "depth", "parent")
"""Columns of `spans` by which spans can be grouped. All other keys for grouping are names of attributes."""

MARGIN = 86_400 * 10**9
"""A range of time that begins at least this long (ns) after the end of a session has no lost event of the session."""

HAS_RATE = "part.ticks_ns(0, 0, c.ticks_per_second) IS NOT NULL"


class TouchingGaps(NamedTuple):
    """The gaps of one stream whose missing events may belong to the selected spans. `events` is the number of these
    events, and `names` states whether records that define names are missing. `unit` is the unit of durations."""

    source: str
    session: str
    format: str
    stream: str
    unit: str
    events: LostCount
    names: bool


class Losses:
    """The lost events that may be spans of a window, or that may change figures of the spans in it."""

    def __init__(
        self, engine: Engine, window: Window, by: Sequence[str], whole: Completeness
    ) -> None:
        """Read the gaps whose missing events may be spans of the window. The spans are grouped by the keys `by`.
        `whole` is the completeness of the window. An event that may still arrive may belong to any group."""
        self._places = [(at, key) for at, key in enumerate(by) if key in PLACES]
        self._everywhere: LostCount = None if whole.unasked else whole.awaited
        self._by = by
        self._gaps = list(_touching(engine, window))
        # Streams, and sessions (with `ANY`) of which any stream may be touched.
        self._touched = {
            (*gap[:2], gap.stream if self._is_local(gap) else ANY) for gap in self._gaps
        }
        self._of: dict[tuple[str, ...], list[LostCount]] = defaultdict(list)
        for gap in self._gaps:
            events = None if self._regroups(gap) else gap.events
            units = ("ns", "ticks") if gap.session == DAMAGED_SESSION else (gap.unit,)
            for unit in units:
                self._of[unit, *(getattr(gap, key) for _, key in self._places)].append(events)

    @property
    def none(self) -> bool:
        return not self._gaps and self._everywhere == 0

    def of(self, group: Sequence[str | None], unit: str) -> LostCount:
        """Return how many lost events at most may be spans of a group with durations in `unit`; None if the number is
        unknown."""
        values = []
        for at, key in self._places:
            other = {"session": DAMAGED_SESSION, "stream": ANY}.get(key)
            values.append((group[at],) if other is None else (group[at], other))
        found = [loss for key in product((unit,), *values) for loss in self._of.get(key, ())]  # type: ignore[arg-type] # a place has a value
        return total_loss(self._everywhere, *found)

    def touches(self, source: str, session: str, stream: str) -> bool:
        """Return whether lost events may change the durations, the groups or the self times of the spans of a stream."""
        touched = {
            (source, session, stream),
            (source, session, ANY),
            (source, DAMAGED_SESSION, ANY),
        }
        return self._everywhere != 0 or not touched.isdisjoint(self._touched)

    def doubted(self, spans: RowCondition) -> RowCondition:
        """Return SQL that adds two columns to the given spans. `unnumbered` states whether a lost end leaves no gap.
        `doubtful` states whether the duration or the group of the span is in doubt, and is null for a span that is
        certainly still open."""
        sessions = sorted({gap[:2] for gap in self._gaps})
        elsewhere = {gap[:2] for gap in self._gaps if self._regroups(gap)}
        stacked = any(gap.format in STACKED for gap in self._gaps)
        awaited = "true" if self._everywhere != 0 else "false"
        sql = f"""
          SELECT *, CASE WHEN NOT open OR touched OR unnumbered OR {awaited}
            THEN open OR around OR elsewhere END AS doubtful
          FROM (
            SELECT m.*, format IN {quoted(UNNUMBERED_ENDS)} AS unnumbered, {_AROUND if stacked else "false AS around"},
              {"t.source IS NOT NULL" if sessions else "false"} AS touched,
              {"coalesce(t.elsewhere, false)" if elsewhere else "false"} AS elsewhere
            FROM ({spans.sql}) AS m
            {_LOSSY_SESSIONS if sessions else ""}
            {_STACKED_GAPS if stacked else ""}
          )
        """  # noqa: S608 - our own words
        if not sessions:
            return RowCondition(sql, spans.values)
        given = [source for source, _ in sessions], [session for _, session in sessions]
        moved = [session in elsewhere for session in sessions]
        return RowCondition(sql, (*spans.values, *given, moved))

    def _is_local(self, gap: TouchingGaps) -> bool:
        """Return whether a gap changes only spans of its own stream."""
        known = gap.format in NUMBERED and gap.session != DAMAGED_SESSION
        return known and not self._regroups(gap)

    def _regroups(self, gap: TouchingGaps) -> bool:
        """Return whether a missing record may change the group of a stored span. An event of DFTracer contains its own
        name and category, but its other attributes may be in separate records."""
        for key in self._by:
            if key in ("depth", "parent"):
                return True
            if gap.names and (key not in COLUMNS or (key in RENAMED and gap.format != "dftracer")):
                return True
        return False


_AROUND = f"""
  coalesce(m.format IN {quoted(STACKED)} AND (
    n."offset" <= coalesce(m.end_offset, m."offset") OR k."first" < m."end" OR m."offset" < v.latest
  ), false) AS around
"""

_LOSSY_SESSIONS = """
  LEFT JOIN (
    SELECT unnest(?::VARCHAR[]) AS source, unnest(?::VARCHAR[]) AS session, unnest(?::BOOLEAN[]) AS elsewhere
  ) AS t ON t.source = m.source AND t.session = m.session
"""

_BY_OFFSET = "reason IN ('malformed', 'truncated')"

_STACKED_GAPS = f"""
  LEFT JOIN (
    SELECT source, session, max("offset") AS latest FROM (
      SELECT source, session, "offset" FROM gaps
      WHERE format IN {quoted(STACKED)} AND "first" IS NULL AND NOT {_BY_OFFSET}
      UNION ALL
      SELECT source, session, "offset" FROM part.kept_few
      WHERE kind = 'end' AND format IN {quoted(COMMON_TICKS)} AND stream <> ''
    ) GROUP BY ALL
  ) AS v ON v.source = m.source AND v.session = m.session
  ASOF LEFT JOIN (
    SELECT source, session, "offset" FROM gaps
    WHERE format IN {quoted(STACKED)} AND "first" IS NULL AND {_BY_OFFSET}
  ) AS n ON n.source = m.source AND n.session = m.session AND m."offset" < n."offset"
  ASOF LEFT JOIN (
    SELECT source, session, "first", "last" FROM gaps
    WHERE format IN {quoted(STACKED)} AND "first" IS NOT NULL
  ) AS k ON k.source = m.source AND k.session = m.session AND m.start < k."last"
"""  # noqa: S608 - our own words
"""SQL that joins three gaps to each span of the formats in `STACKED`:

- `k`: the next gap with event numbers after the span's begin, by ticks.
- `n`: the next gap with unreadable bytes after the span's begin, by offset.
- `v`: the last of the session's other gaps. The missing events of such a gap may lie anywhere before its offset. In ET3
  traces of the Java agents, which name streams, an exit without an entry also counts as such a gap."""


def _touching(engine: Engine, window: Window) -> Iterator[TouchingGaps]:
    """Yield, for each stream, how many events are missing in its gaps. Only gaps whose missing events may be spans of
    the window count."""
    gaps, since, streams = window.selection.gaps, window.since, window.selection.streams
    if streams is not None:
        # A loss in one stream of these formats may change figures of the session's other streams.
        others = RowCondition(f"format IN {quoted(COMMON_TICKS)}")
        gaps = any_of([gaps, all_of([others, window.selection._replace(streams=None).gaps])])
    if not has_rows(engine, "gaps", all_of([RowCondition("remaining IS DISTINCT FROM 0"), gaps])):
        return
    found = _GAPS.format(gaps=gaps.sql)
    chosen = RowCondition("FROM lost") if since is None else _behind(engine, gaps, since)
    sql = _TOUCHING.format(gaps=found, chosen=chosen.sql)
    rows = list(engine.rows(sql, (*gaps.values, *chosen.values)))
    if rows and since is not None:
        sessions = open_then(engine, {row[:2] for row in rows}, OpenRange(since - MARGIN, None))
        rows = [row for row in rows if row[:2] in sessions or row[1] == DAMAGED_SESSION]
    for source, session, format_, stream, unit, events, unknown, names in rows:
        selected = streams is None or stream in {*streams, ANY}
        lost = (None if unknown else int(events)) if selected else 0
        yield TouchingGaps(source, session, format_, stream, unit, lost, names)


def _behind(engine: Engine, gaps: RowCondition, since: int) -> RowCondition:
    """Return SQL that selects those gaps of the table `lost` that do not lie before `since` (Unix ns)."""
    numbered = f"SELECT DISTINCT session FROM gaps WHERE {gaps.sql} AND {_LAST} IS NOT NULL"  # noqa: S608 - our own words
    sessions = sorted(session for (session,) in engine.rows(numbered, gaps.values))
    if not sessions:
        return RowCondition("FROM lost")
    # List the sessions as values and not as a subquery, so that DuckDB can skip data files.
    chosen = one_of("session", sessions)
    return RowCondition(_SINCE.format(sessions=chosen.sql), (since, *chosen.values))


_UNREADABLE = "try_cast(part.member(attributes, '$.bytes') AS BIGINT)"

_SMALLEST = " ".join(f"WHEN '{format_}' THEN {size}" for format_, size in SMALLEST.items())

_MOST = f"""CASE WHEN reason = 'malformed' AND "first" IS NULL AND remaining IS NOT NULL
  THEN greatest(remaining, {_UNREADABLE} // CASE format {_SMALLEST} END) ELSE remaining END"""
"""SQL expression for the greatest number of events that a gap may stand for."""

_GAPS = f"""
SELECT source, session, format, stream, {_MOST} AS remaining, "of", "first", "last", "offset",
  remaining IS NULL
    OR "first" IS NULL AND coalesce(part.member(attributes, '$.estimate') = 'true', false) AS unknown
FROM gaps WHERE {{gaps}} AND remaining IS DISTINCT FROM 0 AND ("of" IS NULL OR "of" NOT IN {quoted(OTHER_KINDS)})
"""  # noqa: S608 - our own words
"""SQL for the gaps whose missing events may be spans. `unknown` is true if their exact number is unknown:
`remaining` is null, or a gap without event numbers is an estimate."""


def _by_format(expressions: Iterable[tuple[str, str]]) -> str:
    cases = " ".join(f"WHEN '{format_}' THEN {sql}" for format_, sql in expressions)
    return f"CASE format {cases} END"


_ORDERED = [(format_, *order) for format_, order in ORDERS.items() if order is not None]
_NUMBER = _by_format((format_, number) for format_, number, _ in _ORDERED)
_TICK = _by_format((format_, tick) for format_, _, tick in _ORDERED)
_LAST = _by_format(
    (f, n if n == '"offset"' else 'coalesce("last", "first")') for f, n, _ in _ORDERED
)

_SINCE = f"""
SELECT g.* FROM (SELECT *, {_LAST} AS at FROM lost) AS g
LEFT JOIN (
  SELECT source, session, stream, max(number) FILTER (moment < ?) AS earlier, bool_and(coalesce(former <= moment, true)) AS rises
  FROM (
    SELECT *, lag(moment) OVER (PARTITION BY source, session, stream ORDER BY number) AS former
    FROM (
      SELECT source, session, stream, {_NUMBER} AS number,
        part.ticks_ns(coalesce({_TICK}, start)::HUGEINT - start, time, ticks_per_second) AS moment
      FROM (
        FROM events WHERE kind IN ('span', 'begin', 'instant', 'counter', 'annotation') AND {{sessions}}
      ) LEFT JOIN part.clocks USING (source, session)
    )
    WHERE number IS NOT NULL
  )
  GROUP BY ALL
) AS e USING (source, session, stream)
WHERE NOT coalesce(g.at < e.earlier AND e.rises, false) OR g.format = 'heph' AND (
  g.stream = '0' OR (g.source, g.session) NOT IN (
    SELECT (source, session) FROM stored WHERE kind = 'session' AND name = 'tailrace.session'
  )
)
"""  # noqa: S608 - our own words
"""SQL that leaves out the gaps that lie before a given time. A gap lies before the time if a later event of the same
stream, by its number, lies before the time. In a stream whose times do not always rise with its numbers, no gap is left
out."""

_TOUCHING = f"""
WITH lost AS MATERIALIZED ({{gaps}})
SELECT g.source, g.session, g.format, g.stream, CASE WHEN {HAS_RATE} THEN 'ns' ELSE 'ticks' END AS unit,
  coalesce(sum(remaining) FILTER ("of" IS DISTINCT FROM 'name'), 0),
  coalesce(bool_or(unknown) FILTER ("of" IS DISTINCT FROM 'name'), false), coalesce(bool_or("of" = 'name'), false)
FROM ({{chosen}}) AS g LEFT JOIN part.clocks AS c USING (source, session)
GROUP BY ALL
"""  # noqa: S608 - our own words
