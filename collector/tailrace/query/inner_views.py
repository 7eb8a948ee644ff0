"""Define the macros and inner views on which the public views are built, as SQL over `stored`, one snapshot of the
table.

The inner views are in the schema `part`, except `all_gaps`, which users may read, too. No value in the table makes a
view fail: sums are computed in 128 bits, a value that does not fit in 64 bits becomes null, a number of missing
events is at most 2^63 - 1, and text that should be JSON or a number, and is not, becomes null."""

from __future__ import annotations

from typing import get_args

from tailrace.query.filters import quoted
from tailrace.rows.schema import IS_OWN
from tailrace.spool.payloads import HEAD, LossDetail

PARTS = """
-- A session and its restarts have one root.
CREATE MACRO part.root(session) AS split_part(session, '.', 1);

-- The rows of all sessions except replaced ones and copies. A file that has grown is read again from its beginning
-- in a new session. Until that is done, the new session is left out; then the old one. See `HIDE`.
CREATE VIEW part.shown AS FROM stored;

CREATE MACRO part.floor_divide(a, b) AS (a - ((a % b) + b) % b) // b;

-- Ticks as nanoseconds from `zero` on; null if the clock has no tick rate, or one with which no time can be computed (see
-- `timeline.Ticks`). With a whole number of ticks a second, the result is exact and rounded down, as in the collector.
CREATE MACRO part.ticks_ns(ticks, zero, rate) AS CASE
  WHEN rate = 1e9 THEN try_cast(zero::HUGEINT + ticks AS BIGINT)
  WHEN rate >= 1 AND rate < 1e18 AND rate = trunc(rate) THEN
    try_cast(zero::HUGEINT + part.floor_divide(ticks::HUGEINT * 1000000000, rate::HUGEINT) AS BIGINT)
  WHEN rate >= 1e-28 AND rate < 1e18 THEN
    try_cast(round_even(greatest(least(ticks * (1e9 / rate), 1e37), -1e37), 0)::HUGEINT + zero AS BIGINT)
END;

-- A time as a timestamp in UTC, cut to microseconds as the column `wall` of the table is.
CREATE MACRO part.readable(ns) AS make_timestamptz(ns::BIGINT // 1000);

-- A member of a JSON object as text.
CREATE MACRO part.member(attributes, path) AS CASE WHEN json_valid(attributes) THEN attributes ->> path END;

-- The JSON pointer to a member of an object, for any name; and the member as text.
CREATE MACRO part.pointer(name) AS '/' || replace(replace(name, '~', '~0'), '/', '~1');
CREATE MACRO part.named_member(object, name) AS object ->> part.pointer(name);

-- The values of a counter, as the text of numbers: its `value`, Heph's `tailrace.counter`, or each number among
-- DFTracer's `args`, which has a member's name. None for attributes without numbers.
CREATE MACRO part.is_number(attributes, path) AS
  coalesce(json_type(attributes, path) IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT'), false);
CREATE MACRO part.numbers_in(attributes) AS CASE
  WHEN part.is_number(attributes, '$.value') THEN [{'member': NULL::VARCHAR, 'value': attributes ->> '$.value'}]
  WHEN part.is_number(attributes, '$."tailrace.counter"') THEN
    [{'member': NULL::VARCHAR, 'value': attributes ->> '$."tailrace.counter"'}]
  ELSE coalesce(list_transform(
    list_filter(
      json_keys(attributes, '$.args'), lambda name: part.is_number(attributes, '/args' || part.pointer(name))
    ),
    lambda name: {'member': name, 'value': part.named_member(attributes -> '$.args', name)}
  ), [])
END;
CREATE MACRO part.numbers(attributes) AS
  part.numbers_in(CASE WHEN json_valid(attributes) THEN attributes END);

-- The position of a row among its session's rows.
CREATE MACRO part.place("offset", time) AS
  {'offset': "offset", 'time': coalesce(time, -9223372036854775808)};

-- The session rows. Later words replace earlier words: `offset` orders them by the session's bytes, and
-- `time` orders documents that arrived at the same offset. `own` is the name of a row of the collector itself, and `ours`
-- are its words. `announcement` is the name of a row with which a client states facts about its session. `clock` are words
-- that the decoder wrote, and of a client's announcement those that the collector believes: a logical clock and its rate.
-- A producer may write rows with these names and members, too, for example as a JETS line of an unknown type. They state
-- nothing about the collector, a client or a clock.
CREATE VIEW part.session_words AS
SELECT day, source, format, session, name, "offset", part.place("offset", time) AS place, own,
  CASE WHEN json_valid(attributes) THEN attributes END AS words,
  CASE WHEN own NOT IN ('evicted', 'gave_way', 'leave') THEN words END AS ours,
  CASE WHEN format = 'heph' AND starts_with(name, 'tailrace.') THEN name END AS announcement,
  CASE
    WHEN announcement = 'tailrace.session' THEN
      CASE words ->> '$.clock' WHEN 'logical' THEN json_object('clock', 'logical', 'ticks_per_second', words -> '$.ticks_per_second')::VARCHAR END
    WHEN own IS NOT NULL OR name NOT IN ('footer', 'tailrace.report', 'tailrace.goodbye') AND (format <> 'jets' OR name = 'header') THEN words
  END AS clock
FROM part.kept_sessions;

-- The address or path from which each session came, and over what. The nth restart of a session x is x.n, and may lack words of
-- its own about this.
CREATE VIEW part.origins AS
WITH words AS (
  SELECT source, session, arg_max(ours ->> '$.peer', place) AS peer, arg_max(ours ->> '$.transport', place) AS transport,
    arg_max(ours ->> '$.continues', place) AS continues
  FROM part.session_words GROUP BY source, session
)
SELECT w.source, w.session, coalesce(w.peer, f.peer) AS peer, coalesce(w.transport, f.transport) AS transport
FROM words AS w
LEFT JOIN words AS f ON f.source = w.source AND f.session = regexp_replace(w.continues, '\\.[0-9]+$', '');

-- Each session's clock, as far as it is known. `epoch` is the time of tick 0.
CREATE VIEW part.clocks AS
SELECT source, session,
  arg_max(clock ->> '$.clock', place) AS clock,
  arg_max(try_cast(clock ->> '$.ticks_per_second' AS DOUBLE), place) AS ticks_per_second,
  arg_max(try_cast(clock ->> '$.epoch' AS BIGINT), place) AS epoch,
  arg_max(try_cast(clock ->> '$.clock_offset' AS BIGINT), place) FILTER (format = 'ovni') AS clock_offset
FROM part.session_words GROUP BY source, session;

-- The time at which each session was opened, and the run of its file, which is the group of
-- `decoding.contract`.
CREATE VIEW part.runs AS
SELECT source, session,
  arg_min(try_cast(ours ->> '$.opened' AS BIGINT), place) AS opened,
  arg_max(nullif(ours ->> '$.group', ''), place) AS run
FROM part.session_words GROUP BY source, session;

-- The place of each session in a job, by its producer's announcement or, without one, by the collector, which knows
-- its node and job, and the rank of a file in a rank's own directory.
CREATE VIEW part.places AS
SELECT source, session, coalesce(s.rank, o.rank) AS rank, coalesce(s.node, o.node) AS node, coalesce(s.job, o.job) AS job
FROM (
  SELECT source, session, part.root(session) AS root,
    arg_max(try_cast(words ->> '$.rank' AS BIGINT), place) FILTER (announcement = 'tailrace.session') AS rank,
    arg_max(words ->> '$.node', place) FILTER (announcement = 'tailrace.session') AS node,
    arg_max(words ->> '$.job', place) FILTER (announcement = 'tailrace.session') AS job
  FROM part.session_words GROUP BY source, session
) AS s
LEFT JOIN (
  SELECT source, session AS root, arg_max(try_cast(ours ->> '$.rank' AS BIGINT), place) AS rank,
    arg_max(ours ->> '$.node', place) AS node, arg_max(ours ->> '$.job', place) AS job
  FROM part.session_words WHERE own = 'open' GROUP BY source, session
) AS o USING (source, root);

-- The state of each session: whether it has ended, and whether a collector watches it. A session whose
-- stream must have an end mark (`ends` names the stream) is `unfinished?` if the end mark is not known to have arrived
-- (`lacks` is not empty), the session has not been closed, and its file rests or nobody watches. `waits` is a rest too:
-- its writer lives. A session whose file no source follows is `unfollowed` unless its end mark has arrived: the file may
-- have grown. Bytes at a file's end that are no whole record (`pending`) make its session `unfinished?`, too.
-- The variable `watched` is whether any collector has the store, and `watchers` are the names of those that have it, null if
-- that is unknown. The collector that took up a session last is its collector; without a name it is `main`.
CREATE MACRO part.watched(collector) AS
  getvariable('watched') AND coalesce(list_contains(getvariable('watchers'), collector), true);

CREATE VIEW part.courses AS
SELECT *, CASE
  WHEN closed OR rest <> '' AND lacks = '' AND pending = 0 THEN 'ended'
  WHEN rest = 'unfollowed' THEN 'unfollowed'
  WHEN pending > 0 AND (rest <> '' OR NOT part.watched(collector)) THEN 'unfinished?'
  WHEN ends IS NOT NULL AND lacks IS DISTINCT FROM '' AND (rest IN ('process_gone', 'silent') OR NOT part.watched(collector))
    THEN 'unfinished?'
  WHEN NOT part.watched(collector) THEN 'unwatched'
  WHEN rest <> '' THEN 'silent'
  ELSE 'open' END AS state
FROM (
  SELECT source, any_value(format) AS format, session, max(day) AS day, max("offset") AS "offset",
    bool_or(ours ->> '$.closed' IS NOT NULL) AS closed,
    arg_max(ours ->> '$.ends', place) AS ends,
    coalesce(arg_max(ours ->> '$.rest', place), '') AS rest,
    arg_max(try_cast(ours ->> '$.since' AS BIGINT), place) AS since,
    arg_max(ours ->> '$.lacks', place) AS lacks,
    coalesce(
      arg_max(coalesce(try_cast(ours ->> '$.pending' AS BIGINT), 0), place) FILTER (own = 'rest'), 0
    ) AS pending,
    arg_max(coalesce(ours ->> '$.asks', '[]'), place) FILTER (own IN ('rest', 'close')) AS asks,
    arg_max(coalesce(ours ->> '$.collector', 'main'), place) FILTER (own IN ('open', 'restart', 'resume')) AS collector
  FROM part.session_words GROUP BY source, session
);

-- The state of a session without an opening row.
CREATE MACRO part.unopened() AS CASE WHEN getvariable('watched') THEN 'open' ELSE 'unwatched' END;

-- Connections that only resume a session which another connection began, and have no events of their own.
CREATE VIEW part.resuming AS
WITH resumed AS MATERIALIZED (
  SELECT DISTINCT source, session
  FROM part.session_words WHERE starts_with(ours ->> '$.closed', 'resumes ')
)
FROM resumed
ANTI JOIN (
  SELECT DISTINCT source, session  -- or the join would hold all events
  FROM part.shown
  SEMI JOIN resumed USING (source, session)
  SEMI JOIN (VALUES ('span'), ('counter'), ('gap')) AS wanted(kind) USING (kind)
) USING (source, session);

-- Names that came after their events: the last name of each id in a session.
CREATE VIEW part.late_names AS
SELECT source, session, id, arg_max(name, "offset") AS late_name
FROM part.kept_names GROUP BY source, session, id;

-- Names by key.
CREATE VIEW part.name_rows AS
SELECT source, session, name, "offset" AS place,
  part.member(attributes, '$."$key"') AS key, part.member(attributes, '$."$scope"') AS scope
FROM part.kept_few WHERE kind = 'name' AND name IS NOT NULL AND contains(attributes, '"$key"');

-- Names that events of a session ask for, and that neither it nor another one from which `part.name_of` takes names has.
-- The key '' stands for an unknown number of others.
CREATE VIEW part.lost_names AS
WITH asked AS MATERIALIZED (
  SELECT day, source, format, session, "offset", run, unnest(from_json(asks, '["VARCHAR"]')) AS key
  FROM part.courses JOIN part.runs USING (source, session)
  WHERE asks <> '[]'
)
FROM asked AS a
WHERE NOT EXISTS (
  SELECT 1 FROM part.name_rows AS n LEFT JOIN part.runs AS r USING (source, session)
  WHERE n.source = a.source AND n.key = a.key
    AND (n.session = a.session OR n.scope = 'source' OR n.scope = 'group' AND r.run = a.run)
);

-- Spans without an end.
CREATE VIEW part.open_begins AS
SELECT b.*
FROM part.kept_open AS b
ANTI JOIN part.kept_ends AS e
  ON e.id = b.id AND e.session = b.session AND e.source = b.source;

-- All gap and heal rows. An amount of null means unknown.
CREATE VIEW part.findings AS
SELECT * EXCLUDE (missing),
  CASE WHEN missing >= 0 THEN missing END AS amount,
  part.member(attributes, '$.of') AS "of", part.member(attributes, '$.detail') AS detail
FROM part.kept_findings;

-- Every gap that a session's ledger found, healed or not, and a gap for each session that is `unfinished?` or `unfollowed`;
-- then come those of lost names (`LOST`).
-- A heal repays the gap that has its numbers or, without numbers, the oldest gaps of the same reason, record id and kind. A
-- heal of unknown size repays the gaps of unknown size that have its reason and detail.
CREATE VIEW part.own_gaps AS
WITH found AS MATERIALIZED (FROM part.findings),
numbered AS MATERIALIZED (
  SELECT *, row_number() OVER () AS number,
    coalesce(
      try_cast(part.member(attributes, '$.last') AS BIGINT), try_cast(seq::HUGEINT + amount - 1 AS BIGINT)
    ) AS "last",
    sum(amount) OVER (
      PARTITION BY source, session, stream, name, id, "of", seq IS NULL ORDER BY "offset", attributes, amount
      ROWS UNBOUNDED PRECEDING) AS amounts
  FROM found WHERE kind = 'gap'
),
by_number AS (
  SELECT g.number, sum(greatest(least(h.seq::HUGEINT + h.amount - 1, g.last) - h.seq + 1, 0)) AS healed
  FROM (FROM found WHERE kind = 'heal' AND seq IS NOT NULL) AS h
  ASOF JOIN (FROM numbered WHERE "last" IS NOT NULL) AS g
    ON h.source = g.source AND h.session = g.session AND h.stream = g.stream AND h.name = g.name
    AND h.seq >= g.seq
  GROUP BY g.number
),
without_number AS (
  SELECT source, session, stream, name, id, "of", sum(amount) AS healed
  FROM found WHERE kind = 'heal' AND seq IS NULL GROUP BY ALL
),
settled AS (
  SELECT DISTINCT source, session, stream, name, detail FROM found WHERE kind = 'heal' AND amount IS NULL
)
SELECT day, source, format, session, stream, name AS reason, detail, seq AS "first", "last",
  amount AS "count", repaid AS healed,
  CASE WHEN amount IS NOT NULL THEN amount - repaid WHEN settled THEN 0 END AS remaining, "of", id, attributes, "offset"
FROM (
  SELECT g.*,
    CASE
      WHEN g.seq IS NOT NULL THEN least(coalesce(n.healed, 0), coalesce(g.amount, 0))
      ELSE greatest(least(coalesce(w.healed, 0) - (g.amounts - g.amount), g.amount), 0)
    END::BIGINT AS repaid,
    s.source IS NOT NULL AS settled
  FROM numbered AS g
  LEFT JOIN by_number AS n ON n.number = g.number
  LEFT JOIN without_number AS w
    ON g.seq IS NULL AND w.source = g.source AND w.session = g.session AND w.stream = g.stream
    AND w.name = g.name AND w.id IS NOT DISTINCT FROM g.id AND w."of" IS NOT DISTINCT FROM g."of"
  LEFT JOIN settled AS s
    ON g.amount IS NULL AND s.source = g.source AND s.session = g.session AND s.stream = g.stream
    AND s.name = g.name AND s.detail IS NOT DISTINCT FROM g.detail
)
UNION ALL
SELECT day, source, format, session, coalesce(ends, ''), 'truncated', state, NULL, NULL, NULL, 0, NULL, NULL, NULL,
  json_object('count', 0, 'detail', state, 'rest', rest, 'since', since, 'pending', pending)::VARCHAR, "offset"
FROM part.courses WHERE state IN ('unfinished?', 'unfollowed')
"""

