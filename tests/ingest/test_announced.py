"""Sessions that clients announce: one run, by whichever connections it comes."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import LAST, EntryKind
from tailrace.units import Duration
from tests.ingest.log import (
    MS,
    SECOND,
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_option,
    heph_report,
    heph_session,
    run,
)
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of
from tests.simulation.aftermath import check_accounts


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


def gap_rows(rows):
    """The rows of gaps, but for those of cut connections whose streams go on."""
    healed = {r["session"] for r in of(rows, "heal") if attributes(r).get("detail") == "cut"}
    return [
        row
        for row in of(rows, "gap")
        if attributes(row).get("detail") != "cut" or row["session"] not in healed
    ]


def gaps(rows):
    return [
        (row["session"], row["stream"], row["name"], row["seq"], attributes(row)["count"])
        for row in gap_rows(rows)
    ]


def course(rows, session=None):
    return [
        row["name"] for row in of(rows, "session") if session is None or row["session"] == session
    ]


def told(ingest):
    """The messages to clients: session number, and the answer's JSON."""
    answers = []
    for answer in ingest.acknowledgements(lambda number: True):
        assert len(answer.data) <= 1200
        name = 10 + len("tailrace.ack")
        assert answer.data[10:name] == b"tailrace.ack"
        answers.append((answer.number, json.loads(answer.data[name:])))
    return answers


@pytest.mark.parametrize("cut", [None, 40, 260])
def test_a_session_that_its_own_connection_announces_again_goes_on_where_its_bytes_are(log, cut):
    """However the bytes are cut, also behind a restart in between."""
    number, restart = log.open(), heph_epoch(10**18 + SECOND) + heph_session(8)
    again = heph_session(7, turn=1)
    data = (
        heph_epoch(10**18) + heph_session(7) + events(0) + restart + events(0) + again + events(1)
    )
    for part in [data] if cut is None else [data[:cut], data[cut:]]:
        log.data(number, part)
    _, rows = run(log.entries)
    last = max(row["offset"] for row in of(rows, "span"))
    assert last == len(data) - len(events(1))


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


def test_what_overtakes_the_announcement_is_the_sessions(log):
    session = log.open(transport="udp")
    log.datagrams(session, [events(1, 2), heph_epoch(9) + heph_session(7) + events(0), events(3)])
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [1, 2, 0, 3]}
    assert ingest.tally("s").restarts == 0
    assert_conserved(ingest)


def test_an_event_that_no_connection_lost_is_not_late(log):
    """On the second connection, what the first one lacked comes first."""
    first = log.open()
    log.data(first, heph_session(7) + events(0, 1, 4, 5))
    log.close(first)
    second = log.open()
    log.data(second, heph_session(7) + events(2, 3, 4, 5, 6))
    log.tick(3)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 1, 4, 5, 2, 3, 6]}
    assert gaps(rows) == []
    assert ingest.account("s").missing == 0


def introduced(number, *, epoch=None, turn=0):
    """The words with which a datagram of a session begins; the sessions begin a second apart."""
    return heph_epoch(10**18 + number * SECOND if epoch is None else epoch) + heph_session(
        number, turn=turn
    )


def test_a_datagram_that_announces_a_session_is_of_the_session_as_a_whole(log):
    """The next program can have sent the late events, as far as the clock tells, and lacks a goodbye."""
    session = log.open(transport="udp")
    log.datagrams(session, [introduced(1) + events(0, 3)])
    log.now += SECOND
    log.datagrams(session, [introduced(2) + events(0, stream=2)])
    log.now += SECOND
    late = introduced(1, turn=1) + events(1, 2) + heph_goodbye({1: 4})
    log.datagrams(session, [late, events(1, stream=2)])
    log.tick(3)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 3, 1, 2], "session0.1": [0, 1]}
    assert gaps(rows) == []
    assert [row["session"] for row in of(rows, "session") if row["name"] == "close"] == ["session0"]
    assert_conserved(ingest)
    assert_replays(log.entries, *range(0, len(log.entries), 2))


def test_the_account_of_an_ended_session_follows_late_events(log):
    """A reader of the bare table compares accounts with rows, long before the collector forgets the session."""
    session = log.open(transport="udp")
    log.datagrams(session, [introduced(1) + events(0, 1, 2, 4) + heph_goodbye({1: 5})])
    log.tick(3)
    for late in (3, 7):  # 7 lies beyond the goodbye, and the two numbers before may still come
        log.datagrams(session, [events(late)])
        log.tick(0.1)
        log.tick(3)
        ingest, rows = run(log.entries)
        assert check_accounts(rows) == 1
        assert_conserved(ingest)
    log.datagrams(session, [events(9)])
    log.stop()
    _, rows = run(log.entries)
    assert check_accounts(rows) == 1
    assert [row["name"] for row in of(rows, "session")].count("account") == 3
    assert_replays(log.entries, *range(len(log.entries)))


def test_the_last_account_counts_of_a_session_that_ends_twice(log):
    """A client whose acknowledgement was lost connects again, resends events and takes leave again."""
    for numbers_ in ((0, 1, 3), (2, 3)):
        session = log.open()
        log.data(session, heph_session(1) + events(*numbers_) + heph_goodbye({1: 4}))
        log.close(session)
        log.tick(3)
        ingest, rows = run(log.entries)
        assert check_accounts(rows)
    closed = [row["session"] for row in of(rows, "session") if row["name"] == "close"]
    assert closed.count("session0") == 2
    assert_conserved(ingest)


def test_a_late_announcement_does_not_bring_an_older_session_back(log):
    """Three programs at one address within the time in which datagrams may be late."""
    session = log.open(transport="udp")
    for number in (1, 2, 3):
        log.datagrams(session, [introduced(number) + events(0, stream=number)])
        log.now += SECOND // 2
    log.datagrams(session, [introduced(1, turn=1) + events(1, stream=1), events(1, stream=3)])
    log.datagrams(session, [events(2, stream=3)])
    log.tick(3)
    ingest, rows = run(log.entries)
    found = {(row["session"], row["stream"]) for row in of(rows, "span")}
    assert found == {("session0", "1"), ("session0.1", "2"), ("session0.2", "3")}
    assert numbers(rows) == {"session0": [0, 1], "session0.1": [0], "session0.2": [0, 1, 2]}
    assert gaps(rows) == []
    assert "resume" not in course(rows)
    assert_conserved(ingest)


