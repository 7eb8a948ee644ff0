-- List the sessions whose rows do not agree with their account: no row is the good answer.
--
-- The row of a session's end has an account. It states how many rows the collector wrote for the session, and how many
-- events the ledger expected, saw, misses and received twice. `events` is the bare table, without views of Tailrace.
-- DuckDB and DataFusion run this statement alike. A session that is still open has no account, and is not judged.
-- Events that arrive after the end make a later account, with more rows. That account replaces the earlier ones.
WITH stated AS (
  SELECT source, session,
    CAST(regexp_replace(attributes, '^.*"account":\{"rows":([0-9]+),.*$', '\1') AS BIGINT) AS stored,
    CAST(regexp_replace(attributes, '^.*"account":\{[^}]*"expected":([0-9]+).*$', '\1') AS BIGINT) AS expected,
    CAST(regexp_replace(attributes, '^.*"account":\{[^}]*"seen":([0-9]+).*$', '\1') AS BIGINT) AS seen,
    CAST(regexp_replace(attributes, '^.*"account":\{[^}]*"missing":(-?[0-9]+).*$', '\1') AS BIGINT) AS missing,
    CAST(regexp_replace(attributes, '^.*"account":\{[^}]*"duplicates":([0-9]+).*$', '\1') AS BIGINT) AS duplicates
  FROM events
  WHERE kind = 'session' AND name IN ('account', 'close') AND "time" IS NOT NULL AND "start" IS NULL
    AND attributes LIKE '%"account":{"rows":%'
), accounts AS (
  SELECT *, row_number() OVER (PARTITION BY source, session ORDER BY stored DESC) AS place FROM stated
), stored AS (
  -- A row of kind 'begin' is replaced by the row of its span. `found_by` marks gaps that another session wrote.
  SELECT source, session, count(*) AS stored,
    sum(CASE kind WHEN 'gap' THEN coalesce(missing, 0) WHEN 'heal' THEN -coalesce(missing, 0) ELSE 0 END) AS missing
  FROM events
  WHERE kind NOT IN ('session', 'begin') AND NOT (kind IN ('gap', 'heal') AND attributes LIKE '%"found_by":%')
  GROUP BY source, session
)
SELECT a.source, a.session, a.stored AS rows_written, coalesce(s.stored, 0) AS rows_stored,
  a.missing AS missing_counted, coalesce(s.missing, 0) AS missing_stored,
  a.expected - (a.seen + a.missing - a.duplicates) AS imbalance
FROM accounts AS a LEFT JOIN stored AS s ON s.source = a.source AND s.session = a.session
WHERE a.place = 1 AND (a.stored <> coalesce(s.stored, 0) OR a.missing <> coalesce(s.missing, 0)
  OR a.expected <> a.seen + a.missing - a.duplicates)
ORDER BY a.source, a.session
