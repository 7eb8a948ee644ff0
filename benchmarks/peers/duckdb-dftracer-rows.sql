-- Lines of DFTracer with the names of files and hosts for their hashes, as in Tailrace. Missing calls of each process are
-- counted.
SET threads = 1;
CREATE TEMP TABLE line AS
  SELECT row_number() OVER () AS place, * FROM read_json('{input}', format = 'newline_delimited', columns = {
    id: 'BIGINT', name: 'VARCHAR', cat: 'VARCHAR', type: 'BIGINT', pid: 'BIGINT', tid: 'BIGINT', ts: 'BIGINT',
    dur: 'BIGINT', ph: 'BIGINT', args: 'JSON'});
CREATE TEMP TABLE hash AS
  SELECT name AS sort, args ->> 'value' AS hash, min(args ->> 'name') AS text FROM line WHERE ph = 4 GROUP BY ALL;
CREATE TEMP TABLE missing AS SELECT pid, max(id) + 1 - count(DISTINCT id) FROM line GROUP BY pid;
COPY (
  SELECT place, line.name, cat, type, pid, tid, ts AS begun, ts + dur AS ended, id, args, file.text AS fname, host.text AS hostname
    FROM line
    LEFT JOIN hash AS file ON file.sort = 'FH' AND file.hash = args ->> 'fhash'
    LEFT JOIN hash AS host ON host.sort = 'HH' AND host.hash = args ->> 'hhash'
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
