"""Encode and decode the spool's entries. Each entry records one event of a source or of the daemon.

Format of a frame, which holds one entry (all numbers are little-endian):

    u32 length      number of bytes after the field position: 24 + payload size
    u32 crc32       checksum of position and all later fields, seeded with the spool's salt
    u64 position    offset of this frame in the whole log
    u64 mark        low byte: kind; higher bytes: distance from the synced position to position
    u64 session     number of the session
    i64 time_ns     time of arrival (Unix ns), never decreasing along the log; add the offset of the
                    last CLOCK entry to get wall time
    payload         at most `PAYLOAD_MAX` bytes

Three fields distinguish a valid frame from other bytes that look like a frame:

- *position* is never used twice in a spool, so a frame at any other position is rejected;
- the *salt* is random for each spool, so a producer cannot forge a valid frame inside a payload;
- *mark* encodes the position up to which the log was synced when the frame was written. A bad range below the
  synced position is damage, because its entries were acknowledged. A bad range above the synced position is
  only a torn tail.

A segment can reuse the file of an earlier segment; the earlier segment's frames have other positions. Recovery
discards the frames behind the end of the log, and overwrites those bytes with zeros before the next write.
Discarded frames therefore cannot reappear.

This module performs no I/O and reads no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from zlib_ng.zlib_ng import crc32

PAYLOAD_MAX = 2**20
"""Maximum size (bytes) of an entry's payload.

A source reads at most this many bytes at once, and recovery reads a payload in one piece."""

Fault = Literal["torn", "zeros", "corrupt"]
"""The reason why a scan of frames ended: the next frame extends beyond the given bytes (torn), was never
written (zeros), or is damaged (corrupt)."""

PREFIX = struct.Struct("<II")
COVERED = struct.Struct("<QQQq")
HEAD = struct.Struct("<IIQQQq")
HEAD_SIZE = HEAD.size
FRAME_MAX = HEAD_SIZE + PAYLOAD_MAX
# Number of bytes at the start of a frame that the frame's length field does not count.
_UNCOUNTED = HEAD_SIZE - 24
_LENGTHS = range(24, 24 + PAYLOAD_MAX + 1)


class EntryKind(IntEnum):
    """The kinds of log entries. The numbers are part of the disk format. No kind has the number 0, so that zero bytes
    are never a valid entry."""

    START = 1
    """A daemon started. The payload is msgpack."""
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
    """The current path of a session's file. The payload is msgpack (`FileFacts`).

    If the payload is empty, no source follows the file any more."""
    DOCUMENT = 9
    """A part of a document (a file that describes a stream, such as a metadata file) that belongs to a session
    (`pack_document`)."""
    LOSS = 10
    """Bytes are missing in a session. The payload is msgpack (`FileLoss`)."""
    DROPS = 11
    """The kernel dropped datagrams at a source's socket. The payload is msgpack (`DropCount`)."""
    HEARTBEAT = 12
    """A heartbeat of the daemon. The payload is msgpack (`Heartbeat`)."""
    CLOCK = 13
    """The wall clock was set. The payload is the new difference (ns) from log time to wall time, as msgpack."""


LAST = b"last"

_KINDS = {int(kind): kind for kind in EntryKind}


class Entry(NamedTuple):
    """One log entry. Its frame occupies the log positions from `position` (inclusive) to `end` (exclusive)."""

    position: int
    end: int
    kind: EntryKind
    session: int
    time_ns: int
    payload: bytes


class Scan(NamedTuple):
    """The result of `scan`: the entries at the start of a buffer, and the number of bytes that their frames
    occupy."""

    entries: list[Entry]
    consumed: int
    fault: Fault | None
    """The reason why the scan ended before the end of the buffer; None if the entries fill the whole buffer."""
    synced: int
    """The position up to which the log was synced when the last of `entries` was written."""


def encode(entries: Iterable[Entry], synced: int, salt: int = 0) -> bytes:
    """Return the frames of consecutive entries.

    `synced` is the position up to which the log is synced before the frames are written. `salt` belongs to the
    spool."""
    pieces: list[bytes] = []
    for position, _, kind, session, time_ns, payload in entries:
        covered = COVERED.pack(position, kind | (position - synced) << 8, session, time_ns)
        checksum = crc32(payload, crc32(covered, salt))
        pieces += (PREFIX.pack(24 + len(payload), checksum), covered, payload)
    return b"".join(pieces)


