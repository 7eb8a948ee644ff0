"""Producers that come back on a new connection and say nothing of themselves."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.limits import host_of
from tailrace.ingest.returning import Departure, Departures
from tailrace.spool.entry import EntryKind
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
from tests.ingest.test_announced import course, gap_rows, gaps, numbers
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

EPOCH = heph_epoch(10**18)


@pytest.fixture
def log():
    return Log()


def events(*numbers, stream=1):
    return b"".join(heph_event(stream, n) for n in numbers)


def details(rows):
    return [(row["name"], attributes(row).get("detail")) for row in gap_rows(rows)]


def check(log):
    log.tick(3)
    ingest, rows = run(log.entries)
    assert_conserved(ingest)
    assert_replays(log.entries, *range(len(log.entries)))
    return ingest, rows


def continues(rows):
    return {
        row["session"]: attributes(row)["continues"]
        for row in of(rows, "session")
        if row["name"] == "continue"
    }


def test_a_producer_that_connects_anew_goes_on_with_its_numbers(log):
    first = log.open()
    log.data(first, events(*range(1000)) + events(*range(7), stream=2))
    log.close(first, "reset")
    log.now += 60 * SECOND
    second = log.open()
    log.data(second, events(*range(1000, 1100)) + events(7, 8, stream=2) + events(0, stream=3))
    ingest, rows = check(log)
    assert gaps(rows) == []
    assert continues(rows) == {f"session{second}": "session0"}
    account = ingest.account("s")
    assert (account.expected, account.missing) == (1110, 0)


def test_a_goodbye_counts_from_where_an_earlier_connection_left_a_stream(log):
    """Nothing of stream 1 comes on the second connection; event 7 of stream 2 is lost."""
    first = log.open()
    log.data(first, EPOCH + events(0, 1) + events(*range(7), stream=2))
    log.close(first, "reset")
    second = log.open()
    log.data(second, EPOCH + events(0, stream=3) + heph_goodbye({"1": 2, "2": 8, "3": 1}))
    ingest, rows = check(log)
    assert [(row["stream"], row["seq"]) for row in gap_rows(rows)] == [("2", 7)]
    assert ingest.account("s").missing == 1


def test_a_goodbye_of_numbers_that_are_about_to_wrap_counts_from_an_earlier_connection(log):
    first = log.open()
    log.data(first, EPOCH + events(2**32 - 9))
    log.close(first, "reset")
    second = log.open()
    log.data(second, EPOCH + events(0, stream=3) + heph_goodbye({"1": 2**32 - 7, "4": 2**32 - 7}))
    _, rows = check(log)
    found = [(row["stream"], row["seq"], attributes(row)["count"]) for row in gap_rows(rows)]
    assert found == [("4", None, 0), ("1", 2**32 - 8, 1)]


def test_what_was_discarded_last_is_missing_once_over_two_connections(log):
    first = log.open()
    log.data(first, EPOCH + events(0) + heph_report((1, 1, 2)))
    log.close(first, "reset")
    second = log.open()
    log.data(second, EPOCH + events(3))
    ingest, rows = check(log)
    assert [(row["name"], row["seq"]) for row in gap_rows(rows)] == [("sender", 1)]
    assert ingest.account("s").missing == 2


def test_a_report_that_comes_first_counts_from_where_an_earlier_connection_left_the_stream(log):
    first = log.open()
    log.data(first, EPOCH + events(0, 1))
    log.close(first, "reset")
    second = log.open()
    log.data(second, EPOCH + heph_report((1, 2, 1)))
    log.close(second, "eof")
    ingest, rows = check(log)
    assert [(row["name"], row["seq"]) for row in gap_rows(rows)] == [("sender", 2)]
    assert ingest.account("s").missing == 1


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("connections", [2, 3])
def test_what_was_discarded_without_a_number_is_missing_once_over_connections(
    log, more, connections
):
    """The client repeats its total on each connection. Before the last one, it discards `more` events."""
    for n in range(connections):
        last = n == connections - 1
        total = {"full": 27 + more * last}
        end = heph_goodbye({"1": 20}, discarded=total) if last else b""
        session = log.open()
        log.data(session, EPOCH + heph_report((1, 0, 20), discarded=total) * (not n) + end)
        log.close(session, "eof" if last else "reset")
    ingest, rows = check(log)
    found = [attributes(row) for row in gap_rows(rows)]
    unnumbered = sum(each["count"] for each in found if each.get("detail") == "unnumbered")
    assert unnumbered == 7 + more
    assert ingest.account("s").missing == 27 + more


def test_what_is_lost_between_two_connections_is_a_gap_of_just_that(log):
    first = log.open()
    log.data(first, events(*range(1000)))
    log.close(first)
    second = log.open()
    log.data(second, events(1004, 1005))
    ingest, rows = check(log)
    assert gaps(rows) == [(f"session{second}", "1", "network", 1000, 4)]
    assert ingest.account("s").missing == 4


@pytest.mark.parametrize(("epochs", "joined"), [((9, 9), False), ((9, 8), True), ((None, None), True)])  # fmt: skip
def test_a_long_way_between_is_believed_of_one_epoch_only(log, epochs, joined):
    old, new = (b"" if epoch is None else heph_epoch(epoch * 10**17) for epoch in epochs)
    first = log.open()
    log.data(first, old + events(*range(1000)))
    log.close(first)
    second = log.open()
    log.data(second, new + events(90_000))
    _, rows = check(log)
    if joined:
        assert gaps(rows) == [(f"session{second}", "1", "late_join", 0, 90_000)]
        assert details(rows) == [("late_join", None if epochs[0] else "maybe in session0")]
    else:
        assert gaps(rows) == [(f"session{second}", "1", "network", 1000, 89_000)]
        assert details(rows) == [("network", None)]


@pytest.mark.parametrize(
    ("epochs", "goes_on"),
    [((9, 9), True), ((9, None), True), ((None, 9), True), ((9, 8), False)],
)
def test_a_producer_with_another_epoch_is_another_one(log, epochs, goes_on):
    """A short run, and another one on the same host of which the first events are lost."""
    old, new = (b"" if epoch is None else heph_epoch(epoch * 10**17) for epoch in epochs)
    first = log.open(transport="udp")
    log.datagrams(first, [old + events(0, 1, 2)])
    log.close(first, "idle")
    second = log.open(transport="udp", peer="127.0.0.1:6")
    log.datagrams(second, [new + events(3, 4)])
    ingest, rows = check(log)
    lost = [] if goes_on else [(f"session{second}", "1", "late_join", 0, 3)]
    assert gaps(rows) == lost
    assert bool(continues(rows)) == goes_on
    assert ingest.account("s").missing == (0 if goes_on else 3)


def test_the_time_without_a_daemon_is_not_counted(log):
    first = log.open()
    log.data(first, events(*range(1000)))
    log.close(first, "stop")
    log.stop()
    log.now += 3600 * SECOND
    log.add(EntryKind.START)
    log.now += 599 * SECOND
    second = log.open()
    log.data(second, events(1000))
    log.close(second)
    log.now += 2 * SECOND
    third = log.open(peer="127.0.0.1:7")
    log.data(third, events(1001, stream=1))
    _, rows = check(log)
    assert gaps(rows) == []
    assert continues(rows) == {
        f"session{second}": "session0",
        f"session{third}": f"session{second}",
    }


@pytest.mark.parametrize(
    ("again", "pause"),
    [(heph_event(1, 1000, start=5), 0), (events(500), 0), (events(1000), 601)],
    ids=["its clock began anew", "its number is behind", "it was away for too long"],
)
def test_what_does_not_go_on_is_a_late_join(log, again, pause):
    first = log.open()
    log.data(first, events(*range(1000)))
    log.close(first)
    log.now += pause * SECOND
    second = log.open()
    log.data(second, again)
    _, rows = check(log)
    ((session, _, reason, number, _),) = gaps(rows)
    assert (session, reason, number) == (f"session{second}", "late_join", 0)
    assert details(rows) == [("late_join", None if pause else "maybe in session0")]
    assert continues(rows) == {}


def test_who_announces_itself_is_known_by_that(log):
    first = log.open()
    log.data(first, events(*range(10)))
    log.close(first)
    second = log.open()
    log.data(second, heph_session(7) + events(10))
    _, rows = check(log)
    assert gaps(rows) == [(f"session{second}", "1", "late_join", 0, 10)]
    assert details(rows) == [("late_join", None)]


def test_a_counter_that_wraps_goes_on(log):
    first = log.open()
    log.data(first, events(*range(2**32 - 3, 2**32)))
    log.close(first)
    second = log.open()
    log.data(second, events(2**32 + 1, 2**32 + 2))
    _, rows = check(log)
    assert gaps(rows) == [(f"session{second}", "1", "network", 2**32, 1)]
    assert numbers(rows)[f"session{second}"] == [2**32 + 1, 2**32 + 2]


def test_a_counter_that_wraps_between_two_connections_goes_on(log):
    first = log.open()
    log.data(first, events(*range(2**32 - 3, 2**32)) + events(*range(2**32 - 3, 2**32), stream=2))
    log.close(first)
    second = log.open()
    log.data(second, EPOCH + events(2**32))
    log.close(second, "reset")
    third = log.open()
    log.data(third, EPOCH + events(0, stream=3) + heph_goodbye({"1": 1, "2": 0}))
    _, rows = check(log)
    assert gaps(rows) == []
    assert numbers(rows)[f"session{second}"] == [2**32]
    assert continues(rows)[f"session{second}"] == "session0"


def test_a_goodbye_counts_events_that_were_lost_before_the_counter_wrapped_to_zero(log):
    first = log.open()
    log.data(first, EPOCH + events(2**32 - 3))
    log.close(first, "reset")
    second = log.open()
    log.data(second, EPOCH + events(0, stream=3) + heph_goodbye({"1": 0}))
    _, rows = check(log)
    assert gaps(rows) == [(f"session{second}", "1", "network", 2**32 - 2, 2)]


def test_a_datagram_peer_that_was_forgotten_goes_on(log):
    first = log.open(transport="udp")
    log.datagrams(first, [events(*range(10))])
    log.close(first, "idle")
    second = log.open(transport="udp")
    log.datagrams(second, [events(10, 11)])
    _, rows = check(log)
    assert gaps(rows) == []
    assert "continue" in course(rows, f"session{second}")


def test_sessions_are_forgotten_first_come_first_and_streams_are_bounded():
    limits = LedgerConfig(sessions_max=2, source_streams_max=4, resume_time=Duration(10))
    state = []
    departures = Departures(state)

    def names():
        return [departure.session for departure in state]

    for n in range(3):
        departures.add(Departure(f"s{n}", "h", n, None, {"1": (5, 5)}), limits)
    assert names() == ["s1", "s2"]
    departures.add(Departure("s3", "h", 3, None, {str(s): (5, 5) for s in range(4)}), limits)
    assert names() == ["s3"]
    departures.add(Departure("s4", "h", 11 * SECOND, None, {}), limits)
    assert names() == ["s4"]


def asking(host, limits):
    """Return a session that receives an event, as far as `Departures.find` looks at it."""
    return SimpleNamespace(name="", host=host, epoch=None, limits=limits, numbers=2**32)


def test_the_newest_sessions_that_had_a_stream_are_looked_at():
    limits = LedgerConfig()
    departures = Departures([])
    asks = asking("h", limits)
    for n in range(20):
        departures.add(Departure(f"s{n}", "h", n, None, {"1": (10_000 * n + 1, 5)}), limits)
    assert departures.find(asks, "1", 150_001, 5, 50) == ("s15", 150_001)
    assert departures.find(asks, "1", 40_001, 5, 50) == ("s4", 40_001)
    assert departures.find(asks, "1", 30_001, 5, 50) == ("s19", None)


@pytest.mark.parametrize("most", [1, 3])
def test_what_is_forgotten_is_found_no_more(most):
    limits = LedgerConfig(sessions_max=most)
    departures = Departures([])
    asks = asking("h", limits)
    for n in range(5):
        departures.add(Departure(f"s{n}", "h", 0, None, {str(n): (5, 5), "x": (5, 5)}), limits)
    found = [departures.find(asks, str(n), 5, 5, 1) for n in range(5)]
    assert [bool(each) for each in found] == [n >= 5 - most for n in range(5)]
    assert departures.find(asks, "x", 5, 5, 1) == ("s4", 5)


def test_a_session_of_another_host_is_no_earlier_one():
    departures = Departures([Departure("a", "10.0.0.1", 0, None, {"1": (5, 5)})])
    one, other = (asking(host, LedgerConfig()) for host in ("10.0.0.1", "10.0.0.2"))
    assert departures.find(other, "1", 5, 5, 1) is None
    assert departures.find(one, "2", 5, 5, 1) is None
    assert departures.find(one, "1", 5, 5, 1) == ("a", 5)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::1]:80", "[::1]"),
        ("unix:uid=0,pid=12", "unix:uid=0,pid=12"),
    ],
)
def test_a_host_is_a_peer_without_its_port(peer, host):
    assert host_of(peer) == host


def test_a_producer_goes_on_while_its_connection_still_looks_alive(log):
    first = log.open()
    log.data(first, EPOCH + events(*range(10)))
    second = log.open()
    log.data(second, EPOCH + events(10, 11) + events(0, stream=2))
    log.now += SECOND
    log.close(first, "reset")
    third = log.open()
    log.data(third, EPOCH + events(13))
    ingest, rows = check(log)
    assert gaps(rows) == [(f"session{third}", "1", "network", 12, 1)]
    assert continues(rows) == {
        f"session{second}": "session0",
        f"session{third}": f"session{second}",
    }
    assert ingest.account("s").missing == 1


@pytest.mark.parametrize("pause", [0, 3], ids=["open hole", "gap"])
def test_what_a_connection_delivers_after_its_producer_went_on_is_not_missing(log, pause):
    """On stream 2, the former connection brings its first events; on stream 3 it says what was thrown away."""
    first = log.open()
    log.data(first, EPOCH + events(0, 1) + events(0, stream=3))
    second = log.open()
    later = events(5) + events(2, stream=2) + events(4, stream=3)
    log.data(second, EPOCH + later)
    log.tick(pause)
    log.data(first, events(2, 3) + events(0, stream=2) + heph_report((3, 1, 2)))
    log.close(first, "reset")
    ingest, rows = check(log)
    missing = Counter()
    for row in gap_rows(rows) + of(rows, "heal"):
        for number in range(row["seq"], row["seq"] + attributes(row)["count"]):
            missing[row["stream"], number] += 1 if row["kind"] == "gap" else -1
    left = [("1", 4), ("2", 1), ("3", 1), ("3", 2), ("3", 3)]
    assert sorted(missing.elements()) == left
    assert ingest.account("s").missing == 5
    assert bool(of(rows, "heal")) == bool(pause)


def test_what_was_thrown_away_first_is_missing_once_beside_a_connection_that_looks_alive(log):
    first = log.open()
    log.data(first, EPOCH + heph_report((1, 0, 2)))
    second = log.open()
    log.data(second, EPOCH + heph_goodbye({"1": 2}))
    log.close(second)
    log.close(first, "reset")
    ingest, rows = check(log)
    assert gaps(rows) == [("session0", "1", "sender", 0, 2)]
    assert ingest.account("s").missing == 2


def test_another_program_beside_a_producer_does_not_go_on_with_it(log):
    first = log.open()
    log.data(first, EPOCH + events(*range(10)))
    others = [log.open(), log.open()]
    log.data(others[0], heph_epoch(10**17) + events(10))
    log.data(others[1], events(10))
    _, rows = check(log)
    lost = [(f"session{other}", "1", "late_join", 0, 10) for other in others]
    assert sorted(gaps(rows)) == sorted(lost)
    assert continues(rows) == {}


def test_all_other_open_connections_learn_what_one_brings(log):
    first, second, third = log.open(), log.open(), log.open()
    log.data(first, EPOCH + events(0))
    log.data(second, EPOCH + events(5))
    log.data(third, EPOCH + events(10))
    log.data(second, events(6, 7))
    ingest, rows = check(log)
    assert {(row["seq"], row["missing"]) for row in gap_rows(rows)} == {(1, 4), (8, 2)}
    assert ingest.account("s").missing == 6


class _Open:
    """An open session that counts how often it is asked for the end of a stream."""

    asked = 0

    def __init__(self, number: int, stream: str) -> None:
        self.name, self._stream = f"{number:04}", stream
        self.host, self.epoch, self.limits, self.numbers = "h", 5, LedgerConfig(), 2**32

    def has(self, stream):
        return stream == self._stream

    def end_of(self, stream):
        _Open.asked += 1
        return (7, 0)

    def begin_behind(self, stream, numbers, now):
        raise AssertionError


def test_an_event_looks_at_few_open_connections_that_have_its_stream():
    known = Departures([])
    for number in range(1000):
        known.come(_Open(number * 7 % 1000, str(number % 2)))
    newest = _Open(1000, "0")
    known.come(newest)
    _Open.asked = 0
    assert known.find(newest, "0", 7, 0, 0) == ("0998", 7)
    assert _Open.asked == 15  # and the newest, which asks, not itself
    others = [other.name for other in known.beside(newest, "0")]
    assert others == [f"{number:04}" for number in range(968, 1000, 2)]
