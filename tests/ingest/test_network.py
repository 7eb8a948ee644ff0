"""The ledger held against the book of a bad network, to the event: see `tests.traffic.network`."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tests.ingest.log import Log, heph_event, rows
from tests.ingest.test_machine import assert_conserved, attributes, of
from tests.traffic.network import PAUSE, Event, Network

MS = 10**6


PLACES, STRANGERS = 64, 4
"""Places for streams where they run out, and peers that take them all: more than the shares of these,
of the network's producer and of its announced runs, each of at most three streams."""

STRANGE = 10**6
"""The first of the strangers' streams."""


class Strangers:
    """Peers that want more streams than there are places, again and again."""

    def __init__(self, log, limits):
        self._log = log
        self._sessions = [
            log.open(transport="udp", limits=limits, peer=f"127.0.0.2:{n + 1}")
            for n in range(STRANGERS)
        ]
        self._next = STRANGE

    def come(self):
        streams = range(self._next, self._next + PLACES // STRANGERS)
        for session in self._sessions:
            self._log.datagrams(session, [heph_event(stream, 0) for stream in streams])
        self._next = streams.stop


def log_of(network, seed, *, crowded=False):
    """Return what the network lets through, as a log: datagrams that arrive close together in one entry."""
    rng = random.Random(seed)
    log = Log()
    limits = LedgerConfig(gap_rows_max=rng.choice([2, 100]))
    if crowded:
        limits = replace(limits, source_streams_max=PLACES)
        strangers = Strangers(log, limits)
        strangers.come()
    session = log.open(transport="udp", limits=limits)
    waiting = []
    start = log.now
    for arriving in network.course():
        log.now = max(log.now, start + network.clock)
        if arriving is PAUSE or len(waiting) > rng.choice([0, 5, 20]):
            log.datagrams(session, waiting)
            waiting = []
            if crowded and rng.random() < 0.1:
                strangers.come()
        if arriving is PAUSE:
            log.tick(3)
        else:
            log.now += MS
            waiting += arriving
    log.datagrams(session, waiting)
    log.close(session)
    log.tick(3)
    return log.entries


def run_of(name):
    return int(name.partition(".")[2] or 0)


def compare_rows(network, found, *, timely=True):
    """The rows of the network's session name what its book names, and no more. Where time passes by
    itself, a window may have closed before its time: more is healed then."""
    book = network.book
    stored = Counter(
        Event(run_of(r["session"]), int(r["stream"]), r["seq"]) for r in of(found, "span")
    )
    assert stored == Counter(event for event in book.sent if event not in book.dropped)
    named, counts = set(), Counter()
    for row in of(found, "gap"):
        about = attributes(row)
        run, stream = run_of(row["session"]), int(row["stream"])
        last = about.get("last", row["seq"] + about["count"] - 1)
        named.update(Event(run, stream, number) for number in range(row["seq"], last + 1))
        counts[run, stream] += about["count"]
    healed = {Event(run_of(r["session"]), int(r["stream"]), r["seq"]) for r in of(found, "heal")}
    assert len(healed) == len(of(found, "heal"))
    assert named - stored.keys() == book.dropped
    assert healed == book.healed if timely else healed >= book.healed
    counts.subtract((run, stream) for run, stream, _ in healed)
    assert +counts == Counter((run, stream) for run, stream, _ in book.dropped)


def compare_reasons(network, found, *, timely=True):
    """The same of a network whose producers say what they threw away, and how far they went."""
    book = network.book
    stored = Counter(
        Event(run_of(r["session"]), int(r["stream"]), r["seq"]) for r in of(found, "span")
    )
    assert stored == Counter(event for event in book.sent if event not in book.missing)
    named, counts, healed = set(), Counter(), set()
    for row in of(found, "gap") + of(found, "heal"):
        run, stream, about = run_of(row["session"]), int(row["stream"]), attributes(row)
        last = about.get("last", row["seq"] + about["count"] - 1)
        events = {Event(run, stream, number) for number in range(row["seq"], last + 1)}
        if row["kind"] == "gap":
            named |= events
            counts[row["name"]] += about["count"]
        else:
            assert events <= named
            healed |= events & stored.keys()
            counts[row["name"]] -= about["count"]
    assert named - stored.keys() == book.missing
    assert healed == book.healed if timely else healed >= book.healed
    sender = len(book.discarded & book.reported)
    assert counts["sender"] == sender
    assert counts["network"] + counts["late_join"] == len(book.missing) - sender


def check(network, found, ingest):
    """Rows and sums equal the book."""
    book = network.book
    compare = compare_reasons if book.discarded else compare_rows
    compare(network, found)
    account, tally = ingest.account("s"), ingest.tally("s")
    assert account.missing == len(book.missing)
    assert account.duplicates == book.copies.total()
    assert sum(tally.gaps.values()) - sum(tally.heals.values()) == len(book.missing)
    assert tally.restarts == network.runs - 1
    assert_conserved(ingest)


def hold_against(seed, *, crowded=False, **kind):
    network = Network(seed, **kind)
    entries = log_of(network, seed, crowded=crowded)
    ingest = Ingest()
    cut = random.Random(seed).randrange(len(entries))
    found = []
    for at, entry in enumerate(entries):
        if at == cut:
            found += rows(ingest.batch.take())
            ingest = Ingest.restore(ingest.snapshot())
        ingest.apply(entry)
    found += rows(ingest.batch.take())
    if crowded:
        unknown = [row for row in of(found, "gap") if row["name"] == "uncounted"]
        assert unknown
        assert all(not row["stream"] or int(row["stream"]) >= STRANGE for row in unknown)
        found = [row for row in found if row not in unknown and int(row["stream"] or 0) < STRANGE]
    check(network, found, ingest)


kinds = pytest.mark.parametrize(
    "kind",
    [
        {"epochs": True},
        {"epochs": False},
        {"epochs": True, "announced": True},
        {"epochs": True, "quick": True},
        {"epochs": True, "announced": True, "quick": True},
        {"epochs": True, "crowded": True},
        {"epochs": False, "crowded": True},
        {"epochs": True, "announced": True, "crowded": True},
    ],
    ids=[
        "epochs", "silent", "announced", "quick", "quick and announced",
        "crowded", "crowded and silent", "crowded and announced",
    ],
)  # fmt: skip


@kinds
@pytest.mark.parametrize("seed", range(5))
def test_missing_duplicate_and_healed_events_are_those_of_the_networks_book(seed, kind):
    hold_against(seed, **kind)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("seed", range(5, 205))
def test_they_are_for_two_hundred_seeds(seed, kind):
    hold_against(seed, **kind)