def test_first_words_that_come_after_the_next_programs_bring_no_older_session_back(log):
    """All other words of the first program are lost; no collector ran. The second one goes on, and is told so."""
    session = log.open(transport="udp")
    log.now += SECOND
    log.datagrams(session, [introduced(2) + events(0, stream=2)])
    log.now += SECOND // 8
    late = heph_epoch(10**18 + SECOND) + heph_session(1, turn=3, acknowledge=True)
    log.datagrams(session, [late])
    log.now += SECOND // 8
    own = heph_event(3, 0, start=SECOND // 5)
    log.datagrams(session, [own, heph_event(1, 4, start=SECOND * 9 // 10)])
    log.datagrams(session, [introduced(2, turn=1) + own])
    log.now += SECOND
    log.datagrams(session, [introduced(1, turn=4) + events(5)])
    ingest, rows = run(log.entries)
    found = [(row["session"], row["stream"], row["seq"]) for row in of(rows, "span")]
    assert found == [
        ("session0", "2", 0), ("session0", "3", 0), ("session0.1", "1", 4), ("session0.1", "1", 5),
    ]  # fmt: skip
    assert told(ingest) == []
    assert ingest.account("s").duplicates == 1
    assert course(rows, "session0.1") == [
        "restart", "epoch", "tailrace.session", "epoch", "tailrace.session",
    ]  # fmt: skip
    log.tick(3)
    _, rows = run(log.entries)
    assert "resume" not in course(rows)
    assert_conserved(ingest)
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize(
    ("age", "first", "late"),
    [(1, 9, True), (1, 0, True), (3, 1, False)],
    ids=["soon", "long unanswered", "later than datagrams may be"],
)
def test_an_older_epoch_is_of_a_program_before_while_datagrams_of_it_may_come(
    log, age, first, late
):
    """Otherwise the next program's clock was set back. `first` and `age` are seconds: when the announced program
    began, the other one at 10, and how long that one has lived."""
    session = log.open(transport="udp")
    log.datagrams(session, [introduced(10) + events(0)])
    log.now += age * SECOND
    log.datagrams(session, [introduced(first), events(1)])
    _, rows = run(log.entries)
    assert numbers(rows)["session0"] == ([0, 1] if late else [0])


def test_a_client_whose_clock_was_set_back_is_told_once_the_one_before_is_silent(log):
    """Its first words look like late ones of a program before, and all that it sends has words."""
    session = log.open(transport="udp")
    log.datagrams(session, [introduced(10) + events(0)])
    log.now += SECOND // 2
    words = [
        heph_epoch(10**18 + 9 * SECOND) + heph_session(9, turn=turn, acknowledge=True)
        for turn in (0, 1)
    ]
    log.datagrams(session, [words[0] + events(0, 1)])
    ingest, _ = run(log.entries)
    assert told(ingest) == []
    log.tick(3)
    log.datagrams(session, [words[1] + events(2), events(3)])
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0], "session0.1": [0, 1, 2, 3]}
    assert [(number, said["streams"]) for number, said in told(ingest)] == [(session, {"1": 4})]
    assert_conserved(ingest)


@pytest.mark.parametrize(("apart", "late"), [(1, True), (3, False)])
def test_an_older_epoch_without_an_announcement_was_said_when_its_program_began(log, apart, late):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(10**18 + 10 * SECOND) + events(0)])
    log.now += SECOND // 2
    log.datagrams(session, [heph_epoch(10**18 + (10 - apart) * SECOND), events(1)])
    _, rows = run(log.entries)
    assert numbers(rows)["session0"] == ([0, 1] if late else [0])


def test_an_older_epoch_of_a_session_that_is_known_is_no_late_word(log):
    """The client has got the address of a program that has ended."""
    first, second = log.open(transport="udp", peer="a"), log.open(transport="udp", peer="b")
    log.datagrams(first, [introduced(1) + events(0)])
    log.now += SECOND
    log.datagrams(second, [introduced(2) + events(0, stream=2)])
    log.close(first)
    log.datagrams(second, [introduced(1, turn=1) + events(1), events(2)])
    _, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 1, 2], f"session{second}": [0]}


@pytest.mark.parametrize("says", [True, False])
def test_an_announcement_says_how_slow_it_is_if_it_says_when_it_was_made(log, says):
    """The announcements are repeated, since nobody heard the first ones. All but the last event may be slow."""
    session, begin, apart = log.open(transport="udp"), log.now, SECOND * 7 // 10

    def words(number, at):
        made = {"now": at - number * apart} if says else {}
        return heph_epoch(10**18 + number * apart) + heph_session(number, **made)

    def send(at, *parts):
        log.now = begin + at + 1000
        log.datagrams(session, [b"".join(parts)])

    send(610 * MS, words(0, 610 * MS))
    send(889 * MS, words(1, 889 * MS))
    send(1111 * MS, words(1, 1111 * MS), heph_event(3, 0, start=0))
    send(1111 * MS, heph_event(1, 0, start=400 * MS))
    _, rows = run(log.entries)
    owners = {row["stream"]: row["session"] for row in of(rows, "span")}
    assert owners == {"3": "session0.1", "1": "session0.1" if says else "session0"}
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize(("hour", "late"), [(0, True), (1, False)])
def test_an_older_epoch_with_a_time_is_late_if_it_was_said_within_the_time(log, hour, late):
    """Otherwise the clock of a new program was set back."""
    session = log.open(transport="udp")
    log.datagrams(session, [introduced(10_000) + events(0)])
    log.now += SECOND
    epoch = 10**18 + (9_999 - hour * 3600) * SECOND
    log.datagrams(session, [heph_epoch(epoch) + heph_session(1, now=SECOND // 2), events(1)])
    _, rows = run(log.entries)
    assert numbers(rows)["session0"] == ([0, 1] if late else [0])


EPOCH, SESSION = heph_epoch(10**18), heph_session(7, acknowledge=True)


@pytest.mark.parametrize("words", [EPOCH, EPOCH + SESSION, SESSION])
@pytest.mark.parametrize("before", [b"", events(0, stream=2)])
def test_a_client_gets_the_address_of_a_producer_that_has_ended(log, words, before):
    """Bytes of the one that said neither epoch nor session are not taken for the client's own."""
    peer = log.open(transport="udp")
    log.datagrams(peer, [before + events(*range(20))])
    log.tick(3)
    own = [heph_event(1, n, start=5000 * n + 1) for n in range(3)]
    log.datagrams(peer, [words + own[0]])
    log.datagrams(peer, own[1:])
    ingest, rows = run(log.entries)
    assert numbers(rows)["session0.1"] == [0, 1, 2]
    assert numbers(rows)["session0"][-20:] == list(range(20))
    assert ingest.account("s").duplicates == 0
    if SESSION in words:
        ((_, answer),) = told(ingest)
        assert answer["streams"] == {"1": 3}
    assert_conserved(ingest)
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize("words", [EPOCH, EPOCH + SESSION, SESSION])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("pause", [0.2, 3, 30])
def test_a_second_life_whose_first_words_come_alone_is_none_of_the_first(log, words, apart, pause):
    """The only announcement of the first life was lost."""
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(64))])
    log.tick(pause)
    if apart:
        log.datagrams(peer, [words])
    ingest, _ = run(log.entries)
    if apart and SESSION in words:
        ((_, answer),) = told(ingest)
        assert answer["streams"] == {}
    own = [heph_event(1, n, start=5000 * n + 1) for n in range(3000)]
    log.datagrams(peer, own[:1] if apart else [words + own[0]])
    for at in range(1, 3000, 600):
        log.datagrams(peer, own[at : at + 600])
        log.now += SECOND // 10
    log.tick(3)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(64)), "session0.1": list(range(3000))}
    assert gaps(rows) == []
    assert ingest.tally("s").restarts == 1
    if SESSION in words:
        ((_, answer),) = told(ingest)
        assert answer["streams"] == {"1": 3000}
    log.close(peer)
    assert_replays(log.entries, *range(len(log.entries)))
    assert_conserved(run(log.entries)[0])


