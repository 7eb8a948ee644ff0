"""Give rows the names that came late or from another file.

The terms are those of `model.record`. A `name` row gives a name to a key, within a scope. An event asks
for its own name by the attribute `$name`, and for further members by `$late`. Names from the event's own
session come first, then names from sessions of its run, then names from the rest of its source. If a key
has several names, the last one counts: from the session that was opened last, at the highest position
there.

All names of a snapshot are one value, a hash table made of a list of maps, so that a lookup is an
expression. Rows are not joined, and rows and columns that nobody asks for cost nothing. Still, a lookup
reads attributes, the largest column, wherever a name is shown. So without any names, rows are shown as stored
(`rows`).
"""

from __future__ import annotations

_NAMES = """
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
"""Take the names of the snapshot."""

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
"""Rows with the names of the keys that they ask for."""


_PRODUCERS = """
-- The producers' own words, one a row: members of `producer`, Heph's options (a session row named
-- after the option, with its `value`), and what a client says of itself, without protocol members.
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
  FROM part.session_words
  WHERE name IS NOT NULL
  UNION ALL
  SELECT source, session, place, each.key, each.value::VARCHAR, false
  FROM part.session_words, json_each(words) AS each
  WHERE name IN ('tailrace.session', 'tailrace.report', 'tailrace.goodbye') AND each.key NOT IN
    ('turn', 'acknowledge', 'now', 'clock', 'ticks_per_second', 'ranges', 'streams', 'more', 'part', 'value', '$flaw')
)
WHERE value IS NOT NULL
GROUP BY source, session, word;
"""

NAMES = (_NAMES, _PRODUCERS)
"""The SQL that finds names, and the SQL that shows sessions by them."""
