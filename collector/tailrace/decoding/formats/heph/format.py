"""The facts about Heph that the rest of Tailrace needs."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.decoding.contract import Files, Format
from tailrace.decoding.formats.heph.decoder import (
    EVENT,
    EVENT_MIN,
    MAGICS,
    HephDecoder,
    HephState,
    prefix,
)
from tailrace.decoding.formats.heph.session import acknowledge

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.heph._kernel import all_events
    from tailrace.decoding.formats.heph.blocks import HephBlockDecoder


def _are_events(payload: bytes, sizes: tuple[int, ...], begin: int) -> bool:
    """Return whether datagrams are exactly one event each: their lengths agree, and no magic is inside."""
    bounds = accumulate(sizes, initial=begin)
    return all(_is_event(payload[start:end]) for start, end in pairwise(bounds))


def _is_event(datagram: bytes) -> bool:
    have = len(datagram)
    if have < EVENT_MIN:
        return False
    magic, size = prefix(datagram)
    return (
        magic == EVENT
        and size == have
        and (datagram[40] << 8 | datagram[41]) + EVENT_MIN <= have
        and datagram.find(MAGICS[0], 4) < 0
        and datagram.find(MAGICS[1], 4) < 0
    )


FORMAT = Format(
    name="heph",
    transports=("udp", "tcp", "unix", "tail"),
    decoder=HephBlockDecoder if kernels.active() else HephDecoder,
    state_type=HephState,
    flaws=frozenset({"bad_epoch", "bad_session", "bad_time", "invalid_utf8", "undecodable_body"}),
    malformed=frozenset(
        {
            "bad_length",  # the description or option runs over the packet
            "bad_magic",  # no packet begins here
            "bad_size",  # the size is less than any packet has
            "too_long",  # the size is over the limit
            "torn",  # another packet begins inside this one
            "truncated",  # the input ends inside this packet
        }
    ),
    counter_bits=32,
    whole=all_events if kernels.active() else _are_events,
    files=Files(recognises=lambda _, head: head[:4] in MAGICS),
    acknowledge=acknowledge,
)
