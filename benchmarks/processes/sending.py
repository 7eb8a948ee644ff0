"""Send traces in several ways: a file over a connection, datagrams or lines at a rate, several traces over many
connections.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

Address = tuple[str, int]

PIECE = 16 * 2**10
"""Number of bytes that one of many connections sends before the next one sends."""
MTU_PAYLOAD = 1432


def stream(address: Address, path: Path) -> None:
    """Send a file over a connection, as fast as the receiver reads it."""
    with path.open("rb") as file, socket.create_connection(address) as sock:
        sock.sendfile(file)


def datagrams(address: Address, packets: Sequence[bytes], rate: float) -> float:
    """Send datagrams at about `rate` a second. Return how long this took."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        return _at_rate(sock, packets, rate)


def one_by_one(address: Address, lines: Sequence[bytes], rate: float) -> float:
    """Send lines over a connection at about `rate` a second, each in a write of its own. Return how long this took."""
    with socket.create_connection(address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _at_rate(sock, lines, rate)


def _at_rate(sock: socket.socket, pieces: Sequence[bytes], rate: float) -> float:
    begun = time.monotonic()
    burst = max(1, round(rate / 1000))
    for at in range(0, len(pieces), burst):
        ahead = begun + at / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        for piece in pieces[at : at + burst]:
            sock.sendall(piece)
    return time.monotonic() - begun


def packed(packets: Iterable[bytes], limit: int = MTU_PAYLOAD) -> list[bytes]:
    """Return packets joined to datagrams of at most `limit` bytes."""
    joined: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for packet in packets:
        if size + len(packet) > limit:
            joined.append(b"".join(group))
            group, size = [], 0
        group.append(packet)
        size += len(packet)
    return [*joined, b"".join(group)]


def connections(address: Address, traces: Sequence[bytes]) -> None:
    """Send each trace over a connection of its own. All connections are open at the same time and send in turns."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(address)) for _ in traces]
        longest = max(map(len, traces))
        for at in range(0, longest, PIECE):
            for sock, trace in zip(socks, traces, strict=True):
                if at < len(trace):
                    sock.sendall(trace[at : at + PIECE])
