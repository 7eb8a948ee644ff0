"""Whatever a file or a peer says can be committed and saved: what could not would end the daemon, and
every start after it, since the spool gives the same bytes again."""

from __future__ import annotations

import json
import random
import re
from itertools import groupby
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.machine import Ingest
from tailrace.ledger.references import CLAIM_MAX
from tailrace.store.table import Table
from tests.ingest.log import Log
from tests.rows.columns import column

VECTORS = Path(__file__).parents[1] / "vectors"
INPUTS = 150
"""Damaged inputs of each format; thousands were tried when this was written."""

NASTY = [
    b"0", b"-1", b"1.5", b"1e400", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"[" * 2000,
    *(str(n).encode() for bits in (32, 63, 64) for n in (2**bits - 1, 2**bits, -(2**bits) - 1)),
    b"1" + b"0" * 400, b'"\\u0000"', b'"\\ud800"', b"\\u0000", b"\0", b"\xff", b"\xed\xa0\x80",
    b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7,
]  # fmt: skip
NUMBER, STRING = re.compile(rb"-?\d+(?:\.\d+)?"), re.compile(rb'"[^"\n]*"')
BIG = (2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(data, chance):
    """The data with some of its bytes, numbers, strings or lines changed."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        nasty = chance.choice(NASTY)
        match chance.randrange(5):
            case 0:
                data = data[:at] + nasty + data[at:]
            case 1:
                data = data[:at] + data[at + chance.choice((1, 4, 8, 50)) :]
            case 2:
                data = data[:at] + nasty + data[at + len(nasty) :]
            case 3:
                lines = data.splitlines(keepends=True)
                chance.shuffle(lines)
                data = b"".join(lines)
            case _:
                found = list(chance.choice((NUMBER, STRING)).finditer(data))
                if found:
                    place = chance.choice(found)
                    data = data[: place.start()] + nasty + data[place.end() :]
    return data


def settled(log):
    """The ingest after a log, its state saved and taken up again on the way."""
    ingest = Ingest()
    half = len(log.entries) // 2
    for entry in log.entries[:half]:
        ingest.apply(entry)
    first = ingest.batch.take()
    ingest = Ingest.restore(ingest.snapshot())
    for entry in log.entries[half:]:
        ingest.apply(entry)
    ingest.snapshot()
    return first, ingest


def assert_stored(log, directory):
    """Commit it all; as many rows are read back, with attributes that are objects."""
    first, ingest = settled(log)
    table = Table.open(
        str(directory),
        options={},
        collector="c",
        config=StoreConfig(),
        clock=SystemClock(),
        refills=lambda position: True,
    )
    second = ingest.batch.take()
    if len(first):
        table.land(table.prepare(first), 1)
    table.land(table.prepare(second), 2)
    stored = DeltaTable(table.root).to_pyarrow_table()
    assert stored.num_rows == len(first) + len(second)
    for text in stored.column("attributes").to_pylist():
        assert text is None or isinstance(json.loads(text), dict)


@pytest.mark.parametrize("format_", FORMATS)
def test_damaged_traces_and_documents_are_committed(format_, tmp_path):
    chance = random.Random(format_)  # the same inputs each time
    files = [
        path
        for path in sorted((VECTORS / format_).rglob("*"))
        if path.is_file() and path.stat().st_size < 50_000
    ]
    log = Log()
    for _ in range(INPUTS):
        path = chance.choice(files)
        number = log.open_file(format_, str(path)) if chance.random() < 0.8 else log.open(format_)
        for name in FORMATS[format_].files.documents(str(path)):
            log.document(number, name, damaged(chance.choice(files).read_bytes(), chance))
        data = damaged(path.read_bytes(), chance)
        for at in range(0, len(data), 1000):
            log.data(number, data[at : at + 1000])
        if chance.random() < 0.3:
            log.tick(100)
        if chance.random() < 0.8:
            log.close(number)
    log.stop()
    assert_stored(log, tmp_path)


@pytest.mark.parametrize("big", BIG)
def test_numbers_that_no_trace_reaches_are_no_end(big, tmp_path):
    log = Log()
    death = f"D 1 1 {big}\nM 1 1 1\nM 1 1 1\n"
    event = '{"id":%d,"name":"%s","cat":"%s","type":1,"pid":1,"tid":2,"ts":9,"dur":0,"ph":1,"args":{%s}}\n'
    traces = {
        "et3": [
            "M 1 1 1\nM 1 1 1\nD 1 1 0\n" + death * 4,
            f"M 1 0 1\nM 2 0 2\nD 1 1 {big}\n" * 4,
            f"M 1 0 1\nM 2 0 2\nE 1 {big}\n" * 4,
        ],
        "dftracer": [
            event % (1, "start", "dftracer", '"cmd_hash":"c","cwd":"d"')
            + event % (id_, "read", "POSIX", '"hhash":1')
            + event % (id_ + 1, "end", "dftracer", '"num_events":2')
            + "]\n"
            for id_ in (big, -big - 2)
        ],
        "jets": [
            '{"type":"header","version":"2.0","metadata":{}}\n'
            f'{{"type":"footer","total_records":{big},"total_annotations":{big},"total_events":{big}}}\n'
        ],
    }
    for format_, texts in traces.items():
        for text in texts:
            for dialect in ("auto", *FORMATS[format_].dialects):
                for _ in range(3):
                    number = log.open_file(format_, dialect=dialect)
                    log.data(number, text.encode())
    assert_stored(log, tmp_path)


@pytest.mark.parametrize(("total", "missing"), [(CLAIM_MAX, CLAIM_MAX), (CLAIM_MAX + 1, 0)])
def test_a_total_is_believed_up_to_a_bound_and_then_says_that_something_is_missing(total, missing):
    log = Log()
    number = log.open("jets")
    log.data(number, b'{"type":"header","version":"2.0","metadata":{}}\n')
    log.data(number, b'{"type":"footer","total_records":%d}\n' % total)
    _, ingest = settled(log)
    batch = ingest.batch.take()
    kinds = column(batch, "kind"), column(batch, "attributes")
    gaps = [json.loads(text) for kind, text in zip(*kinds, strict=True) if kind == "gap"]
    assert [gap["count"] for gap in gaps] == [missing]
    account = ingest.account("s")
    assert (account.missing, account.imbalance) == (missing, 0)


def test_what_comes_of_a_gap_of_unknown_size_does_not_make_less_than_nothing_missing():
    log = Log()
    number = log.open_file("et3", dialect="specification")
    jump = 2**60  # a clock, once it goes on from there; the line before may be of the other form
    log.data(number, b"M 1 0 1\nM 2 0 2\nM 3 0 %d\nM 4 0 %d\nM 5 0 3\nM 6 0 4\n" % (jump, jump + 1))
    _, ingest = settled(log)
    batch = ingest.batch.take()
    assert [kind for kind, _ in groupby(column(batch, "kind"))][-1] == "begin"
    account = ingest.account("s")
    assert (account.missing, account.seen, account.imbalance) == (1, 5, 0)
