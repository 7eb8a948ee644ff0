"""Notes travel with exports: those that may concern what was selected, in every format that can hold them."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tailrace.export.otf2_archive import write as write_otf2
from tailrace.export.output import Directory, RowCount
from tailrace.export.selected import Selected, export
from tailrace.query.engine import Engine
from tailrace.query.patience import Patience
from tailrace.reading.question import Filters
from tailrace.store.notes import Note, NoteStore
from tests.export.drawn import READERS, Drawn
from tests.export.exports import export_original, make_export
from tests.export.traces import EPOCH
from tests.query.tables import clocked, make, row


def note(begin, end, text="slow here", **about):
    return Note(made=7, from_=EPOCH + begin, to=EPOCH + end, text=text, **about)


RANGE = note(100, 900, "from here\n<b>to</b> here", source="sim", session="a", stream="1")
MOMENT = note(500, 500, "here")
OVERLAPPING = note(200, 1000, "and here")
NOTES = [RANGE, OVERLAPPING, MOMENT]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    steps = [
        row(seq=n, offset=10 * n, start=300 * n, end=300 * n + 70, name="step", format="other")
        for n in range(5)
    ]
    made = make(
        tmp_path_factory.mktemp("noted") / "store", [clocked(epoch=EPOCH, format="other"), *steps]
    )
    for each in NOTES:
        NoteStore(made, {}).add(each)
    return Path(made)


def drawn(each):
    kind, length = ("instant", 0) if each.from_ == each.to else ("span", each.to - each.from_)
    return each.text, kind, each.from_, length


def rows(notes):
    return [msgspec.to_builtins(each) for each in notes]


def in_order(found):
    return sorted(found, key=lambda each: (int(each["from"]), int(each["to"])))


@pytest.mark.parametrize("to", ["perfetto", "chrome"])
def test_notes_are_slices_of_a_track(store, tmp_path, to):
    exported = make_export(store, to, tmp_path / "trace")
    found = READERS[to](tmp_path / "trace")
    of_notes = [
        (each.name, each.kind, each.begin, each.length) for each in found if each.source == "notes"
    ]
    assert sorted(of_notes) == sorted(map(drawn, NOTES))
    assert exported.left == {}


def test_notes_before_all_events_keep_their_times(store, tmp_path):
    early = note(-5000, -4000)
    notes = NoteStore(str(store), {})
    notes.add(early)
    try:
        for to in ("perfetto", "chrome"):
            make_export(store, to, tmp_path / to)
            found = READERS[to](tmp_path / to)
            assert Drawn("notes", "", "", "span", early.text, early.from_, 1000) in {
                each._replace(stream="") for each in found
            }
    finally:
        notes.remove(early.id)


def test_otlp_has_them_among_its_logs(store, tmp_path):
    make_export(store, "otlp", tmp_path / "trace.jsonl")
    READERS["otlp"](tmp_path / "trace.jsonl")  # reads every line
    last = (tmp_path / "trace.logs.jsonl").read_bytes().splitlines()[-1]
    (of_notes,) = json.loads(last)["resourceLogs"]
    logs = of_notes["scopeLogs"][0]["logRecords"]
    assert [(each["body"]["stringValue"], int(each["timeUnixNano"])) for each in logs] == [
        (each.text, each.from_) for each in NOTES
    ]


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet", "arrow", "original"])
def test_a_file_beside_the_rows_has_them(store, tmp_path, to):
    if to == "original":
        export_original(store, tmp_path / "again")
        path = tmp_path / "again" / "notes.jsonl"
    else:
        make_export(store, to, tmp_path / f"trace.{to}")
        path = tmp_path / f"trace.notes.{to}"
    found = {
        "csv": lambda: list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))),
        "parquet": lambda: pyarrow.parquet.read_table(path).to_pylist(),
        "arrow": lambda: pyarrow.ipc.open_file(path).read_all().to_pylist(),
    }.get(to, lambda: [json.loads(line) for line in path.read_bytes().splitlines()])()
    wanted = [{k: str(v) for k, v in each.items()} for each in rows(NOTES)] if to == "csv" else rows(NOTES)  # fmt: skip
    assert in_order(found) == in_order(wanted)


@pytest.mark.skipif(
    shutil.which("otf2-print") is None, reason="needs otf2-print: apt install otf2-tools"
)
def test_an_archive_of_otf2_has_regions_called_like_them(store, tmp_path):
    def select():
        engine = Engine(str(store))
        return Selected(engine, Filters(), Patience(engine, None))

    with Directory(str(tmp_path / "archive")) as output:
        export(write_otf2, select, output, RowCount(None))
    done = subprocess.run(
        ["otf2-print", "-G", str(tmp_path / "archive" / "traces.otf2")], capture_output=True, check=True, text=True
    )  # fmt: skip
    for each in NOTES:
        assert f'"{each.text.splitlines()[0]}' in done.stdout


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"source": "sim"}, NOTES),
        ({"session": ["a"], "stream": "1"}, NOTES),
        ({"until": EPOCH + 100}, []),
        ({"until": EPOCH + 101}, [RANGE]),
        ({"since": EPOCH + 900}, [RANGE, OVERLAPPING]),
        ({"since": EPOCH + 901}, [OVERLAPPING]),
    ],
)
def test_notes_about_the_selection_are_chosen(store, filters, wanted):
    engine = Engine(str(store))
    assert Selected(engine, Filters(**filters), Patience(engine, None)).notes.notes == wanted


def test_notes_about_others_are_not(store):
    others = [note(5, 6, source="other"), note(6, 7, session="b"), note(7, 8, stream="2")]
    notes = NoteStore(str(store), {})
    for each in others:
        notes.add(each)
    try:
        engine = Engine(str(store))
        chosen = Filters(source=["sim"], session=["a"], stream=["1"])
        assert Selected(engine, chosen, Patience(engine, None)).notes.notes == NOTES
        engine = Engine(str(store))
        everything = Selected(engine, Filters(), Patience(engine, None)).notes.notes
        assert everything == [*others, *NOTES]
    finally:
        for each in others:
            notes.remove(each.id)


def test_what_cannot_be_exported_is_said(store, tmp_path):
    old = Note(made=7, from_=-5, to=-3, text="long ago")
    NoteStore(str(store), {}).add(old)
    damaged = store / "notes" / f"{'0' * 16}.json"
    damaged.write_bytes(b"{")
    try:
        left = make_export(store, "chrome", tmp_path / "trace.json").left
        assert left == {"note about a time before 1970": 1, "note that cannot be read": 1}
        (tmp_path / "pipe").symlink_to("/dev/null")
        left = make_export(store, "csv", tmp_path / "pipe").left
        assert left == {"note": 4, "note that cannot be read": 1}
    finally:
        damaged.unlink()
        NoteStore(str(store), {}).remove(old.id)