@pytest.mark.parametrize("words", [EPOCH, EPOCH + SESSION, SESSION])
@pytest.mark.parametrize("then", [[20], [19, 20], [1, 2, 20], [30], []])
def test_first_words_that_come_alone_and_late_are_those_of_the_events_before(log, words, then):
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.now += 12 * SECOND
    log.datagrams(peer, [words])
    log.tick(3)
    if then:
        log.datagrams(peer, [events(*then)])
    log.datagrams(peer, [heph_goodbye({"1": 31})])
    log.tick(3)
    log.close(peer)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [*range(20), *(n for n in then if n >= 20)]}
    assert ingest.tally("s").restarts == 0
    assert sum(count for *_, count in gaps(rows) if count) == 31 - len(set(then) | set(range(20)))
    if words == EPOCH + SESSION:
        assert course(rows, "session0.1") == ["epoch", "tailrace.session", "close"]
    assert_replays(log.entries, *range(len(log.entries)))
    assert_conserved(ingest)


@pytest.mark.parametrize(
    ("says", "same"),
    [
        (heph_goodbye({"1": 20}), True),
        (heph_goodbye({"1": 3}), False),
        (heph_goodbye({"1": 3}, more=True), True),  # it went on
        (heph_goodbye({"1": 3}, more=True, part=0), False),
        (heph_goodbye({"2": 3}), True),
        (heph_report([1, 20, 2]), True),
        (heph_report([1, 5, 2]), False),
    ],
)
def test_a_report_or_a_goodbye_ends_the_doubt(log, says, same):
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.tick(3)
    log.datagrams(peer, [EPOCH + SESSION])
    log.datagrams(peer, [says])
    ingest, rows = run(log.entries)
    assert ingest.tally("s").restarts == (0 if same else 1)
    assert ("resume" in course(rows, "session0")) == same
    assert ("restart" in course(rows, "session0.1")) == (not same)
    assert_replays(log.entries, *range(len(log.entries)))


def test_all_events_before_unreadable_bytes_end_the_doubt_at_once(log):
    """A kernel may have packed some of them: the last one denies what the others leave open."""
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.tick(3)
    log.datagrams(peer, [EPOCH + SESSION])
    other = heph_event(1, 5, start=9999, end=10000)
    log.datagrams(peer, [*map(events, range(20, 60)), other + b"\xff" * 20])
    ingest, rows = run(log.entries)
    assert ingest.tally("s").restarts == 1
    assert "resume" not in course(rows, "session0")
    assert_replays(log.entries, *range(len(log.entries)))


def test_a_run_in_doubt_that_another_connection_goes_on_with_is_a_run_of_its_own(log):
    peer, other = log.open(transport="udp"), log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.datagrams(peer, [EPOCH + SESSION])
    log.datagrams(other, [EPOCH + SESSION + events(20, 21)])
    log.datagrams(peer, [events(22, 23)])
    log.tick(3)
    _, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(20)), "session0.1": [20, 21, 22, 23]}
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize("settles", [True, False])
def test_doubt_outlives_a_stop_of_the_daemon(log, settles):
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.datagrams(peer, [EPOCH + SESSION])
    if settles:
        log.stop()
        log.add(EntryKind.START)
    log.datagrams(peer, [events(20)])
    _, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(21))}


@pytest.mark.parametrize("then", ["session", "close"])
def test_a_doubt_that_nothing_ends_leaves_two_runs(log, then):
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.datagrams(peer, [EPOCH + SESSION])
    if then == "session":
        log.datagrams(peer, [heph_epoch(2 * 10**18) + heph_session(8) + events(0)])
    log.close(peer)
    ingest, rows = run(log.entries)
    assert "restart" in course(rows, "session0.1")
    assert numbers(rows)["session0"] == list(range(20))
    assert_conserved(ingest)


@pytest.mark.parametrize("pause", [1, 12])
@pytest.mark.parametrize("then", [[20], [0, 1, 20], [100], [1, 2], []])
def test_what_came_before_the_first_announcement_that_was_not_lost_is_the_sessions(
    log, pause, then
):
    """It has overtaken the announcement, or the client repeats that and what came with it."""
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(1, 20))])
    log.tick(pause)
    log.datagrams(peer, [EPOCH + SESSION + events(*then)])
    log.datagrams(peer, [events(0, 20, 21)])
    ingest, rows = run(log.entries)
    assert sorted(numbers(rows)) == ["session0"]
    assert set(numbers(rows)["session0"]) == {*range(22), *then}
    assert ingest.tally("s").restarts == 0
    assert_replays(log.entries, *range(len(log.entries)))


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_another_session_on_the_same_connection_begins_anew(log, transport):
    session = log.open(transport=transport)
    send = log.data if transport == "tcp" else lambda number, data: log.datagrams(number, [data])
    send(session, heph_session(7) + events(0, 1))
    send(session, heph_session(8) + events(0, 1, 2))
    send(session, heph_session(8) + events(3))
    log.close(session)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 1], "session0.1": [0, 1, 2, 3]}
    assert ingest.tally("s").restarts == 1
    assert ingest.account("s").missing == 0
    assert_conserved(ingest)


def test_late_words_and_events_of_the_session_before_are_its(log):
    session = log.open(transport="udp")
    old = [heph_event(1, n, start=100 * SECOND + n) for n in range(10)]
    log.datagrams(session, [heph_epoch(1) + heph_session(7), *old[:6]])
    log.datagrams(session, [heph_epoch(10**18) + heph_session(8) + events(0)])
    log.datagrams(session, [heph_epoch(1) + heph_session(7), *old[6:], events(1)])
    log.tick(3)
    log.datagrams(session, [events(2)])
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(10)), "session0.1": [0, 1, 2]}
    assert [row["session"] for row in of(rows, "session") if row["name"] == "tailrace.session"] == [
        "session0", "session0.1", "session0",
    ]  # fmt: skip
    assert_conserved(ingest)


def test_times_that_jump_back_are_no_restart_of_a_session_that_is_announced(log):
    """A simulator's own clock: a new scenario begins at 0."""
    session = log.open(transport="udp")
    clock = {"clock": "logical", "ticks_per_second": 1000}
    log.datagrams(session, [heph_session(7, **clock)])
    for scenario in range(3):
        numbered = range(100 * scenario, 100 * scenario + 100)
        log.datagrams(session, [heph_event(1, n, start=n % 100) for n in numbered if n != 150])
    log.datagrams(session, [heph_event(1, 0, start=0), heph_event(1, 150, start=0)])
    ingest, rows = run(log.entries)
    assert list(numbers(rows)) == ["session0"]
    assert ingest.account("s").missing == 0
    assert ingest.account("s").duplicates == 1
    assert {row["time"] for row in of(rows, "span")} == {None}


