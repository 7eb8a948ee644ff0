"""Define the SQL that turns stored rows into the rows that views show, in as few steps as a snapshot needs.

**Names.** A `name` row assigns a name to a key, within a scope (see `model.record`). The attribute `$name` of an event
contains the key of its own name, and `$late` the keys of the names in other attributes. A key is looked up in the
event's session, then in sessions of its run, then in the source; the session that was opened last takes precedence, and
within it the name at the highest position. All names of a snapshot are one value, a hash table made of a list of maps,
so that a lookup needs no join.

**Clients that moved** to another collector, or whose session was forgotten, have several sessions for which they
announce one id (clients/PROTOCOL.md). The views count such a client as a whole:

- Equal rows with the same number in the same stream are shown once, in the first of the sessions.
- A number is missing if it is in a gap of one of the sessions, and no session has an event with this number. If it is
  in several gaps, it counts in only one of them: in a gap of discarded events rather than in a gap of events that were
  lost while a collector received the stream, and in `late_join` last.
- A client that has sent a goodbye (the packet that ends a session) to any collector has ended. Without a goodbye, only
  the session that ended last has a gap for the missing end. While a running collector has a session of the client open,
  no session has this gap.
- Events without a number (`unnumbered`) count only in the session with the most of them.

A number on the wire has 32 bits, and a later collector counts from 0. Therefore the gaps of streams with numbers from
2^32 on are not changed. Sessions of files do not count as clients."""

from __future__ import annotations

from typing import NamedTuple

NAMES = """
-- The key that an event asks for, and the object of keys, or null. Only text that contains the word
-- is parsed as JSON.
CREATE MACRO part.asked_name(attributes) AS CASE
  WHEN contains(attributes, '"$name"') THEN part.member(attributes, '$."$name"')
END;
CREATE MACRO part.asked_members(attributes) AS CASE
  WHEN contains(attributes, '"$late"') THEN CASE
    WHEN json_valid(attributes) THEN CASE
      WHEN json_type(attributes, '$."$late"') = 'OBJECT' THEN attributes -> '$."$late"'
    END
  END
END;

-- An entry of the table of names. The parts before the key contain no character 0.
CREATE MACRO part.entry(scope, source, within, key) AS
  scope || chr(0) || source || chr(0) || within || chr(0) || key;

CREATE MACRO part.look_up(names, entry) AS names[(hash(entry) % len(names))::BIGINT + 1][entry];

CREATE MACRO part.name_of(names, source, session, key) AS CASE WHEN key IS NOT NULL THEN coalesce(
  part.look_up(names, part.entry('session', source, session, key)),
  part.look_up(names, part.entry(
    'group', source, part.look_up(names, part.entry('run', source, session, '')), key)),
  part.look_up(names, part.entry('source', source, '', key))
) END;

-- The name of the first key that has one. Keys stand on a line each.
CREATE MACRO part.first_name_of(names, source, session, keys) AS CASE
  WHEN contains(keys, chr(10)) THEN list_filter(
    list_transform(string_split(keys, chr(10)), lambda key: part.name_of(names, source, session, key)),
    lambda name: name IS NOT NULL
  )[1]
  ELSE part.name_of(names, source, session, keys)
END;

-- The members whose names are known, as JSON.
CREATE MACRO part.known_members(names, source, session, asked) AS list_filter(
  list_transform(json_keys(asked), lambda member: {
    'member': to_json(member)::VARCHAR,
    'name': to_json(part.name_of(names, source, session, part.named_member(asked, member)))::VARCHAR
  }),
  lambda known: known.name IS NOT NULL
);

-- Attributes with the known members added and the answered questions removed.
CREATE MACRO part.answered(attributes, named, asked, known) AS CASE
  WHEN named OR len(known) > 0 THEN nullif(json_merge_patch(
    attributes,
    CASE WHEN named THEN '{"$name":null}' ELSE '{}' END,
    CASE WHEN len(known) > 0 THEN
      '{' || list_aggregate(list_transform(known, lambda k: k.member || ':' || k.name), 'string_agg', ',')
        || ',"$late":' || CASE
          WHEN len(known) = len(json_keys(asked)) THEN 'null'
          ELSE '{' || list_aggregate(list_transform(known, lambda k: k.member || ':null'), 'string_agg', ',') || '}'
        END || '}'
      ELSE '{}'
    END
  )::VARCHAR, '{}')
  ELSE attributes
END;

-- The table of names of a snapshot: one row, whose hash table is null if there are no names.
CREATE VIEW part.learnt AS
WITH given AS MATERIALIZED (
  SELECT entry, arg_max(
    name,
    {'opened': coalesce(opened, -9223372036854775808), 'session': session, 'place': place, 'name': name}
  ) AS name
  FROM (
    SELECT name, opened, session, place,
      unnest([
        part.entry('session', source, session, key),
        CASE WHEN scope = 'group' THEN part.entry('group', source, run, key) END,
        CASE WHEN scope = 'source' THEN part.entry('source', source, '', key) END
      ]) AS entry
    FROM part.name_rows LEFT JOIN part.runs USING (source, session)
    UNION ALL
    SELECT run, opened, session, 0, part.entry('run', source, session, '') FROM part.runs
  )
  WHERE entry IS NOT NULL AND name IS NOT NULL
  GROUP BY entry
),
sized AS (SELECT count(*) AS size FROM given),
filled AS (
  SELECT hash(entry) % size AS number, map(list(entry), list(name)) AS bucket
  FROM given, sized
  GROUP BY number
)
SELECT list(bucket ORDER BY number) AS names
FROM (SELECT unnest(range(size)) AS number FROM sized)
LEFT JOIN filled USING (number);
"""

