"""Run producers as trio tasks. They send numbered units at a limited rate, and record what the kernel accepted.

A *unit* is a Heph packet, a datagram of packets, or a JETS line (`tailrace.demo` makes them). It has a place in the
list that is sent. A producer ends at the end of its list.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

BURST_SECONDS = 0.01
RETRY_SECONDS = 0.02


class Handed:
    """The bytes that were passed to the kernel.

    `connections` has for each connection the places of the units whose last byte the kernel accepted. A unit is in at
    most one of them. UDP has one connection.
    """

    def __init__(self) -> None:
        self.connections: list[list[int]] = []

    @property
    def places(self) -> list[int]:
        """The places of the units of all connections, in order."""
        return [place for connection in self.connections for place in connection]


async def send_datagrams(
    address: tuple[str, int], datagrams: Sequence[bytes], handed: Handed, *, rate: float
) -> None:
    """Send each unit as a datagram, `rate` a second, from one socket, whether a process listens or not."""
    places: list[int] = []
    handed.connections.append(places)
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
        await sock.bind(("127.0.0.1", 0))
        for burst in _bursts(len(datagrams), rate):
            for place in burst:
                await sock.sendto(datagrams[place], address)
                places.append(place)
            await trio.sleep(len(burst) / rate)


async def send_stream(
    address: tuple[str, int],
    units: Sequence[bytes],
    handed: Handed,
    *,
    rate: float,
    preamble: bytes = b"",
) -> None:
    """Send the units over TCP, `rate` a second.

    If the connection is lost, continue on a new one: send the preamble (a Heph epoch, a JETS header), and then the
    units from the first one on that the kernel did not accept completely.
    """
    done = 0
    while done < len(units):
        try:
            stream = await trio.open_tcp_stream(*address)
        except OSError:
            await trio.sleep(RETRY_SECONDS)
            continue
        places: list[int] = []
        handed.connections.append(places)
        with stream.socket as sock:
            try:
                await stream.send_all(preamble)
                for burst in _bursts(len(units) - done, rate):
                    for _ in burst:
                        await _send_whole(sock, units[done])
                        places.append(done)
                        done += 1
                    await trio.sleep(len(burst) / rate)
            except (OSError, trio.BrokenResourceError):
                await trio.sleep(RETRY_SECONDS)


async def _send_whole(sock: trio.socket.SocketType, unit: bytes) -> None:
    sent = 0
    while sent < len(unit):
        sent += await sock.send(unit[sent:])


def _bursts(count: int, rate: float) -> list[range]:
    """Yield the places from 0 to `count`, divided into those that are due in each `BURST_SECONDS`."""
    size = max(1, round(rate * BURST_SECONDS))
    return [range(at, min(at + size, count)) for at in range(0, count, size)]