def test_a_session_without_a_goodbye_is_waited_for(log):
    session = log.open(limits=LedgerConfig(resume_time=Duration(60)))
    log.data(session, heph_session(7) + events(0, 2))
    log.close(session, "reset")
    log.tick(3)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [("session0", "1", "network", 1, 1)]
    assert ingest.waiting
    assert ingest.open_windows("s") == 0
    log.stop()
    log.tick(50)
    assert "close" not in course(run(log.entries)[1])
    log.tick(10)
    ingest, rows = run(log.entries)
    assert attributes(of(rows, "session")[-1])["closed"] == "not resumed"
    assert gaps(rows)[1:] == [("session0", "", "truncated", None, 0)]
    assert not ingest.waiting
    assert not ingest.state.announced["s"]
    again = log.open()
    log.data(again, heph_session(7) + events(3))
    ingest, rows = run(log.entries)
    assert numbers(rows)[f"session{again}"] == [3]
    assert_conserved(ingest)


def test_when_the_collector_ends_for_good_so_do_all_sessions(log):
    """Those that took leave lack nothing; of the others nobody knows."""
    first, peer, reset = log.open(), log.open(transport="udp"), log.open()
    log.data(first, heph_session(0) + events(0, 1))
    log.datagrams(peer, [heph_session(1) + events(0, 1)])
    log.data(reset, heph_session(2) + events(0, 1))
    file = log.open_file("heph")
    log.data(file, heph_session(3) + events(0))
    log.data(first, heph_goodbye({"1": 2}))
    log.close(reset, "reset")
    ingest, rows = run(log.entries)
    assert gaps(rows) == []
    assert set(ingest.open_sessions()) == {first, peer, file}
    log.stop(LAST)
    ingest, rows = run(log.entries)
    ends = [r["session"] for r in of(rows, "session") if r["name"] == "close"]
    assert sorted(ends) == sorted(f"session{number}" for number in (first, peer, reset))
    assert sorted(gaps(rows)) == sorted(
        (f"session{number}", "", "truncated", None, 0) for number in (peer, reset)
    )
    assert set(ingest.open_sessions()) == {file}
    assert len(ingest.state.announced["s"]) == 1
    assert_conserved(ingest)


def test_a_goodbye_ends_a_session_with_its_connection(log):
    session = log.open()
    log.data(session, heph_session(7) + events(0, 1))
    log.data(session, heph_goodbye({"1": 2}, more=True) + heph_goodbye({"2": 0}))
    log.close(session)
    ingest, rows = run(log.entries)
    assert attributes(of(rows, "session")[-1])["closed"] == "goodbye"
    assert gaps(rows) == []
    assert not ingest.waiting


def test_more_goodbyes_to_come_are_no_end(log):
    session = log.open()
    log.data(session, heph_session(7) + events(0) + heph_goodbye({"1": 4}, more=True))
    log.close(session)
    ingest, _ = run(log.entries)
    assert ingest.waiting
    assert ingest.account("s").missing == 3


