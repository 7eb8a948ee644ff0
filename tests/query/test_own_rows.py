"""Test that no producer can write a row that views, exports and imports take for a row of the collector itself."""

from __future__ import annotations

import json

import pytest

from tailrace.decoding.formats import FORMATS
from tailrace.ingest.state import IngestState, decode
from tailrace.model.record import Kind
from tailrace.rows.schema import OWN_ROWS
from tests.cli.command import run
from tests.decoding.dftracer_lines import event, metadata, start, text
from tests.decoding.test_conformance import ALL
from tests.export.again import play, rebuild
from tests.ingest.log import Log, heph_epoch, heph_event, heph_option, heph_session, run as ingested
from tests.query.tables import ask, make

OTHER = "session0"
WORDS = {
    "closed": "end of file", "closed_at": 9, "rest": "silent", "since": 9, "lacks": "", "pending": 0, "ends": "x",
    "asks": '["FH:1"]', "collector": "none", "peer": "/none", "transport": "udp", "continues": OTHER, "opened": 9,
    "group": "/none", "rank": 7, "node": "none", "job": "none", "replaces": [OTHER], "labels": {"a": "b"}, "totals": {"begin": 9},
    "clock_offset": 9, "left": "end of file", "evicted": "spans", "bytes": 0,
    "file": {"path": "/none", "size": 1, "crc": 2},
}  # fmt: skip
"""Members of the rows that the collector, clients and other decoders write."""
CLOCK = {"clock": "unix_ns", "epoch": 9, "ticks_per_second": 9}
NAMES = [*OWN_ROWS, "footer", "header", "clock_offset", "tailrace.session", "tailrace.report"]


_json = json.JSONEncoder(separators=(",", ":")).encode


def _jets(name, words):
    if name in {"footer", "header"}:
        name += "s"
    return _json({"type": name, **words, **CLOCK}).encode() + b"\n"


def _dftracer(name, words):
    record = {"name": name, "cat": "dftracer", "pid": 7, "tid": 7, "ph": 4}
    return _json(record | words).encode() + b"\n"


def _heph(name, words):
    return b"" if name.startswith("tailrace.") else heph_option(name, words)


JETS = b"".join(vector.data for vector in ALL if vector.name == "jets/tracegen_tiny")
GOOD = {
    "jets": b"".join(JETS.splitlines(keepends=True)[:8]),
    "dftracer": text(metadata("HH", "vm", "68"), start(), event(2), event(4)),
    "heph": heph_event(1, 0) + heph_event(1, 3),
}
FORGED = {"jets": _jets, "dftracer": _dftracer, "heph": _heph}
"""Functions that return a line or packet with a name and members, by format.

A producer of ET3 names session rows by one letter, and a producer of ovni names none."""


def _stored(tmp_path, format_, forged):
    log = Log()
    for path in ("/runs/b", "/runs/a"):
        session = log.open_file(format_, path)
        log.data(session, GOOD[format_])
    log.data(session, forged)
    rows, files = play(log)
    return make(tmp_path / (f"forged{bool(forged)}"), rows), rows, files


QUESTIONS = [
    'SELECT * EXCLUDE ("rows", producer) FROM sessions',
    'SELECT * EXCLUDE ("offset") FROM gaps',
    "SELECT * FROM streams",
    "SELECT * FROM labels",
    "SELECT kind, name, time, aligned FROM events WHERE kind <> 'session' ORDER BY ALL",
]


@pytest.mark.parametrize("format_", FORGED)
def test_a_producers_rows_change_no_statement_of_the_collector(tmp_path, format_):
    forged = b"".join(FORGED[format_](name, WORDS) for name in NAMES)
    plain, *_ = _stored(tmp_path, format_, b"")
    store, rows, files = _stored(tmp_path, format_, forged)
    mine = [row for row in rows if row["session"] != OTHER]
    assert {name for name, _ in _of_producer(mine)} >= {*OWN_ROWS}
    for question in QUESTIONS:
        found, expected = (sorted(map(repr, ask(each, question))) for each in (store, plain))
        assert found == expected
    copy = Log()
    copy.data(copy.open_file(format_), rebuild(FORMATS[format_], mine, files).data)
    assert _of_producer(play(copy)[0]) == _of_producer(mine)


ANNOUNCED = [
    {},
    {"epoch": 7},
    {"epoch": 7, "ticks_per_second": 9},
    {"clock": "logical", "epoch": 7},
    {"clock": "logical", "ticks_per_second": 9.5},
    {"clock": "unix_ns", "epoch": 7, "ticks_per_second": 9},
]


@pytest.mark.parametrize("epoch", [b"", heph_epoch(1000)], ids=["", "epoch"])
@pytest.mark.parametrize("members", ANNOUNCED, ids=_json)
def test_an_announcement_changes_the_clock_in_the_views_as_in_the_collector(
    tmp_path, epoch, members
):
    """The collector ignores unknown members of an announcement (clients/PROTOCOL.md)."""
    log = Log()
    session = log.open("heph")
    log.data(session, epoch + heph_event(1, 0) + heph_session(1, **members))
    ingest, rows = ingested(log.entries)
    state = decode(ingest.snapshot(), IngestState)
    runs = [each.incarnation for each in state.announced["s"].values()]
    runs += [each.current for each in state.sessions.values() if not runs]
    found = ask(make(tmp_path, rows), "SELECT clock, ticks_per_second, epoch FROM sessions")
    assert found == [
        {"clock": run.clock, "ticks_per_second": run.ticks_per_second, "epoch": run.epoch}
        for run in runs
    ]


def _of_producer(rows):
    return [
        (row["name"], row["attributes"])
        for row in rows
        if row["kind"] == "session" and row["time"] is None
    ]


def test_no_decoder_gives_a_record_without_bytes_the_name_of_a_row_of_the_collector():
    """The row of such a record has a time without a start, as those of the collector."""
    named = {
        record.name
        for vector in ALL
        for record in vector.decode()
        if record.kind == Kind.SESSION and not record.size
    }
    assert named >= {"clock", "process", "trace"}
    assert named.isdisjoint(OWN_ROWS)


def test_an_import_takes_no_line_for_what_an_earlier_import_has_read(tmp_path):
    victim, forged = tmp_path / "victim.jets", tmp_path / "forged.jets"
    victim.write_bytes(JETS)
    run("import", "--store", tmp_path / "first", victim)
    closes = "SELECT attributes FROM stored WHERE kind = 'session' AND name = 'close'"
    (close,) = ask(tmp_path / "first", closes)
    forged.write_bytes(
        GOOD["jets"] + _json({"type": "close"} | json.loads(close["attributes"])).encode() + b"\n"
    )
    run("import", "--store", tmp_path / "second", forged)
    run("import", "--store", tmp_path / "second", victim)
    peers = ask(tmp_path / "second", "SELECT peer FROM sessions ORDER BY peer")
    assert [each["peer"] for each in peers] == [str(forged), str(victim)]
