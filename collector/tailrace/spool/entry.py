"""Define the spool's entries, and pack datagrams and documents into their payloads.

Each entry records one event of a source or of the daemon. This module performs no I/O and reads no clock."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import NamedTuple

PAYLOAD_MAX = 2**20
"""Maximum size (bytes) of an entry's payload, and so of one read of a source."""


class EntryKind(IntEnum):
    """The kinds of log entries. The numbers are part of the disk format. No kind is 0, so zero bytes are no entry."""

    START = 1
    """A daemon started. The payload is the version of Tailrace as text."""
    OPEN = 2
    """A session began. The payload is msgpack (`OpenInfo`)."""
    DATA = 3
    """A chunk of a session's bytes."""
    DATAGRAMS = 4
    """A batch of datagrams of one session (`Datagrams`)."""
    CLOSE = 5
    """A session ended. The payload is the reason as text."""
    TICK = 6
    """Time has passed. The payload is empty."""
    STOP = 7
    """The daemon stopped cleanly. If the payload is `LAST`, no later daemon continues the open sessions."""
    FILE = 8
    """The current path of a session's file: msgpack (`FileFacts`), or empty once no source follows the file."""
    DOCUMENT = 9
    """A part of a document that belongs to a session, such as a metadata file (`pack_document`)."""
    LOSS = 10
    """Bytes are missing in a session. The payload is msgpack (`FileLoss`)."""
    DROPS = 11
    """The kernel dropped datagrams at a source's socket. The payload is msgpack (`DropCount`)."""
    HEARTBEAT = 12
    """A heartbeat of the daemon. The payload is msgpack (`Heartbeat`)."""
    CLOCK = 13
    """The wall clock was set. The payload is the new difference (ns) from the log's time, which never goes back, to the
    wall time, as msgpack."""


LAST = b"last"


class Entry(NamedTuple):
    """One log entry. Its frame occupies the log positions from `position` (inclusive) to `end` (exclusive)."""

    position: int
    end: int
    kind: EntryKind
    session: int
    time_ns: int
    payload: bytes


def pack_datagrams(datagrams: Sequence[bytes]) -> bytes:
    """Pack datagrams into a payload: u32 number of datagrams, one u32 size for each datagram, then the datagrams."""
    sizes = struct.pack(f"<I{len(datagrams)}I", len(datagrams), *map(len, datagrams))
    return sizes + b"".join(datagrams)


def measure_datagrams(payload: bytes) -> tuple[int, int]:
    """Return the number of datagrams in a payload of `pack_datagrams`, and the sum of their sizes (bytes)."""
    count = int.from_bytes(payload[:4], "little")
    return count, len(payload) - 4 - 4 * count


class Datagrams:
    """The datagrams in one payload of `pack_datagrams`, all from one peer."""

    __slots__ = ("begin", "payload", "sizes")

    def __init__(self, payload: bytes) -> None:
        """Parse the sizes in a payload. Raise ValueError if they do not match the payload's length."""
        try:
            (count,) = struct.unpack_from("<I", payload)
            self.sizes: tuple[int, ...] = struct.unpack_from(f"<{count}I", payload, 4)
        except struct.error as error:
            raise ValueError("a payload of datagrams is shorter than its table of sizes") from error
        self.payload = payload
        self.begin = 4 + 4 * count
        if self.begin + self.length != len(payload):
            end = self.begin + self.length
            raise ValueError(f"datagrams of {end} bytes in a payload of {len(payload)}")

    @property
    def length(self) -> int:
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        payload = self.payload
        bounds = accumulate(self.sizes, initial=self.begin)
        return (payload[start:end] for start, end in pairwise(bounds))


def pack_document(name: str, data: bytes) -> list[bytes]:
    """Split a document of a session's stream into payloads. Each payload has a byte (1 if more parts follow), the u32
    size of the name, the name in UTF-8, and a part of the content."""
    encoded = name.encode(errors="surrogateescape")
    room = PAYLOAD_MAX - 5 - len(encoded)
    parts = [data[at : at + room] for at in range(0, len(data), room)] or [b""]
    last = len(parts) - 1
    return [
        struct.pack("<?I", i < last, len(encoded)) + encoded + part for i, part in enumerate(parts)
    ]


def unpack_document(payload: bytes) -> tuple[str, bytes, bool]:
    """Unpack one payload: return the document's name, a part of its content, and whether more parts follow."""
    more, size = struct.unpack_from("<?I", payload)
    return payload[5 : 5 + size].decode(errors="surrogateescape"), payload[5 + size :], more
