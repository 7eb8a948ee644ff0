"""Send datagrams to a port of this host at a given rate.

The check of the network runs this module as a child process, by its path, with only the standard library. Standard
input has one line `COUNT RATE` for each step. After each step, the program writes a line `SENT SECONDS`. It ends
when standard input ends.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

SIZE = 72
"""Size (bytes) of each datagram, as with one usual Heph event."""

_EVENT = struct.pack(">IIIIQQQH", 0xC1FC1FB7, SIZE, 1, 0, 0, 0, 0, SIZE - 42) + bytes(SIZE - 42)

BATCH = 32
"""Number of datagrams that one system call sends (UDP_SEGMENT). With one call for each datagram, the sender would be
slower than the receiver."""

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
    """Send at least `count` datagrams at `rate` a second, evenly spaced, `batch` of them in each system call.

    Return the number of sent datagrams and the duration (seconds).
    """
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
