-- Lines of ET3 to Parquet, as columns of numbers.
SET threads = 1;
COPY (
  SELECT * FROM read_csv('{input}', delim = ' ', header = false, null_padding = true, auto_detect = false, columns = {
    letter: 'VARCHAR', a: 'BIGINT', b: 'BIGINT', c: 'BIGINT', d: 'BIGINT', e: 'BIGINT', f: 'BIGINT'})
) TO '{output}' (FORMAT parquet, COMPRESSION zstd);
