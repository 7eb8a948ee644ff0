"""The views that people ask, with what each column means, as SQL over one snapshot of the table.

All times are Unix nanoseconds; `start` and `end` are ticks of the session's own clock. An *event*
is a span (begun or ended, counted once), an instant, a counter or an annotation. An end without a
begin is none: the event it belongs to is the missing one.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from tailrace.model.columns import COLUMNS
from tailrace.query.names import NAMES
from tailrace.query.parts import PARTS


class Column(NamedTuple):
    name: str
    type: str  # as DuckDB names it
    meaning: str


class View(NamedTuple):
    name: str
    meaning: str
    columns: tuple[Column, ...]
    sql: str
    order: str = ""
    """How its rows are shown, as ORDER BY takes it; empty for those of no order."""


TYPES = {"date": "DATE", "string": "VARCHAR", "long": "BIGINT"}
_STORED = {c.name: Column(c.name, TYPES[c.type], c.meaning) for c in COLUMNS}


def _as_stored(names: str) -> tuple[Column, ...]:
    return tuple(_STORED[name] for name in names.split())


_WALL = Column("wall", "TIMESTAMP_NS", "time, readable, in UTC")
_ALIGNED = Column(
    "aligned",
    "BIGINT",
    "start on the clock that the sessions of a run share: ticks + clock_offset, in ticks",
)

EVENTS = View(
    "events",
    "every row of the table, with names and wall time as they are known now",
    (
        *_as_stored("day source format session stream substream seq kind name category id parent"),
        *_as_stored("start end"),
        Column(
            "time", "BIGINT", "start as Unix nanoseconds; null where the session's epoch is unknown"
        ),
        _WALL,
        _ALIGNED,
        *_as_stored("attributes offset"),
    ),
    """
    SELECT e.day, source, e.format, session, e.stream, e.substream, e.seq, e.kind,
      coalesce(e.name, n.late_name) AS name, e.category, id, e.parent, e.start, e."end",
      coalesce(e.time, part.ticks_ns(e.start, c.epoch, c.ticks_per_second)) AS time,
      part.readable(coalesce(e.time, part.ticks_ns(e.start, c.epoch, c.ticks_per_second))) AS wall,
      try_cast(e.start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned,
      e.attributes, e."offset"
    FROM part.rows AS e
    LEFT JOIN part.clocks AS c USING (source, session)
    LEFT JOIN part.late_names AS n USING (source, session, id)
    """,
)

SPANS = View(
    "spans",
    "one row a span: those that ended, and those still open",
    (
        *_as_stored("day source format session stream substream seq name category id parent"),
        *_as_stored("start"),
        Column("end", "BIGINT", "in the session's own ticks; null while the span is open"),
        Column("open", "BOOLEAN", "begun and not ended"),
        Column("ticks", "BIGINT", "duration: end minus start"),
        Column(
            "duration", "BIGINT", "duration in nanoseconds; null where the clock has no tick rate"
        ),
        Column(
            "time", "BIGINT", "start as Unix nanoseconds; null where the session's epoch is unknown"
        ),
        _WALL,
        _ALIGNED,
        Column(
            "attributes",
            "VARCHAR",
            "JSON object: the members of the span's row, then those that only the begin has; `$begin`"
            " has what the begin gave another value",
        ),
        *_as_stored("offset"),
    ),
    """
    SELECT e.day, source, e.format, session, e.stream, e.substream, e.seq,
      coalesce(e.name, n.late_name) AS name, e.category, id, e.parent, start, e."end",
      e.open, try_cast(e."end"::HUGEINT - start AS BIGINT) AS ticks,
      part.ticks_ns(e."end"::HUGEINT - start, 0, c.ticks_per_second) AS duration,
      coalesce(e.time, part.ticks_ns(start, c.epoch, c.ticks_per_second)) AS time,
      part.readable(coalesce(e.time, part.ticks_ns(start, c.epoch, c.ticks_per_second))) AS wall,
      try_cast(start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned,
      CASE WHEN e.open THEN e.attributes ELSE part.joined(e.attributes, b.begun_with) END AS attributes,
      e."offset"
    FROM part.span_rows AS e
    LEFT JOIN part.clocks AS c USING (source, session)
    LEFT JOIN part.late_names AS n USING (source, session, id)
    LEFT JOIN part.begin_words AS b USING (source, session, id, start)
    """,
)

GAPS = View(
    "gaps",
    "what is missing: gaps net of what came after all (all_gaps has the repaid ones too)",
    (
        *_as_stored("day source format session stream"),
        Column("reason", "VARCHAR", "why it is missing (model.gap.Reason)"),
        Column("detail", "VARCHAR", "how it is known, in the word of the format or the collector"),
        Column(
            "first", "BIGINT", "the first missing number; null where the producer has no counter"
        ),
        Column(
            "last", "BIGINT", "the last missing number; some between may be there, if count is less"
        ),
        Column("count", "BIGINT", "events missing when it was found; null where that is unknown"),
        Column("healed", "BIGINT", "how many of them came after all"),
        Column("remaining", "BIGINT", "how many are missing; null where that is unknown"),
        Column("of", "VARCHAR", "kind of the missing records, where known"),
        Column("id", "BIGINT", "id of the missing record, where known"),
        *_as_stored("attributes offset"),
    ),
    'SELECT * FROM all_gaps WHERE remaining > 0 OR "count" IS NULL',
    'source, session, try_cast(stream AS BIGINT), stream, first, "offset"',
)

STATES = (
    "open: a collector takes in what comes; silent: its file rests; unfinished?: its file rests, or"
    " no collector has the store, and it has not said its end; unwatched: no collector has the store,"
    " and its format has no end to say; ended"
)

SESSIONS = View(
    "sessions",
    "one row a session: who, when, by which clock, and how much of it is here",
    (
        *_as_stored("source format session"),
        Column("opened", "BIGINT", "when its first bytes came (Unix ns)"),
        Column("closed", "VARCHAR", "why it ended; null while it is open"),
        Column("closed_at", "BIGINT", "when it ended (Unix ns)"),
        Column(
            "continues",
            "VARCHAR",
            "the session before it of the same producer, which began anew or came back",
        ),
        Column("peer", "VARCHAR", "address or path it came from"),
        Column("transport", "VARCHAR", "udp, tcp, unix or tail"),
        Column(
            "run", "VARCHAR", "of a file: the group whose sessions share names and a clock, if any"
        ),
        Column("clock", "VARCHAR", "unix_ns, monotonic_ns, clk or logical"),
        Column("ticks_per_second", "DOUBLE", "of start and end"),
        Column("epoch", "BIGINT", "time of tick 0 (Unix ns)"),
        Column(
            "clock_offset", "BIGINT", "from its clock to its run's (ns); null where none is known"
        ),
        Column(
            "producer",
            "VARCHAR",
            "JSON object: what the producer says of itself, with names where it says keys",
        ),
        Column("totals", "VARCHAR", "JSON object: how many records of each kind it says it wrote"),
        Column("rows", "BIGINT", "its rows in the table"),
        Column("events", "BIGINT", "its events in the table"),
        Column("missing", "BIGINT", "its events known to be missing"),
        Column("unknown", "BOOLEAN", "whether something of unknown amount is missing, too"),
        Column("state", "VARCHAR", STATES),
    ),
    """
    WITH words AS (
      SELECT source, session,
        arg_max(ours ->> '$.closed', place) AS closed,
        arg_max(try_cast(ours ->> '$.closed_at' AS BIGINT), place) AS closed_at,
        arg_max(ours ->> '$.continues', place) AS continues,
        arg_max(ours ->> '$.peer', place) AS peer,
        arg_max(ours ->> '$.transport', place) AS transport,
        arg_max((words -> '$.totals')::VARCHAR, place) AS totals
      FROM part.session_words
      GROUP BY source, session
    ),
    producers AS (
      SELECT source, session,
        '{' || string_agg(to_json(word)::VARCHAR || ':' || value, ',' ORDER BY word) || '}' AS producer
      FROM part.producer_words
      GROUP BY source, session
    ),
    seen AS (
      SELECT source, format, session, count(*) AS "rows",
        count(*) FILTER (kind IN ('span', 'instant', 'counter', 'annotation')) AS events
      FROM part.shown
      GROUP BY source, format, session
    ),
    open AS (
      SELECT source, session, sum(open_spans) AS open_spans FROM part.open_counts GROUP BY source, session
    ),
    lost AS (
      SELECT source, session, sum(missing) AS missing, bool_or(unknown) AS unknown
      FROM part.missing_events
      GROUP BY source, session
    )
    SELECT source, s.format, session, r.opened, w.closed, w.closed_at, w.continues,
      coalesce(w.peer, f.peer) AS peer, coalesce(w.transport, f.transport) AS transport,
      r.run, c.clock, c.ticks_per_second, c.epoch, c.clock_offset, p.producer, w.totals, s."rows",
      (s.events + coalesce(o.open_spans, 0))::BIGINT AS events,
      least(coalesce(l.missing, 0), 9223372036854775807)::BIGINT AS missing,
      coalesce(l.unknown, false) OR d.source IS NOT NULL AS unknown,
      coalesce(y.state, part.unopened()) AS state
    FROM (FROM seen ANTI JOIN part.resuming USING (source, session)) AS s
    LEFT JOIN words AS w USING (source, session)
    LEFT JOIN words AS f  -- the nth restart of a session x is x.n
      ON f.source = s.source AND f.session = regexp_replace(w.continues, '\\.[0-9]+$', '')
    LEFT JOIN part.courses AS y USING (source, session)
    LEFT JOIN part.runs AS r USING (source, session)
    LEFT JOIN part.clocks AS c USING (source, session)
    LEFT JOIN producers AS p USING (source, session)
    LEFT JOIN open AS o USING (source, session)
    LEFT JOIN lost AS l USING (source, session)
    LEFT JOIN part.damaged_sources AS d USING (source)
    """,
    "source, opened, session",
)

STREAMS = View(
    "streams",
    "one row a stream: how far it got, and how much of it is here",
    (
        *_as_stored("source format session stream"),
        Column(
            "first_seq", "BIGINT", "the lowest number seen; null where the producer has no counter"
        ),
        Column("last_seq", "BIGINT", "the highest number seen"),
        Column("events", "BIGINT", "its events in the table"),
        Column("missing", "BIGINT", "its events known to be missing"),
        Column(
            "completeness",
            "DOUBLE",
            "at least this share is here: events / (events + missing), where missing includes, for a"
            " stream without numbers, what its session misses of no known stream; null where an"
            " amount is unknown",
        ),
        Column("first_time", "BIGINT", "of its earliest start (Unix ns); null without an epoch"),
        Column("last_time", "BIGINT", "of its latest start (Unix ns)"),
        Column("open_spans", "BIGINT", "spans begun and not ended"),
        Column("state", "VARCHAR", "of its session: open, silent, unfinished?, unwatched or ended"),
        Column(
            "silent_since",
            "BIGINT",
            "when its file was written last, if that rests, or its latest start (Unix ns); null once ended",
        ),
    ),
    """
    SELECT source, format, session, stream, first_seq, last_seq, events, missing,
      CASE WHEN NOT unknown AND (events > 0 OR missing > 0)
        THEN events / (events + missing::DOUBLE + elsewhere) END AS completeness,
      first_time, last_time, open_spans, state,
      CASE WHEN state <> 'ended' THEN coalesce(rests_since, last_time) END AS silent_since
    FROM (
      SELECT source, format, session, stream, s.first_seq, s.last_seq,
        (coalesce(s.events, 0) + coalesce(o.open_spans, 0))::BIGINT AS events,
        coalesce(l.missing, 0) AS missing,
        stream <> '' AND s.events IS NOT NULL AND s.first_seq IS NULL AS exposed,
        CASE WHEN exposed THEN coalesce(max(l.missing) FILTER (stream = '') OVER whole, 0) ELSE 0 END
          AS elsewhere,
        coalesce(l.unknown, false) OR d.source IS NOT NULL
          OR exposed AND coalesce(bool_or(l.unknown) FILTER (stream = '') OVER whole, false) AS unknown,
        least(s.first_time, part.ticks_ns(s.first_start, c.epoch, c.ticks_per_second)) AS first_time,
        greatest(s.last_time, part.ticks_ns(s.last_start, c.epoch, c.ticks_per_second)) AS last_time,
        coalesce(o.open_spans, 0) AS open_spans,
        coalesce(y.state, part.unopened()) AS state, CASE WHEN y.rest <> '' THEN y.since END AS rests_since
      FROM part.seen_events AS s
      FULL JOIN part.missing_events AS l USING (source, format, session, stream)
      LEFT JOIN part.open_counts AS o USING (source, format, session, stream)
      LEFT JOIN part.clocks AS c USING (source, session)
      LEFT JOIN part.courses AS y USING (source, session)
      LEFT JOIN part.damaged_sources AS d USING (source)
      WINDOW whole AS (PARTITION BY source, format, session)
    )
    """,
    "source, first_time, session, try_cast(stream AS BIGINT), stream",
)

VIEWS = (EVENTS, SPANS, GAPS, SESSIONS, STREAMS)


def define(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views of `stored`, which is there already."""
    connection.execute(f"CREATE SCHEMA part; {PARTS} {NAMES}")
    for view in VIEWS:
        connection.execute(f"CREATE VIEW {view.name} AS {view.sql}")
