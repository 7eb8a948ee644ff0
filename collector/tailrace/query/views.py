"""Define the views for users and the meaning of each column, as SQL over one snapshot of the table.

Times are Unix nanoseconds; `start` and `end` are ticks of the session's clock. An *event* is a span (counted once,
even if begin and end are stored separately), an instant, a counter or an annotation. An end without its begin is no
event, because its begin counts as missing."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.rows.schema import COLUMNS

NESTED = """
WITH placed AS (
  SELECT source, session, e.stream, e.substream, e."offset", e.name, e.start, e."end", e.open, e.time,
    part.ticks_ns(e."end"::HUGEINT - e.start, 0, c.ticks_per_second) AS duration,
    coalesce(e."end", 9223372036854775807) AS stops
  FROM part.timed_spans AS e LEFT JOIN part.clocks AS c USING (source, session)
  WHERE e.start IS NOT NULL
),
marks AS (
  SELECT *, start AS tick, 1 AS turn, (stops > start)::BIGINT AS step FROM placed
  UNION ALL
  SELECT *, stops AS tick, 0 AS turn, -1 AS step FROM placed WHERE stops > start AND NOT open
),
levels AS (
  SELECT *, row_number() OVER lane AS number,
    sum(step) OVER (lane ROWS UNBOUNDED PRECEDING) - step AS level
  FROM marks
  WINDOW lane AS (PARTITION BY source, session, stream, substream ORDER BY tick, turn, stops DESC, "offset")
),
sought AS (
  SELECT *, level - 1 AS beside, NULL AS held FROM levels WHERE turn = 1
  UNION ALL
  SELECT *, level AS beside, {'offset': "offset", 'name': name, 'stops': stops} AS held
  FROM levels WHERE turn = 1 AND step = 1
),
found AS (
  SELECT *, last_value(held IGNORE NULLS) OVER (
    PARTITION BY source, session, stream, substream, beside ORDER BY number ROWS UNBOUNDED PRECEDING
  ) AS parent_held
  FROM sought
)
SELECT source, session, stream, substream, "offset", name, start, "end", time, duration, level::BIGINT AS level,
  CASE WHEN parent_held.stops >= stops THEN parent_held."offset" END AS parent_offset,
  CASE WHEN parent_held.stops >= stops THEN parent_held.name END AS parent_name
