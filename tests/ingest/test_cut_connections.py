"""Connections that did not end with their peer's last byte: what they brought is not called complete."""

from __future__ import annotations

import json

import pytest

from tailrace.spool.entry import EntryKind
from tests.ingest.log import (
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_session,
    run,
)
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of
from tests.query.memory import Views
from tests.query.tables import DAY

EPOCH = heph_epoch(10**18)

CUTS = (
    "collector restart", "stop", "source removed", "source changed", "collector ended", "idle", "slow", "garbage",
    "too many pending bytes", "too many new sessions", "tls error", "reset: ECONNRESET", "reset: ETIMEDOUT",
    "eof without close_notify",
)  # fmt: skip
"""The reasons of ends that are not the peer's."""


def events(*numbers, stream=1):
    return b"".join(heph_event(stream, n) for n in numbers)


def lines(*types, ids=range(1, 99)):
    """Lines of JETS: of each type one, of a record with the next id."""
    ids = iter(ids)
    made = {
        "header": lambda: {"version": "2.0", "metadata": {"clock_frequency_mhz": 1000}},
        "record": lambda: {
            "clk": 5, "name": "x", "record_type": "T", "id": next(ids), "parent_id": None, "description": "",
        },
        "footer": lambda: {"capture_end_clk": 9, "total_records": types.count("record")},
    }  # fmt: skip
    return b"".join(json.dumps({"type": each} | made[each]()).encode() + b"\n" for each in types)


def cuts(rows):
    """The sessions with a gap of a cut connection, and whether it has healed."""
    found = {}
    for row in of(rows, "gap") + of(rows, "heal"):
        if attributes(row).get("detail") == "cut":
            assert (row["name"], row["missing"]) == ("truncated", None)
            found[row["session"]] = row["kind"] == "heal"
    return found


@pytest.fixture(scope="module")
def views():
    return Views()


def seen(views, rows, sql):
    return [tuple(each.values()) for each in views.of([row | {"day": DAY} for row in rows], sql)]


def check(log):
    """Return all rows. The figure of gaps of unknown size is that of the rows."""
    ingest, rows = run(log.entries)
    assert_conserved(ingest)
    unknown = [sum(row["missing"] is None for row in of(rows, kind)) for kind in ("gap", "heal")]
    assert ingest.tally("s").unknown_gaps == unknown[0] - unknown[1]
    assert_replays(log.entries, *range(len(log.entries)))
    return rows


@pytest.mark.parametrize("reason", CUTS)
@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize(
    ("format_", "data"),
    [("heph", EPOCH + events(0, 1)), ("jets", lines("header", "record"))],
    ids=["heph", "jets"],
)
def test_a_connection_that_was_cut_has_a_gap_of_unknown_size(
    views, reason, transport, format_, data
):
    log = Log()
    session = log.open(format_, transport=transport)
    log.data(session, data)
    log.close(session, reason)
    rows = check(log)
    assert cuts(rows) == {"session0": False}
    sql = "SELECT reason, detail, remaining FROM gaps"
    assert seen(views, rows, sql) == [("truncated", "cut", None)]


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        ("heph", EPOCH + events(0, 1) + heph_goodbye({"1": 2})),
        ("jets", lines("header", "record", "footer")),
    ],
    ids=["goodbye", "footer"],
)
@pytest.mark.parametrize("reason", CUTS)
def test_nothing_is_missing_behind_the_producers_last_word(format_, data, reason):
    log = Log()
    session = log.open(format_)
    log.data(session, data)
    log.close(session, reason)
    assert cuts(check(log)) == {}


def test_a_footer_that_was_not_the_last_record_is_no_end():
    log = Log()
    session = log.open("jets")
    log.data(session, lines("header", "record", "footer"))
    log.data(session, lines("record", ids=[2]))
    log.close(session, "stop")
    assert cuts(check(log)) == {"session0": False}


@pytest.mark.parametrize(
    ("transport", "reason"), [("tcp", "eof"), ("unix", "eof"), ("udp", "stop"), ("udp", "idle")]
)
def test_a_connection_whose_end_was_read_and_datagrams_have_no_such_gap(transport, reason):
    log = Log()
    session = log.open(transport=transport)
    (log.data if transport != "udp" else lambda s, d: log.datagrams(s, [d]))(session, events(0, 1))
    log.close(session, reason)
    assert cuts(check(log)) == {}


def test_a_client_that_announced_its_session_comes_back_to_it():
    log = Log()
    session = log.open()
    log.data(session, EPOCH + heph_session(7) + events(0, 1))
    log.close(session, "collector restart")
    assert cuts(check(log)) == {}


def test_the_gap_heals_when_the_last_of_the_streams_goes_on(views):
    log = Log()
    first = log.open()
    log.data(first, EPOCH + events(0, 1) + events(0, stream=2))
    log.close(first, "collector restart")
    log.add(EntryKind.START)
    second = log.open()
    log.data(second, EPOCH + events(2))
    assert cuts(check(log)) == {"session0": False}
    third = log.open()
    log.data(third, EPOCH + events(4, stream=2))
    log.close(second)
    log.close(third)
    log.tick(9)
    rows = check(log)
    assert cuts(rows) == {"session0": True}
    sql = "SELECT session, first, remaining FROM gaps"
    assert seen(views, rows, sql) == [(f"session{third}", 1, 3)]
    sql = "SELECT reason, remaining FROM all_gaps WHERE session = 'session0'"
    assert seen(views, rows, sql) == [("truncated", 0)]
    assert seen(views, rows, "SELECT bool_or(unknown) FROM sessions") == [(False,)]


@pytest.mark.parametrize("epoch", [EPOCH, b""], ids=["epoch", "no epoch"])
def test_another_producer_heals_nothing(epoch):
    log = Log()
    first = log.open()
    log.data(first, epoch + events(0, 1))
    log.close(first, "collector restart")
    second = log.open()
    log.data(second, (heph_epoch(2 * 10**18) if epoch else b"") + events(0, 1, 2))
    log.close(second)
    assert cuts(check(log)) == {"session0": False}


def test_a_goodbye_of_the_next_connection_ends_streams_of_which_nothing_more_came():
    log = Log()
    first = log.open()
    log.data(first, EPOCH + events(0, 1) + events(0, stream=2))
    log.close(first, "stop")
    second = log.open()
    log.data(second, EPOCH + events(2) + heph_goodbye({"1": 3, "2": 1}))
    log.close(second, "stop")
    assert cuts(check(log)) == {"session0": True}


def test_a_producer_that_goes_on_after_its_goodbye_heals_no_gap():
    """The first connection left no gap to heal."""
    log = Log()
    first = log.open()
    log.data(first, EPOCH + events(0, 1) + heph_goodbye({"1": 2}))
    log.close(first, "collector restart")
    second = log.open()
    log.data(second, EPOCH + events(2))
    log.close(second)
    assert cuts(check(log)) == {}
