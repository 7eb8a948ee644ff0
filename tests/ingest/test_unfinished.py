"""Records that are not whole yet, in the ingest: a limit for those of a source, and checkpoints without."""

from __future__ import annotations

import pytest

from tailrace.ingest.machine import Ingest, read_state
from tailrace.ingest.unfinished import INLINE_MAX, Unfinished, read_again, since
from tests.ingest.log import Log, heph_event, run
from tests.ingest.test_machine import assert_conserved, assert_replays, attributes, of

KIB = 2**10


def part(size, stream=1):
    """The first bytes of a longer event."""
    return heph_event(stream, 0, attributes=bytes(2 * size))[:size]


def restored(ingest, entries, named_from=1):
    """Go on from a checkpoint that leaves to the log what is not below a position of it."""
    snapshot = ingest.checkpoint(named_from)
    state = read_state(snapshot.state)
    assert snapshot.since == since(state)
    lacking = read_again(state, (entry for entry in entries if entry.position >= snapshot.since))
    return Ingest(state, lacking), len(snapshot.state)


@pytest.fixture
def log():
    """Three connections, of which one has nothing unfinished; the parts come in several entries."""
    log = Log()
    first, second, third = (log.open() for _ in range(3))
    log.data(first, heph_event(1, 0) + part(10 * KIB)[: 6 * KIB])
    log.data(second, part(9 * KIB, 2)[:5])
    log.data(third, heph_event(3, 0))
    log.data(first, part(10 * KIB)[6 * KIB :])
    log.data(second, part(9 * KIB, 2)[5:])
    return log


def test_a_checkpoint_that_leaves_them_out_is_small_and_goes_on_the_same(log):
    ingest, _ = run(log.entries)
    again, size = restored(ingest, log.entries)
    whole = len(ingest.snapshot())
    assert size < whole - 18 * KIB
    assert again.pending("s") == ingest.pending("s") == 19 * KIB
    assert again.snapshot() == ingest.snapshot()
    assert again.tell_lacking() == 0


def test_what_came_long_ago_and_what_is_short_stays_in_the_checkpoint(log):
    ingest, _ = run(log.entries)
    late = log.entries[-1].position
    again, size = restored(ingest, [], named_from=late)
    assert size > 19 * KIB
    assert again.snapshot() == ingest.snapshot()
    short = Log()
    session = short.open()
    short.data(session, part(INLINE_MAX))
    ingest, _ = run(short.entries)
    again, _ = restored(ingest, [])
    assert again.snapshot() == ingest.snapshot()


def test_what_the_log_has_no_more_is_said(log):
    ingest, _ = run(log.entries)
    again, _ = restored(ingest, log.entries[-1:])
    assert again.pending("s") == 19 * KIB
    assert again.tell_lacking() == 10 * KIB + 5
    log.tick(0)
    _, rows = run(log.entries[-1:], again)
    assert [attributes(row)["bytes"] for row in of(rows, "gap")] == [10 * KIB, 5]
    assert_conserved(again)


@pytest.fixture
def limited():
    """Bytes of five connections against a limit of 20 KiB."""
    log = Log()
    sessions = [log.open(pending_max=20 * KIB) for _ in range(5)]
    for number, session in enumerate(sessions):
        log.data(session, heph_event(number, 0) + part((number + 1) * 3 * KIB, number))
    return log, sessions


def test_the_one_with_the_most_gives_way(limited):
    log, sessions = limited
    ingest, rows = run(log.entries)
    # 3 + 6 + 9 KiB fit, 12 more do not, 15 more do not.
    assert [each.number for each in ingest.rejected] == sessions[3:]
    assert {each.why for each in ingest.rejected} == {"too many pending bytes"}
    assert ingest.pending("s") == 18 * KIB
    assert ingest.tally("s").gave_way == 2
    gave = [row for row in rows if row["name"] == "gave_way"]
    assert [attributes(row) for row in gave] == [{"bytes": 12 * KIB}, {"bytes": 15 * KIB}]
    lost = [attributes(row) for row in of(rows, "gap")]
    assert [(each["detail"], each["bytes"]) for each in lost] == [
        ("too_long", 12 * KIB),
        ("too_long", 15 * KIB),
    ]
    assert_conserved(ingest)


def test_what_gave_way_before_a_snapshot_does_after_it(limited):
    log, sessions = limited
    log.data(sessions[0], part(9 * KIB)[3 * KIB :])
    log.data(sessions[3], heph_event(3, 1))
    log.close(sessions[3], "too many pending bytes")
    assert_replays(log.entries, *range(len(log.entries)))


def test_a_file_gives_its_record_up_and_nobody_is_cut_off():
    log = Log()
    session = log.open_file("jets", pending_max=KIB)
    log.data(session, b'{"x":"' + b"x" * 2 * KIB)
    log.data(
        session,
        b'still of that line"}\n{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\n',
    )
    ingest, rows = run(log.entries)
    assert ingest.rejected == []
    gaps = [(row["offset"], attributes(row)["count"]) for row in of(rows, "gap")]
    assert gaps[0] == (0, 1)
    assert sum(count for _, count in gaps) == 1
    assert [row["name"] for row in of(rows, "session")][-2:] == ["header", "rest"]
    assert ingest.pending("s") == 0
    assert_conserved(ingest)


def test_of_equal_ones_the_newest_is_the_largest():
    unfinished = Unfinished()
    for number in (3, 9, 5):
        unfinished.hold(number, 100)
    unfinished.hold(4, 99)
    assert (unfinished.total, unfinished.largest()) == (399, 9)
    unfinished.hold(9, 0)
    assert (unfinished.total, unfinished.largest()) == (299, 5)
