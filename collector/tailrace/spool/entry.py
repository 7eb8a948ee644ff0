"""The bytes of the spool: one entry for each thing that happened to a source.

A frame, all numbers little-endian:

    u32 length      of what follows position: 24 + payload
    u32 crc32       over position and all that follows it, seeded with the spool's salt
    u64 position    logical offset of this frame in the whole log
    u64 mark        kind in the low byte; above it, how far position was ahead of what was synced
    u64 session
    i64 time_ns     Unix nanoseconds of arrival, never decreasing along the log; add the offset of the
                    last CLOCK entry to get wall time
    payload         at most `PAYLOAD_MAX` bytes

Three fields tell the entries written here from other bytes that look like an entry:

- *position* is unique in the life of a spool, so a frame copied or left elsewhere is refused;
- the *salt* is drawn with the spool, so a producer cannot send a payload that holds a frame;
- *mark* says up to where the log was synced when the frame was written. A bad place below that
  position had been acknowledged and is damage; a bad place above it is only a torn tail.

Frames of a segment that had the file before have other positions. Frames of an earlier life that recovery
does not keep lie behind the place where it lets the log end: it fills that place with zeros before anything
is written there, so they cannot come back.

Pure: no I/O and no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from zlib_ng.zlib_ng import crc32

PAYLOAD_MAX = 2**20
"""As much as a source reads at once at most, and small enough to be read in one piece."""

Fault = Literal["torn", "zeros", "corrupt"]
"""Why a scan ended: the frame goes beyond the given bytes, was never written, or is damaged."""

PREFIX = struct.Struct("<II")
COVERED = struct.Struct("<QQQq")
HEAD = struct.Struct("<IIQQQq")
HEAD_SIZE = HEAD.size
FRAME_MAX = HEAD_SIZE + PAYLOAD_MAX
_UNCOUNTED = HEAD_SIZE - 24  # bytes of a frame that its length does not count
_LENGTHS = range(24, 24 + PAYLOAD_MAX + 1)


class EntryKind(IntEnum):
    """The kinds of entries. The numbers are part of the format on disk; none is zero."""

    START = 1
    """A daemon started; msgpack."""
    OPEN = 2
    """A session begins; msgpack."""
    DATA = 3
    """Bytes of a session."""
    DATAGRAMS = 4
    """Several datagrams of one session; see `Datagrams`."""
    CLOSE = 5
    """A session is over; the reason as text."""
    TICK = 6
    """Time passed; no payload."""
    STOP = 7
    """The daemon stopped in order. With the payload `LAST`, nobody continues its sessions."""
    FILE = 8
    """The present path of a session's file; msgpack. Without a payload, no source follows the file any more."""
    DOCUMENT = 9
    """A document about a session; see `pack_document`."""
    LOSS = 10
    """Bytes of a session that cannot be obtained; msgpack."""
    DROPS = 11
    """The kernel dropped datagrams at a source's socket; msgpack."""
    HEARTBEAT = 12
    """The daemon is alive; msgpack."""
    CLOCK = 13
    """How far (ns) the wall clock is ahead of the log's time from now on; msgpack."""


LAST = b"last"

_KINDS = {int(kind): kind for kind in EntryKind}


class Entry(NamedTuple):
    """One entry. It occupies the positions from `position` up to, not including, `end`."""

    position: int
    end: int
    kind: EntryKind
    session: int
    time_ns: int
    payload: bytes


class Scan(NamedTuple):
    """The entries at the start of a buffer, how many bytes they take, and why the scan ended."""

    entries: list[Entry]
    consumed: int
    fault: Fault | None
    """None when the entries take the whole buffer."""
    synced: int
    """The position up to which the log was synced when the last entry was written."""


def encode(entries: Iterable[Entry], synced: int, salt: int = 0) -> bytes:
    """Return the frames of consecutive entries; the log is synced up to `synced` when they are written."""
    pieces: list[bytes] = []
    for position, _, kind, session, time_ns, payload in entries:
        covered = COVERED.pack(position, kind | (position - synced) << 8, session, time_ns)
        checksum = crc32(payload, crc32(covered, salt))
        pieces += (PREFIX.pack(24 + len(payload), checksum), covered, payload)
    return b"".join(pieces)


def scan(buffer: bytes, position: int, salt: int = 0) -> Scan:
    """Read entries of `buffer`, which begins at `position`, up to its end or the first bad frame."""
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
    """Name the fault of the bad frame at the start of `rest`, which begins at `position`."""
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
    """Return the offset of the first whole frame in `buffer`, wherever it begins, or None.

    `buffer` begins at `position`.
    """
    for offset in _candidates(buffer, position):
        if scan(buffer[offset : offset + FRAME_MAX], position + offset, salt).entries:
            return offset
    return None


def _candidates(buffer: bytes, position: int) -> Iterator[int]:
    """Yield every offset, in order, where a frame with the right position field begins.

    All positions in 64 KiB share all bytes but two, so a search for a text finds them.
    """
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
    """Return a payload of datagrams: u32 count, that many u32 sizes, then their bytes."""
    sizes = struct.pack(f"<I{len(datagrams)}I", len(datagrams), *map(len, datagrams))
    return sizes + b"".join(datagrams)


def measure_datagrams(payload: bytes) -> tuple[int, int]:
    """Return how many datagrams a payload has, and how many bytes these have together."""
    count = int.from_bytes(payload[:4], "little")
    return count, len(payload) - 4 - 4 * count


class Datagrams:
    """Datagrams of one peer in one payload (see `pack_datagrams`)."""

    __slots__ = ("begin", "payload", "sizes")

    def __init__(self, payload: bytes) -> None:
        """Take a payload. Raise ValueError when its sizes do not match it."""
        try:
            (count,) = struct.unpack_from("<I", payload)
            self.sizes: tuple[int, ...] = struct.unpack_from(f"<{count}I", payload, 4)
        except struct.error as error:
            raise ValueError("a payload of datagrams is shorter than its table of sizes") from error
        self.payload = payload
        self.begin = 4 + 4 * count
        """Where in the payload the datagrams begin."""
        if self.begin + self.length != len(payload):
            end = self.begin + self.length
            raise ValueError(f"datagrams of {end} bytes in a payload of {len(payload)}")

    @property
    def length(self) -> int:
        """Return how many bytes the datagrams have."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        payload = self.payload
        bounds = accumulate(self.sizes, initial=self.begin)
        return (payload[start:end] for start, end in pairwise(bounds))


def pack_document(name: str, data: bytes) -> list[bytes]:
    """Cut a document into payloads: u8 whether more follow, u32 size of the name in UTF-8, the name,
    a part of the content."""
    encoded = name.encode(errors="surrogateescape")
    room = PAYLOAD_MAX - 5 - len(encoded)
    parts = [data[at : at + room] for at in range(0, len(data), room)] or [b""]
    last = len(parts) - 1
    return [
        struct.pack("<?I", i < last, len(encoded)) + encoded + part for i, part in enumerate(parts)
    ]


def unpack_document(payload: bytes) -> tuple[str, bytes, bool]:
    """Return a document's name, a part of its content, and whether more follow."""
    more, size = struct.unpack_from("<?I", payload)
    return payload[5 : 5 + size].decode(errors="surrogateescape"), payload[5 + size :], more
