"""State that producers make grow is bounded in bytes: a session's, a source's, and all; what is given up
is said; sessions that hold little lose nothing; and a replay gives up the same."""

from __future__ import annotations

import gc
import json
import tracemalloc
from itertools import count

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.units import Duration, Size
from tests.ingest.log import Log, heph_event, heph_report, heph_session, rows, run
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

KIB, MIB = 2**10, 2**20
SMALL = LedgerConfig(
    session_state_max=Size(64 * KIB), source_state_max=Size(160 * KIB), state_max=Size(256 * KIB),
    reorder_time=Duration(2),
)  # fmt: skip
HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'


def begin(id_, name="work", parent=None):
    line = {"type": "record", "id": id_, "clk": id_, "name": name, "record_type": "task"}
    return json.dumps(line | ({"parent_id": parent} if parent else {})).encode() + b"\n"


def end(id_):
    return json.dumps({"type": "record_end", "record_id": id_, "clk": id_ + 5}).encode() + b"\n"


# Attacks: a format, and bytes for a round, which go on from those before.


def long_names(round_):
    return HEADER * (not round_) + b"".join(
        begin(100 * round_ + n, f"{n}" + "n" * 5000) for n in range(1, 20)
    )


def names_beyond_latin(round_):
    return b"".join(begin(100 * round_ + n, f"{n}" + "\U0001f600" * 900) for n in range(1, 20))


def never_ended(round_):
    return b"".join(begin(1000 * round_ + n) for n in range(1, 200))


def orphans(round_):
    return b"".join(end(10**6 + 7 * (1000 * round_ + n)) for n in range(1, 200))


def scattered_ids(round_):
    ids = [2 * (1000 * round_ + n) for n in range(1, 400)]
    return b"".join(begin(id_) + end(id_) for id_ in ids)


def jumping_counters(round_):
    return b"".join(heph_event(n % 40, 10 * (100 * round_ + n)) for n in range(100))


def many_streams(round_):
    return b"".join(heph_event(s, 10 * round_ + n) for s in range(40) for n in range(10))


def discarded_ahead(round_):
    return b"".join(
        heph_event(100 * round_ + s, 0) + heph_report([100 * round_ + s, 5, 1]) for s in range(60)
    )


def deep_stacks(round_):
    return b"".join(b"M %d 1 %d\n" % (n, 2**30 + n % 7) for n in range(1000, 1400))


def passed_over(round_):
    lines = [b"M %d 1 7\n" % (100 * round_ + n) for n in range(90)]
    return b"".join([b"M 1 1 7\n", *lines, b"E 1 7\n"])


def hashes(round_):
    line = b'{"id":%d,"name":"FH","cat":"dftracer","pid":1,"tid":1,"ts":1,"dur":0,"ph":"M","args":{"name":"%s%d","value":"%d"}}\n'
    return b"".join(
        line % (100 * round_ + n + 1, b"/a" * 400, 100 * round_ + n, 100 * round_ + n)
        for n in range(50)
    )


def holes_of_a_file(round_):
    line = b'{"id":%d,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":%d,"dur":1,"ph":"X","args":{"level":1}}\n'
    return b"".join(line % (3 * (200 * round_ + n) + 1, n) for n in range(200))


def processes_of_a_file(round_):
    """New ones, and in between those of the first round again."""
    line = b'{"id":%d,"name":"%s","cat":"dftracer","pid":%d,"tid":1,"ts":%d,"dur":1,"ph":1,"args":{"hhash":"%016d"}}\n'
    return b"".join(
        line % (1, b"start", 20 * round_ + n, n, n) + line % (round_ + 2, b"read", n, n, n)
        for n in range(20)
    )


ATTACKS = {
    "long_names": ("jets", long_names),
    "names_beyond_latin": ("jets", names_beyond_latin),
    "never_ended": ("jets", never_ended),
    "orphans": ("jets", orphans),
    "scattered_ids": ("jets", scattered_ids),
    "jumping_counters": ("heph", jumping_counters),
    "many_streams": ("heph", many_streams),
    "discarded_ahead": ("heph", discarded_ahead),
    "deep_stacks": ("et3", deep_stacks),
    "passed_over": ("et3", passed_over),
    "hashes": ("dftracer", hashes),
    "holes_of_a_file": ("dftracer", holes_of_a_file),
    "processes_of_a_file": ("dftracer", processes_of_a_file),
}


def held(ingest):
    """Return what all sessions hold, looked at anew."""
    holders = [*ingest._sessions.values()]
    holders += [
        known for each in ingest.shared.announced.values() for known in each._known.values()
    ]
    return sum(holding.held for holder in holders for holding in holder.holdings)