GIVEN = "CREATE OR REPLACE TABLE part.known AS FROM part.learnt"
"""SQL that fills the table `part.known`, in which views look up names by their keys."""

ANSWERED = """
SELECT * EXCLUDE (names, asked, members, answer, known) REPLACE (
  coalesce(name, answer) AS name,
  part.answered(attributes, answer IS NOT NULL, members, known) AS attributes
)
FROM (
  SELECT *,
    part.first_name_of(names, source, session, asked) AS answer,
    part.known_members(names, source, session, members) AS known
  FROM (
    SELECT *,
      CASE WHEN name IS NULL THEN part.asked_name(attributes) END AS asked,
      part.asked_members(attributes) AS members
    FROM {rows}, part.known
  )
)
"""
"""SQL that replaces keys by the names that `name` rows assign to them. `rows` stands for the name of a view."""


PRODUCERS = """
-- The producers' own words, one a row: members of `producer`, Heph's options (a session row named
-- after the option, with its `value`), and what a client reports about itself, without protocol members.
-- A process may give its host and command as keys. The names that the row has for these keys, or got
-- later, come before the values that `producer` has under the same words.
CREATE VIEW part.producer_words AS
SELECT source, session, word, arg_max(value, {'place': place, 'is_name': is_name}) AS value
FROM (
  SELECT source, session, place, each.key AS word, each.value::VARCHAR AS value, false AS is_name
  FROM part.session_words, json_each(words, '$.producer') AS each
  UNION ALL
  SELECT source, session, part.place("offset", time), each.key, each.value::VARCHAR, true
  FROM (
    SELECT source, session, "offset", time, CASE WHEN json_valid(attributes) THEN attributes END AS words
    FROM part.session_rows
  ), json_each(words) AS each
  WHERE contains(words, '"producer"') AND each.key IN ('hostname', 'cmd', 'exec', 'cwd')
    AND json_type(words, '$.producer') = 'OBJECT'
  UNION ALL
  SELECT source, session, place, name, (words -> '$.value')::VARCHAR, false
  FROM part.session_words WHERE name IS NOT NULL
  UNION ALL
  SELECT source, session, place, each.key, each.value::VARCHAR, false
  FROM part.session_words, json_each(words) AS each
  WHERE announcement IN ('tailrace.session', 'tailrace.report', 'tailrace.goodbye') AND each.key NOT IN
    ('turn', 'acknowledge', 'now', 'clock', 'ticks_per_second', 'ranges', 'streams', 'more', 'part', 'value', '$flaw')
)
WHERE value IS NOT NULL
GROUP BY source, session, word;
"""


