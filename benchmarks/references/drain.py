"""Drain bytes without using them: from a socket, or from a file, which is decompressed if necessary.

Each function runs in a process of its own (`processes/apart.py`) and returns its work.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_BUFFER = 2**18
_SILENCE_SECONDS = 2.0


def connection(descriptor: int) -> Callable[[], int]:
    """Return a function that accepts one connection and counts its bytes."""
    listener = socket.socket(fileno=descriptor)
    buffer = memoryview(bytearray(_BUFFER))

    def work() -> int:
        total = 0
        with listener:
            sock, _ = listener.accept()
        with sock:
            while got := sock.recv_into(buffer):
                total += got
        return total

    return work


def datagrams(descriptor: int, expected: int) -> Callable[[], int]:
    """Return a function that counts datagrams until all have arrived, or none arrives any more."""
    sock = socket.socket(fileno=descriptor)
    buffer = memoryview(bytearray(_BUFFER))

    def work() -> int:
        sock.settimeout(None)
        sock.recv_into(buffer)
        sock.settimeout(_SILENCE_SECONDS)
        total = 1
        with sock, suppress(TimeoutError):
            while total < expected:
                sock.recv_into(buffer)
                total += 1
        return total

    return work


def files(paths: list[str]) -> Callable[[], int]:
    """Return a function that reads files and counts the bytes of their content."""

    def work() -> int:
        return sum(_read(Path(path)) for path in paths)

    return work


def _read(path: Path) -> int:
    total = 0
    inflater = zlib.decompressobj(wbits=31) if path.suffix == ".gz" else None
    with path.open("rb", buffering=0) as file:
        while data := file.read(_BUFFER):
            while inflater and data:
                total += len(inflater.decompress(data))
                data = inflater.unused_data
                if inflater.eof:
                    inflater = zlib.decompressobj(wbits=31)
            total += len(data)
    return total