def attack(format_, round_of, *, limits, sessions=1, rounds=10):
    log = Log()
    numbers = [log.open(format_, limits=limits, peer=f"10.0.0.{n}:5") for n in range(sessions)]
    for round_ in range(rounds):
        for number in numbers:
            log.data(number, round_of(round_))
        if round_ % 5 == 4:
            log.tick(0.1)
    for number in numbers:
        log.close(number)
    return log.entries


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("sessions", [1, 6])
def test_what_sessions_hold_is_bounded_after_every_entry_and_giving_way_is_said(name, sessions):
    format_, round_of = ATTACKS[name]
    entries = attack(format_, round_of, limits=SMALL, sessions=sessions)
    ingest = Ingest()
    for entry in entries:
        ingest.apply(entry)
        assert ingest.budget.total == held(ingest)
        assert ingest.budget.total == sum(ingest.budget.sources.values())
        assert ingest.budget.total <= SMALL.source_state_max
        assert all(size <= SMALL.session_state_max for size in ingest.budget._held.values())
    assert_conserved(ingest)
    evicted = ingest.tally("s").evicted
    assert sum(evicted.values()) > 0
    told = [attributes(r)["evicted"] for r in rows(ingest.batch) if r["name"] == "evicted"]
    assert {kind: sum(each.get(kind, 0) for each in told) for kind in evicted} == evicted
    assert ingest.budget.total == held(ingest) == 0


@pytest.mark.parametrize("name", list(ATTACKS))
def test_a_replay_gives_up_the_same(name):
    format_, round_of = ATTACKS[name]
    entries = attack(format_, round_of, limits=SMALL, sessions=3, rounds=8)
    assert_replays(entries, *range(4, len(entries), 9))


@pytest.mark.parametrize("name", list(ATTACKS))
def test_nothing_takes_more_memory_than_it_is_said_to(name):
    """Return what the interpreter counts, without what sessions take that hold nothing."""
    format_, round_of = ATTACKS[name]
    large = LedgerConfig(reorder_events=512)
    log = Log()
    number = log.open(format_, limits=large)
    empty = Log()
    empty.open(format_, limits=large)
    rounds = [round_of(round_) for round_ in range(30)]
    for data in rounds:
        log.data(number, data)
    entries = log.entries
    Ingest().apply(entries[0])
    # Things that decoders share are there before.
    for entry in entries[:3]:
        Ingest().apply(entry)
    tracemalloc.start()
    try:
        ingest = Ingest()
        ingest.apply(entries[0])
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for entry in entries[1:]:
            ingest.apply(entry)
            ingest.batch.take()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    streams = ingest.common("s").state.streams
    assert taken <= held(ingest) + 768 * streams + 64 * KIB
    assert len(ingest.snapshot()) <= held(ingest) + 768 * streams + 64 * KIB


def test_the_heaviest_gives_way_and_not_the_honest_one():
    """Five sessions together hold too much; the session with few spans keeps them all."""
    log = Log()
    honest = log.open("jets", limits=SMALL)
    log.data(honest, HEADER + b"".join(begin(n, f"step {n}") for n in range(1, 11)))
    attackers = [log.open("jets", limits=SMALL, peer=f"10.0.0.{n}:5") for n in range(5)]
    for round_ in range(30):
        for number in attackers:
            log.data(number, long_names(round_))
    log.data(honest, b"".join(end(n) for n in range(1, 11)))
    _, table = run(log.entries)
    spans = [r for r in of(table, "span") if r["session"] == f"session{honest}"]
    assert [r["name"] for r in spans] == [f"step {n}" for n in range(1, 11)]
    told = {r["session"] for r in table if r["name"] == "evicted"}
    assert told == {f"session{number}" for number in attackers}


def test_an_end_whose_begin_was_given_up_is_a_row_that_says_so():
    log = Log()
    number = log.open("jets", limits=SMALL)
    log.data(number, HEADER)
    for id_ in range(1, 301):
        log.data(number, begin(id_, "n" * 900))
    log.data(number, b"".join(end(id_) for id_ in range(1, 301)))
    log.close(number)
    ingest, table = run(log.entries)
    ends = of(table, "end")
    assert ends
    assert {attributes(r)["$flaw"] for r in ends} == {"begin_forgotten"}
    given_up = ingest.tally("s").evicted["spans"]
    assert len(ends) == given_up
    assert len(of(table, "span")) == 300 - given_up
    (closed,) = [attributes(r) for r in table if r["name"] == "close"]
    assert closed["forgotten_spans"] == given_up
    assert_conserved(ingest)


def test_a_long_name_of_an_open_span_is_kept_whole():
    log = Log()
    number = log.open("jets")
    names = ["n" * 2000 + str(n) for n in range(3)]
    log.data(number, HEADER + b"".join(begin(n, name) for n, name in enumerate(names, 1)))
    log.data(number, b"".join(end(n) for n in range(1, 4)))
    _, table = run(log.entries)
    assert [r["name"] for r in of(table, "span")] == names


def test_announced_sessions_are_bounded_as_well():
    log = Log()
    numbers = count(1)
    for peer in range(4):
        number = log.open("heph", limits=SMALL, peer=f"10.0.0.{peer}:5")
        for round_ in range(10):
            data = heph_session(next(numbers)) + jumping_counters(round_)
            log.data(number, data)
    ingest = Ingest()
    for entry in log.entries:
        ingest.apply(entry)
        assert ingest.budget.total == held(ingest) <= SMALL.source_state_max
    assert ingest.tally("s").evicted["gaps"]
    assert_conserved(ingest)
    assert_replays(log.entries, len(log.entries) // 2)