class RowFacts(NamedTuple):
    """Facts about the rows of a snapshot, which decide which steps the SQL of the views needs. With fewer steps, DuckDB
    can skip parts of files, and plans in half the time. An unknown fact is True, so that no needed step is left out."""

    begun: bool = True
    """Whether there are begin rows of spans. Views leave out a begin row if a later row has the whole span."""
    asked: bool = True
    """Whether there are rows that assign a name to a key, which events may have instead of the name."""
    late: bool = True
    """Whether there are rows that assign a name to an id. Earlier events may have the id instead of the name."""
    untimed: bool = True
    """Whether there are rows without a time, stored before the epoch of their session's clock was known."""
    lacking: bool = True
    """Whether events of any session refer to names by keys, so that some of these names may be missing."""
    moved: bool = True
    """Whether there are several sessions of one client, because it has moved to another collector."""


_CURRENT = """
FROM part.shown WHERE kind <> 'begin'
UNION ALL
FROM part.kept_open
"""
"""SQL for all rows, except begin rows for which the table also has the row of the whole span."""

_SPANS = "SELECT *, false AS open FROM part.shown WHERE kind = 'span'"
_BEGUN_SPANS = """
SELECT *, true AS open FROM part.open_begins
UNION ALL
SELECT b.* REPLACE (e."end" AS "end", 'span' AS kind), false AS open
FROM part.kept_open AS b
JOIN part.kept_ends AS e ON e.id = b.id AND e.session = b.session AND e.source = b.source
"""
"""SQL for the spans without a row of the whole span: still open, or ended after the collector had forgotten their
begin."""

_LATE = """
SELECT e.* REPLACE (coalesce(e.name, n.late_name) AS name)
FROM {rows} AS e
LEFT JOIN part.late_names AS n ON n.id = e.id AND n.session = e.session AND n.source = e.source
"""
"""SQL that adds names to events without a name, if the name of the event's id arrived after the event. `rows` stands
for the name of a view."""

_TIMED = """
FROM {rows} WHERE time IS NOT NULL
UNION ALL
SELECT e.* REPLACE (part.ticks_ns(e.start, c.epoch, c.ticks_per_second) AS time)
FROM {rows} AS e
LEFT JOIN part.clocks AS c ON c.session = e.session AND c.source = e.source
WHERE e.time IS NULL
"""
"""SQL that computes the missing times of rows from the clock of their session. `rows` stands for the name of a view.
Rows with a time are selected unchanged, so that DuckDB can use the time to skip parts of files."""


_SEEN = """
SELECT source, any_value(format) AS format, session, stream,
  min(seq) AS first_seq, max(seq) AS last_seq,
  count(*) FILTER (kind <> 'begin' AND kind <> 'end') AS events,
  min(time) AS first_time, max(time) AS last_time, {first} AS first_start, {last} AS last_start
FROM part.shown WHERE kind <> 'session' AND kind <> 'name' AND kind <> 'gap' AND kind <> 'heal'
GROUP BY source, session, stream
"""
"""SQL that summarises the stored events of each stream. For speed, it does not group by format, because each session
has only one format. It also names the few kinds of rows to exclude, instead of all kinds of events."""

_TIMES = """
SELECT source, session,
  least(w.opened, s.first_time, part.ticks_ns(s.first_start, c.epoch, c.ticks_per_second)) AS begins,
  CASE WHEN w.closed THEN
    greatest(w.closed_at, s.last_time, part.ticks_ns(s.last_start, c.epoch, c.ticks_per_second))
  END AS ends
FROM (
  SELECT source, session, min(time) AS first_time, max(time) AS last_time, {first} AS first_start, {last} AS last_start
  FROM part.shown GROUP BY source, session
) AS s
LEFT JOIN part.stated_times AS w USING (source, session)
LEFT JOIN part.clocks AS c USING (source, session)
"""
"""SQL for the range of time in which each session may have had events: from its opening or earliest event to its
close or latest event. Null stands for an unknown time. `ends` is null while the session is open."""


