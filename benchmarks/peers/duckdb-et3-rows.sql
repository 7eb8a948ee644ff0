-- An entry of the agents' form of ET3 with its exit becomes one row, with times and depth; Tailrace also writes parents and
-- names. Holds for traces without exceptions, where nothing is missing.
SET threads = 1;
CREATE TEMP TABLE line AS
  SELECT row_number() OVER () AS place, *, CASE letter WHEN 'E' THEN b WHEN 'M' THEN c WHEN 'W' THEN c WHEN 'U' THEN d WHEN 'D' THEN NULL ELSE f END AS thread
  FROM read_csv('{input}', delim = ' ', header = false, null_padding = true, auto_detect = false, columns = {
    letter: 'VARCHAR', a: 'BIGINT', b: 'BIGINT', c: 'BIGINT', d: 'BIGINT', e: 'BIGINT', f: 'BIGINT'});
CREATE TEMP TABLE nested AS
  SELECT *, (sum(CASE letter WHEN 'M' THEN 1 WHEN 'E' THEN -1 ELSE 0 END) OVER (PARTITION BY thread ORDER BY place))::BIGINT + (letter = 'E')::INT AS depth,
    (sum((letter IN ('M', 'E'))::INT) OVER (ORDER BY place))::BIGINT AS clock
  FROM line;
COPY (
  SELECT place, 'span' AS kind, thread, a AS about, b, NULL::BIGINT AS c, NULL::BIGINT AS d, NULL::BIGINT AS e, depth, clock AS begun, ended
    FROM (SELECT *, lead(clock) OVER (PARTITION BY thread, depth ORDER BY place) AS ended FROM nested WHERE letter IN ('M', 'E')) WHERE letter = 'M'
  UNION ALL
  SELECT place, letter, thread, a, b, c, d, e, depth, clock, NULL FROM nested WHERE letter NOT IN ('M', 'E')
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
