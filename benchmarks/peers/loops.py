"""One pass in Python over binary records, which no other program stores: headers to tuples, nothing stored."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from benchmarks.peers.peer import Peer

_HEPH = Struct(">IIIIQQQH")
_OVNI = Struct("<B3sQ")


def peer() -> Peer:
    """Return Python itself."""
    does = "one `struct` unpack an event to a tuple, nothing stored"
    return Peer("Python loop", platform.python_version(), "make dev", does)


def heph(paths: list[str]) -> Callable[[], int]:
    """Return work that unpacks the header of every event of Heph."""
    data = b"".join(Path(path).read_bytes() for path in paths)

    def work() -> int:
        unpack, at, events = _HEPH.unpack_from, 23, []  # behind the epoch
        while at < len(data):
            event = unpack(data, at)
            events.append(event)
            at += event[1]
        return len(events)

    return work


def ovni(paths: list[str]) -> Callable[[], int]:
    """Return work that unpacks the header of every event of ovni."""
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