PARTS = [
    heph_goodbye({"1": 2}, more=True, part=0),
    heph_goodbye({"2": 2}, more=True, part=1),
    heph_goodbye({"3": 2}, part=2),
]


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_goodbye_in_parts_is_one_once_all_parts_have_come(log, order):
    """The parts come in datagrams, twice each, and a checkpoint between two of them."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7, acknowledge=True) + events(0, 1)])
    ingest, _ = run(log.entries)
    for number in order:
        assert not any(answer["goodbye"] for _, answer in told(ingest))
        ingest = Ingest.restore(ingest.snapshot())
        before = len(log.entries)
        for _ in range(2):
            log.datagrams(session, [heph_session(7, acknowledge=True) + PARTS[number]])
        ingest, _ = run(log.entries[before:], ingest)
    assert [answer["goodbye"] for _, answer in told(ingest)] == [True]
    before = len(log.entries)
    log.tick(3)
    ingest, rows = run(log.entries[before:], ingest)
    assert attributes(of(rows, "session")[-1])["closed"] == "goodbye"
    assert not ingest.waiting


@pytest.mark.parametrize("lost", range(3))
def test_a_goodbye_that_lacks_a_part_is_none(log, lost):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7, acknowledge=True) + events(0, 1)])
    log.datagrams(session, [part for number, part in enumerate(PARTS) if number != lost])
    log.tick(3)
    log.close(session)
    log.tick(601)
    log.tick(0)
    ingest, rows = run(log.entries)
    assert attributes(of(rows, "session")[-1])["closed"] == "not resumed"
    assert ("session0", "", "truncated", None, 0) in gaps(rows)
    assert_conserved(ingest)


def test_what_is_sent_again_after_a_goodbye_was_known_is_not_stored_again(log):
    """The client did not hear that its end had arrived."""
    everything = events(*range(5)) + heph_goodbye({"1": 5})
    first = log.open()
    log.data(first, heph_session(7) + everything)
    log.close(first, "collector restart")
    log.tick(30)
    second = log.open()
    log.data(second, heph_session(7, turn=1, acknowledge=True) + everything)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(5))}
    assert ingest.account("s").duplicates == 5
    assert told(ingest)[0][1]["goodbye"]
    log.close(second)
    log.tick(601)
    log.tick(0)
    ingest, rows = run(log.entries)
    closes = [attributes(r)["closed"] for r in of(rows, "session") if r["name"] == "close"]
    assert closes == ["goodbye", f"resumes session{first}", "goodbye"]
    assert_conserved(ingest)


def test_a_goodbye_in_a_datagram_may_come_before_the_last_events(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7), events(0, 1), heph_goodbye({"1": 5, "3": 2})])
    log.datagrams(session, [events(3)])
    log.tick(1)
    assert "close" not in course(run(log.entries)[1])
    log.tick(1)
    ingest, rows = run(log.entries)
    assert course(rows)[-1] == "close"
    assert gaps(rows) == [
        ("session0", "1", "network", 2, 1),
        ("session0", "1", "network", 4, 1),
        ("session0", "3", "network", 0, 2),
    ]
    assert not ingest.waiting
    log.datagrams(session, [events(4, 5)])
    ingest, rows = run(log.entries)
    assert [row["seq"] for row in of(rows, "heal")] == [4]
    assert numbers(rows)["session0"][-2:] == [4, 5]
    assert ingest.account("s").missing == 3
    assert_conserved(ingest)


def test_what_the_kernel_dropped_of_a_tail_is_the_kernels(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7), events(*range(10))])
    log.drops(3)
    log.datagrams(session, [heph_goodbye({"1": 20})])
    log.tick(3)
    ingest, rows = run(log.entries)
    reasons = {name for _, _, name, _, _ in gaps(rows)}
    assert reasons == {"kernel"} or reasons == {"kernel", "network"}
    assert ingest.account("s").missing == 10
    assert sum(ingest.tally("s").gaps.values()) == 10


def test_discarded_events_are_the_senders_whenever_it_is_said(log):
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7), events(0), heph_report([1, 1, 4]), events(7)])
    ingest, rows = run(log.entries)
    assert gaps(rows) == []
    log.datagrams(session, [heph_report([1, 6, 9])])
    log.tick(3)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [
        ("session0", "1", "sender", 1, 4),
        ("session0", "1", "network", 5, 1),
        ("session0", "1", "sender", 6, 1),
    ]
    log.datagrams(session, [heph_report([1, 0, 100]), events(5, 2)])
    ingest, rows = run(log.entries)
    assert [(r["name"], r["seq"]) for r in of(rows, "heal")] == [
        ("network", 5), ("sender", 5), ("sender", 2),
    ]  # fmt: skip
    assert ingest.tally("s").gaps == {"sender": 6, "network": 1}
    assert ingest.account("s").missing == 4
    assert_conserved(ingest)


def test_a_report_alone_makes_nothing_missing_but_an_end_without_a_goodbye_does(log):
    session = log.open(limits=LedgerConfig(resume_time=Duration(5)))
    log.data(session, heph_session(7) + events(0) + heph_report([1, 1, 9], [2, 5, 5]))
    ingest, _ = run(log.entries)
    assert ingest.account("s").missing == 0
    log.close(session)
    log.tick(5)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [
        ("session0", "", "truncated", None, 0),
        ("session0", "1", "sender", 1, 9),
        ("session0", "2", "network", 0, 5),
        ("session0", "2", "sender", 5, 5),
    ]
    assert_conserved(ingest)


def test_a_goodbye_that_claims_what_cannot_be_is_a_gap_of_unknown_size(log):
    session = log.open()
    finals = {str(stream): 2**31 - 1 for stream in range(100)}
    log.data(session, heph_session(7) + heph_goodbye(finals, more=True) * 3)
    log.data(session, heph_goodbye({"1": 2**31, "2": 2**32 - 1, "3": 9}))
    log.close(session)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [
        ("session0", "0", "network", None, 0),
        ("session0", "3", "network", 0, 9),
    ]
    assert_conserved(ingest)


def test_two_connections_at_a_time_are_one_session(log):
    first, second = log.open(), log.open()
    log.data(first, heph_session(7) + events(0, 1))
    log.data(second, heph_session(7) + events(1, 2) + events(3)[:20])
    log.data(first, events(4)[:30])
    log.data(second, events(3)[20:])
    log.data(first, events(4)[30:] + b"noise")
    log.close(first)
    log.data(second, b"more noise" + events(5))
    log.close(second)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(6))}
    offsets = [row["offset"] for row in rows if row["session"] == "session0"]
    assert offsets == sorted(offsets)
    quarantined = [
        (attributes(row)["quarantine"], attributes(row).get("quarantine_of"))
        for row in of(rows, "gap")
    ]
    assert quarantined == [(0, None), (0, f"session{second}")]
    assert_conserved(ingest)


def test_events_that_overtake_the_announcement_from_another_address_count_for_the_session(log):
    """Their rows have been written under the connection's own name."""
    first, second = log.open(transport="udp"), log.open(transport="udp")
    log.datagrams(first, [heph_session(7), events(*range(10))])
    log.datagrams(second, [events(11), heph_session(7) + events(10)])
    log.datagrams(second, [events(12)])
    log.tick(3)
    ingest, rows = run(log.entries)
    assert numbers(rows) == {
        "session0": [*range(10), 10, 12],
        f"session{second}": [11],
    }
    assert gaps(rows) == []
    assert ingest.account("s").missing == 0
    assert ingest.account("s").expected == 13
    assert_conserved(ingest)


def test_those_that_left_first_are_forgotten_first(log):
    limits = LedgerConfig(sessions_max=3)
    for number in range(6):
        session = log.open(limits=limits)
        log.data(session, heph_session(number) + events(0))
        log.close(session)
    ingest, rows = run(log.entries)
    assert [int(id_, 16) for id_ in ingest.state.announced["s"]] == [3, 4, 5]
    closes = [attributes(r)["closed"] for r in of(rows, "session") if r["name"] == "close"]
    assert closes == ["too many sessions"] * 3
    assert_conserved(ingest)


def test_a_flood_of_announcements_costs_its_rows_and_no_more(log):
    session = log.open(transport="udp", limits=LedgerConfig(sessions_max=4))
    for number in range(100):
        log.datagrams(session, [heph_session(number), events(0)])
    log.tick(3)
    ingest, rows = run(log.entries)
    assert len(ingest.state.announced["s"]) <= 4 + 2
    assert len(rows) <= 5 * 100 + 2
    assert_conserved(ingest)


def test_a_session_that_is_away_gives_way_to_streams_of_others(log):
    limits = LedgerConfig(source_streams_max=2)
    first, second = log.open(limits=limits), log.open(limits=limits)
    log.data(first, heph_session(7) + events(0) + events(0, stream=2))
    log.data(second, heph_session(8) + events(0))
    log.close(first)
    log.data(second, events(1, 3, stream=5))
    ingest, rows = run(log.entries)
    assert ingest.account("s").uncounted == 0
    assert ingest.account("s").missing == 1 + 1
    assert [attributes(r).get("detail") for r in of(rows, "gap") if not attributes(r)["count"]] == [
        "source_streams_max",
        "no_goodbye",
    ]
    closes = [attributes(r)["closed"] for r in of(rows, "session") if r["name"] == "close"]
    assert closes == ["too many streams"]
    assert ingest.common("s").state.streams == 2
    assert_conserved(ingest)


def test_a_session_of_a_file_is_over_with_it(log):
    session = log.open_file("heph")
    data = heph_session(7) + events(0, 2)
    log.data(session, data)
    log.close(session, "deleted")
    ingest, rows = run(log.entries)
    close = attributes(of(rows, "session")[-1])
    assert (close["closed"], close["file"]["size"]) == ("deleted", len(data))
    assert not ingest.waiting
    assert_conserved(ingest)


def test_clients_that_followed_one_another_in_a_file_are_over_with_it(log):
    session = log.open_file("heph")
    first, second = heph_session(7) + events(0, 1), heph_session(8) + events(0)
    log.data(session, first)
    log.data(session, second + heph_goodbye({"1": 1}))
    log.close(session)
    ingest, rows = run(log.entries)
    closes = [
        (r["session"], attributes(r)["closed"]) for r in of(rows, "session") if r["name"] == "close"
    ]
    assert closes == [("session0", "restart: session"), ("session0.1", "goodbye")]
    assert [(r["session"], attributes(r)["detail"]) for r in of(rows, "gap")] == [
        ("session0", "no_goodbye")
    ]
    assert_conserved(ingest)
    assert_replays(log.entries)


