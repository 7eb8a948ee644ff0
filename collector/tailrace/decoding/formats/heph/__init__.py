"""The format Heph 0.1.0: size-prefixed packets, over sockets and in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.decoding.contract import Files, Format
from tailrace.decoding.formats.heph.decoder import HephBlockDecoder, HephDecoder, HephState
from tailrace.decoding.formats.heph.encoder import HephEncoder
from tailrace.decoding.formats.heph.packets import EVENT, EVENT_MIN, MAGICS, prefix
from tailrace.decoding.formats.heph.session import acknowledge

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.heph._kernel import of_events


def _of_events(payload: bytes, sizes: tuple[int, ...], first: int, begin: int) -> int:
    """Return the number of datagrams, from index `first` on, that contain only whole events (`Format.whole`)."""
    index, at = first, begin
    while index < len(sizes) and (end := at + sizes[index]) <= len(payload):
        if not _are_events(payload, at, end):
            break
        index, at = index + 1, end
    return index - first


def _are_events(data: bytes, at: int, end: int) -> bool:
    """Return whether `data[at:end]` consists of whole events, none of which contains the magic of another packet."""
    if at == end:
        return False
    while at < end:
        if end - at < EVENT_MIN:
            return False
        magic, size = prefix(data, at)
        stop = at + size
        whole = EVENT_MIN + (data[at + 40] << 8 | data[at + 41]) <= size <= end - at
        if (
            magic != EVENT
            or not whole
            or any(data.find(each, at + 4, stop) >= 0 for each in MAGICS)
        ):
            return False
        at = stop
    return True


def _is_dated(head: bytes) -> bool:
    """Return whether a file begins with an epoch in this century. Producers without a wall clock may count from 0."""
    return head[8:15] == b"\0\5epoch" and int.from_bytes(head[15:23]) >= 10**18


FORMAT = Format(
    name="heph",
    transports=("udp", "tcp", "unix", "tail"),
    decoder=HephBlockDecoder if kernels.active() else HephDecoder,
    state_type=HephState,
    flaws=frozenset({"bad_epoch", "bad_session", "bad_time", "invalid_utf8", "undecodable_body"}),
    malformed=frozenset(
        {
            # The comment at each reason states why bytes are malformed.
            "bad_length",  # The description or option is longer than the packet.
            "bad_magic",  # No packet begins at this offset.
            "bad_size",  # The size is below the minimum of a packet.
            "too_long",  # The size exceeds the decoder's `limit`.
            "torn",  # The first bytes of another packet are inside this packet.
            "truncated",  # The input ends inside this packet.
        }
    ),
    counter_bits=32,
    whole=of_events if kernels.active() else _of_events,
    files=Files(recognises=lambda _, head: head[:4] in MAGICS, dated=_is_dated),
    acknowledge=acknowledge,
    encoder=HephEncoder,
    suffix=".heph",
)
