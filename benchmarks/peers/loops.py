"""Read binary records once in a loop of Python, because no other program reads these formats.

The loop unpacks headers to tuples and stores nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from benchmarks.peers.peer import Peer

_HEPH = Struct(">IIIIQQQH")
_OVNI = Struct("<B3sQ")


def peer() -> Peer:
    """Return the description of Python itself as a peer."""
    does = "one `struct` unpack an event to a tuple, nothing stored"
    return Peer("Python loop", platform.python_version(), "make dev", does)


def heph(paths: list[str]) -> Callable[[], int]:
    """Return a function that unpacks the header of every Heph event."""
    data = b"".join(Path(path).read_bytes() for path in paths)

    def work() -> int:
        # Begin after the packet with the epoch, which has 23 bytes
        unpack, at, events = _HEPH.unpack_from, 23, []
        while at < len(data):
            event = unpack(data, at)
            events.append(event)
            at += event[1]
        return len(events)

    return work


def ovni(paths: list[str]) -> Callable[[], int]:
    """Return a function that unpacks the header of every ovni event."""
    streams = [Path(path).read_bytes() for path in paths]

    def work() -> int:
        unpack, events = _OVNI.unpack_from, []
        for data in streams:
            at = 8
            while at < len(data):
                event = unpack(data, at)
                events.append(event)
                flags = event[0]
                at += 12 + ((flags & 15) + 1 if flags & 15 else 0)
                if flags & 16:
                    at += int.from_bytes(data[at - 4 : at], "little")
        return len(events)

    return work
