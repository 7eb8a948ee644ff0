"""Test the limit on sessions that a host begins on connections and at addresses that have had a session. Bytes beyond the
limit are named as missing and kept in the quarantine. The times in the log decide."""

from __future__ import annotations

import gc
import json
from itertools import count

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.formats.heph.decoder import HephDecoder
from tailrace.ingest.limits import EVENTS, HOSTS_MAX, SECOND, Beginnings
from tailrace.ingest.machine import Ingest
from tailrace.model.quarantine import frames
from tailrace.rows.records import listed
from tests.ingest.log import (
    Log,
    applied,
    heph_epoch,
    heph_event,
    heph_option,
    heph_session,
    rows,
    run,
)
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

RATE = 10
LIMITS = LedgerConfig(new_sessions_rate=RATE)
MANY = 50
REFUSED = "too_many_sessions"


def header(n):
    metadata = {"clock_frequency_mhz": 1000, "n": n}
    return json.dumps({"type": "header", "version": "2.0", "metadata": metadata}).encode() + b"\n"


def epochs(n):
    return heph_epoch(10**18 + n)


def new_ids(n):
    return heph_session(n + 1)


def known_ids(n):
    """Three clients on one connection, in turn."""
    return heph_session(n % 3 + 1)


def fallen_clocks(n):
    """The second event has a higher number but a much earlier time, so the producer has restarted."""
    return heph_event(1, 10 * n, start=10**15) + heph_event(1, 10 * n + 5, start=10**9)


FLOODS = {
    epochs: "heph", new_ids: "heph", known_ids: "heph", fallen_clocks: "heph", header: "jets",
}  # fmt: skip


def kept(ingest):
    """Return the refused bytes in the quarantine."""
    pieces = [frame for piece in ingest.batch.quarantined for frame in frames(piece.frame)]
    return b"".join(data for _, why, data in pieces if why == REFUSED)


def refused(rows):
    return [row for row in of(rows, "gap") if attributes(row).get("detail") == REFUSED]


def begun(rows):
    """Count the incarnations that began, or were resumed, after the first one of the session."""
    names = [row["name"] for row in of(rows, "session")]
    return names.count("restart") + names.count("resume")


def taken(entries, ingest=None):
    ingest = applied(entries, ingest)
    return ingest, rows(ingest.batch)


