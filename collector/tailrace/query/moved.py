"""Show each event of a client once, even if the table has several sessions of the client.

A client announces its session to every collector to which it connects, and its numbers go on from one to the next
(clients/PROTOCOL.md). Each collector knows only its share. Events that went to another collector look missing to it,
and both collectors store events that the client sent again because nobody had acknowledged them. The same holds for a
collector that had forgotten a session, and for one with a new spool. No collector can correct this alone, but the
table shows it: all of these sessions have the same announced id, in the form that tables store. Such a client has
*moved*, and the views count it as a whole:

- An event is shown once: of rows that are equal, with the same number in the same stream, the one in the first session.
- A number is missing if a session's ledger misses it and no session of the client has an event under it. It is counted in
  one gap. If several sessions miss it, the gap with the most specific reason counts it: first events that the client
  discarded, then events lost while a collector received the stream, then events before the first that a collector
  received (`late_join`).
- A goodbye to any collector ends the client. Without one, only the session that ended last has a gap for its missing
  end, and none has while a running collector has a session of the client open.
- A client reports the total of its discarded events to each collector. The gaps of events without a number
  (`unnumbered`) count only in the session with the most such events.

Numbers from 2^32 on are the collector's own: the wire has 32 bits, and a collector to which a client comes late counts
from 0 again. So gaps of streams with such numbers stay as each ledger has them. Sessions of files do not count as
clients: `HIDE` handles copies of files.
"""

from __future__ import annotations

_ANNOUNCED = """
SELECT source, session, min(client) AS client
FROM (
  SELECT DISTINCT source, session, attributes ->> '$.session' AS client FROM part.kept_few
  WHERE kind = 'session' AND name = 'tailrace.session' AND format = 'heph' AND json_valid(attributes)
)
ANTI JOIN (
  SELECT source, session FROM part.kept_few
  WHERE kind = 'session' AND name = 'open' AND contains(attributes, '"transport":"tail"')
) USING (source, session)
WHERE client IS NOT NULL
GROUP BY source, session
HAVING count(*) = 1
"""
"""The sessions that were announced, each with the name of its client's id."""

SESSIONS = f"""
CREATE OR REPLACE TABLE part.moved AS
WITH announced AS MATERIALIZED ({_ANNOUNCED}),
resumed AS (
  SELECT source, session, substr(attributes ->> '$.closed', 9) AS former FROM part.kept_few
  WHERE kind = 'session' AND name = 'close' AND json_valid(attributes) AND starts_with(attributes ->> '$.closed', 'resumes ')
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
"""Note the sessions of clients that have several, and return them. An announcement that came alone after events has a
session of its own, which then resumes the session of these events."""

NUMBERS = """
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
"""Note which numbers have events: by session (`moved_numbers`), and for all sessions of a client together
(`moved_ranges`, with the count of such numbers below each range). Note also the rows that an earlier session has as
well (`moved_twins`)."""

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
-- Of each client that moved, whether it said goodbye or a running collector still has it, and which session ended last.
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
    """Return the views of gaps, and of the session that a client had before, as SQL."""
    return _ENDS + _JOINED if moved else _NOWHERE + _WHOLE
