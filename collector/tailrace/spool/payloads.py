"""Define the payloads of the spool's entries, and how far a file has been read (`FileState`)."""

from __future__ import annotations

from typing import Literal

import msgspec
from zlib_ng.zlib_ng import crc32

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import Reason

EOF = "eof"
"""The reason for closing a connection without data loss: the peer has closed it."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A position in a compressed file at which decompression can start: the begin of a gzip member."""

    raw: int
    """Offset (bytes) of the gzip member in the compressed file."""
    content: int
    """Offset (bytes) of the member's content in the decompressed content."""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a file is assumed not to grow.

    - process_gone: the process that wrote the file has ended.
    - silent: the file has not grown for longer than the source's `rest_time`.
    - waits: the file has not grown for longer than `rest_time`, but the process that writes the file is running.
    - ended: the file's stream was complete when the daemon stopped.
    - stopped: the daemon stopped while the file ended with an incomplete record.
    - unfollowed: no source follows the file any more; it may have grown since."""

    why: Literal["process_gone", "silent", "waits", "ended", "stopped", "unfollowed"]
    since: int
    """Time (Unix ns) of the last write to the file; with `unfollowed`, the time until which a source followed it."""
    pending: int = 0
    """Number of bytes after the last complete gzip member of a compressed file."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the file that a session reads: the payload of a FILE entry, and a part of an OPEN entry."""

    path: str
    device: int
    inode: int
    birth: int
    """Time (Unix ns) at which the file was created; 0 if unknown."""
    member: Member | None = None
    """Position from which a restart decompresses the file again; None for an uncompressed file."""
    rest: Rest | None = None
    """The reason why the file is assumed not to grow any more; None for a file that may grow."""
    copied_in: tuple[str, ...] = ()
    """Ids of other sessions whose files together have all content of this file. They are valid as long as this file
    does not grow."""


LossDetail = Literal[
    "hole", "bad_member", "torn_member", "overwritten", "unread", "shed", "spool_damaged"
]


class FileLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a LOSS entry: bytes of a session that are missing or cannot be used, and why.

    - hole: a part of the file that was never written.
    - bad_member: compressed bytes that cannot be decompressed; `data` contains these bytes.
    - torn_member: a gzip member without its end. The session has the content that could be decompressed; the size of
      the lost content is unknown.
    - overwritten: bytes that changed in the file after they had been read.
    - unread: bytes that disappeared before they could be read.
    - shed: datagrams of new peers that were dropped because there were too many new peers.
    - spool_damaged: bytes that the spool lost.

    With `stated`, the file is an exported copy, which states that its original had this loss. The copy itself is whole.
    """

    detail: LossDetail
    size: int
    """Number of lost bytes (compressed bytes in a compressed file); 0 if unknown."""
    data: bytes = b""
    stated: bool = False

    @property
    def reason(self) -> Reason:
        reasons = {
            "bad_member": Reason.MALFORMED, "spool_damaged": Reason.MALFORMED, "shed": Reason.SHED,
        }  # fmt: skip
        return reasons.get(self.detail, Reason.TRUNCATED)

    @property
    def skip(self) -> int:
        """Return the size (bytes) of the hole that the file's reader must skip. Return 0 for any other loss, and for a
        hole that an exported file only states, because the original file had it."""
        return self.size if self.detail == "hole" and not self.stated else 0


class DropCount(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a DROPS entry: datagrams that the kernel has dropped at a socket since the time `since` (Unix ns). The
    entry precedes the entries of the datagrams that were queued after the drops."""

    source: str
    count: int
    since: int
    socket: int = 0
    """The cookie of the socket: a number that the kernel gives to no other socket."""
    total: int = 0
    """The kernel's count of all datagrams that it has dropped at this socket. The count wraps at 2^32."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a HEARTBEAT entry, which shows that the daemon is running."""

    session: str
    """Random id of one run of the daemon."""
    number: int
    about: dict[str, int | float | str]
    """Attributes of the heartbeat's row: the delays of the latest heartbeat whose row is in the table, and the
    collector's state."""


class OpenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of an OPEN entry, which begins a session. It has the configured limits, because a replay of the spool
    must use the same limits."""

    source: str
    format: str
    session: str
    """Random id of the session."""
    transport: str
    peer: str
    record_max: int
    garbage_max: int = 0
    ledger: LedgerConfig
    pending_max: int = 0
    """Maximum number of bytes in unfinished records of all sessions of the source together; 0 for no limit."""
    file: FileFacts | None = None
    group: str = ""
    """Key that all sessions of one program execution share, as `Files.group` returns it; empty if there is none."""
    dialect: str = "auto"
    rank: int | None = None
    node: str | None = None
    job: str | None = None
    """The job to which the producer belongs; `rank` and `node` are its place in the job. None if unknown."""
    collector: str = ""
    """Name of the collector that receives the session; empty for the collector `main`."""
    replaces: tuple[str, ...] = ()
    """Ids of earlier sessions with an incomplete copy of the file, which views omit once this session is closed."""

    @property
    def connected(self) -> bool:
        return self.transport in ("tcp", "unix")


HEAD, LAST = 256, 64
"""Number of bytes at a file's start, and before the reading position, by which a restart recognizes the file."""

UNSAYING = 2
"""Number of bytes at the start of a file that a tracer may change. They are ignored when the file is recognized."""


def checksum(crc: int, data: bytes, offset: int) -> int:
    """Continue the CRC-32 `crc` of a file's content with `data`, which begins at `offset` (bytes) in the content. The
    first `UNSAYING` bytes of the file do not count."""
    return crc32(data[UNSAYING - offset :] if offset < UNSAYING else data, crc)


class FileState(msgspec.Struct):
    """How far the file of a session has been read, and how the file is recognized after a restart."""

    facts: FileFacts
    offset: int = 0
    """Offset of the next byte to read in the decompressed content, holes included."""
    head: bytes = b""
    last: bytes = b""
    documents: dict[str, int] = {}
    """CRC-32 of each document beside the file (such as a metadata file), by the document's name."""
    part: bytes = b""
    """The received parts of a document that is still incomplete."""
    unread: bool = False
    """Whether the unread end of the file was reported as lost."""
    crc: int | None = None
    """The checksum (see `checksum`) of the content read so far; holes do not count. None if a part of the content was
    read by an early version of Tailrace, which computed no checksum."""

    def read(self, data: bytes) -> None:
        """Add the next bytes `data` of the file's content, which were read."""
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self._go_on(data)

    def lose(self, loss: FileLoss) -> None:
        """Record a loss in the file. Skip a hole, which reads as zeros."""
        self._go_on(bytes(min(loss.skip, HEAD)))
        self.offset += loss.skip - min(loss.skip, HEAD)
        self.unread |= loss.detail == "unread" and not loss.stated

    def _go_on(self, data: bytes) -> None:
        self.offset += len(data)
        if len(self.head) < HEAD:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]
