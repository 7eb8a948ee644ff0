"""Test the functions that find the beginnings and ends of ovni's events."""

from __future__ import annotations

import random

import pytest

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.frame import (
    CLOCK_END,
    JUMBO_MAX,
    NUMBERS,
    event_size,
    find_event,
)
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind
from tests.decoding.ovni_bytes import HEADER, event, jumbo, starts, u32

LITTLE = NUMBERS["<"]


def size_of(data: bytes) -> int | str:
    return event_size(bytearray(data), 0, LITTLE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (event("VU[", 5), 12),
        (event("OHx", 5, b"x" * 16), 28),
        (event("VU[", 5, b"xx", flags=0xE0), 14),
        (jumbo("VYc", 5, b"xyz"), 19),
        (jumbo("VYc", 5, b"xyz")[:16], 19),
        (jumbo("VYc", 5, b"xyz")[:15], 0),
        (event("VU[", 5)[:11], 0),
        (jumbo("VU[", 5, b"xyz"), "bad_event"),
        (event("VU[", CLOCK_END), 12),
        (event("ab~", CLOCK_END - 1), 12),
        (event("ab~", CLOCK_END), "bad_event"),
        (event("ab ", 5), "bad_event"),
        (event("ab\x7f", 5), "bad_event"),
    ],
)
def test_flags_and_mcv_say_how_long_an_event_is(data: bytes, expected: int | str) -> None:
    assert size_of(data) == expected


def test_no_jumbo_is_longer_than_libovni_writes() -> None:
    head = jumbo("VYc", 5, b"")[:12]
    assert size_of(head + u32(JUMBO_MAX)) == 16 + JUMBO_MAX
    assert size_of(head + u32(JUMBO_MAX + 1)) == "bad_size"


@pytest.mark.parametrize("order", NUMBERS)
@pytest.mark.parametrize("mcv", [mcv.decode() for mcv in EVENTS])
def test_every_event_is_found_in_noise(mcv: str, order: str) -> None:
    known = EVENTS[mcv.encode()]
    payload = b"\1" * known.layouts[order][0].size
    whole = (jumbo if known.jumbo else event)(mcv, 77, payload, order=order)
    data = bytearray(b"\xfe" * 9 + whole + b"\xfe" * 20)
    assert find_event(data, 0, len(data), NUMBERS[order], 4096) == (9, True)
    assert event_size(data, 9, NUMBERS[order]) == len(whole)


@pytest.mark.parametrize(
    "data",
    [
        event("VU[", CLOCK_END),  # no possible clock
        event("VU[", 5, b"xx"),  # a payload, which this event does not have
        event("VTx", 5),  # no payload, but this event has one
        event("VU[", 5, flags=0x20),  # flags that no producer sets
        event("~~~", 5),  # an unknown MCV
        jumbo("VU[", 5, b""),  # an event that is never a jumbo
        jumbo("VYc", 5, b"x" * 90),  # an event larger than the limit
        event("VYc", 5, u32(1)),  # an event that is always a jumbo
    ],
)
def test_what_only_looks_like_an_event_is_passed_over(data: bytes) -> None:
    buffer = bytearray(data + b"\xff" * 20)
    assert find_event(buffer, 0, len(buffer), LITTLE, 64) == (len(buffer) - 3, False)


def test_what_may_become_an_event_is_waited_for() -> None:
    whole = bytearray(b"\xff" * 5 + jumbo("VYc", 5, u32(1)))
    for stop in range(5, 5 + 16):
        place, found = find_event(whole, 0, stop, LITTLE, 64)
        assert (place, found) == (max(0, stop - 3) if stop < 9 else 5, False)
    assert find_event(whole, 0, 21, LITTLE, 64) == (5, True)


def test_noise_is_not_read_as_events() -> None:
    noise = random.Random(3).randbytes(1 << 20)
    decoder = FORMAT.decoder(1 << 16, None)
    records = decoder.feed(HEADER + starts(5) + noise) + decoder.end()
    assert sum(r.kind != Kind.MALFORMED for r in records[2:-1]) <= 1
    assert {r.flaw for r in records if r.kind == Kind.MALFORMED} == {"bad_event"}
    assert all(r.size <= 1 << 16 for r in records)


def test_an_unreadable_run_is_one_record_however_it_comes() -> None:
    noise = b"\xff" * 1000
    decoder = FORMAT.decoder(1 << 16, None)
    records = decoder.feed(HEADER + starts(5))
    for byte in noise:
        records += decoder.feed(bytes([byte]))
    records += decoder.feed(event("VS@", 6))
    assert [r.size for r in records if r.kind == Kind.MALFORMED] == [1000]


def test_no_byte_of_an_unreadable_run_is_looked_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []

    def find(buffer, begin, stop, *rest):
        looked.append(stop - begin)
        return find_event(buffer, begin, stop, *rest)

    monkeypatch.setattr("tailrace.decoding.formats.ovni.decoder.find_event", find)
    decoder = FORMAT.decoder(1 << 16, None)
    decoder.feed(HEADER + starts(5))
    for _ in range(3000):
        decoder.feed(b"\xff")
    assert sum(looked) < 10 * 3000
