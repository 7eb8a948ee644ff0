"""Producers without any sense: whatever they send, the ledger balances, stays bounded and replays."""

from __future__ import annotations

import random

from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import EntryKind
from tailrace.units import Duration
from tests.forms import examples
from tests.ingest.log import SECOND, Log, heph_epoch, heph_event, rows
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

LIMITS = LedgerConfig(
    reorder_events=16, reorder_time=Duration(2), streams_max=3, holes_max=4, gap_rows_max=3,
    source_streams_max=5, source_holes_max=12,
)  # fmt: skip
COUNTS = [0, 1, 2, 5, 15, 16, 17, 63, 64, 65, 200, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
TIMES = [0, 1, 1000, SECOND, 100 * SECOND, 2**62, 2**63 - 1]
EPOCHS = [0, 1, 10**18, 10**18 + SECOND, 2**63 - 1]


def wild(seed):
    rng = random.Random(seed)
    log = Log()
    sessions = [
        log.open(transport=rng.choice(["udp", "udp", "tcp"]), limits=LIMITS) for _ in range(3)
    ]
    udp = {entry.session: b"udp" in entry.payload for entry in log.entries}
    count = 0

    def packet():
        nonlocal count
        what = rng.random()
        if what < 0.05:
            return heph_epoch(rng.choice(EPOCHS))
        if what < 0.08:
            return rng.randbytes(rng.randrange(1, 60))
        count = count + rng.choice([0, 1, 1, 1, 2, 3]) if what < 0.9 else rng.choice(COUNTS)
        start = rng.choice(TIMES) if rng.random() < 0.2 else count * 1000
        return heph_event(
            rng.randrange(5), count, start=start, end=max(start, start + rng.randrange(9)) % 2**63
        )

    for _ in range(rng.randrange(80)):
        log.now += rng.choice([0, SECOND // 10, SECOND])
        session = rng.choice(sessions)
        what = rng.random()
        packets = [packet() for _ in range(rng.randrange(1, 12))]
        if what < 0.1:
            log.tick(rng.random() * 3)
        elif what < 0.13:
            log.stop()
        elif what < 0.2:
            log.drops(rng.randrange(1, 9), since=log.now - rng.randrange(SECOND))
        elif udp[session]:
            log.datagrams(session, packets)
        else:
            log.data(session, b"".join(packets))
    for session in sessions:
        if rng.random() < 0.8:
            log.close(session)
    return log.entries


@examples(200)
@given(st.integers(0, 2**32))
def test_the_ledger_balances_and_is_bounded_after_every_entry(seed):
    ingest = Ingest()
    for entry in wild(seed):
        ingest.apply(entry)
        assert_conserved(ingest)
        commons = ingest.common("s")
        runs = [
            run_
            for session in ingest._sessions.values()
            for run_ in (session.generations.current, session.generations.previous)
            if run_
        ]
        streams = [s for r in runs for s in r.state.counters.streams.values()]
        assert commons.state.streams == len(streams) <= LIMITS.source_streams_max
        assert commons.state.ranges == sum(stream.ranges for stream in streams)
        assert commons.state.ranges <= LIMITS.source_holes_max + len(streams)
        assert commons.drops.unassigned >= 0
    ingest.apply(
        entry._replace(kind=EntryKind.STOP, position=entry.end, end=entry.end + 48, payload=b"")
    )
    found = rows(ingest.batch.take())
    counted, healed = (
        sum(attributes(row)["count"] for row in of(found, kind)) for kind in ("gap", "heal")
    )
    assert counted - healed == ingest.account("s").missing
    assert all(attributes(row)["count"] >= 0 for row in of(found, "gap"))


@examples(100)
@given(st.integers(0, 2**32), st.data())
def test_a_replay_from_anywhere_says_the_same(seed, data):
    entries = wild(seed)
    assert_replays(entries, data.draw(st.integers(0, len(entries))))


def test_a_replay_tells_the_other_connections_of_a_producer_in_the_same_order():
    """Seed 198: two connections hear of the same numbers, and there is a place for one of them."""
    assert_replays(wild(198), 43)