def row_views(facts: RowFacts) -> dict[str, str]:
    """Return the SQL of the views that show rows. Each view comes after the views that it uses. `facts` decides which
    optional steps the views contain."""
    stored = {"rows": "FROM part.shown", "spans": _SPANS, "begun": f"{_SPANS} AND false"}
    if facts.begun:
        whole = f"{_SPANS} UNION ALL {_BEGUN_SPANS}"
        stored = {"rows": _CURRENT, "spans": whole, "begun": _BEGUN_SPANS}
    steps = [("answered", ANSWERED, facts.asked), ("called", _LATE, facts.late), ("timed", _TIMED, facts.untimed)]  # fmt: skip
    ends = {
        name: f"{end}(start) FILTER (time IS NULL)" if facts.untimed else "NULL::BIGINT"
        for name, end in (("first", "min"), ("last", "max"))
    }
    session_rows = ANSWERED if facts.asked else "FROM {rows}"
    views = {
        "part.session_rows": session_rows.format(rows="part.kept_sessions"),
        "part.seen_events": _SEEN.format(**ends),
        "part.session_times": _TIMES.format(**ends),
    }
    for what, rows in stored.items():
        name = f"part.stored_{what}"
        views[name] = rows
        for step, template, needed in steps:
            if needed:
                views[f"part.{step}_{what}"] = template.format(rows=name)
                name = f"part.{step}_{what}"
        views.setdefault(f"part.timed_{what}", f"FROM {name}")
    return views


_ANNOUNCED = """
SELECT source, session, min(client) AS client
FROM (
  SELECT DISTINCT source, session, attributes ->> '$.session' AS client FROM part.kept_few
  WHERE kind = 'session' AND name = 'tailrace.session' AND format = 'heph' AND json_valid(attributes)
)
ANTI JOIN (
  SELECT source, session FROM part.kept_few
  WHERE own = 'open' AND contains(attributes, '"transport":"tail"')
) USING (source, session)
WHERE client IS NOT NULL
GROUP BY source, session
HAVING count(*) = 1
"""
"""SQL for the sessions that clients announced in a packet of their own, each with the client's id. Sessions of files
are left out."""

MOVED_SESSIONS = f"""
CREATE OR REPLACE TABLE part.moved AS
WITH announced AS MATERIALIZED ({_ANNOUNCED}),
resumed AS (
  SELECT source, session, substr(attributes ->> '$.closed', 9) AS former FROM part.kept_few
  WHERE own = 'close' AND json_valid(attributes) AND starts_with(attributes ->> '$.closed', 'resumes ')
)
FROM (
  SELECT DISTINCT a.source, coalesce(r.former, a.session) AS session, a.client
  FROM announced AS a LEFT JOIN (
    FROM resumed AS r ANTI JOIN announced AS a ON a.source = r.source AND a.session = r.former
  ) AS r ON r.source = a.source AND r.session = a.session
)
QUALIFY count(*) OVER (PARTITION BY client) > 1;
FROM part.moved
"""  # noqa: S608 - our own words
"""SQL that fills the table `part.moved`, and returns its rows: the sessions of each client that has several. A client
gets a second session if the packet that announces its session arrives after its first events. If an announced session
resumes an earlier session, the table has the earlier session in its place."""