LOST = """
UNION ALL
SELECT day, source, format, session, '', 'unresolved', nullif(key, ''), NULL, NULL, one, 0, one,
  'name', NULL, json_object('count', coalesce(one, 0), 'of', 'name', 'detail', nullif(key, ''))::VARCHAR, "offset"
FROM (SELECT *, CASE WHEN key <> '' THEN 1 END AS one FROM part.lost_names)
"""
"""SQL that adds a gap for each name to which events of a session refer and that never arrived."""

SUMS = """
-- The missing events of each stream. A healed gap of unknown size leaves nothing.
CREATE VIEW part.missing_events AS
SELECT source, format, session, stream,
  least(coalesce(sum(remaining), 0), 9223372036854775807)::BIGINT AS missing, bool_or(remaining IS NULL) AS unknown
FROM all_gaps WHERE remaining IS NULL OR "count" IS NOT NULL GROUP BY source, format, session, stream;

-- Sources with a damaged file, which may have held rows of any session.
CREATE VIEW part.damaged_sources AS
SELECT DISTINCT source FROM part.kept_findings WHERE kind = 'gap' AND session = 'damaged';

-- When each session was opened and closed, as its session rows state. `part.session_times` may be a longer range.
CREATE VIEW part.stated_times AS
SELECT source, session, min(try_cast(ours ->> '$.opened' AS BIGINT)) AS opened,
  bool_or(ours ->> '$.closed' IS NOT NULL) AS closed,
  max(try_cast(ours ->> '$.closed_at' AS BIGINT)) FILTER (ours ->> '$.closed' IS NOT NULL) AS closed_at
FROM part.session_words GROUP BY source, session;

CREATE VIEW part.open_counts AS
SELECT source, format, session, stream, count(*) AS open_spans
FROM part.open_begins GROUP BY source, format, session, stream;

-- The rows and events of each session in the table, and what is missing. A connection that only resumes a session is left out.
-- No column has the name of a view, because a statement that names the view would define it.
CREATE VIEW part.session_counts AS
WITH seen AS (
  SELECT source, format, session, count(*) FILTER (kind <> 'begin') AS "rows",
    count(*) FILTER (kind IN ('span', 'instant', 'counter', 'annotation')) AS events
  FROM part.shown GROUP BY source, format, session
),
open AS (
  SELECT source, session, sum(open_spans) AS open_spans FROM part.open_counts GROUP BY source, session
),
begun AS (
  SELECT source, session, count(*) AS begins FROM part.kept_open GROUP BY source, session
),
lost AS (
  SELECT source, session, sum(missing) AS missing, bool_or(unknown) AS unknown
  FROM part.missing_events GROUP BY source, session
)
SELECT source, s.format, session,
  (s."rows" + coalesce(b.begins, 0))::BIGINT AS "rows",
  (s.events + coalesce(o.open_spans, 0))::BIGINT AS event_count,
  least(coalesce(l.missing, 0), 9223372036854775807)::BIGINT AS missing,
  coalesce(l.unknown, false) OR d.source IS NOT NULL AS unknown
FROM (FROM seen ANTI JOIN part.resuming USING (source, session)) AS s
LEFT JOIN open AS o USING (source, session)
LEFT JOIN begun AS b USING (source, session)
LEFT JOIN lost AS l USING (source, session)
LEFT JOIN part.damaged_sources AS d USING (source);
"""

