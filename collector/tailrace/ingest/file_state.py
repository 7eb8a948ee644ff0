"""How far a file has been read, and how the file is recognized again."""

from __future__ import annotations

import msgspec
from zlib_ng.zlib_ng import crc32

from tailrace.ingest.payloads import FileFacts

HEAD, LAST = 256, 64
"""Bytes of a file that are kept to recognize it: its first bytes, and those before the place
reached."""

UNSAYING = 2
"""First bytes that may change while the file stays the same."""


def checksum(crc: int, data: bytes, offset: int) -> int:
    """Return the CRC-32 of a file's content after these bytes, which begin at `offset`. The first
    `UNSAYING` bytes are left out."""
    return crc32(data[UNSAYING - offset :] if offset < UNSAYING else data, crc)


class FileState(msgspec.Struct):
    """How far a session's file has been read: what a source needs to continue."""

    facts: FileFacts
    offset: int = 0
    """Place of the next byte in the content, which is inflated and includes holes."""
    head: bytes = b""
    last: bytes = b""
    documents: dict[str, int] = {}
    """CRC-32 of each document as it was last read."""
    part: bytes = b""
    """The beginning of a document whose other parts have not come yet."""
    crc: int | None = None
    """`checksum` of the content without holes; None where an earlier version read a part of the
    file."""

    def read(self, data: bytes) -> None:
        """Take the next bytes of the content."""
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self._go_on(data)

    def pass_over(self, size: int) -> None:
        """Take a hole of this size, which reads as zeros."""
        self._go_on(bytes(min(size, HEAD)))
        self.offset += size - min(size, HEAD)

    def _go_on(self, data: bytes) -> None:
        self.offset += len(data)
        if len(self.head) < HEAD:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]
