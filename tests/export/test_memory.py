"""More rows than the database's memory holds: they are sorted on disk, and all of them come."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tailrace.errors import QueryError
from tailrace.export import WRITERS
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Selected, export
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters
from tailrace.store.durable import NO_HOOKS
from tailrace.store.layout import table_root
from tests.export.traces import EPOCH
from tests.query.tables import SCHEMA, clocked, gap, make, row

ROWS = 250_000
MEMORY = 128 * 2**20


def test_what_does_not_fit_into_memory_is_sorted_on_disk(tmp_path):
    open_span = row("begin", id=1, name="still open", start=7, offset=ROWS + 7)
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), gap(3, 100, offset=5), open_span])
    each = row(name="step")
    columns = {f.name: pa.repeat(pa.scalar(each[f.name], f.type), ROWS) for f in SCHEMA}
    numbers = pa.array(range(ROWS), pa.int64())
    columns |= dict.fromkeys(("start", "end", "offset", "seq"), numbers)
    columns["attributes"] = pa.array([f'{{"text":"{n:0100}"}}' for n in range(ROWS)])
    write_deltalake(
        table_root(store),
        pa.table(columns, schema=SCHEMA),
        mode="append",
        post_commithook_properties=NO_HOOKS,
    )

    def select(spill=2**40):
        engine = Engine(store, limits=Limits(memory=MEMORY, spill=spill))
        return Selected(engine, Filters(), Patience(engine, None))

    progress = RowCount(None)
    with Output(str(tmp_path / "trace")) as output, pytest.raises(QueryError, match="offload"):
        export(WRITERS["perfetto"].load(), lambda: select(spill=1), output, progress)
    with Output(str(tmp_path / "trace")) as output:
        exported = export(WRITERS["perfetto"].load(), select, output, progress)
    assert progress.rows == ROWS + 1
    assert exported.left == {}
    assert (tmp_path / "trace").stat().st_size > ROWS * 100