@pytest.mark.parametrize("cut", [10**6, 1000, 7])
@pytest.mark.parametrize("packet", FLOODS)
def test_beyond_the_limit_a_connection_is_refused_however_its_bytes_are_cut(packet, cut):
    log = Log()
    session = log.open(FLOODS[packet], limits=LIMITS)
    whole = b"".join(map(packet, range(MANY)))
    for at in range(0, len(whole), cut):
        log.data(session, whole[at : at + cut])
    ingest, found = taken(log.entries)
    assert begun(found) == RATE
    assert_conserved(ingest)
    assert {row["missing"] for row in refused(found)} == {None}
    assert {each.why for each in ingest.rejected} == {"too many new sessions"}
    log.data(session, b"whatever comes behind")
    log.close(session, "too many new sessions")
    ingest, found = taken(log.entries)
    assert_conserved(ingest)
    tally = ingest.tally("s")
    assert sum(attributes(row)["bytes"] for row in refused(found)) == tally.malformed
    assert kept(ingest) == (whole + b"whatever comes behind")[tally.decoded :]
    assert sum(tally.malformed_records.values()) == tally.malformed_records[REFUSED]
    assert_replays(log.entries, len(log.entries) // 2, len(log.entries) - 2)


@pytest.mark.parametrize("packet", [each for each in FLOODS if each is not fallen_clocks])
def test_beyond_the_limit_each_datagram_is_refused_that_begins_a_session(packet):
    log = Log()
    session = log.open(FLOODS[packet], transport="udp", limits=LIMITS)
    log.datagrams(session, [packet(n) for n in range(MANY)])
    ingest, found = taken(log.entries)
    assert begun(found) <= RATE
    assert len(refused(found)) == 1  # an entry's datagrams have a row together
    assert not ingest.rejected
    assert_conserved(ingest)
    assert len(kept(ingest)) == ingest.tally("s").malformed > 0
    assert_replays(log.entries, 1)


def test_a_datagram_behind_a_refused_one_is_the_current_sessions():
    log = Log()
    session = log.open(transport="udp", limits=LIMITS)
    log.datagrams(session, [epochs(n) for n in range(MANY)])
    log.datagrams(session, [heph_event(1, n) for n in range(3)])
    ingest, found = taken(log.entries)
    assert [row["seq"] for row in of(found, "span")] == [0, 1, 2]
    assert_conserved(ingest)


def test_old_epochs_in_turn_cost_as_much_as_new_ones():
    log = Log()
    session = log.open(transport="udp", limits=LIMITS)
    log.datagrams(session, [epochs(n) for n in range(5)])
    log.now += 10 * SECOND
    log.datagrams(session, [epochs(n % 3) for n in range(MANY)])
    ingest, found = taken(log.entries)
    assert len(refused(found)) == 1
    assert ingest.tally("s").malformed == 23 * (MANY - RATE)
    assert_conserved(ingest)


def test_a_second_later_a_host_may_begin_as_many_again():
    log = Log()
    session = log.open(transport="udp", limits=LIMITS)
    log.datagrams(session, [epochs(n) for n in range(MANY)])
    log.now += SECOND
    log.datagrams(session, [epochs(MANY + n) for n in range(RATE)])
    _, found = run(log.entries)
    assert begun(found) == 2 * RATE
    log.now += SECOND // 2
    log.datagrams(session, [epochs(2 * MANY + n) for n in range(RATE)])
    assert begun(run(log.entries)[1]) == 2 * RATE + RATE // 2


def test_the_first_session_of_a_connection_is_not_counted():
    """A thousand clients on one host reconnect at once, some of them for the third time."""
    log = Log()
    for turn in range(3):
        for client in range(100):
            session = log.open(limits=LIMITS)
            log.data(
                session,
                epochs(client) + heph_session(client + 1, turn=turn) + heph_event(1, turn),
            )
            log.close(session)
    ingest, found = run(log.entries)
    assert not refused(found)
    assert len(of(found, "span")) == 300
    assert not ingest.rejected


def test_hosts_have_a_limit_each():
    log = Log()
    peers = (
        "192.0.2.1:5",
        "192.0.2.2:5",
        "[2001:db8::1]:5",
        "[2001:db8:0:1::1]:5",
        "uid 7",
        "uid 8",
    )
    for session in [log.open(limits=LIMITS, peer=peer) for peer in peers]:
        log.data(session, b"".join(epochs(n) for n in range(RATE + 1)))
    _, found = run(log.entries)
    assert begun(found) == len(peers) * RATE
    assert not refused(found)


@pytest.mark.parametrize(
    "peers",
    [
        ("192.0.2.1:1", "192.0.2.1:2"), ("127.0.0.1:1", "127.3.2.1:1"), ("127.0.0.1:1", "[::1]:1"),
        ("[2001:db8::1]:1", "[2001:db8::2:0:0:1]:1"), ("192.0.2.1:1", "[::ffff:192.0.2.1]:1"), ("uid 7", "uid 7"),
    ],
)  # fmt: skip
def test_connections_of_one_host_share_a_limit(peers):
    log = Log()
    for peer in peers:
        session = log.open(limits=LIMITS, peer=peer)
        log.data(session, b"".join(epochs(n) for n in range(RATE + 1)))
    _, found = run(log.entries)
    assert begun(found) == RATE
    assert len(refused(found)) == 1


def test_events_admit_sessions():
    """A relay sends many short runs over one connection, as fast as it can."""
    log = Log()
    session = log.open(limits=LIMITS)
    for n in range(5 * RATE):
        log.data(session, epochs(n) + b"".join(heph_event(1, i) for i in range(EVENTS)))
    ingest, found = run(log.entries)
    assert not refused(found)
    assert len(of(found, "span")) == 5 * RATE * EVENTS
    assert not ingest.rejected


def test_a_file_may_hold_as_many_sessions_as_it_likes():
    log = Log()
    session = log.open_file("heph")
    log.data(session, b"".join(epochs(n) for n in range(3000)))
    _, found = run(log.entries)
    assert begun(found) == 2999
    assert not refused(found)


def test_hosts_without_number_take_no_memory():
    state = {}
    beginnings = Beginnings(state)
    for host in range(2 * HOSTS_MAX):
        assert beginnings.admit(str(host), RATE, SECOND)
    assert len(state) == HOSTS_MAX
    assert str(2 * HOSTS_MAX - 1) in state


FLOODS_IN_STEPS = {
    "epochs": lambda n: heph_epoch(10**18 + n),
    "options": lambda n: heph_option("x", n),
    "events and noise": lambda n: heph_event(1, n) + b"noise",
}


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("flood", FLOODS_IN_STEPS)
def test_an_entry_is_taken_in_many_steps_between_which_all_bytes_are_accounted_for(
    flood, transport
):
    log = Log()
    session = log.open(transport=transport)
    packets = [FLOODS_IN_STEPS[flood](n) for n in range(MANY)]
    if transport == "udp":
        log.datagrams(session, [b"".join(packets)])
    else:
        log.data(session, b"".join(packets))
    ingest = Ingest()
    ingest.apply(log.entries[0])
    steps = 0
    for _ in ingest.steps(log.entries[1]):
        steps += 1
        assert ingest.position == log.entries[0].end
        assert_conserved(ingest)
    assert steps >= MANY - 1  # the last bytes may wait for more
    assert ingest.position == log.entries[1].end
    assert_conserved(ingest)
    assert rows(ingest.batch) == run(log.entries)[1]


def test_late_events_of_an_earlier_run_take_a_step_each():
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_epoch(10**18), *(heph_event(1, n, start=n) for n in range(5))])
    log.datagrams(session, [heph_epoch(10**18 + SECOND)])
    late = [heph_event(1, n, start=n) for n in range(5, 5 + MANY)]
    log.datagrams(session, [b"".join(late)])
    ingest, _ = run(log.entries[:-1])
    assert sum(1 for _ in ingest.steps(log.entries[-1])) >= MANY


