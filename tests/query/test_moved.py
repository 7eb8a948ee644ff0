"""Test a client that moves between collectors of one table. The views count it once: an event that any collector has is
shown once, and an event that no collector has is missing once.

The collectors are real ingests, and the real views read their rows. The client is a model that knows which events it
emitted. The network between them loses, cuts and repeats packets.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tailrace.config.schema import LedgerConfig
from tests.ingest.log import (
    Log,
    heph_epoch,
    heph_event,
    heph_goodbye,
    heph_report,
    heph_session,
    run,
)
from tests.query.memory import Views
from tests.query.tables import DAY

EPOCH = 10**18
SETTLED, FORGOTTEN = 3, 300
"""Two times in seconds: after the first, the windows for late events are closed; after the second, a collector has
forgotten a client that left.
"""

FOUND = "SELECT stream, seq FROM events WHERE kind = 'span' ORDER BY ALL"
MISSING = "SELECT stream, missing FROM streams WHERE missing > 0"
GAPS = "SELECT stream, reason, first, last, remaining, attributes FROM gaps"


@pytest.fixture(scope="module")
def views():
    views = Views()
    views.connection.execute("SET VARIABLE watched = true")
    return views


class Client:
    """A client of several collectors. Each collector is a log of its own. `told` has the numbers of the events that the
    client reported as discarded.
    """

    def __init__(self, rng, collectors=2, *, limits=None):
        self.logs = [Log() for _ in range(collectors)]
        self.limits = limits
        self.emitted, self.arrived, self.known = Counter(), set(), Counter()
        """By stream: the number of emitted events, and the number below which a collector knows of all events."""
        self.told = set()
        self.turn = 0
        self._rng = rng
        self._at = 0
        self._session = None
        self._sent = []

    def connect(self, at, transport="tcp", *, announce=True):
        """Connect to collector number `at`, and announce the session there."""
        self.leave()
        self._at, self._transport = at, transport
        log = self.logs[at]
        peer = f"127.0.0.1:{5 + self.turn}"
        self._session = log.open(transport=transport, peer=peer, limits=self.limits)
        if announce:
            self.announce()

    def announce(self):
        self._put([heph_epoch(EPOCH) + heph_session(7, acknowledge=True, turn=self.turn)])
        self.turn += 1

    def leave(self):
        if self._session is not None:
            self.logs[self._at].close(self._session)
            self._session = None

    def send(self, stream, count, *, lost=0.0):
        """Emit events. The network loses the share `lost` of them."""
        numbers = range(self.emitted[stream], self.emitted[stream] + count)
        self.emitted[stream] += count
        self._events([(stream, n) for n in numbers if self._rng.random() >= lost])

    def repeat(self, share):
        """Send the last events again, as a client does if it got no answer. `share` is the part of the sent events."""
        self._events(self._sent[len(self._sent) - round(share * len(self._sent)) :])

    def discard(self, stream, count):
        """Discard events, and report them to the current collector."""
        first = self.emitted[stream]
        self.emitted[stream] += count
        self.told |= {(stream, n) for n in range(first, first + count)}
        self._put([heph_session(7, acknowledge=True) + heph_report([stream, first, count])])
        self.send(stream, 1)

    def say_goodbye(self, **more):
        ends = {str(stream): count for stream, count in self.emitted.items()}
        self._put([heph_session(7, acknowledge=True) + heph_goodbye(ends, **more)])
        self.known |= self.emitted

    def wait(self, seconds):
        for log in self.logs:
            for _ in range(3):  # Gaps that have no row of their own get one after the next window.
                log.tick(seconds)

    def rows(self):
        """Return the rows of all collectors. Each collector has its own sessions."""
        return [
            row
            | {
                "day": DAY,
                "session": f"{name}-{row['session']}",
                "attributes": (row["attributes"] or "").replace("resumes ", f"resumes {name}-"),
            }
            for name, log in zip("abc", self.logs, strict=False)
            for row in run(log.entries)[1]
        ]

    def _events(self, events):
        self._sent = [*self._sent, *events][-200:]
        self._put([heph_event(stream, number) for stream, number in events])
        self.arrived |= set(events)
        for stream, number in events:
            self.known[stream] = max(self.known[stream], number + 1)

    def _put(self, packets):
        if self._transport == "udp":
            self.logs[self._at].datagrams(self._session, packets)
        else:
            self.logs[self._at].data(self._session, b"".join(packets))

    @property
    def missing(self):
        """The events, as stream and number, that no collector has, and that at least one collector knows of."""
        return {
            (stream, number)
            for stream, below in self.known.items()
            for number in range(below)
            if (stream, number) not in self.arrived
        }


def check(views, client, *, unknown):
    """Check that the views show what the client knows: the events that arrived, and the missing events."""
    rows = client.rows()
    views.hold(rows)
    shown = [(int(stream), seq) for stream, seq in views.rows(FOUND)]
    assert shown == sorted(client.arrived), "an event that is not shown once"
    lacking = Counter(stream for stream, _ in client.missing)
    found = Counter()
    for stream, missing in views.rows(MISSING):
        found[int(stream)] += missing
    assert found == lacking
    reasons, named, unknowns = Counter(), Counter(), 0
    for stream, reason, first, last, remaining, attributes in views.rows(GAPS):
        if remaining is None:
            unknowns += 1
            assert json.loads(attributes)["detail"] == "no_goodbye"
            continue
        assert 0 < remaining <= last - first + 1
        reasons[reason] += remaining
        named[int(stream)] += remaining
    assert named == lacking
    assert reasons["sender"] == len(client.told - client.arrived)
    assert unknowns == unknown


def moved(client):
    """Send six events to one collector. Then move to the other, and send it the last four events again, because nobody
    acknowledged them, and six more.
    """
    client.connect(0)
    client.send(1, 6)
    client.connect(1)
    client.repeat(4 / 6)
    client.send(1, 6)


def test_what_went_to_the_other_is_not_missing_and_what_both_have_is_shown_once(views):
    client = Client(random.Random(1))
    moved(client)
    client.wait(SETTLED)
    assert sum(row["kind"] == "span" for row in client.rows()) == 16
    assert sum(row["kind"] == "gap" for row in client.rows()) == 1
    check(views, client, unknown=0)
    client.say_goodbye()
    client.leave()
    client.wait(FORGOTTEN)
    check(views, client, unknown=0)
    streams = views.rows("SELECT events, missing, completeness FROM streams ORDER BY session")
    assert streams == [(6, 0, 1.0), (6, 0, 1.0)]
    former = views.rows("SELECT session, continues FROM sessions ORDER BY opened")
    assert [name[0] for name, _ in former] == ["a", "b"]
    assert [name for _, name in former] == [None, former[0][0]]


def test_a_client_that_leaves_all_of_them_without_a_goodbye_lacks_one_end(views):
    client = Client(random.Random(1))
    moved(client)
    client.leave()
    client.wait(FORGOTTEN)
    assert sum(row["name"] == "truncated" for row in client.rows()) == 2
    check(views, client, unknown=1)


def test_one_that_a_collector_still_has_lacks_no_end_at_another(views):
    client = Client(random.Random(1))
    moved(client)
    client.wait(FORGOTTEN)
    assert sum(row["name"] == "truncated" for row in client.rows()) == 1
    check(views, client, unknown=0)


def test_one_that_left_a_collector_which_ended_lacks_its_end(views):
    client = Client(random.Random(1))
    moved(client)
    client.wait(FORGOTTEN)
    views.connection.execute("SET VARIABLE watched = false")
    try:
        check(views, client, unknown=1)
    finally:
        views.connection.execute("SET VARIABLE watched = true")


def test_what_nobody_has_is_counted_once_with_the_reason_of_who_knows_most(views):
    client = Client(random.Random(1))
    client.connect(0)
    client.send(1, 5)
    client.discard(1, 3)
    client.send(1, 4, lost=1)
    client.send(1, 2)
    client.connect(1)
    client.send(1, 2)
    client.say_goodbye()
    client.leave()
    client.wait(FORGOTTEN)
    check(views, client, unknown=0)
    reasons = Counter({row[1]: row[4] for row in views.rows(GAPS)})
    assert reasons == {"sender": 3, "network": 4}


def test_what_a_client_discards_without_numbers_is_counted_once(views):
    """The client says goodbye to each collector, with the number of all events that it has discarded so far. The
    greatest number counts. It is reduced by four, because the second collector lacks four events that the first
    collector has."""
    client = Client(random.Random(3))
    for at, discarded, sent in ((0, 5, 4), (1, 30, 0), (0, 12, 4)):
        client.connect(at)
        client.send(1, sent)
        client.say_goodbye(discarded={"full": discarded})
        client.wait(SETTLED)
    client.leave()
    client.wait(FORGOTTEN)
    views.hold(client.rows())
    gaps = [row[:5] for row in views.rows(GAPS) if row[1] == "sender"]
    assert gaps == [("", "sender", None, None, 30 - 4)]
    assert views.rows(MISSING) == [("", 30 - 4)]


def test_events_that_overtook_their_announcement_at_the_second_are_the_clients(views):
    """The announcement has a session of its own, which resumes the session of the events."""
    client = Client(random.Random(1))
    client.connect(0, "udp")
    client.send(1, 6)
    client.connect(1, "udp", announce=False)
    client.send(1, 6)
    client.announce()
    client._put([heph_goodbye({"1": 6}, more=True)])
    client.wait(SETTLED)
    check(views, client, unknown=0)
    assert len(views.rows("SELECT session FROM streams")) == 2


def test_another_event_under_a_number_of_both_is_shown(views):
    """Only equal events count as one event."""
    client = Client(random.Random(1))
    moved(client)
    client.logs[1].data(client._session, heph_event(1, 3, start=77))
    rows = client.rows()
    shown = views.of(
        rows, "SELECT seq, start FROM events WHERE kind = 'span' AND seq = 3 ORDER BY start"
    )
    assert [row["start"] for row in shown] == [77, 3000]


def test_numbers_that_a_late_collector_counts_from_zero_again_prove_nothing(views):
    """Numbers have 32 bits on the wire. The first collector has counted beyond them. The second collector began at 0
    again.
    """
    client = Client(random.Random(1))
    client.connect(0)
    client._put([heph_event(1, n) for n in (0, 1, 4, 2**31, 2**32 - 2, 2**32 + 1)])
    client.connect(1)
    client._put([heph_event(1, n) for n in (2**32 + 2, 2**32 + 3)])
    client.wait(SETTLED)
    views.hold(client.rows())
    assert (2, 3, 2) in [row[2:5] for row in views.rows(GAPS)]


def test_what_two_clients_have_under_the_same_numbers_is_apart(views):
    client, log = Client(random.Random(1)), Log()
    moved(client)
    other = log.open()
    log.data(other, heph_epoch(EPOCH) + heph_session(8) + heph_event(1, 0) + heph_event(1, 9))
    log.tick(SETTLED)
    views.hold([*client.rows(), *(row | {"day": DAY} for row in run(log.entries)[1])])
    assert [row[2:5] for row in views.rows(GAPS)] == [(1, 8, 8)]


def play(seed):
    """Play a random client: the collectors to which it moves, losses in the network, and its end.

    Yield the client at moments at which all losses are known, with the number of ends that are missing."""
    rng = random.Random(seed)
    few = {"gap_rows_max": 2} if rng.random() < 0.3 else {}
    client = Client(rng, rng.choice((1, 2, 2, 3)), limits=LedgerConfig(**few))
    transport = rng.choice(("tcp", "udp"))
    lossy = rng.choice((0.0, 0.1, 0.5))
    client.connect(0, transport)
    for _ in range(rng.randrange(1, 12)):
        for _ in range(rng.randrange(4)):
            client.send(rng.randrange(1, 3), rng.randrange(1, 30), lost=lossy)
        deed = rng.random()
        if deed < 0.5:
            client.connect(rng.randrange(len(client.logs)), transport)
            client.repeat(rng.random() * rng.choice((0, 1)))
        elif deed < 0.65:
            client.discard(rng.randrange(1, 3), rng.randrange(1, 9))
        elif deed < 0.75:
            client.wait(SETTLED)
            yield client, None
        elif deed < 0.8:
            client.leave()
            client.wait(FORGOTTEN)
            client.connect(rng.randrange(len(client.logs)), transport)
    goodbye = rng.random() < 0.7
    if goodbye:
        client.say_goodbye()
        if rng.random() < 0.3:  # the client got no answer to its goodbye
            client.connect(rng.randrange(len(client.logs)), transport)
            client.say_goodbye()
    client.leave()
    client.wait(FORGOTTEN)
    yield client, 0 if goodbye else 1


def play_and_check(views, seed):
    for client, unknown in play(seed):
        if unknown is not None:
            check(views, client, unknown=unknown)
        else:
            check(views, client, unknown=0)


@pytest.mark.parametrize("seed", range(12))
def test_a_client_that_moves_at_random_is_counted_once(views, seed):
    play_and_check(views, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 1000))
def test_a_thousand_of_them_are(views, seed):
    play_and_check(views, seed)
