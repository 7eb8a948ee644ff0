"""Sessions that clients announce: one run, by whichever connections it comes."""

from __future__ import annotations

import json

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.machine import Ingest
from tailrace.units import Duration
from tests.ingest.log import (
    SECOND,
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_report,
    heph_session,
    run,
)
from tests.ingest.test_machine import assert_conserved, attributes, of


@pytest.fixture
def log():
    return Log()


def events(*numbers, stream=1):
    return b"".join(heph_event(stream, n) for n in numbers)


def numbers(rows):
    found = {}
    for row in of(rows, "span"):
        found.setdefault(row["session"], []).append(row["seq"])
    return found


def gaps(rows):
    return [
        (row["session"], row["stream"], row["name"], row["seq"], attributes(row)["count"])
        for row in of(rows, "gap")
    ]


def course(rows, session=None):
    return [
        row["name"]
        for row in of(rows, "session")
        if session is None or row["session"] == session
    ]


def told(ingest):
    """What clients are told: session number, and the answer's JSON."""
    answers = []
    for number, data in ingest.acknowledgements():
        assert len(data) <= 1200
        (record,) = FORMATS["heph"].decoder(2**16, None).feed(data)
        answers.append((number, json.loads(json.loads(record.attributes)["value"])))
    return answers


def test_a_session_goes_on_by_another_connection_without_a_gap(log):
    first = log.open()
    log.data(first, heph_epoch(10**18) + heph_session(7) + events(*range(10)))
    log.close(first, "reset")
    log.now += 60 * SECOND
    second = log.open()
    log.data(second, heph_epoch(10**18) + heph_session(7, turn=1) + events(*range(8, 20)))
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(20))}
    assert gaps(rows) == []
    assert ingest.account("s").duplicates == 2
    assert course(rows, "session0") == ["open", "epoch", "tailrace.session", "leave", "resume", "tailrace.session"]  # fmt: skip
    assert course(rows, f"session{second}") == ["open", "epoch", "close"]
    offsets = [row["offset"] for row in rows if row["session"] == "session0"]
    assert offsets == sorted(offsets)
    assert_conserved(ingest)