def scan(buffer: bytes, position: int, salt: int = 0) -> Scan:
    """Decode the entries in `buffer`, up to its end or the first bad frame.

    `position` is the log position of the buffer's first byte. `salt` belongs to the spool."""
    entries: list[Entry] = []
    view = memoryview(buffer)
    offset = synced = 0
    while offset + HEAD_SIZE <= len(buffer):
        length, checksum, at, mark, session, time_ns = HEAD.unpack_from(buffer, offset)
        end = offset + _UNCOUNTED + length
        kind = _KINDS.get(mark & 0xFF)
        if at != position + offset or length not in _LENGTHS or end > len(buffer) or kind is None:
            break
        if crc32(view[offset + PREFIX.size : end], salt) != checksum:
            break
        payload = buffer[offset + HEAD_SIZE : end]
        entries.append(Entry(at, position + end, kind, session, time_ns, payload))
        synced = at - (mark >> 8)
        offset = end
    fault = _name_fault(view[offset:], position + offset) if offset < len(buffer) else None
    return Scan(entries, offset, fault, synced)


def _name_fault(rest: bytes | memoryview, position: int) -> Fault:
    """Return what is wrong with the bad frame at the start of `rest`, whose log position is `position`."""
    head = rest[:HEAD_SIZE]
    if not any(head):
        return "zeros"
    if len(head) < HEAD_SIZE:
        return "torn"
    length, _, at, *_ = HEAD.unpack(head)
    if at == position and length in _LENGTHS and _UNCOUNTED + length > len(rest):
        return "torn"
    return "corrupt"


def find(buffer: bytes, position: int, salt: int = 0) -> int | None:
    """Return the offset of the first whole frame in `buffer`, or None if there is none. The frame may begin at
    any offset.

    `position` is the log position of the first byte of `buffer`.
    """
    for offset in _candidates(buffer, position):
        if scan(buffer[offset : offset + FRAME_MAX], position + offset, salt).entries:
            return offset
    return None


def _candidates(buffer: bytes, position: int) -> Iterator[int]:
    """Yield, in order, each offset in `buffer` at which a frame with the correct position field may begin.

    Positions in a range of 64 KiB differ only in their two low bytes. Therefore a byte search for the other bytes finds
    these frames."""
    field, end = PREFIX.size, position + len(buffer)
    for high in range(position >> 16, (end >> 16) + 1):
        shared = high.to_bytes(6, "little")
        first, last = max(high << 16, position) - position, min(high + 1 << 16, end) - position
        at = first + field + 2
        while (at := buffer.find(shared, at, last + field + 7)) >= 0:
            offset = at - field - 2
            if int.from_bytes(buffer[at - 2 : at], "little") == position + offset & 0xFFFF:
                yield offset
            at += 1


def pack_datagrams(datagrams: Sequence[bytes]) -> bytes:
    """Pack datagrams into a payload: u32 number of datagrams, one u32 size for each datagram, then the
    datagrams."""
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
        """Parse the sizes in a payload. Raise ValueError if the sizes do not match the payload's
        length."""
        try:
            (count,) = struct.unpack_from("<I", payload)
            self.sizes: tuple[int, ...] = struct.unpack_from(f"<{count}I", payload, 4)
        except struct.error as error:
            raise ValueError("a payload of datagrams is shorter than its table of sizes") from error
        self.payload = payload
        self.begin = 4 + 4 * count
        """Offset of the first datagram in the payload."""
        if self.begin + self.length != len(payload):
            end = self.begin + self.length
            raise ValueError(f"datagrams of {end} bytes in a payload of {len(payload)}")

    @property
    def length(self) -> int:
        """Return the total size (bytes) of the datagrams."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        payload = self.payload
        bounds = accumulate(self.sizes, initial=self.begin)
        return (payload[start:end] for start, end in pairwise(bounds))


def pack_document(name: str, data: bytes) -> list[bytes]:
    """Split a document (a file that describes a session's stream, such as its metadata) into payloads.

    Each payload has a byte that is 1 if more parts follow, the u32 size of the name, the name in UTF-8, and a
    part of the content."""
    encoded = name.encode(errors="surrogateescape")
    room = PAYLOAD_MAX - 5 - len(encoded)
    parts = [data[at : at + room] for at in range(0, len(data), room)] or [b""]
    last = len(parts) - 1
    return [
        struct.pack("<?I", i < last, len(encoded)) + encoded + part for i, part in enumerate(parts)
    ]


def unpack_document(payload: bytes) -> tuple[str, bytes, bool]:
    """Return the contents of one payload of `pack_document`: the name of a document (such as a metadata file), a part
    of its content, and whether more parts follow."""
    more, size = struct.unpack_from("<?I", payload)
    return payload[5 : 5 + size].decode(errors="surrogateescape"), payload[5 + size :], more