EVENTS = ("annotation", "counter", "instant", "span")
"""The kinds of rows that make up most of a table. Rows of all other kinds are rare."""

_FEW_ROWS = f"SELECT *, CASE WHEN {IS_OWN} THEN name END AS own FROM stored WHERE " + " AND ".join(  # noqa: S608 - our own words
    f"kind <> '{kind}'" for kind in EVENTS
)

OPEN = """
SELECT b.*
FROM part.kept_begins AS b
ANTI JOIN (
  SELECT source, session, "offset"
  FROM part.shown WHERE kind = 'span' AND {within} AND "offset" IN (SELECT "offset" FROM part.kept_begins)
) AS e
  ON e."offset" = b."offset" AND e.session = b.session AND e.source = b.source
"""
"""SQL for the begin rows of those spans that have no row of the whole span. (A row of a whole span has the offset of
its begin row.) `within` is a condition that limits which span rows are read."""

KEPT = {
    "part.kept_few": _FEW_ROWS,
    "part.kept_sessions": """
SELECT day, source, format, session, name, own, time, attributes, "offset" FROM part.kept_few WHERE kind = 'session'""",
    "part.kept_names": """
SELECT source, session, name, id, attributes, "offset" FROM part.kept_few WHERE kind = 'name'""",
    "part.kept_findings": """
SELECT day, source, format, session, stream, seq, kind, name, id, missing, attributes, "offset"
FROM part.kept_few WHERE kind IN ('gap', 'heal')""",
    "part.kept_begins": "SELECT * EXCLUDE (own) FROM part.kept_few WHERE kind = 'begin'",
    "part.kept_open": OPEN.format(within="true"),
    "part.kept_ends": """
SELECT source, session, id, max("end") AS "end"
FROM part.kept_few
WHERE kind = 'end' AND contains(attributes, 'begin_forgotten') AND attributes ->> '$."$flaw"' = 'begin_forgotten'
GROUP BY source, session, id
""",
}
"""SQL that selects the rows of each table with copies of stored rows, in the order in which the tables are filled.

- `part.kept_few` gets the rows of all rare kinds, in one pass over the data files. The other tables are filled from it.
  Its column `own` is the name of a row if the row is a session row of the collector itself, otherwise null.
- `kept_begins` and `kept_open` may have only the begin rows that a statement needs.
- `kept_ends` has the ends of spans whose begins the collector had forgotten.

The SQL excludes each frequent kind with `<>`, because DuckDB then reads further columns only for pages with a rare row;
with `IN`, it would read all."""