MOVED_NUMBERS = """
CREATE OR REPLACE TABLE part.moved_numbers AS
SELECT client, source, session, stream, min(seq)::HUGEINT AS first, max(seq)::HUGEINT + 1 AS next
FROM (
  SELECT client, source, session, stream, seq,
    seq - dense_rank() OVER (PARTITION BY source, session, stream ORDER BY seq) AS run
  FROM stored JOIN part.moved USING (source, session)
  WHERE seq IS NOT NULL AND kind <> 'gap' AND kind <> 'heal' AND kind <> 'session'
)
GROUP BY client, source, session, stream, run;
CREATE OR REPLACE TABLE part.moved_ranges AS
SELECT client, stream, min(first) AS first, max(next) AS next,
  coalesce(sum(max(next) - min(first)) OVER (
    PARTITION BY client, stream ORDER BY min(first) ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), 0) AS below
FROM (
  SELECT *, sum(CASE WHEN first <= reached THEN 0 ELSE 1 END) OVER (
    PARTITION BY client, stream ORDER BY first, next ROWS UNBOUNDED PRECEDING
  ) AS range
  FROM (
    SELECT client, stream, first, next, max(next) OVER (
      PARTITION BY client, stream ORDER BY first, next ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
    FROM (SELECT DISTINCT client, stream, first, next FROM part.moved_numbers)
  )
)
GROUP BY client, stream, range;
CREATE OR REPLACE TABLE part.moved_twins AS
WITH reach AS (
  SELECT client, source, session, stream, min(first) AS first, max(next) AS next
  FROM part.moved_numbers GROUP BY ALL
),
shared AS (
  SELECT a.client, a.source, a.session, a.stream, min(greatest(a.first, b.first)) AS first, max(least(a.next, b.next)) AS next
  FROM reach AS a JOIN reach AS b
    ON a.client = b.client AND a.stream = b.stream AND (a.source, a.session) <> (b.source, b.session)
    AND a.first < b.next AND b.first < a.next
  GROUP BY ALL
)
SELECT source, session, kind, seq, "offset"
FROM (
  SELECT e.*, s.client FROM stored AS e JOIN shared AS s
    ON e.source = s.source AND e.session = s.session AND e.stream = s.stream AND e.seq >= s.first AND e.seq < s.next
  WHERE e.kind <> 'gap' AND e.kind <> 'heal' AND e.kind <> 'session'
)
QUALIFY {'session': session, 'source': source} > min({'session': session, 'source': source}) OVER (
  PARTITION BY client, stream, seq, kind, substream, name, start, "end", attributes
)
"""
"""SQL that fills three tables about clients with several sessions.

- `moved_numbers`: the ranges of stored sequence numbers of each session and stream.
- `moved_ranges`: these ranges for all sessions of a client together, each with the count of stored numbers below it.
- `moved_twins`: the rows that are also stored in an earlier session of the same client."""

_WHOLE = "CREATE VIEW all_gaps AS FROM part.own_gaps;\n"

