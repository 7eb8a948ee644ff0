"""Make exports as the command does, within this process."""

from __future__ import annotations

from functools import partial

from tailrace.export import WRITERS
from tailrace.export.original import write
from tailrace.export.output import Directory, Output, RowCount
from tailrace.export.selected import Exported, Selected, export
from tailrace.query.engine import Engine
from tailrace.query.live import NOBODY
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters

EACH_FORMAT = ["heph_udp", "jets_tcp", "ovni_tail", "dftracer_tail", "et3_tail"]
"""A source of the demonstration for each format. A third of its events are Heph events over TCP, without a loss."""


def make_export(store, to, path, *, live=NOBODY, progress=None, **filters) -> Exported:
    def select():
        engine = Engine(str(store))
        return Selected(engine, Filters(**filters), Patience(engine, None), live)

    with Output(str(path)) as output:
        return export(WRITERS[to].load(), select, output, progress or RowCount(None))


def export_original(store, path, *, added=None, **filters) -> Exported:
    def select():
        engine = Engine(str(store))
        return Selected(engine, Filters(**filters), Patience(engine, None))

    written = partial(write, quarantine=[store / "quarantine"], added=added)
    with Directory(str(path)) as output:
        return export(written, select, output, RowCount(None))
