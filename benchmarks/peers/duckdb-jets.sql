-- Lines of JETS to Parquet, the nested data as text.
SET threads = 1;
COPY (
  SELECT * FROM read_json('{input}', format = 'newline_delimited', columns = {
    clk: 'BIGINT', type: 'VARCHAR', name: 'VARCHAR', record_id: 'UBIGINT', id: 'UBIGINT', parent_id: 'UBIGINT',
    record_type: 'VARCHAR', description: 'VARCHAR', data: 'JSON'})
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
