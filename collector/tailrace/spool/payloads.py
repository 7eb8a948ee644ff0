"""Define the payloads of the spool's entries, by which sources and the daemon inform the ingest.

A `FileState` records how far a file has been read, and how to recognize the file after a restart.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from zlib_ng.zlib_ng import crc32

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import Reason

EOF = "eof"
"""The reason for closing a connection without data loss: the peer has closed it, and everything that the peer
sent was read."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A position in a compressed file at which decompression can start: the begin of a gzip member."""

    raw: int
    """Offset (bytes) of the gzip member in the compressed file."""
    content: int
    """Offset (bytes) of the gzip member's content in the decompressed content of the file."""


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
    """Time (Unix ns) at which the file was last written. If `why` is `unfollowed`: time at which a source last followed
    the file."""
    pending: int = 0
    """Number of bytes after the last complete gzip member of a compressed file."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the file that a session reads: the payload of a FILE entry, and a part of the
    file's OPEN entry."""

    path: str
    device: int
    inode: int
    birth: int
    """Time (Unix ns) at which the file was created; 0 if the system does not provide the time."""
    member: Member | None = None
    """Position in a compressed file from which a restart decompresses the file again; None for an uncompressed
    file."""
    rest: Rest | None = None
    """The reason why the file is assumed not to grow any more; None for a file that may grow."""


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

    With `stated`, the file is an exported copy, which states that its original had this loss (see
    `sources.tail.inflate`). The copy itself is whole.
    """

    detail: LossDetail
    size: int
    """Number of lost bytes; 0 if unknown. In a compressed file, these are compressed bytes."""
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
        """Return the size of a hole in the file, which the session's file reader must skip. Return 0 for any other
        loss, and with `stated`, because the file is then a copy without the hole."""
        return self.size if self.detail == "hole" and not self.stated else 0


class DropCount(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a DROPS entry: the number of datagrams that the kernel has dropped at a source's socket since the time
    `since` (Unix ns).

    A DROPS entry precedes the entries of the datagrams that were queued after the drops. It has the same time as these
    datagrams if they were read together with datagrams from before the drops (`QueuePart`), and otherwise an earlier
    time."""

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
    """Id of the daemon's run, generated at random at each start of the daemon."""
    number: int
    about: dict[str, int | float | str]
    """Attributes of the heartbeat's row: facts about the commit of the previous heartbeat, and the collector's
    state."""


class OpenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of an OPEN entry, which begins a session.

    It contains the limits that were configured when the session began, because the configuration may change before a
    replay."""

    source: str
    format: str
    session: str
    """The id of the session, generated at random."""
    transport: str
    peer: str
    record_max: int
    garbage_max: int = 0
    ledger: LedgerConfig
    pending_max: int = 0
    """Maximum number of bytes in unfinished records, for all sessions of the source together; 0 for no limit.
    """
    file: FileFacts | None = None
    group: str = ""
    """Name of the group of sessions whose streams share names; empty for no group."""
    dialect: str = "auto"
    rank: int | None = None
    node: str | None = None
    job: str | None = None
    """The job that the producer belongs to; None if the collector does not know it. `rank` and `node` are the
    producer's rank and node in the job."""
    collector: str = ""
    """The name of the collector that receives the session; empty for the collector `main`."""
    replaces: tuple[str, ...] = ()
    """Ids of earlier sessions that read the beginning or an incomplete copy of this session's file. The views omit
    them once this session is closed."""

    @property
    def connected(self) -> bool:
        """Return whether the session is a TCP or unix connection."""
        return self.transport in ("tcp", "unix")


HEAD, LAST = 256, 64
"""Numbers of bytes that are stored to recognize a file after a restart.

`HEAD` is the number of its first bytes, and `LAST` the number of bytes before the position up to which it was
read."""

UNSAYING = 2
"""Number of bytes at the start of a file whose change does not make the file a different one. They are excluded when a
file is recognized by its content."""


def checksum(crc: int, data: bytes, offset: int) -> int:
    """Continue the CRC-32 `crc` of a file's content with `data`, and return the result. `data` begins at `offset` in
    the content. The first `UNSAYING` bytes of the file do not count."""
    return crc32(data[UNSAYING - offset :] if offset < UNSAYING else data, crc)


class FileState(msgspec.Struct):
    """How far the file of a session has been read, and the data with which a source recognizes it after a
    restart."""

    facts: FileFacts
    offset: int = 0
    """Offset of the next byte to read in the file's content. The content is decompressed and includes holes."""
    head: bytes = b""
    last: bytes = b""
    documents: dict[str, int] = {}
    """CRC-32 of the content of each document beside the file (such as a metadata file) when it was last read, by the
    document's name."""
    part: bytes = b""
    """The parts of a document (such as a metadata file) that were received, while further parts of it are still
    missing."""
    unread: bool = False
    """Whether the source has reported the unread end of the file as lost. The source then closes the session."""
    crc: int | None = None
    """`checksum` of the content read so far, without holes; None if an earlier version of Tailrace read a part
    of the file."""

    def read(self, data: bytes) -> None:
        """Update `offset`, `head`, `last` and `crc` after the next bytes `data` of the file's content were read."""
        if self.crc is not None:
            self.crc = checksum(self.crc, data, self.offset)
        self._go_on(data)

    def lose(self, loss: FileLoss) -> None:
        """Update `offset`, `head` and `last` after a hole in the file, which reads as zeros. Set `unread` if the loss is
        the end of the file."""
        self._go_on(bytes(min(loss.skip, HEAD)))
        self.offset += loss.skip - min(loss.skip, HEAD)
        self.unread |= loss.detail == "unread" and not loss.stated

    def _go_on(self, data: bytes) -> None:
        self.offset += len(data)
        if len(self.head) < HEAD:
            self.head = (self.head + data)[:HEAD]
        self.last = data[-LAST:] if len(data) >= LAST else (self.last + data)[-LAST:]
