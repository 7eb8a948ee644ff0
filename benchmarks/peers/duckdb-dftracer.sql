-- Lines of DFTracer to Parquet, the arguments as text.
SET threads = 1;
COPY (
  SELECT * FROM read_json('{input}', format = 'newline_delimited', columns = {
    id: 'BIGINT', name: 'VARCHAR', cat: 'VARCHAR', type: 'BIGINT', pid: 'BIGINT', tid: 'BIGINT', ts: 'BIGINT',
    dur: 'BIGINT', ph: 'BIGINT', args: 'JSON'})
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