@pytest.mark.parametrize("packet", FLOODS)
@pytest.mark.parametrize("cut", [False, True], ids=["one connection", "a connection each"])
def test_a_session_that_is_over_leaves_no_circle_of_objects(packet, cut):
    """The garbage collector finds a circle by looking at all young objects, which took longer than the session."""
    log = Log()
    limits = LedgerConfig(new_sessions_rate=10**6, sessions_max=1)
    session = log.open(FLOODS[packet], limits=limits)
    for n in range(MANY):
        log.data(session, packet(n))
        if cut:
            log.close(session)
            session = log.open(FLOODS[packet], limits=limits)
    ingest = Ingest()
    gc.collect()
    gc.disable()
    try:
        for entry in log.entries:
            ingest.apply(entry)
        assert gc.collect() < MANY
    finally:
        gc.enable()


class Looked(int):
    """A size that counts how often a mark is made of it."""

    times = count()

    def __radd__(self, other):
        next(self.times)
        return int(self) + other


def test_a_restart_in_a_chunk_does_not_look_at_all_events_behind():
    log = Log()
    session = log.open(limits=LedgerConfig(new_sessions_rate=10**6))
    ingest, _ = run(log.entries)
    many = 20 * MANY
    packets = b"".join(fallen_clocks(n) for n in range(many))
    records = HephDecoder(2**20).feed(packets)
    before = next(Looked.times)
    counted = [record._replace(size=Looked(record.size)) for record in records]
    ingest._sessions[session]._succession.take(listed(counted), log.now)
    assert ingest.tally("s").restarts == many
    assert next(Looked.times) - before < 100 * len(records)
