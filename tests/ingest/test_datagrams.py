"""Datagrams decoded in one piece say what they say one by one, however damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from tailrace.decoding.formats import FORMATS, heph
from tailrace.ingest.session import decode_datagrams, decoding
from tailrace.kernels import active
from tailrace.spool.entry import Datagrams, pack_datagrams
from tests.forms import examples
from tests.ingest.log import EVENT_MAGIC, METADATA_MAGIC, heph_epoch, heph_event

PIECES = [
    struct.pack(">I", EVENT_MAGIC), struct.pack(">I", METADATA_MAGIC), b"\x00\x00\x00\x2e", b"\xff\xff",
    struct.pack(">H1sB", 1, b"k", 0x81), struct.pack(">H1sBQ", 1, b"k", 1, 7), heph_event(2, 0), b"",
]  # fmt: skip


@st.composite
def packets(draw):
    made = []
    for n in range(draw(st.integers(1, 6))):
        attributes = b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=3)))
        packet = bytearray(heph_event(1, n, attributes=attributes))
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(packet) - 1))
            piece = draw(st.sampled_from(PIECES))
            packet[at : at + len(piece)] = piece
        packet[4:8] = struct.pack(">I", len(packet)) if draw(st.booleans()) else packet[4:8]
        made.append(heph_epoch(7) if draw(st.integers(0, 5)) == 0 else bytes(packet))
    return made


@st.composite
def datagrams(draw):
    """Datagrams of some packets each, most of them events, some cut."""
    many = []
    for made in draw(st.lists(packets(), min_size=1, max_size=6)):
        datagram = b"".join(made)
        cut = draw(st.sampled_from([0, 0, 0, 1, 20]))
        many.append(datagram[: len(datagram) - cut])
    return many


def records(chunk):
    return [part.record(row) for part in chunk for row in range(part.rows)]


@pytest.mark.parametrize("format_", [f for f in FORMATS.values() if f.whole], ids=lambda f: f.name)
@examples(300)
@given(datagrams())
def test_datagrams_in_one_piece_say_what_they_say_one_by_one(format_, many):
    together = format_.decoder(65536, None)
    apart = format_.decoder(65536, None)
    packed = Datagrams(pack_datagrams(many))
    found = decode_datagrams(together, decoding(together), packed, format_.whole)
    one_by_one = decode_datagrams(apart, decoding(apart), packed, None)
    assert list(map(records, found)) == list(map(records, one_by_one))
    assert together.state == apart.state


def whole(*datagrams):
    packed = Datagrams(pack_datagrams(datagrams))
    return FORMATS["heph"].whole(packed.payload, packed.sizes, 0, packed.begin)


def test_only_datagrams_of_whole_events_count_as_whole():
    event, other = heph_event(1, 0), heph_event(2, 7, attributes=b"\x00\x01a\x01" + bytes(8))
    assert whole(event) == 1
    assert whole(event, other + event, event) == 3
    odd = [
        event[:-1],
        event + event[:-1],
        event + b"\0",
        heph_epoch(1),
        event + heph_epoch(1),
        b"",
        b"\0" * 42,
    ]
    for magic in (EVENT_MAGIC, METADATA_MAGIC):
        inside = b"\x00\x01a\x04\x00\x04" + magic.to_bytes(4, "big")
        odd.append(event + heph_event(1, 0, attributes=inside))
    for each in odd:
        assert whole(each) == 0
        assert whole(event, event, each, event) == 2
        assert whole(each, event) == 0


def test_datagrams_are_counted_from_the_one_asked_for():
    event = heph_event(1, 0)
    packed = Datagrams(pack_datagrams([event, heph_epoch(1), event, event + event]))
    begin = packed.begin + sum(packed.sizes[:2])
    assert FORMATS["heph"].whole(packed.payload, packed.sizes, 2, begin) == 2
    assert FORMATS["heph"].whole(packed.payload, packed.sizes, 4, len(packed.payload)) == 0


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
def test_the_kernel_takes_datagrams_of_several_events_beside_one_that_tells_of_its_session():
    """As clients send them: each datagram holds as many events as fit."""
    full = [b"".join(heph_event(1, 16 * n + at) for at in range(16)) for n in range(8)]
    decoder = FORMATS["heph"].decoder(65536, None)
    packed = Datagrams(pack_datagrams([*full[:4], heph_epoch(7) + full[4], *full[5:]]))
    chunks = decode_datagrams(decoder, decoding(decoder), packed, FORMATS["heph"].whole)
    pieces = [[(part.rows, part.packed) for part in chunk] for chunk in chunks]
    assert pieces == [[(64, 64)], [(17, 0)], [(48, 48)]]


def test_the_records_of_a_datagram_that_states_something_stand_apart():
    odd = heph_event(1, 2) + heph_epoch(7) + heph_event(1, 3)
    many = [heph_event(1, 0), b"?", b"", odd, odd, heph_event(1, 4), heph_event(1, 5)[:-1]]
    decoder = FORMATS["heph"].decoder(65536, None)
    packed = Datagrams(pack_datagrams(many))
    chunks = decode_datagrams(decoder, decoding(decoder), packed, FORMATS["heph"].whole)
    sizes = [[len(many[0]), 1], *[[46, 23, 46]] * 2, [46, 45]]
    assert [[record.size for record in records(chunk)] for chunk in chunks] == sizes


def test_sizes_beyond_the_bytes_are_not_whole():
    event = heph_event(1, 0)
    assert FORMATS["heph"].whole(event, (len(event), len(event)), 0, 0) == 1
    assert FORMATS["heph"].whole(event, (len(event),), 0, 1) == 0


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
@examples(300)
@given(datagrams())
def test_the_kernel_calls_those_events_that_python_calls_so(many):
    packed = Datagrams(pack_datagrams(many))
    given = packed.payload, packed.sizes, 0, packed.begin
    assert heph.of_events(*given) == heph._of_events(*given)
