"""Each stage takes each format, in this process: the tiny form of the benchmark has one format of each kind."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from benchmarks.inputs.trace import trace
from benchmarks.processes import stages
from benchmarks.suite.stages import FOLLOWED, OVER_TCP
from tailrace.decoding.formats import FORMATS


@pytest.mark.parametrize("format_", FORMATS)
def test_each_stage_has_every_event(format_, tmp_path):
    made = trace(format_, 1000, cache=tmp_path)
    paths = [str(path) for path in made.paths]
    files = tmp_path / "files"
    decoded = stages.decoded(format_, paths)()
    ingested = stages.ingested(format_, paths)()
    assert stages.written(format_, paths, str(files))() == ingested
    assert decoded >= made.events
    assert ingested > made.events // 2  # a begin and an end are one row
    stored = sum(pq.ParquetFile(path).metadata.num_rows for path in files.rglob("*.parquet"))
    assert stored == ingested


def test_the_benchmark_has_all_formats():
    assert {*OVER_TCP, *FOLLOWED} == {*FORMATS}