FOUND = """
SELECT count(*) FILTER (time IS NULL), count(*) FILTER (time IS NULL AND start IS NOT NULL),
  coalesce(bool_or(kind = 'begin'), false), coalesce(bool_or(kind = 'name' AND id IS NOT NULL), false),
  coalesce(bool_or(kind = 'name' AND name IS NOT NULL AND contains(attributes, '"$key"')), false),
  coalesce(bool_or(own = 'open' AND contains(attributes, '"replaces"')), false)
    OR count(*) FILTER (own IS NOT NULL AND contains(attributes, '"file"') AND NOT contains(attributes, '"end of file"')) > 1
    OR count(*) FILTER (own IS NOT NULL AND contains(attributes, '"copied_in"')) > 0,
  coalesce(bool_or(kind = 'session' AND contains(attributes, '"asks"')), false),
  count(DISTINCT {'source': source, 'session': session}) FILTER (kind = 'session' AND name = 'tailrace.session') > 1
FROM part.kept_few
"""
"""SQL that returns facts about the rows of rare kinds (all but ordinary events). The SQL of the views depends on these
facts. The first two columns are the number of rows without a time, and the number of those among them that have a start
tick. Each further column states whether the snapshot has some kind of row, in this order: begins; names for ids; names
for keys; sessions that may replace another session or be a copy; sessions that refer to names by key; several sessions
that clients have announced."""

