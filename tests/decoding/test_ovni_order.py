"""Test places where the clock of a stream goes back, and the flaws that are reported there."""

from __future__ import annotations

import pytest

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.order import OPENING_MAX
from tailrace.model.record import Kind, Record
from tests.decoding.ovni_bytes import HEADER, ends, event, jumbo, starts, u32


def read(*parts: bytes) -> list[Record]:
    decoder = FORMAT.decoder(1 << 20, None)
    return decoder.feed(HEADER + b"".join(parts)) + decoder.end()


def flaws(records: list[Record]) -> list[str | None]:
    """Return the flaws of events with these clocks, in this order."""
    return [record.flaw for record in records[1:] if record.size]


def burst(*clocks: int) -> bytes:
    return b"".join(event("OB.", clock) for clock in clocks)


def test_equal_clocks_are_in_order() -> None:
    assert flaws(read(starts(5), burst(5, 5), ends(5))) == [None] * 4


def test_a_clock_that_goes_back_is_said_once_for_each_time() -> None:
    records = read(starts(5), burst(9, 7, 8, 6), ends(10))
    assert flaws(records) == [None, None, "clock_back", None, "clock_back", None]


def test_late_events_may_be_old_and_what_follows_them_may_not() -> None:
    late = event("OU[", 20) + event("KCO", 3) + event("KCI", 4) + event("OU]", 21)
    assert flaws(read(starts(5), late, burst(22, 20))) == [None] * 6 + ["clock_back"]
    assert flaws(read(starts(5), late[:-12], event("OU]", 19))) == [None] * 4 + ["clock_back"]
    ahead = event("OU[", 20) + burst(30) + event("OU]", 21)
    assert flaws(read(starts(5), ahead)) == [None] * 4


def test_what_is_older_than_a_thread_that_ended_is_of_an_earlier_run() -> None:
    records = read(starts(50), event("VU[", 55), ends(60), event("VU]", 7), burst(8), ends(9))
    assert flaws(records) == [None, None, None, "stale_tail", "stale_tail", "stale_tail"]
    assert [r.detail.detail for r in records if r.kind == Kind.GAP] == ["stale_tail"]
    stale = [record for record in records if record.flaw == "stale_tail"]
    assert stale[0].id is None, "it does not end what the later run began"


def test_each_earlier_run_is_told_of() -> None:
    records = read(starts(90), ends(99), burst(50), ends(60), burst(3), ends(9))
    assert [r.detail.detail for r in records if r.kind == Kind.GAP] == ["stale_tail"] * 2


def test_what_is_older_than_the_first_event_is_of_an_earlier_run_though_the_later_never_ended() -> (
    None
):
    records = read(starts(50), burst(55), burst(7, 9, 8), ends(10))
    assert flaws(records) == [None, None, *["stale_tail"] * 4]
    assert [r.detail.detail for r in records if r.kind == Kind.GAP] == ["stale_tail", "unfinished"]


def test_late_events_may_be_older_than_the_first() -> None:
    records = read(starts(50), event("OU[", 55), event("KCO", 7), event("OU]", 56), ends(60))
    assert {record.flaw for record in records} == {None}


def test_names_of_an_earlier_run_name_nothing() -> None:
    label = jumbo("VYc", 7, u32(1) + b"old\0")
    records = read(starts(50), ends(60), label, event("VTc", 8, u32(1, 1)))
    assert Kind.NAME not in {record.kind for record in records}


SHARED = starts(10) + event("VU[", 11) + jumbo("VYc", 12, u32(1) + b"t\0") + event("VU]", 14)


def test_what_a_fork_wrote_twice_is_a_duplicate_and_no_more() -> None:
    child, parent = burst(20, 30), burst(25, 28)
    records = read(SHARED, child, SHARED, parent, ends(40))
    assert flaws(records) == [None] * 6 + ["duplicate"] * 4 + [None] * 3
    assert [r.name for r in records if r.kind == Kind.SESSION] == ["header", "fork"]
    copies = [record for record in records if record.flaw == "duplicate"]
    assert {record.id for record in copies} == {None}
    assert Kind.BEGIN not in {record.kind for record in copies}
    assert sum(record.kind == Kind.NAME for record in records) == 1
    assert not [record for record in records if record.kind == Kind.GAP]


def test_a_fork_whose_child_ended_is_no_earlier_run() -> None:
    records = read(SHARED, ends(20), SHARED, burst(25), ends(40))
    assert {record.flaw for record in records} == {None, "duplicate"}
    assert not [record for record in records if record.kind == Kind.GAP]


def test_a_parent_that_never_ended_lacks_its_end_though_its_child_did() -> None:
    records = read(SHARED, ends(20), SHARED, burst(25))
    assert [r.detail.detail for r in records if r.kind == Kind.GAP] == ["unfinished"]


@pytest.mark.parametrize("flushes", [1, 2])
def test_a_fork_after_a_flush_is_recognised(flushes: int) -> None:
    before = b"".join(event("OF[", 20 + i) + event("OF]", 20 + i) for i in range(flushes))
    shared = event("OF[", 30) + event("OF]", 31) + burst(32)
    records = read(SHARED, before, shared, burst(40), event("OF[", 41), shared, burst(35), ends(50))
    assert flaws(records).count("duplicate") == 3
    assert "clock_back" not in flaws(records)


def test_copies_are_known_as_far_as_the_beginning_is_remembered() -> None:
    long = starts(10) + burst(*range(11, 1000))
    found = flaws(read(long, burst(2000), long, burst(1500)))
    remembered = (OPENING_MAX - 28) // 12 + 1
    assert found.count("duplicate") == remembered
    assert set(found) == {None, "duplicate"}


@pytest.mark.parametrize("cut", [0, 5, 12, 30])
def test_how_bytes_came_does_not_change_what_is_remembered(cut: int) -> None:
    data = HEADER + SHARED + burst(20) + SHARED
    whole = FORMAT.decoder(4096, None).feed(data)
    decoder = FORMAT.decoder(4096, None)
    records = []
    for at in range(0, len(data), cut or len(data)):
        records += decoder.feed(data[at : at + (cut or len(data))])
    assert records == whole