FROM found WHERE held IS NULL
"""
"""SQL that finds the parent of each span: the span in the same stream and substream that encloses it in time. The level
of a span is the number of spans that are open when it begins. If spans nest, the parent is the last span before it
whose level is lower by one, for which DuckDB needs only two sorts. If spans overlap without nesting, the span that this
search finds may already have ended; then there is no parent."""


class ViewColumn(NamedTuple):
    name: str
    type: str  # name of the column's type in DuckDB
    meaning: str


class View(NamedTuple):
    name: str
    meaning: str
    columns: tuple[ViewColumn, ...]
    sql: str
    order: str = ""
    """SQL of the ORDER BY clause with which the view is shown; empty if the order does not matter."""


TYPES = {
    "date": "DATE", "string": "VARCHAR", "long": "BIGINT", "timestamp": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
_STORED = {c.name: ViewColumn(c.name, TYPES[c.type], c.meaning) for c in COLUMNS}


def _view(name: str, meaning: str, columns: str, sql: str, order: str = "") -> View:
    """Return a view. Each line of `columns` has the name, the type and the meaning of one column, or the names of
    columns that the view shows as they are stored."""
    found: list[ViewColumn] = []
    for line in columns.strip().splitlines():
        head, text = line.split(": ", 1)
        if head.strip() == "as stored":
            found += (_STORED[each] for each in text.split())
        else:
            column, type_ = head.split()
            found.append(ViewColumn(column, type_, " ".join(text.split())))
    return View(name, meaning, tuple(found), sql, order)


_TIME = "time BIGINT: start as Unix nanoseconds; null where the session's epoch is unknown"
_ALIGNED = "aligned BIGINT: start on the clock that the sessions of a run share, in ticks: start + clock_offset"

EVENTS = _view(
    "events",
    "every row of the table but begins of ended spans, with the names and wall times that are known now",
    f"""
    as stored: day source format session stream substream seq kind name category id parent depth start end
    {_TIME}
    as stored: wall
    {_ALIGNED}
    as stored: missing attributes offset end_offset
    """,
    """
    SELECT e.day, source, e.format, session, e.stream, e.substream, e.seq, e.kind, e.name, e.category, e.id, e.parent,
      e.depth, e.start, e."end", e.time, part.readable(e.time) AS wall,
      try_cast(e.start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned,
      e.missing, e.attributes, e."offset", e.end_offset
    FROM part.timed_rows AS e
    LEFT JOIN part.clocks AS c USING (source, session)
    """,
)

SPANS = _view(
    "spans",
    "one row for each span, ended or still open",
    f"""
    as stored: day source format session stream substream seq name category id parent depth start
    end BIGINT: end in the session's own ticks; null while the span is open
    open BOOLEAN: whether the span has begun and not ended
    ticks BIGINT: duration: end minus start
    duration BIGINT: duration in nanoseconds; null where the clock has no tick rate
    {_TIME}
    as stored: wall
    {_ALIGNED}
    attributes VARCHAR: JSON object: the members of the span's end, then those that only its begin has; `$begin` \
      holds the begin's values where they differ
    as stored: offset end_offset
    """,
    """
    SELECT e.day, source, e.format, session, e.stream, e.substream, e.seq, e.name, e.category, e.id, e.parent,
      e.depth, e.start, e."end", e.open, try_cast(e."end"::HUGEINT - e.start AS BIGINT) AS ticks,
      part.ticks_ns(e."end"::HUGEINT - e.start, 0, c.ticks_per_second) AS duration,
      e.time, part.readable(e.time) AS wall,
      try_cast(e.start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned,
      e.attributes, e."offset", e.end_offset
    FROM part.timed_spans AS e
    LEFT JOIN part.clocks AS c USING (source, session)
    """,
)

COUNTERS = _view(
    "counters",
    "the values of counters: one row for each number that a counter gave",
    f"""
    as stored: day source format session stream substream seq
    name VARCHAR: the counter's name; for one of several numbers in `args`, followed by `.` and the number's name \
      there
    value DOUBLE: the member `value` or `tailrace.counter` of its attributes, or a number in `args`; whole numbers \
      beyond 2^53 are rounded, `attributes` has them exactly; null where the counter gave no number
    as stored: category id start
    {_TIME}
    as stored: wall
    {_ALIGNED}
    as stored: attributes offset
    """,
    """
    SELECT e.day, source, e.format, session, e.stream, e.substream, e.seq,
      CASE WHEN e.number.member IS NULL THEN e.name ELSE concat_ws('.', e.name, e.number.member) END AS name,
      try_cast(e.number.value AS DOUBLE) AS value, e.category, e.id, e.start, e.time, part.readable(e.time) AS wall,
      try_cast(e.start::HUGEINT + coalesce(c.clock_offset, 0) AS BIGINT) AS aligned, e.attributes, e."offset"
    FROM (
      SELECT *, unnest(CASE WHEN len(numbers) > 0 THEN numbers ELSE [NULL] END) AS number
      FROM (SELECT *, part.numbers(attributes) AS numbers FROM part.timed_rows WHERE kind = 'counter')
    ) AS e
    LEFT JOIN part.clocks AS c USING (source, session)
    """,
)

GAPS = _view(
    "gaps",
    "what is missing: gaps minus events that arrived later (all_gaps also has healed gaps)",
    """
    as stored: day source format session stream
    reason VARCHAR: why the events are missing (model.gap.Reason)
    detail VARCHAR: how the collector knows, in a word of the format or of the collector
    first BIGINT: the first missing number; null where the producer has no counter
    last BIGINT: the last missing number; if count is smaller than the range, some numbers in it are not missing
    count BIGINT: events missing when the gap was found; null if unknown
    healed BIGINT: how many of them arrived later, or went to another collector
    remaining BIGINT: how many are still missing; null if unknown
    of VARCHAR: kind of the missing records, if known
    id BIGINT: id of the missing record, if known
    as stored: attributes offset
    """,
    "SELECT * FROM all_gaps WHERE remaining > 0 OR remaining IS NULL",
    'source, session, try_cast(stream AS BIGINT), stream, first, "offset", reason, detail, "last", "count", id, attributes',
)

STATES = (
    "open: a collector receives its events; silent: its file rests; unfinished?: the end mark of its stream is missing"
    " or its file ends within a record, and its file rests or its collector does not run; unfollowed: no source follows its file any more;"
    " unwatched: its collector does not run, and no end mark is known to be missing; ended: it was closed, or its file rests behind the end mark"
)

SESSIONS = _view(
    "sessions",
    "one row for each session: producer, times, clock, and how much of it is in the table",
    f"""
    as stored: source format session
    opened BIGINT: when its first bytes arrived (Unix ns)
    closed VARCHAR: why it ended; null while it is open
    closed_at BIGINT: when it ended (Unix ns)
    continues VARCHAR: the previous session of the same producer, which restarted, came back or moved here
    peer VARCHAR: address or path it came from
    transport VARCHAR: udp, tcp, unix or tail
    run VARCHAR: for a file, the group whose sessions share names and a clock, if any
    rank BIGINT: its rank in the job, as the launcher says; null if unknown
    node VARCHAR: the node of the job on which it ran; null outside of jobs
    job VARCHAR: the job: the scheduler's id, `.`, and the step or the launcher's own id; null if unknown
    clock VARCHAR: unix_ns, monotonic_ns, clk or logical
    ticks_per_second DOUBLE: ticks in a second, for start and end
    epoch BIGINT: time of tick 0 (Unix ns)
    clock_offset BIGINT: offset from its clock to its run's clock (ns); null if unknown
    producer VARCHAR: JSON object: what the producer says of itself, with keys resolved to names
    totals VARCHAR: JSON object: how many records of each kind the producer says it wrote
    rows BIGINT: the number of its rows in the table
    events BIGINT: its events in the table
    missing BIGINT: its events known to be missing
    unknown BOOLEAN: whether an unknown number of further events is missing
    state VARCHAR: {STATES}
    copies VARCHAR: JSON list: the paths of other followed files that do not grow and whose content its own file \
      has, alone or together with further files; all views leave out the rows of these files, and the table `stored` \
      has them
    """,
    """
    WITH words AS (
      SELECT source, session,
        arg_max(ours ->> '$.closed', place) AS closed,
        arg_max(try_cast(ours ->> '$.closed_at' AS BIGINT), place) AS closed_at,
        arg_max(ours ->> '$.continues', place) AS continues,
        arg_max((words -> '$.totals')::VARCHAR, place) FILTER (name = 'footer' AND format = 'jets') AS totals
      FROM part.session_words GROUP BY source, session
    ),
    producers AS (
      SELECT source, session,
        '{' || string_agg(to_json(word)::VARCHAR || ':' || value, ',' ORDER BY word) || '}' AS producer
      FROM part.producer_words GROUP BY source, session
    )
    SELECT source, s.format, session, r.opened, w.closed, w.closed_at, coalesce(w.continues, m.former) AS continues,
      f.peer, f.transport,
      r.run, j.rank, j.node, j.job, c.clock, c.ticks_per_second, c.epoch, c.clock_offset, p.producer, w.totals,
      s."rows", s.event_count AS events, s.missing, s.unknown,
      coalesce(y.state, part.unopened()) AS state, k.copies
    FROM part.session_counts AS s
    LEFT JOIN words AS w USING (source, session)
    LEFT JOIN part.origins AS f USING (source, session)
    LEFT JOIN part.courses AS y USING (source, session)
    LEFT JOIN part.runs AS r USING (source, session)
    LEFT JOIN part.places AS j USING (source, session)
    LEFT JOIN part.clocks AS c USING (source, session)
    LEFT JOIN producers AS p USING (source, session)
    LEFT JOIN part.moved_from AS m USING (source, session)
    LEFT JOIN (
      SELECT source, original AS session, to_json(list(DISTINCT path ORDER BY path))::VARCHAR AS copies
      FROM part.copies GROUP BY ALL
    ) AS k USING (source, session)
    """,
    "source, opened, session",
)

STREAMS = _view(
    "streams",
    "one row for each stream: how far it got, and how much of it is in the table",
    """
    as stored: source format session stream
    first_seq BIGINT: the lowest number seen; null if the producer has no counter
    last_seq BIGINT: the highest number seen
    events BIGINT: its events in the table
    missing BIGINT: its events known to be missing
    completeness DOUBLE: the share that is in the table, at least: events / (events + missing). For a stream without \
      numbers, missing includes the session's missing events of no known stream. Null if an amount is unknown
    first_time BIGINT: time of its earliest start (Unix ns); null without an epoch
    last_time BIGINT: time of its latest start (Unix ns)
    open_spans BIGINT: number of spans without an end
    state VARCHAR: state of its session: open, silent, unfinished?, unfollowed, unwatched or ended
    silent_since BIGINT: when its file was last written, if the file rests, or its latest start (Unix ns); null once \
      ended
    """,
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

LABELS = _view(
    "labels",
    "the labels of runs: one row for each label of a session, to filter any other view by",
    """
    as stored: source session
    key VARCHAR: the label's name
    value VARCHAR: its text; the last one that the producer gave
    """,
    """
    SELECT source, session, each.key AS key, arg_max(each.value ->> '$', place) AS value
    FROM part.session_words, json_each(words, '$.labels') AS each
    WHERE announcement IN ('tailrace.session', 'tailrace.report', 'tailrace.goodbye') AND json_type(words, '$.labels') = 'OBJECT'
    GROUP BY source, session, each.key
    """,
    "source, session, key",
)

PROGRAMS = _view(
    "programs",
    "the names of what wrote each stream: one row for each stream, to join with any other view",
    """
    as stored: source format session stream
    process VARCHAR: the name of the process, as its client or tracer states; of JETS, the hardware; null if unknown
    pid BIGINT: its process id
    thread VARCHAR: the name or id of the thread; null in formats without a stream for each thread
    host VARCHAR: the host on which it ran
    node VARCHAR: the node of the job on which it ran; null outside of jobs
    rank BIGINT: its rank in the job; null if unknown
    job VARCHAR: the job; null if unknown
    file VARCHAR: the path of the file from which the stream was read
    labels VARCHAR: JSON object: the labels that its client announced
    """,
    """
    SELECT source, s.format, session, stream, n.process, try_cast(n.pid AS BIGINT) AS pid,
      coalesce(t.thread, nullif(CASE s.format
        WHEN 'dftracer' THEN split_part(stream, '/', 2) WHEN 'ovni' THEN split_part(stream, '/', 3)
        WHEN 'et3' THEN stream END, '')) AS thread,
      n.host, n.node, n.rank, n.job, n.file, n.labels
    FROM (
      SELECT source, any_value(format) AS format, session, stream
      FROM (
        SELECT source, format, session, stream FROM part.seen_events
        UNION ALL SELECT source, format, session, stream FROM part.missing_events
      )
      GROUP BY source, session, stream
    ) AS s
    LEFT JOIN part.session_names AS n USING (source, session)
    LEFT JOIN part.thread_names AS t USING (source, session, stream)
    """,
    "source, session, stream",
)

NESTING = _view(
    "nesting",
    "one row for each span: how many spans of its stream and substream enclose it, and the innermost of them. It reads"
    " all spans of the streams that are asked for",
    f"""
    as stored: source session stream substream offset name start
    end BIGINT: end in the session's own ticks; null while the span is open
    {_TIME}
    duration BIGINT: duration in nanoseconds; null where the clock has no tick rate
    level BIGINT: how many spans of the stream and substream are open when it begins; an open span encloses all \
      later ones
    parent_offset BIGINT: `offset` of the innermost span that encloses it, by times. In streams whose spans overlap \
      without one inside the other, it may be a span further out, or null
    parent_name VARCHAR: its name
    """,
    NESTED,
    'source, session, stream, substream, start, "end" DESC, "offset"',
)

VIEWS = (EVENTS, SPANS, COUNTERS, GAPS, SESSIONS, STREAMS, PROGRAMS, LABELS, NESTING)
