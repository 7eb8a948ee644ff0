"""Clients without any sense: whatever they announce, report and take leave of, on whichever connections,
the ledger balances, stays bounded and replays."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import EntryKind
from tailrace.units import Duration
from tests.forms import examples
from tests.ingest.log import (
    SECOND,
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_report,
    heph_session,
    rows,
    run,
)
from tests.ingest.test_announced import told
from tests.ingest.test_machine import assert_conserved, attributes, of

LIMITS = LedgerConfig(
    reorder_events=16, reorder_time=Duration(2), resume_time=Duration(6), sessions_max=2,
    streams_max=3, holes_max=4, gap_rows_max=3, source_streams_max=5, source_holes_max=12,
)  # fmt: skip
NUMBERS = [0, 1, 2, 5, 15, 16, 17, 64, 200, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]


def wild(seed):
    rng = random.Random(seed)
    log = Log()
    open_ = {}
    count = 0
    ids = rng.randrange(1, 5)

    def number():
        return rng.choice(NUMBERS) if rng.random() < 0.2 else max(count + rng.randrange(-20, 20), 0)

    def packet():
        nonlocal count
        what = rng.random()
        if what < 0.08:
            turn = rng.randrange(3)
            return heph_session(rng.randrange(ids), turn=turn, acknowledge=rng.random() < 0.7)
        if what < 0.12:
            return heph_epoch(rng.choice([1, 10**18, 2 * 10**18]))
        if what < 0.2:
            ranges = [[rng.randrange(4), number(), rng.choice([1, 3, 2**32 - 1])] for _ in range(3)]
            return heph_report(*ranges[: rng.randrange(4)])
        if what < 0.24:
            finals = {str(rng.randrange(4)): number() for _ in range(rng.randrange(4))}
            return heph_goodbye(finals, more=rng.random() < 0.5)
        if what < 0.26:
            return rng.randbytes(rng.randrange(1, 60))
        wanted = number() if rng.random() < 0.2 else (count := count + rng.choice([0, 1, 1, 1, 3]))
        return heph_event(rng.randrange(4), wanted, start=1000 * wanted)

    for _ in range(rng.randrange(1, 80)):
        log.now += rng.choice([0, SECOND // 10, SECOND])
        what = rng.random()
        if not open_ or (what < 0.15 and len(open_) < 4):
            transport = rng.choice(["udp", "tcp"])
            open_[log.open(transport=transport, limits=LIMITS)] = transport
            continue
        session = rng.choice(list(open_))
        packets = [packet() for _ in range(rng.randrange(1, 12))]
        if what < 0.25:
            log.close(session)
            del open_[session]
        elif what < 0.35:
            log.tick(rng.random() * 4)
        elif what < 0.38:
            log.stop()
        elif what < 0.42:
            log.drops(rng.randrange(1, 9), since=log.now - rng.randrange(SECOND))
        elif open_[session] == "udp":
            log.datagrams(session, packets)
        else:
            data = b"".join(packets)
            at = rng.randrange(len(data))
            log.data(session, data[:at])
            log.data(session, data[at:])
    return log.entries


def runs_of(ingest):
    runs = {
        id(one): one
        for session in ingest._sessions.values()
        for one in (session.generations.current, session.generations.previous)
        if one
    }
    for known in ingest.shared.announced["s"]._known.values():
        runs[id(known.incarnation)] = known.incarnation
    return list(runs.values())


def check_carriers(ingest):
    """A carrier of an announced session has it for its run, or had it before."""
    carried = Counter(
        (one.state.id, number)
        for number, session in ingest._sessions.items()
        for one in (session.generations.current, session.generations.previous)
        if one and one.state.id
    )
    for id_, known in ingest.shared.announced["s"]._known.items():
        assert len(set(known.state.carriers)) == len(known.state.carriers)
        for number in known.state.carriers:
            assert carried.pop((id_, number)) == 1
        voice = known.state.voice
        assert voice is None or ingest._sessions[voice].generations.current is known.incarnation
    assert not carried


@examples(150)
@given(st.integers(0, 2**32))
@example(156083)
@example(73980)
def test_the_ledger_balances_and_is_bounded_after_every_entry(seed):
    ingest = Ingest()
    for entry in wild(seed):
        ingest.apply(entry)
        assert_conserved(ingest)
        check_carriers(ingest)
        commons = ingest.common("s")
        streams = [s for one in runs_of(ingest) for s in one.state.counters.streams.values()]
        assert commons.state.streams == len(streams) <= LIMITS.source_streams_max
        assert commons.state.ranges == sum(stream.ranges for stream in streams)
        assert commons.state.ranges <= LIMITS.source_holes_max + len(streams)
        away = [k for k in ingest.state.announced.get("s", {}).values() if not k.carriers]
        assert len(away) <= LIMITS.sessions_max
        for number, answer in told(ingest):
            assert number in ingest.open_sessions()
            assert len(answer["holes"]) <= 12
    ingest.apply(
        entry._replace(kind=EntryKind.STOP, position=entry.end, end=entry.end + 48, payload=b"")
    )
    found = rows(ingest.batch.take())
    counted = sum(attributes(row)["count"] for row in of(found, "gap"))
    healed = sum(attributes(row)["count"] for row in of(found, "heal"))
    assert counted - healed == ingest.account("s").missing
    assert all(attributes(row)["count"] >= 0 for row in of(found, "gap"))


@examples(80)
@given(st.integers(0, 2**32), st.data())
def test_a_replay_from_anywhere_says_the_same(seed, data):
    entries = wild(seed)
    whole, found = run(entries)
    cut = data.draw(st.integers(0, len(entries)))
    first, before = run(entries[:cut])
    second, after = run(entries[cut:], Ingest.restore(first.snapshot()))
    assert before + after == found
    assert second.snapshot() == whole.snapshot()


def test_a_replay_from_every_entry_says_the_same():
    entries = wild(5)
    whole, found = run(entries)
    for cut in range(len(entries) + 1):
        first, before = run(entries[:cut])
        second, after = run(entries[cut:], Ingest.restore(first.snapshot()))
        assert before + after == found
        assert second.snapshot() == whole.snapshot()
