"""Exports as the command makes them, within this process."""

from __future__ import annotations

from tailrace.export.exporting import Exported, export
from tailrace.export.formats import WRITERS
from tailrace.export.output import Output
from tailrace.export.progress import RowCount
from tailrace.export.selected import Selected
from tailrace.query.engine import Engine
from tailrace.query.live import NOBODY
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters


def make_export(store, to, path, *, live=NOBODY, **filters) -> Exported:
    def select():
        engine = Engine(str(store))
        return Selected(engine, Filters(**filters), Patience(engine, None), live)

    with Output(str(path)) as output:
        return export(WRITERS[to], select, output, RowCount(None))