_REPLACING = """FROM part.kept_few WHERE own = 'open' AND contains(attributes, '"replaces"')"""

ALONE = ("et3", "heph", "jets", "ovni")
"""Formats in which the ledger, which finds the gaps, checks each file separately. In other formats, such as DFTracer,
the ledger checks all files of a run together, and the session of any of these files may have the run's gaps. The list
is here so that a query loads no decoder."""

COPIES = f"""
CREATE OR REPLACE TABLE part.copies AS
WITH last AS (
  SELECT source, format, root, coalesce(max(words ->> '$.rank') FILTER (name = 'open'), '') AS rank,
    bool_or(name = 'open') AS opened, arg_max(words, row(place, words ->> '$.file' IS NOT NULL))
      FILTER (name = 'rest' OR words ->> '$.file' IS NOT NULL) AS words
  FROM (
    SELECT source, format, part.root(session) AS root, name, part.place("offset", time) AS place,
      CASE WHEN json_valid(attributes) THEN attributes END AS words
    FROM part.kept_few
    WHERE {{within}} AND (
      own IN ('open', 'rest', 'close', 'leave', 'gave_way')
      OR kind = 'gap' AND contains(attributes, '"bytes"')
    )
  )
  GROUP BY source, format, root
  HAVING NOT bool_or(name = 'gave_way' OR coalesce(words ->> '$.detail' IN {quoted(get_args(LossDetail))}, false))
),
followed AS (
  SELECT source, format, root, rank, opened, words ->> '$.file.path' AS path, [
    words ->> '$.file.size', words ->> '$.file.crc', coalesce(words ->> '$.file.documents', ''), coalesce(words ->> '$.pending', '')
  ] AS content
  FROM last
  WHERE coalesce(words ->> '$.closed', words ->> '$.left', '') NOT IN ('end of file', 'replaced', 'rewritten', 'truncated')
    AND words ->> '$.file.crc' IS NOT NULL
    AND (try_cast(words ->> '$.file.size' AS BIGINT) >= {HEAD} OR words ->> '$.lacks' = '')
),
named AS (
  SELECT source, format, root, words ->> '$.file.path' AS path,
    unnest(from_json(words -> '$.file.copied_in', '["VARCHAR"]')) AS original
  FROM last
  -- Leave out announced sessions: several files may bring an event, which is stored with only one of them.
  ANTI JOIN (
    SELECT source, part.root(session) AS root FROM part.kept_few WHERE kind = 'session' AND name = 'tailrace.session'
  ) USING (source, root)
  ANTI JOIN (
    SELECT source, part.root(session) AS root
    FROM part.kept_few
    WHERE kind IN ('gap', 'heal') AND format NOT IN {quoted(ALONE)} AND name NOT IN ('malformed', 'unresolved')
    GROUP BY ALL
    HAVING bool_or(kind = 'gap' AND missing > 0) OR count(*) FILTER (kind = 'gap') > count(*) FILTER (kind = 'heal')
  ) USING (source, root)
  WHERE words ->> '$.file.copied_in' IS NOT NULL
    AND (format IN {quoted(ALONE)} OR coalesce(words ->> '$.lacks', '') = '')
),
repeats AS (
  SELECT source, root AS session, any_value(path) AS path, min(original) AS original
  FROM named AS n LEFT JOIN (SELECT source, format, root AS original, opened FROM last) AS o USING (source, format, original)
  GROUP BY source, root
  HAVING bool_and(coalesce(o.opened, false))
),
equal AS (
  SELECT source, root AS session, path, first_value(root) OVER alike AS original
  -- One of several equal files must stay visible, so it must not be one that `repeats` hides.
  FROM followed ANTI JOIN (SELECT source, session AS root FROM repeats) USING (source, root)
  WINDOW alike AS (PARTITION BY source, format, rank, content ORDER BY NOT opened, root)
  QUALIFY first_value(opened) OVER alike AND first_value(path) OVER alike <> path
)
FROM repeats
UNION ALL
FROM equal
"""  # noqa: S608 - our own words
"""SQL that fills the table `part.copies` with the sessions of followed files whose content is also in other files.
`within` limits which rows are searched.

A file counts as a copy if the collector has found all its content in other files (`copied_in`), or if another file with
the same rank has the same content and the collector expects no more growth of the file. These files are no copies:

- A file that was truncated, rewritten or replaced, because a later run may write equal bytes elsewhere.
- A file with the same path as the other file, because two runs wrote files with this path one after the other.
- A file of fewer than `HEAD` bytes whose stream has not ended, because many files begin with the same header.
- A file with lost bytes, because its size and checksum leave out these bytes.
- A file whose session has the gaps of a run that several files share, even if other files have all its content."""

