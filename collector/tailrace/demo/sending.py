"""Send the demonstration's chunks to an address or into a directory, at a bounded rate."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any

import trio

from tailrace.demo.heph import epoch, heph_events
from tailrace.demo.traffic import Write

Address = tuple[str, int]

BURST_SECONDS = 0.02
"""Seconds between bursts of chunks, because a timer is too coarse for single chunks."""


async def send_udp(address: Address, chunks: Iterable[bytes], rate: float) -> None:
    """Send each chunk as a datagram, `rate` a second."""
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
        await sock.connect(address)
        pace = SendingPace(rate)
        for chunk in chunks:
            await sock.send(chunk)
            await pace.sent()


async def send_tcp(address: Address, chunks: Iterable[bytes], rate: float) -> None:
    """Send chunks over one connection, `rate` a second, and close it."""
    async with await trio.open_tcp_stream(*address) as stream:
        pace = SendingPace(rate)
        for chunk in chunks:
            await stream.send_all(chunk)
            await pace.sent()


async def write_files(directory: Path, writes: Iterable[Write], rate: float) -> None:
    """Make `rate` writes a second to files below a directory. Files stay open, as in the producers."""
    with ExitStack() as stack:
        files: dict[str, FileIO] = {}
        pace = SendingPace(rate)
        for write in writes:
            file = files.get(write.path)
            if file is None:
                file = files[write.path] = stack.enter_context(_created(directory / write.path))
            if write.anew:
                file.seek(0)
                file.truncate()
            file.write(write.data)
            await pace.sent()


def _created(path: Path) -> FileIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb", buffering=0)


SENDERS: dict[str, Callable[[Any, Iterable[Any], float], Awaitable[None]]] = {
    "udp": send_udp,
    "tcp": send_tcp,
    "tail": write_files,
}
"""The sender of each transport, by its name in the configuration."""


async def trickle(address: Address, epoch_ns: int, rate: float) -> None:
    """Send Heph events over one connection, `rate` a second, until the collector goes away."""
    with suppress(OSError, trio.BrokenResourceError):
        await send_tcp(address, chain([epoch(epoch_ns)], _endless()), rate)


def _endless() -> Iterator[bytes]:
    for packet in heph_events(1, sys.maxsize, (1,)):
        yield packet.data


class SendingPace:
    """Waits after each burst, so that on average `rate` chunks are sent a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._burst = max(1, round(rate * BURST_SECONDS))
        self._left = self._burst

    async def sent(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = self._burst
            await trio.sleep(self._burst / self._rate)
