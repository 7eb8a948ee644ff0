"""The child process of the rate probe: sends datagrams to a port of this host at the rate it is told.

It is a program of its own that uses only the standard library and is run by its path. Standard input has
a line `COUNT RATE` for each step; standard output gets `SENT SECONDS` when the step is done. The end of
the input ends the process.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

SIZE = 72
"""Bytes of a datagram, which holds one usual Heph event."""

_EVENT = struct.pack(">IIIIQQQH", 0xC1FC1FB7, SIZE, 1, 0, 0, 0, 0, SIZE - 42) + bytes(SIZE - 42)

BATCH = 32
"""Datagrams handed to the kernel at a time. The kernel cuts one large buffer into pieces (UDP_SEGMENT);
without that, the sender is slower than the receiver."""

_UDP_SEGMENT = 103


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", int(sys.argv[1])))
        batch = BATCH
        try:
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, SIZE)
        except OSError:
            batch = 1
        for line in sys.stdin:
            count, rate = map(int, line.split())
            sent, seconds = send(sock, count, rate, batch)
            sys.stdout.write(f"{sent} {seconds}\n")
            sys.stdout.flush()


def send(sock: socket.socket, count: int, rate: int, batch: int) -> tuple[int, float]:
    """Send at least `count` datagrams evenly at `rate` a second. Return their number and the seconds."""
    data = _EVENT * batch
    sent = 0
    begin = time.perf_counter()
    while sent < count:
        early = begin + sent / rate - time.perf_counter()
        if early > 0:
            time.sleep(early)
        sock.send(data)
        sent += batch
    return sent, time.perf_counter() - begin


if __name__ == "__main__":
    main()
