"""The ingest as a function of the spool: rows, sessions, conservation, and exact replay."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.model.quarantine import frames
from tailrace.spool.entry import EntryKind
from tailrace.units import Duration
from tests.forms import examples
from tests.ingest.log import Log, applied, as_seen, heph_epoch, heph_event, heph_session, rows, run

JETS = b"\n".join(
    [
        b'{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}',
        b'{"clk":1,"type":"record","name":"core","record_type":"Core","id":1,"parent_id":null,"description":"c"}',
        b'{"clk":2,"type":"record","name":"add","record_type":"Instruction","id":2,"parent_id":1,"description":"i","data":{"pc":"0x0"}}',
        b'{"clk":3,"type":"event","name":"F1","record_id":2,"description":"fetch"}',
        b'{"type":"annotation","name":"note","record_id":1,"description":"d","data":[1]}',
        b'{"clk":9,"type":"record_end","record_id":2}',
        b'{"clk":9,"type":"record_end","record_id":1}',
        b'{"type":"footer","capture_end_clk":9,"total_records":2,"total_annotations":1,"total_events":1}',
        b"",
    ]
)


def of(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def attributes(row):
    return json.loads(row["attributes"])


def assert_conserved(ingest, source="s"):
    tally, account = ingest.tally(source), ingest.account(source)
    assert tally.received == tally.decoded + tally.malformed + ingest.pending(source)
    assert account.imbalance == 0


def assert_replays(entries, *cuts):
    """From each of these snapshots, and over all of them, an ingest says and holds what one does that never stopped."""
    whole, rows = run(entries)
    state = whole.snapshot()
    ingest, before, snapshots = Ingest(), [], {}
    for begin, cut in itertools.pairwise([0, *sorted(cuts), len(entries)]):
        ingest, more = run(entries[begin:cut], ingest)
        before += more
        snapshots[cut] = len(before), ingest.snapshot()
    assert as_seen(before) == as_seen(rows)
    for cut, (count, snapshot) in snapshots.items():
        second, after = run(entries[cut:], Ingest.restore(snapshot))
        assert as_seen(before[:count] + after) == as_seen(rows), cut
        assert second.snapshot() == state, cut


def test_heph_events_become_rows_with_unwrapped_numbers_and_wall_time():
    log = Log()
    session = log.open()
    log.data(session, heph_epoch(10**18) + heph_event(3, 0, start=5, end=9))
    ingest, rows = run(log.entries)
    span = of(rows, "span")[0]
    assert (span["stream"], span["seq"], span["start"], span["end"]) == ("3", 0, 5, 9)
    assert span["time"] == 10**18 + 5
    assert [row["name"] for row in of(rows, "session")] == ["open", "epoch"]
    assert_conserved(ingest)


def test_jets_ends_become_spans_with_the_begins_fields():
    log = Log()
    session = log.open("jets")
    log.data(session, JETS)
    log.close(session)
    ingest, rows = run(log.entries)
    spans = {row["id"]: row for row in of(rows, "span")}
    assert (spans[2]["name"], spans[2]["start"], spans[2]["end"], spans[2]["parent"]) == (
        "add",
        2,
        9,
        1,
    )
    assert spans[1]["category"] == "Core"
    assert of(rows, "begin") == []
    assert of(rows, "gap") == []
    assert ingest.tally("s").flaws == {}
    assert_conserved(ingest)


def test_a_jets_record_that_was_lost_is_one_unresolved_record_and_its_orphans_are_kept():
    lines = JETS.split(b"\n")
    del lines[2]
    log = Log()
    session = log.open("jets")
    log.data(session, b"\n".join(lines))
    log.close(session)
    _, rows = run(log.entries)
    gaps = [(row["name"], row["id"], attributes(row)["count"]) for row in of(rows, "gap")]
    assert gaps == [("unresolved", 2, 1)]
    assert [attributes(row)["$flaw"] for row in of(rows, "instant") + of(rows, "end")] == [
        "orphan"
    ] * 2


@pytest.mark.parametrize(
    ("was", "damaged"),
    [(b'"clk":', b'"clk":0.5,"was":'), (b'"name":', b'"na\0e":'), (b"}", b"")],
    ids=["bad_clk", "bad_json", "cut"],
)
def test_a_jets_record_of_which_only_the_id_is_readable_is_missing_once(was, damaged):
    lines = JETS.split(b"\n")
    lines[2] = lines[2].replace(was, damaged)
    log = Log()
    session = log.open("jets")
    log.data(session, b"\n".join(lines))
    log.close(session)
    ingest, rows = run(log.entries)
    gaps = [(row["name"], attributes(row)["count"]) for row in of(rows, "gap")]
    assert gaps == [("malformed", 1)]
    assert ingest.account("s").missing == 1
    assert_conserved(ingest)


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (b'{"clk":9,"type":"record_end","record_id":2}', "second_end"),
        (b'{"clk":1,"type":"record","name":"x","record_type":"T","id":1,"parent_id":null,"description":""}', "duplicate_id"),
        (b'{"clk":1,"type":"record","name":"x","record_type":"T","id":7,"parent_id":7,"description":""}', "self_parent"),
        (b'{"clk":1,"type":"event","name":"x","record_id":99,"description":""}', "orphan"),
    ],
)  # fmt: skip
def test_each_broken_rule_is_named_in_the_row_and_counted(line, flaw):
    lines = JETS.split(b"\n")
    lines.insert(6, line)
    log = Log()
    session = log.open("jets")
    log.data(session, b"\n".join(lines))
    ingest, rows = run(log.entries)
    assert ingest.tally("s").flaws == {flaw: 1}
    assert [row for row in rows if f'"$flaw":"{flaw}"' in (row["attributes"] or "")]


def test_an_end_before_its_start_is_named():
    log = Log()
    session = log.open("jets")
    log.data(
        session,
        JETS.replace(
            b'{"clk":9,"type":"record_end","record_id":2}',
            b'{"clk":0,"type":"record_end","record_id":2}',
        ),
    )
    ingest, _ = run(log.entries)
    assert ingest.tally("s").flaws == {"end_before_start": 1}


def test_a_second_header_begins_a_new_incarnation():
    log = Log()
    session = log.open("jets")
    log.data(session, JETS + JETS)
    log.close(session)
    ingest, rows = run(log.entries)
    assert {row["session"] for row in of(rows, "span")} == {"session0", "session0.1"}
    assert of(rows, "gap") == []
    assert ingest.tally("s").restarts == 1
    assert_conserved(ingest)


def test_a_new_epoch_is_a_restart_and_the_same_epoch_is_not():
    log = Log()
    session = log.open(transport="udp")
    first = [heph_event(1, n) for n in range(5)]
    log.datagrams(session, [heph_epoch(1), *first, heph_epoch(1), heph_event(1, 5)])
    log.datagrams(session, [heph_epoch(2), *first])
    ingest, rows = run(log.entries)
    spans = of(rows, "span")
    assert [row["session"] for row in spans] == ["session0"] * 6 + ["session0.1"] * 5
    assert ingest.account("s").missing == 0
    continues = [attributes(row).get("continues") for row in of(rows, "session")]
    assert "session0" in continues
    assert_conserved(ingest)


def test_a_restart_without_an_epoch_is_found_by_counter_and_time():
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, n) for n in range(100)])
    log.datagrams(session, [heph_event(1, n) for n in range(3)])
    log.datagrams(session, [heph_event(1, n, start=1 + n, end=2 + n) for n in range(20)])
    ingest, rows = run(log.entries)
    assert {row["session"] for row in of(rows, "span")} == {"session0", "session0.1"}
    assert len(of(rows, "span")) == 120
    assert ingest.account("s").duplicates == 3
    assert ingest.account("s").missing == 0


def test_duplicates_are_counted_and_not_stored_again():
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, n) for n in (0, 1, 1, 2, 0)])
    ingest, rows = run(log.entries)
    assert [row["seq"] for row in of(rows, "span")] == [0, 1, 2]
    assert ingest.account("s").duplicates == 2
    assert_conserved(ingest)


def test_a_record_cannot_go_on_past_its_datagram():
    whole = heph_event(1, 1)
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, 0), whole[:20], whole[20:], heph_event(1, 2)])
    ingest, rows = run(log.entries)
    assert [row["seq"] for row in of(rows, "span")] == [0, 2]
    assert ingest.tally("s").malformed == len(whole)
    assert_conserved(ingest)


def test_what_cannot_be_read_is_a_gap_row_that_finds_its_bytes_in_the_quarantine():
    noise = b"\x00noise\xff" * 9
    log = Log()
    session = log.open()
    log.data(session, heph_event(1, 0) + noise + heph_event(1, 1))
    ingest = applied(log.entries)
    quarantined = ingest.batch.take().quarantined
    kept = [frame for piece in quarantined for frame in frames(piece.frame)]
    assert [(frame.offset, frame.data) for frame in kept] == [(len(heph_event(1, 0)), noise)]
    assert_conserved(ingest)


def test_a_torn_tail_is_truncated_and_named():
    log = Log()
    session = log.open()
    log.data(session, heph_event(1, 0) + heph_event(1, 1)[:30])
    ingest, rows = run(log.entries)
    assert ingest.pending("s") == 30
    log.close(session, "reset: ECONNRESET")
    ingest, rows = run(log.entries)
    assert [(row["name"], attributes(row).get("bytes")) for row in of(rows, "gap")] == [
        ("truncated", 30),
        ("truncated", None),
    ]
    assert_conserved(ingest)


def test_ticks_close_the_windows_of_idle_sessions():
    log = Log()
    session = log.open(limits=LedgerConfig(reorder_time=Duration(2)))
    log.data(session, heph_event(1, 0) + heph_event(1, 3))
    ingest, rows = run(log.entries)
    assert ingest.waiting
    assert of(rows, "gap") == []
    log.tick(2)
    ingest, rows = run(log.entries)
    assert [(row["seq"], row["name"], attributes(row)) for row in of(rows, "gap")] == [
        (1, "network", {"count": 2})
    ]
    assert not ingest.waiting


def test_a_stop_closes_all_windows_and_later_events_heal():
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, 0), heph_event(1, 2)])
    log.stop()
    log.datagrams(session, [heph_event(1, 1)])
    _, rows = run(log.entries)
    assert [row["kind"] for row in rows if row["kind"] in {"gap", "heal"}] == ["gap", "heal"]


def test_a_peer_that_sends_only_garbage_is_rejected():
    log = Log()
    session = log.open(garbage_max=1000)
    log.data(session, bytes(200_000))
    ingest, _ = run(log.entries)
    assert ingest.rejected == [(session, "garbage")]


def traffic(seed):
    """A log of all that happens: several sessions, losses, noise, restarts, ticks, closes."""
    rng = random.Random(seed)
    log = Log()
    sessions = {}
    for _ in range(60):
        log.now += rng.randrange(0, 10**9)
        what = rng.random()
        if what < 0.15 or not sessions:
            udp = rng.random() < 0.5
            number = log.open(
                "heph" if rng.random() < 0.6 or udp else "jets", transport="udp" if udp else "tcp"
            )
            sessions[number] = [udp, log.entries[-1].payload, 0]
        elif what < 0.25:
            log.tick(rng.random() * 3)
        elif what < 0.3:
            log.stop()
        elif what < 0.4:
            number = rng.choice(list(sessions))
            del sessions[number]
            log.close(number)
        else:
            number = rng.choice(list(sessions))
            session = sessions[number]
            count = session[2]
            numbers = [n for n in range(count, count + 20) if rng.random() > 0.1]
            session[2] = count + 20 if rng.random() > 0.05 else 0
            if rng.random() < 0.2:
                rng.shuffle(numbers)
            if session[0]:
                log.datagrams(number, [heph_event(1 + n % 2, n // 2) for n in numbers])
            elif b"jets" in session[1]:
                log.data(
                    number,
                    b"".join(line + b"\n" for line in JETS.split(b"\n")[:-1] if rng.random() > 0.1),
                )
            else:
                cut = b"".join(heph_event(1 + n % 2, n // 2) for n in numbers)
                noise = rng.randbytes(10) if rng.random() < 0.1 else b""
                log.data(number, cut[: rng.randrange(len(cut) + 1)] + noise)
    return log.entries


@examples(60)
@given(st.integers(0, 2**32), st.data())
def test_replay_from_any_snapshot_gives_the_same_rows(seed, data):
    entries = traffic(seed)
    assert_replays(entries, data.draw(st.integers(0, len(entries))))


@examples(60)
@given(st.integers(0, 2**32))
def test_bytes_and_events_are_conserved_after_every_entry(seed):
    ingest = Ingest()
    for entry in traffic(seed):
        ingest.apply(entry)
        assert_conserved(ingest)


def test_what_the_disk_lost_is_named_by_every_session_that_may_lack_it():
    log = Log()
    sessions = [log.open(), log.open()]
    for number in sessions:
        log.data(number, heph_event(1, 0))
    lost = log.entries[-1].end
    log.data(sessions[0], heph_event(1, 1))
    kept = log.entries[-1].end
    log.data(sessions[0], heph_event(1, 2))
    log.close(sessions[0])
    ingest, _ = run(log.entries[:-3])
    assert ingest.position == lost
    ingest.pass_over(kept)
    ingest, rows = run(log.entries[-2:], ingest)
    gaps = [(row["session"], row["name"], attributes(row)["count"]) for row in of(rows, "gap")]
    assert gaps == [
        ("session0", "malformed", 0),
        (f"session{sessions[1]}", "malformed", 0),
        ("session0", "network", 1),
    ]


def test_what_the_disk_lost_of_the_replayed_log_is_named_once_rows_count_again():
    log = Log()
    session, other = log.open(), log.open()
    log.data(session, heph_event(1, 0))
    ingest, _ = run(log.entries)
    lost = ingest.position
    ingest.pass_over(lost + 100, replayed=True)
    log.close(other)
    ingest.apply(log.entries[-1]._replace(position=lost + 100, end=lost + 200))
    ingest.batch.take()  # as a replay does: these rows are in the table
    assert ingest.tell_lacking() == 100
    batch = ingest.batch.take()
    assert not rows(batch), "no position is left for rows before the next entry"
    log.tick(0)
    ingest.apply(log.entries[-1]._replace(position=lost + 200, end=lost + 300))
    batch = ingest.batch.take()
    gaps = [(row["session"], row["name"], attributes(row)) for row in of(rows(batch), "gap")]
    said = {"count": 0, "bytes": 100, "detail": "spool_damaged"}
    assert gaps == [(f"session{session}", "malformed", said)]
    assert ingest.tell_lacking() == 0


def damaged(rows):
    gaps = [(row["session"], attributes(row)) for row in of(rows, "gap")]
    return [session for session, about in gaps if about.get("detail") == "spool_damaged"]


@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("closed", ["before", "after", "never"])
def test_an_announced_session_may_lack_what_the_disk_lost_whatever_became_of_its_connection(
    closed, replayed
):
    log = Log()
    session = log.open()
    log.data(session, heph_session(1) + heph_event(1, 0))
    if closed == "before":
        log.close(session)
    ingest, _ = run(log.entries)
    before, lost = len(log.entries), ingest.position
    ingest.pass_over(lost + 100, replayed=replayed)
    batch = ingest.batch.take()
    assert damaged(rows(batch)) == ([] if replayed else [f"session{session}"])
    if closed == "after":
        log.close(session)
    for entry in log.entries[before:]:
        ingest.apply(entry._replace(position=lost + 100, end=lost + 200))
    ingest.batch.take()
    assert ingest.tell_lacking() == (100 if replayed else 0)
    log.tick(0)
    ingest.apply(log.entries[-1]._replace(position=lost + 200, end=lost + 300))
    batch = ingest.batch.take()
    assert damaged(rows(batch)) == ([f"session{session}"] if replayed else [])


@pytest.mark.parametrize("replayed", [True, False])
def test_damage_that_no_session_is_left_to_name_is_named_by_the_next_one(replayed):
    """The disk lost how a session began, whose rows are in the table."""
    log = Log()
    session = log.open()
    log.data(session, heph_event(1, 0))
    lost = log.entries[-1].position
    ingest, _ = run([])
    ingest.pass_over(lost, replayed=replayed)
    assert ingest.tell_lacking() == (lost if replayed else 0)
    ingest.apply(log.entries[-1])
    assert not rows(ingest.batch.take())
    following = log.open()
    log.data(following, heph_event(1, 0))
    log.tick(0)
    _, named = run(log.entries[-3:], ingest)
    assert damaged(named) == [f"session{following}"]


@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("entries", [0, 1])
def test_damage_that_waits_for_a_session_to_name_it_outlives_a_restart(replayed, entries):
    log = Log()
    ingest, _ = run([])
    ingest.pass_over(100, replayed=replayed)
    ingest.tell_lacking()
    log.add(EntryKind.START, 0, b"1.2.3")
    run(log.entries[:entries], ingest)
    again = Ingest.restore(ingest.snapshot())
    session = log.open()
    log.data(session, heph_event(1, 0))
    again, named = run(log.entries[entries:], again)
    assert damaged(named) == [f"session{session}"]
    log.data(session, heph_event(1, 1))
    _, named = run(log.entries[-1:], Ingest.restore(again.snapshot()))
    assert not damaged(named)


def test_damage_of_the_replayed_log_that_no_row_names_yet_outlives_a_restart():
    log = Log()
    session = log.open()
    log.data(session, heph_session(1) + heph_event(1, 0))
    later = log.open()
    log.data(later, heph_event(1, 0))
    ingest, _ = run(log.entries[:2])
    ingest.pass_over(ingest.position + 100, replayed=True)
    run(log.entries[2:], ingest)
    assert ingest.tell_lacking() == 100
    again = Ingest.restore(ingest.snapshot())
    assert again.tell_lacking() == 0
    log.tick(0)
    _, named = run(log.entries[-1:], again)
    assert damaged(named) == [f"session{session}"]


def test_a_replay_that_repeats_rows_of_damage_keeps_its_own_damage_for_later():
    log = Log()
    ingest, _ = run([])
    ingest.pass_over(100)
    again = Ingest.restore(ingest.snapshot())
    session = log.open()
    log.data(session, heph_event(1, 0))
    run(log.entries[:-1], again)
    again.pass_over(again.position + 7, replayed=True)
    _, repeated = run(log.entries[-1:], again)
    assert [attributes(row)["bytes"] for row in of(repeated, "gap")] == [100]
    assert again.tell_lacking() == 7
    log.tick(0)
    _, named = run(log.entries[-1:], again)
    assert [attributes(row)["bytes"] for row in of(named, "gap")] == [7]


def test_a_start_is_nobodys_end():
    log = Log()
    session = log.open("jets")
    assert session == 0
    log.add(EntryKind.START, 0, b"1.2.3")
    log.data(session, JETS)
    ingest, rows = run(log.entries)
    assert session in ingest.open_sessions()
    assert len(of(rows, "span")) == 2


def test_noise_of_many_kinds_has_few_rows_and_all_its_bytes_in_the_quarantine():
    rng = random.Random(5)
    solid = [n for n in range(256) if not bytes([n]).isspace()]
    noise = [bytes(rng.choices(solid, k=3)) + b"\n" + b"{\xff" + b"\nx" for _ in range(300)]
    log = Log()
    log.datagrams(log.open("jets", transport="udp"), noise)
    ingest = applied(log.entries)
    batch = ingest.batch.take()
    found, quarantined = rows(batch), batch.quarantined
    gaps = of(found, "gap")
    reasons = len(ingest.tally("s").malformed_records)  # of each, some lines may be text
    assert 2 <= reasons <= len(gaps) <= 2 * reasons
    assert sum(attributes(gap)["bytes"] for gap in gaps) == sum(map(len, noise))
    assert sum(attributes(gap)["count"] for gap in gaps) == ingest.account("s").missing
    kept = [frame for piece in quarantined for frame in frames(piece.frame)]
    assert b"".join(frame.data for frame in sorted(kept)) == b"".join(noise)
    assert_conserved(ingest)