def test_a_client_that_asks_is_told_what_is_durable(log):
    session = log.open()
    log.data(session, heph_session(7, acknowledge=True) + events(0, 1, 2) + events(0, stream=2))
    ingest, _ = run(log.entries)
    answer = {"session": f"{7:032x}", "turn": 0, "streams": {"1": 3, "2": 1}, "holes": []}
    assert told(ingest) == [(session, answer | {"goodbye": False})]
    assert told(ingest) == []
    ingest, _ = run_more(ingest, log, lambda: log.data(session, events(3)))
    assert told(ingest) == [(session, answer | {"streams": {"1": 4}, "goodbye": False})]
    ingest, _ = run_more(ingest, log, lambda: log.data(session, heph_goodbye({"1": 4, "2": 1})))
    ((_, last),) = told(ingest)
    assert last["goodbye"]
    assert all(last["streams"][s] == n for s, n in last["streams"].items())


def run_more(ingest, log, act):
    """Go on with what `act` adds to the log."""
    before = len(log.entries)
    act()
    return run(log.entries[before:], ingest)


def test_who_did_not_ask_is_told_nothing(log):
    log.data(log.open(), heph_session(7) + events(0))
    log.data(log.open(), events(0))
    assert told(run(log.entries)[0]) == []


def test_a_new_turn_and_a_restart_of_the_collector_bring_a_full_answer(log):
    session = log.open()
    log.data(session, heph_session(7, acknowledge=True) + events(0, 1) + events(0, stream=2))
    ingest, _ = run(log.entries)
    told(ingest)
    again = heph_session(7, turn=0, acknowledge=True)
    ingest, _ = run_more(ingest, log, lambda: log.data(session, again))
    assert [answer["streams"] for _, answer in told(ingest)] == [{}]
    asked = heph_session(7, turn=4, acknowledge=True)
    ingest, _ = run_more(ingest, log, lambda: log.data(session, asked))
    ((_, answer),) = told(ingest)
    assert (answer["turn"], answer["streams"]) == (4, {"1": 2, "2": 1})
    ((_, answer),) = told(Ingest.restore(ingest.snapshot()))
    assert (answer["turn"], answer["streams"]) == (4, {"1": 2, "2": 1})


def test_answers_go_to_the_connection_that_announced_last(log):
    first, second = log.open(), log.open()
    log.data(first, heph_session(7, acknowledge=True) + events(0))
    log.data(second, heph_session(7, turn=1, acknowledge=True) + events(1))
    log.data(first, events(2))
    ingest, _ = run(log.entries)
    assert [(number, answer["streams"]) for number, answer in told(ingest)] == [(second, {"1": 3})]
    ingest, _ = run_more(ingest, log, lambda: log.close(second))
    assert told(ingest) == []
    log.data(first, heph_session(8, acknowledge=True) + events(0))
    ingest, _ = run(log.entries)
    assert {answer["session"] for number, answer in told(ingest)} == {f"{8:032x}"}


@pytest.mark.parametrize("open_", [True, False], ids=["hole", "gap"])
def test_a_hole_is_no_older_for_the_time_that_nobody_ran(log, open_):
    session = log.open(transport="udp", limits=LedgerConfig(resume_time=Duration(10)))
    log.datagrams(session, [heph_session(7, acknowledge=True) + events(0, 3)])
    log.tick(1 if open_ else 6)
    for _ in range(2):
        log.now += 30 * SECOND
        log.add(EntryKind.START)
        log.tick(0.1)
    log.datagrams(session, [heph_session(7, acknowledge=True, turn=1)])
    ingest, rows = run(log.entries)
    assert len(gaps(rows)) == (not open_)
    ((_, answer),) = told(ingest)
    assert (answer["streams"], answer["holes"]) == ({"1": 4}, [[1, 1, 2]])
    before = len(log.entries)
    log.tick(10)
    log.datagrams(session, [heph_session(7, acknowledge=True, turn=2)])
    run(log.entries[before:], ingest)
    ((_, answer),) = told(ingest)
    assert (answer["streams"], answer["holes"]) == ({"1": 4}, [])


def test_holes_are_named_while_they_are_worth_asking_for(log):
    limits = LedgerConfig(reorder_events=16, resume_time=Duration(10))
    session = log.open(transport="udp", limits=limits)
    log.datagrams(
        session, [heph_session(7, acknowledge=True), events(0, 3), heph_report([1, 4, 2])]
    )
    log.datagrams(session, [events(6, 8)])
    ingest, _ = run(log.entries)
    ((_, answer),) = told(ingest)
    assert (answer["streams"], answer["holes"]) == ({"1": 9}, [[1, 1, 2], [1, 7, 1]])
    log.datagrams(session, [events(*range(9, 100))])
    ingest, rows = run(log.entries)
    assert len(gaps(rows)) == 3
    ((_, answer),) = told(ingest)
    assert (answer["streams"], answer["holes"]) == ({"1": 100}, [[1, 1, 2], [1, 7, 1]])
    log.tick(9)
    log.datagrams(session, [events(100)])
    ((_, answer),) = told(run(log.entries)[0])
    assert (answer["streams"], answer["holes"]) == ({"1": 101}, [[1, 1, 2], [1, 7, 1]])
    log.tick(2)
    log.datagrams(session, [events(101)])
    ((_, answer),) = told(run(log.entries)[0])
    assert (answer["streams"], answer["holes"]) == ({"1": 102}, [])


def test_what_is_told_by_each_answer_alone_is_true(log):
    """More streams and holes than fit: a number never passes a hole that is not named beside it."""
    session = log.open(transport="udp")
    log.datagrams(session, [heph_session(7, acknowledge=True)])
    for stream in range(100):
        wanted = range(0, 60 if stream % 7 == 0 else 3, 1 if stream % 2 else 2)
        log.datagrams(session, [heph_event(2**32 - 1 - stream, n) for n in wanted])
    log.now += SECOND
    ingest, _ = run(log.entries)
    (counters,) = [
        known.incarnation.counters for known in ingest.shared.announced["s"]._known.values()
    ]
    answers = told(ingest)
    asked = 0
    for _, answer in answers:
        asked += len(answer["holes"])
        for stream, number in answer["streams"].items():
            named = {
                first + n
                for of_stream, first, count in answer["holes"]
                if of_stream == int(stream)
                for n in range(count)
            }
            followed = counters.state.streams[stream]
            assert {n for n in range(number) if followed.lacks(n)} == named
    assert asked == 64
    assert {s for _, answer in answers for s in answer["streams"]} == set(counters.state.streams)


def test_the_time_that_the_collector_was_away_is_not_held_against_a_client(log):
    session = log.open(limits=LedgerConfig(resume_time=Duration(60)))
    log.data(session, heph_session(7) + events(*range(5)))
    log.close(session, "stop")
    log.stop()
    log.now += 3600 * SECOND
    log.add(EntryKind.START, 0, b"1.2.3")
    log.tick(1)
    again = log.open()
    log.data(again, heph_session(7, turn=1) + events(*range(3, 9)))
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": list(range(9))}
    assert ingest.account("s").missing == 0


