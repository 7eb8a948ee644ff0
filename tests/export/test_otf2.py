"""Archives of OTF2, as Debian's otf2-print reads them: every event, at its time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tailrace.errors import ExportError
from tailrace.export.drawing import draw
from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.otf2_archive import write
from tailrace.export.output import Directory, RowCount
from tailrace.export.selected import Selected, export
from tailrace.query.engine import Engine
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters
from tests.export.exports import EACH_FORMAT
from tests.export.traces import EPOCH, crowds
from tests.query.tables import clocked, gap, make, row

pytestmark = pytest.mark.skipif(
    shutil.which("otf2-print") is None, reason="needs otf2-print: apt install otf2-tools"
)

_EVENT = re.compile(r"^(ENTER|LEAVE|METRIC|MEASUREMENT_ON_OFF) +(\d+) +(\d+) +(.*)$", re.MULTILINE)


class Noted:
    """A canvas that counts the events which an archive of the same drawing has, by kind and time."""

    def __init__(self):
        self.events = Counter()
        self.names = Counter()
        self._tracks = 0
        self._inside = defaultdict(list)
        self._latest = {}

    def process(self, _):
        self._tracks += 1
        return self._tracks

    summary = process

    def thread(self, _, __):
        return self.process(None)

    track = counter = thread

    def begin(self, track, time, name, category, _):
        lost = category == "lost"
        self._inside[track].append(lost)
        self._note("ENTER", time, lost, track)
        self.names[name] += 1

    def end(self, track, time):
        self._note("LEAVE", time, self._inside[track].pop(), track)

    def instant(self, _, time, name, __, ___):
        self.events.update([("ENTER", time), ("LEAVE", time)])
        self.names[name] += 1

    def count(self, _, time, __):
        self.events["METRIC", time] += 1

    def finish(self):
        for track, inside in self._inside.items():
            while inside:
                self.end(track, self._latest[track])

    def _note(self, kind, time, lost, track):
        self.events[kind, time] += 1
        self.events["MEASUREMENT_ON_OFF", time] += lost
        self._latest[track] = time


def select(store, **filters):
    engine = Engine(str(store))
    return Selected(engine, Filters(**filters), Patience(engine, None))


def noted(store, **filters):
    selected, canvas = select(store, **filters), Noted()
    draw(DrawnRows(selected, RowCount(None)), canvas)
    canvas.finish()
    selected.engine.close()
    return canvas


def printed(store, path, **filters):
    """The kind, location, time and the rest of each event that otf2-print prints."""
    with Directory(str(path)) as output:
        export(write, lambda: select(store, **filters), output, RowCount(None))
    done = subprocess.run(
        ["otf2-print", str(path / "traces.otf2")], capture_output=True, check=True, timeout=300
    )
    found = _EVENT.findall(done.stdout.decode(errors="replace"))
    return [(kind, int(location), int(time), rest) for kind, location, time, rest in found]


def by_time(events):
    return Counter((kind, time) for kind, _, time, _ in events)


def test_every_event_of_the_demonstration_is_read(demo_store, tmp_path):
    events = printed(demo_store, tmp_path / "archive", source=EACH_FORMAT)
    wanted = noted(demo_store, source=EACH_FORMAT)
    assert by_time(events) == +wanted.events
    assert {kind for kind, *_ in events} >= {"ENTER", "LEAVE", "MEASUREMENT_ON_OFF"}
    entered = Counter(
        re.match(r'Region: "(.*)" <\d+>', rest)[1] for kind, *_, rest in events if kind == "ENTER"
    )
    assert entered == wanted.names


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=crowds())
def test_every_event_of_any_store_is_read_in_the_order_of_its_location(rows):
    with tempfile.TemporaryDirectory() as directory:
        store = make(Path(directory) / "store", rows)
        try:
            wanted = noted(store)
        except ExportError:
            return  # nothing is drawn
        events = printed(store, Path(directory) / "archive")
        assert by_time(events) == +wanted.events
        latest = defaultdict(int)
        inside = Counter()
        for kind, location, time, _ in events:
            assert time >= latest[location]
            latest[location] = time
            inside[location] += {"ENTER": 1, "LEAVE": -1}.get(kind, 0)
            assert inside[location] >= 0
        assert not +inside


def test_measurement_is_off_where_events_are_lost(tmp_path):
    rows = [row(seq=n, name="step", start=10 * n, end=10 * n + 5, offset=n) for n in (1, 2, 7)]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), *rows, gap(3, 4, offset=5)])
    events = printed(store, tmp_path / "archive")
    modes = [
        (time - EPOCH, rest.split()[-1])
        for kind, _, time, rest in events
        if kind == "MEASUREMENT_ON_OFF"
    ]
    assert modes == [(20, "OFF"), (70, "ON")]


def test_without_the_library_it_says_how_to_get_it(tmp_path, monkeypatch):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), row(seq=1, start=1, end=2)])
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(ExportError, match=r"tailrace\[otf2\]"):
        printed(store, tmp_path / "archive")
    assert not (tmp_path / "archive").exists()