HIDE = f"""
CREATE OR REPLACE TABLE part.hidden AS
WITH pairs AS (
  SELECT session AS root, unnest(attributes ->> '$.replaces[*]') AS replaced {_REPLACING}
),
sizes AS (
  SELECT part.root(session) AS root, max(try_cast(attributes ->> '$.file.size' AS BIGINT)) AS size
  FROM part.kept_few
  WHERE own IN ('rest', 'close', 'leave') AND contains(attributes, '"file"')
  GROUP BY root
),
whole AS (
  SELECT part.root(session) AS root
  FROM part.kept_few
  WHERE own IN ('close', 'leave') AND contains(attributes, '"file"')
    AND coalesce(attributes ->> '$.closed', attributes ->> '$.left') = 'end of file'
  UNION
  -- A session that a collector follows does not end. It replaces another one once it has read as many bytes.
  SELECT p.root
  FROM pairs AS p LEFT JOIN sizes AS s USING (root) LEFT JOIN sizes AS r ON r.root = p.replaced
  GROUP BY p.root
  HAVING bool_and(coalesce(s.size >= r.size, false))
)
SELECT replaced AS root FROM pairs SEMI JOIN whole USING (root)
UNION
SELECT root FROM pairs ANTI JOIN whole USING (root)
UNION
SELECT session FROM part.copies;
DELETE FROM part.kept_few WHERE part.root(session) IN (SELECT root FROM part.hidden)
"""  # noqa: S608 - our own words
"""SQL that fills the table `part.hidden` with replaced and copied sessions, and deletes their rows of rare kinds."""

HIDDEN = "SELECT count(*) > 0 FROM part.hidden"


def shown(*, replacing: bool, moved: bool) -> str:
    """Return the SQL of the view `part.shown`: the rows of a snapshot. With `replacing`, the view leaves out the rows
    of hidden sessions. With `moved`, the view leaves out events that an earlier session of the same client also has."""
    twins = 'ANTI JOIN part.moved_twins USING (source, session, kind, seq, "offset")'
    hidden = "WHERE part.root(session) NOT IN (SELECT root FROM part.hidden)"
    return f"FROM stored {twins if moved else ''} {hidden if replacing else ''}"