def test_a_collector_that_restarts_often_waits_for_a_client_no_longer(log):
    session = log.open(limits=LedgerConfig(resume_time=Duration(60)))
    log.data(session, heph_session(7) + events(*range(5)))
    log.close(session, "stop")
    for _ in range(4):
        log.now += 3600 * SECOND
        log.add(EntryKind.START)
        log.tick(20)
    _, rows = run(log.entries)
    assert attributes(of(rows, "session")[-1])["closed"] == "not resumed"


def test_a_session_that_is_away_takes_little_memory(log):
    session = log.open()
    log.data(session, heph_session(7) + b"".join(events(n // 9, stream=n % 9) for n in range(9000)))
    log.close(session)
    ingest, _ = run(log.entries)
    assert len(ingest.snapshot()) < 4000


def closes(rows):
    return [
        (row["session"], attributes(row)["closed"], row["time"] // SECOND)
        for row in of(rows, "session")
        if row["name"] == "close"
    ]


def test_a_session_that_is_gone_on_with_too_late_is_over_then_and_another_begins(log):
    limits = LedgerConfig(resume_time=Duration(60))
    begun = log.now // SECOND
    first = log.open(limits=limits)
    log.data(first, heph_session(7) + events(0, 1))
    log.close(first)
    log.now += 60 * SECOND
    second = log.open(limits=limits)
    log.data(second, heph_session(7, turn=1) + events(2, 3))
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 1], f"session{second}": [2, 3]}
    assert closes(rows) == [("session0", "not resumed", begun + 60)]
    assert_conserved(ingest)


def test_sessions_that_wait_end_with_the_last_collector(log):
    begun = log.now // SECOND
    first, second = log.open(), log.open()
    log.data(first, heph_session(7) + events(0, 2))
    log.close(first)
    log.data(second, heph_session(8) + events(0))
    log.now += 5 * SECOND
    log.stop(LAST)
    ingest, rows = run(log.entries)
    assert sorted(closes(rows)) == [
        ("session0", "collector ended", begun + 5),
        (f"session{second}", "collector ended", begun + 5),
    ]
    assert_conserved(ingest)


def test_too_many_sessions_end_with_the_one_that_left_first(log):
    limits = LedgerConfig(sessions_max=2)
    begun = log.now // SECOND
    for id_ in range(4):
        number = log.open(limits=limits)
        log.data(number, heph_session(id_) + events(0))
        log.now += SECOND
        log.close(number)
    _, rows = run(log.entries)
    assert [(why, when) for _, why, when in closes(rows)] == [
        ("too many sessions", begun + 3), ("too many sessions", begun + 4),
    ]  # fmt: skip
    assert closes(rows)[0][0] == "session0"


def test_a_connection_that_is_new_asks_for_all_streams(log):
    first = log.open()
    log.data(first, heph_session(7, acknowledge=True) + events(0) + events(0, stream=2))
    ingest, _ = run(log.entries)
    assert told(ingest)[0][1]["streams"] == {"1": 1, "2": 1}
    assert told(ingest) == []
    before = len(log.entries)
    second = log.open()
    log.data(second, heph_session(7, acknowledge=True))
    run(log.entries[before:], ingest)
    ((number, answer),) = told(ingest)
    assert (number, answer["streams"]) == (second, {"1": 1, "2": 1})


def test_late_words_by_a_connection_that_has_moved_on_leave_answers_with_the_other(log):
    """The connection's late announcement says who sent what came with it, not who wants answers."""
    first, second = log.open(transport="udp"), log.open(transport="udp")
    log.datagrams(first, [heph_session(7, acknowledge=True) + events(0)])
    log.datagrams(second, [heph_session(7, turn=1, acknowledge=True) + events(1)])
    log.datagrams(first, [heph_session(8) + events(0)])
    log.datagrams(first, [heph_session(7, acknowledge=True) + events(2)])
    ingest, rows = run(log.entries)
    assert numbers(rows) == {"session0": [0, 1, 2], "session0.1": [0]}
    assert [(number, answer["streams"]) for number, answer in told(ingest)] == [(second, {"1": 3})]


def test_places_do_not_depend_on_where_the_bytes_are_cut():
    data = heph_session(7) + events(0, 1, 2)
    whole = [place * len(events(0)) + len(heph_session(7)) for place in range(3)]
    for cut in range(1, len(data)):
        log = Log()
        session = log.open()
        log.data(session, data[:cut])
        log.data(session, data[cut:])
        _, rows = run(log.entries)
        assert [row["offset"] for row in of(rows, "span")] == whole


def test_a_doubt_that_ends_well_leaves_no_gap(log):
    """The run in doubt was never one of its own: nobody misses its goodbye."""
    peer = log.open(transport="udp")
    log.datagrams(peer, [events(*range(20))])
    log.datagrams(peer, [EPOCH + SESSION])
    log.datagrams(peer, [events(20)])
    ingest, rows = run(log.entries)
    assert course(rows, "session0.1")[-1] == "close"
    assert gaps(rows) == []
    assert told(ingest)[0][1]["streams"] == {"1": 21}


def test_holes_that_open_after_the_end_are_gaps_when_the_session_is_forgotten(log):
    limits = LedgerConfig(sessions_max=1)
    peer, other = log.open(transport="udp", limits=limits), log.open(limits=limits)
    log.datagrams(peer, [heph_session(7) + events(0, 1), heph_goodbye({"1": 2})])
    log.data(other, heph_session(8) + events(0))
    log.tick(3)
    log.datagrams(peer, [events(4, 7)])
    log.close(peer)
    _, rows = run(log.entries)
    assert [row["session"] for row in of(rows, "session") if row["name"] == "close"] == ["session0"]
    assert gaps(rows) == []
    log.close(other)
    ingest, rows = run(log.entries)
    assert gaps(rows) == [
        ("session0", "1", "network", 2, 2),
        ("session0", "1", "network", 5, 2),
    ]
    assert [int(id_, 16) for id_ in ingest.state.announced["s"]] == [8]
    assert_conserved(ingest)


FULL = {"discarded": {"full": 30}}


def in_words(rows, kind="gap"):
    return [
        (row["name"], row["stream"], row["seq"], attributes(row)["count"], attributes(row).get("detail"))
        for row in of(rows, kind)
    ]  # fmt: skip


def test_no_client_makes_the_collector_count_more_than_it_can_write(log):
    """A heartbeat has room for 64 bits, and its loop would end the daemon."""
    for number in range(3):
        session = log.open(peer=f"127.0.0.1:{number}")
        full = {"discarded": {"full": 2**63 - 1}}
        log.data(session, heph_session(number + 1) + heph_option("tailrace.report", full))
    ingest, _ = run(log.entries)
    assert ingest.account("s").missing < 2**33
    log.tick(3)
    ingest, rows = run(log.entries)
    assert [each[3] for each in in_words(rows)] == [0, 0, 0], "of unknown size"
    assert ingest.account("s").missing < 2**33


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_events_that_the_client_discards_without_a_number_are_missing(log, transport):
    """Events of a thread for which the client has no stream have no numbers."""
    session = log.open(transport=transport)
    data = heph_epoch(9) + heph_session(7) + events(0, 1, 2) + heph_goodbye({1: 3}, **FULL)
    log.datagrams(session, [data]) if transport == "udp" else log.data(session, data)
    open_, _ = run(log.entries)
    assert (open_.account("s").missing, list(open_.awaited("s"))) == (30, [("session0", "", 30)])
    log.tick(3)
    log.close(session)
    ingest, rows = run(log.entries)
    assert in_words(rows) == [("sender", "", None, 30, "unnumbered")]
    assert (ingest.account("s").expected, ingest.account("s").missing) == (33, 30)
    assert_conserved(ingest)
    assert_replays(log.entries, 1, 2)


def test_numbers_that_did_not_come_show_what_the_client_discarded(log):
    session = log.open()
    log.data(session, heph_epoch(9) + heph_session(7) + events(0) + heph_report([1, 1, 5]))
    log.data(
        session, events(6, 9) + heph_goodbye({1: 12, 2: 1}, discarded={"full": 6, "nested": 3})
    )
    log.close(session)
    ingest, rows = run(log.entries)
    assert ingest.account("s").missing == 10  # 1 to 5, 7, 8, 10 and 11, and the other stream's 0
    assert not [row for row in in_words(rows) if row[-1] == "unnumbered"]
    assert_conserved(ingest)


def test_events_that_were_sent_and_lost_are_no_events_without_numbers(log):
    session = log.open()
    said = {"lost": 4, "given_up": 4, "refused": 4, "uncounted": 4, "full": 0}
    log.data(session, heph_epoch(9) + heph_session(7) + events(0))
    log.data(session, heph_goodbye({1: 1}, discarded=said))
    log.close(session)
    _, rows = run(log.entries)
    assert in_words(rows) == []


@pytest.mark.parametrize("how", ["tick", "stop"])
def test_what_is_missing_without_numbers_is_healed_when_numbers_show_it(log, how):
    """The client's count of discarded events arrives before an event shows their numbers."""
    session = log.open()
    log.data(session, heph_epoch(9) + heph_session(7) + events(0))
    log.data(session, heph_option("tailrace.report", FULL))
    log.tick(1) if how == "tick" else log.add(EntryKind.STOP)
    _, rows = run(log.entries)
    assert in_words(rows) == [("sender", "", None, 30, "unnumbered")]
    if how == "stop":
        log.add(EntryKind.START)
    log.data(session, heph_report([1, 1, 20]) + events(21) + heph_goodbye({1: 22}, **FULL))
    log.close(session)
    ingest, rows = run(log.entries)
    assert sorted(in_words(rows), key=str) == [
        ("sender", "", None, 30, "unnumbered"),
        ("sender", "1", 1, 20, None),
    ]
    assert in_words(rows, "heal") == [("sender", "", None, 20, "unnumbered")]
    assert ingest.account("s").missing == 30
    assert_conserved(ingest)
    assert_replays(log.entries, *range(1, len(log.entries)))


@pytest.mark.parametrize("shown_by", ["event", "goodbye"])
def test_numbers_show_what_was_discarded_beside_streams_that_are_not_followed(log, shown_by):
    """A stream that finds no place stands between the gap without a number and the numbers that show its events."""
    session = log.open(limits=LedgerConfig(streams_max=1))
    log.data(session, heph_epoch(9) + heph_session(7) + events(0) + heph_report([1, 1, 20], **FULL))
    log.tick(1)
    log.data(session, events(0, stream=2))
    if shown_by == "event":
        log.data(session, events(21))
    log.data(session, heph_goodbye({1: 21 + (shown_by == "event"), 2: 1}, **FULL))
    log.close(session)
    ingest, rows = run(log.entries)
    assert sorted(in_words(rows), key=str) == [
        ("sender", "", None, 30, "unnumbered"),
        ("sender", "1", 1, 20, None),
        ("uncounted", "2", None, 0, "streams_max"),
    ]
    assert in_words(rows, "heal") == [("sender", "", None, 20, "unnumbered")]
    assert ingest.account("s").missing == 30
    assert_conserved(ingest)
    assert_replays(log.entries, *range(1, len(log.entries)))


def test_without_a_goodbye_an_unknown_number_is_missing_besides_the_numbers(log):
    """The client may have reported its discarded events by number to another collector."""
    session = log.open()
    log.data(session, heph_epoch(9) + heph_session(7) + events(0))
    log.data(session, heph_option("tailrace.report", FULL))
    log.tick(1)
    ingest, rows = run(log.entries)
    assert in_words(rows) == [("sender", "", None, 30, "unnumbered")]
    assert (ingest.account("s").missing, list(ingest.awaited("s"))) == (30, [])
    log.close(session, "reset")
    log.now += 3600 * SECOND
    log.add(EntryKind.TICK)
    ingest, rows = run(log.entries)
    assert in_words(rows)[1:] == [("truncated", "", None, 0, "no_goodbye")]
    assert in_words(rows, "heal") == [("sender", "", None, 30, "unnumbered")]
    assert (ingest.account("s").missing, list(ingest.awaited("s"))) == (0, [])
    assert_conserved(ingest)
    assert_replays(log.entries, *range(1, len(log.entries)))


@pytest.mark.parametrize("streams", [1, 64])
def test_of_streams_that_are_not_followed_an_unknown_number_is_missing(log, streams):
    """The discarded events may have numbers in streams that are not followed."""
    session = log.open(limits=LedgerConfig(streams_max=8))
    log.data(session, heph_epoch(9) + heph_session(7) + events(0))
    log.data(session, b"".join(events(0, stream=n) for n in range(2, streams + 1)))
    log.data(session, heph_goodbye(dict.fromkeys(range(1, streams + 1), 1), **FULL))
    log.close(session)
    _, rows = run(log.entries)
    words = in_words(rows)
    assert (("sender", "", None, 30, "unnumbered") in words) == (streams == 1)
    assert any(reason == "uncounted" for reason, *_ in words) == (streams > 1)


def test_a_client_that_claims_more_than_is_believed_lacks_an_unknown_number(log):
    session = log.open()
    log.data(session, heph_epoch(9) + heph_session(7) + events(0))
    log.data(session, heph_goodbye({1: 1}, discarded={"full": 2**63 - 1, "nested": 2**63 - 1}))
    log.close(session)
    ingest, rows = run(log.entries)
    assert in_words(rows) == [("network", "", None, 0, "goodbye")]
    assert ingest.account("s").missing == 0
    assert_conserved(ingest)