_JOINED = """
-- Every gap, less what another session of the client has, and what a gap with more knowledge counts.
CREATE VIEW all_gaps AS
WITH known AS MATERIALIZED (
  SELECT g.*, m.client, row_number() OVER () AS number
  FROM part.own_gaps AS g LEFT JOIN part.moved AS m USING (source, session)
),
wide AS (
  SELECT client, stream FROM part.moved_ranges GROUP BY client, stream HAVING max(next) > 4294967296
  UNION
  SELECT client, stream FROM known WHERE "last" >= 4294967296 AND client IS NOT NULL
),
spans AS MATERIALIZED (
  SELECT number, client, stream, "first"::HUGEINT AS first, "last"::HUGEINT + 1 AS next, {
    'least': part.member(attributes, '$.of_range') IS NOT NULL,
    'reason': CASE reason WHEN 'sender' THEN 0 WHEN 'kernel' THEN 1 WHEN 'network' THEN 3 WHEN 'late_join' THEN 4 WHEN 'elsewhere' THEN 5 ELSE 2 END,
    'place': "offset" * -1, 'number': number
  } AS turn
  FROM known ANTI JOIN wide USING (client, stream)
  WHERE client IS NOT NULL AND remaining > 0 AND "first" IS NOT NULL AND "last" >= "first"
),
cuts AS MATERIALIZED (
  SELECT client, stream, edge AS first, lead(edge) OVER (PARTITION BY client, stream ORDER BY edge) AS next
  FROM (SELECT DISTINCT client, stream, unnest([first, next]) AS edge FROM spans)
),
below AS (
  SELECT c.client, c.stream, c.first AS edge, coalesce(r.below + least(c.first, r.next) - r.first, 0) AS there
  FROM cuts AS c ASOF LEFT JOIN part.moved_ranges AS r
    ON c.client = r.client AND c.stream = r.stream AND c.first >= r.first
),
owned AS (
  SELECT c.client, c.stream, c.first, c.next, arg_min(s.number, s.turn) AS number
  FROM cuts AS c JOIN spans AS s
    ON c.client = s.client AND c.stream = s.stream AND s.first <= c.first AND c.next <= s.next
  GROUP BY c.client, c.stream, c.first, c.next
),
lacking AS (
  SELECT o.number, sum((o.next - o.first) - (b.there - a.there)) AS events
  FROM owned AS o
  JOIN below AS a ON a.client = o.client AND a.stream = o.stream AND a.edge = o.first
  JOIN below AS b ON b.client = o.client AND b.stream = o.stream AND b.edge = o.next
  GROUP BY o.number
),
settled AS (
  SELECT number, least(k.remaining, coalesce(l.events, 0))::BIGINT AS events
  FROM spans JOIN known AS k USING (number) LEFT JOIN lacking AS l USING (number)
),
unnumbered AS (
  SELECT client, arg_max({'source': source, 'session': session}, lost) AS most
  FROM (
    SELECT client, source, session, sum(remaining) AS lost FROM known
    WHERE detail = 'unnumbered' AND client IS NOT NULL
    GROUP BY client, source, session
  )
  GROUP BY client
)
SELECT k.* EXCLUDE (client, number) REPLACE (
  CASE WHEN s.number IS NULL THEN k.healed ELSE k."count" - s.events END AS healed,
  coalesce(s.events, k.remaining) AS remaining
)
FROM known AS k LEFT JOIN settled AS s USING (number) LEFT JOIN part.moved_ends AS e USING (client)
  LEFT JOIN unnumbered AS u USING (client)
WHERE CASE WHEN k.client IS NULL THEN true
  WHEN k.detail = 'no_goodbye' THEN NOT e.goes_on AND {'source': k.source, 'session': k.session} = e.final
  WHEN k.detail = 'unnumbered' THEN {'source': k.source, 'session': k.session} = u.most
  ELSE true END;
"""

_ENDS = """
-- For each client that moved: whether it ended with a goodbye or a running collector still has it, and which session ended last.
CREATE VIEW part.moved_ends AS
SELECT client, bool_or(coalesce(closed = 'goodbye', part.watched(collector), false)) AS goes_on,
  arg_max({'source': source, 'session': session}, {'at': closed_at, 'session': session}) AS final
FROM (
  SELECT client, source, session, any_value(collector) AS collector, max(ours ->> '$.closed') AS closed,
    coalesce(max(try_cast(ours ->> '$.closed_at' AS BIGINT)), 0) AS closed_at
  FROM part.moved LEFT JOIN part.session_words USING (source, session) LEFT JOIN part.courses USING (source, session)
  GROUP BY client, source, session
)
GROUP BY client;

CREATE VIEW part.moved_from AS
SELECT source, session, lag(session) OVER (PARTITION BY client ORDER BY opened, session) AS former
FROM part.moved JOIN part.runs USING (source, session);
"""

_NOWHERE = """
CREATE VIEW part.moved_from AS SELECT NULL::VARCHAR AS source, NULL::VARCHAR AS session, NULL::VARCHAR AS former WHERE false;
"""


def gap_views(*, moved: bool) -> str:
    """Return the SQL of the views of gaps, and of the view `part.moved_from`: for a session of a client, the client's
    previous session. `moved` states whether any client has several sessions."""
    return _ENDS + _JOINED if moved else _NOWHERE + _WHOLE
