"""Datagrams decoded in one piece say what they say one by one, however damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.decoding.formats import FORMATS
from tailrace.decoding.formats.heph import format as heph
from tailrace.ingest.datagram_records import decode_datagrams
from tailrace.ingest.parts import decoding
from tailrace.kernels import active
from tailrace.model.block import Block
from tailrace.spool.entry import Datagrams
from tests.ingest.log import EVENT_MAGIC, METADATA_MAGIC, heph_epoch, heph_event

PIECES = [
    struct.pack(">I", EVENT_MAGIC), struct.pack(">I", METADATA_MAGIC), b"\x00\x00\x00\x2e", b"\xff\xff",
    struct.pack(">H1sB", 1, b"k", 0x81), struct.pack(">H1sBQ", 1, b"k", 1, 7), heph_event(2, 0), b"",
]  # fmt: skip


@st.composite
def datagrams(draw):
    many = []
    for n in range(draw(st.integers(1, 6))):
        attributes = b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=3)))
        packet = bytearray(heph_event(1, n, attributes=attributes))
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(packet) - 1))
            piece = draw(st.sampled_from(PIECES))
            packet[at : at + len(piece)] = piece
        packet[4:8] = struct.pack(">I", len(packet)) if draw(st.booleans()) else packet[4:8]
        many.append(bytes(packet))
    return many


def records(chunk):
    return [r for part in chunk for r in (part.records() if isinstance(part, Block) else part)]


@pytest.mark.parametrize("format_", [f for f in FORMATS.values() if f.whole], ids=lambda f: f.name)
@settings(max_examples=500, deadline=None)
@given(datagrams())
def test_datagrams_in_one_piece_say_what_they_say_one_by_one(format_, many):
    together = format_.decoder(65536, None)
    apart = format_.decoder(65536, None)
    packed = Datagrams.pack(many)
    found = decode_datagrams(together, decoding(together), packed, format_.whole)
    one_by_one = decode_datagrams(apart, decoding(apart), packed, None)
    assert records(found) == records(one_by_one)
    assert together.state == apart.state


def whole(*datagrams):
    packed = Datagrams.pack(datagrams)
    return FORMATS["heph"].whole(packed.payload, packed.sizes, packed.begin)


def test_only_single_whole_events_count_as_whole():
    event, other = heph_event(1, 0), heph_event(2, 7, attributes=b"\x00\x01a\x01" + bytes(8))
    assert whole(event)
    assert whole(event, other, event)
    for odd in (event[:-1], event + event, event + b"\0", heph_epoch(1), b"", b"\0" * 42):
        assert not whole(odd)
        assert not whole(event, odd)
        assert not whole(odd, event)
    for magic in (EVENT_MAGIC, METADATA_MAGIC):
        assert not whole(
            heph_event(1, 0, attributes=b"\x00\x01a\x04\x00\x04" + magic.to_bytes(4, "big"))
        )


def test_sizes_beyond_the_bytes_are_not_whole():
    event = heph_event(1, 0)
    assert not FORMATS["heph"].whole(event, (len(event), len(event)), 0)
    assert not FORMATS["heph"].whole(event, (len(event),), 1)


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
@settings(max_examples=500, deadline=None)
@given(st.lists(datagrams(), max_size=3))
def test_the_kernel_calls_those_events_that_python_calls_so(many):
    packed = Datagrams.pack([datagram for some in many for datagram in some])
    given = packed.payload, packed.sizes, packed.begin
    assert heph.all_events(*given) == heph._are_events(*given)
