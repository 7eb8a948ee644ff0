"""The payloads of the spool's entries, in which sources and the daemon inform the ingest.

A `FileState` is how far a file has been read, and how the file is recognized again.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from zlib_ng.zlib_ng import crc32

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import Reason

EOF = "eof"
"""The reason of a connection's end for which nothing can be missing: the peer had sent everything, and it was read."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A place in a compressed file where inflating can begin."""

    raw: int
    """Offset in the compressed bytes."""
    content: int
    """Offset in the inflated content."""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file is taken not to grow.

    process_gone: the process that wrote the file is gone. silent: the file has not grown for longer than
    the source's `rest_time`. waits: the same, but the process that writes it lives. ended: the file's
    stream had said its end when the daemon stopped. stopped: the daemon stopped, and the last bytes are
    no whole record. unfollowed: no source follows the file any more, so it
    may have grown."""

    why: Literal["process_gone", "silent", "waits", "ended", "stopped", "unfollowed"]
    since: int
    """When the file was last written, or no longer followed (Unix ns)."""
    pending: int = 0
    """Bytes at the end of a compressed file that are no whole member."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a FILE entry, and part of a file's OPEN entry: which file a session reads."""

    path: str
    device: int
    inode: int
    birth: int
    """When the file was made (Unix ns); 0 where the system does not say."""
    member: Member | None = None
    """None for a file that is not compressed."""
    rest: Rest | None = None
    """None for a file that grows, or may grow."""


LossDetail = Literal[
    "hole", "bad_member", "torn_member", "overwritten", "unread", "shed", "spool_damaged"
]


class FileLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a LOSS entry: bytes that a session lacks, or has and cannot use.

    hole: a part of the file that nobody wrote. bad_member: compressed bytes that cannot be inflated;
    `data` has them. torn_member: the compressed bytes end before their member does; the content has what
    could be inflated, and the size of the rest is unknown. overwritten: bytes that were read have changed
    since. unread: bytes were gone before they could be read. shed: datagrams of peers that were too many
    at a time. spool_damaged: bytes that the spool lost.

    `stated`: the file is a copy, which says that its original lacks them (`sources.tail.inflate`).
    """

    detail: LossDetail
    size: int
    """Number of bytes, 0 if unknown; compressed bytes are counted as they are in the file."""
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
        """Return the number of bytes of the file's content that the loss covers."""
        return self.size if self.detail == "hole" and not self.stated else 0


class DropCount(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a DROPS entry: the kernel dropped `count` more datagrams at a source's socket since a
    time (Unix ns). The entry precedes those of the datagrams that were queued behind the drops. Drops among the
    datagrams of a part (`QueuePart`) have the part's time; drops before the part have an earlier time."""

    source: str
    count: int
    since: int
    socket: int = 0
    """The kernel's number of the socket."""
    total: int = 0
    """The kernel's count at that time, since the socket was made; it wraps at 2^32."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a HEARTBEAT entry: the daemon lives."""

    session: str
    """Drawn anew at each start of the daemon."""
    number: int
    about: dict[str, int | float | str]
    """Attributes of the heartbeat's row: its predecessor's way into the table, and how the collector is."""


class OpenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of an OPEN entry: a session begins.

    The limits are those of the configuration at that time: a replay must not depend on today's."""

    source: str
    format: str
    session: str
    """The session's drawn id."""
    transport: str
    peer: str
    record_max: int
    garbage_max: int = 0
    ledger: LedgerConfig
    pending_max: int = 0
    """Bytes of unfinished records that all sessions of the source may hold together; 0 for any
    number."""
    file: FileFacts | None = None
    group: str = ""
    """The group of streams that share names; "" for none."""
    dialect: str = "auto"
    rank: int | None = None
    node: str | None = None
    job: str | None = None
    """Where in a job the producer runs, as far as the collector knows."""
    collector: str = ""
    """The name of the collector that receives it; "" for `main`."""
    replaces: tuple[str, ...] = ()
    """Sessions that read the beginning of this file, or an incomplete copy of it. The views leave them
    out once this session is closed."""

    @property
    def connected(self) -> bool:
        """Return whether the session is a connection's."""
        return self.transport in ("tcp", "unix")


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
