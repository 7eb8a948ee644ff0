-- A record of JETS with its end becomes one row, as in Tailrace. Lines that name a record that is not there are counted.
SET threads = 1;
CREATE TEMP TABLE line AS
  SELECT row_number() OVER () AS place, * FROM read_json('{input}', format = 'newline_delimited', columns = {
    clk: 'BIGINT', type: 'VARCHAR', name: 'VARCHAR', record_id: 'UBIGINT', id: 'UBIGINT', parent_id: 'UBIGINT',
    record_type: 'VARCHAR', description: 'VARCHAR', data: 'JSON'});
CREATE TEMP TABLE missing AS SELECT count(*) FROM line WHERE record_id NOT IN (SELECT id FROM line WHERE type = 'record');
COPY (
  SELECT place, 'span' AS kind, name, record_type AS category, id, parent_id AS parent, line.clk AS begun, description, data,
      ends.clk AS ended
    FROM line LEFT JOIN (SELECT record_id AS of, clk FROM line WHERE type = 'record_end') AS ends ON id = of
    WHERE type = 'record'
  UNION ALL
  SELECT place, type, name, NULL, NULL, record_id, clk, description, data, NULL
    FROM line WHERE type NOT IN ('record', 'record_end')
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
