"""Datagrams decoded in one piece say what they say one by one, however damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.decoding.formats import FORMATS
from tailrace.ingest.datagram_records import decode_datagrams
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


@pytest.mark.parametrize("format_", [f for f in FORMATS.values() if f.whole], ids=lambda f: f.name)
@settings(max_examples=500, deadline=None)
@given(datagrams())
def test_datagrams_in_one_piece_say_what_they_say_one_by_one(format_, many):
    together = format_.decoder(65536, None)
    apart = format_.decoder(65536, None)
    assert decode_datagrams(together, many, format_.whole) == decode_datagrams(apart, many, None)
    assert together.state == apart.state


def test_only_single_whole_events_count_as_whole():
    whole = FORMATS["heph"].whole
    event = heph_event(1, 0)
    assert whole(event)
    assert not any(map(whole, [event[:-1], event + event, event + b"\0", heph_epoch(1), b""]))
