"""Define the interface between sources and the daemon.

A source turns input into chunks of sessions and passes the chunks to the `Intake`, which makes them durable. While the
intake has no room, a source receives nothing: TCP peers block, and datagrams wait in the kernel, which may drop some
and counts these. `Refusal` lists all reasons for rejecting or closing a connection, evicting a peer, dropping a
datagram or ignoring a file.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec
import trio

from tailrace.kernels import active
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, OpenInfo

CHUNK_MAX = (512 if active() else 128) * 1024
"""Maximum size (bytes) of one chunk.

While a chunk is decoded, the event loop is blocked: a few milliseconds with a kernel, and up to 0.15 s in Python (for
ET3 with unusual records). Larger chunks cost less CPU time for each event: a Heph event over TCP costs 1.56 µs with
chunks of 128 KiB, and 0.95 µs with chunks of 512 KiB (2026-11-23).

Without compiled kernels the chunks are smaller, because no thread reads datagrams while a chunk is decoded.
"""

RESERVE = 64
"""Number of file descriptors that sources leave free for other parts of the process.

The library that writes the table aborts the process if it cannot open a file.
"""


class Intake(Protocol):
    """The interface through which sources pass chunks to the daemon. All calls come from the event
    loop, and no call blocks except `room`.
    """

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        """Begin a session and return its number."""
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append a chunk to a session.

        It is either `DATA`, at most CHUNK_MAX bytes of a byte stream, or `DATAGRAMS`, packed as `spool.entry` defines.
        """
        ...

    def now(self) -> int:
        """Return the log's time (Unix ns), which never goes back, even if somebody sets the wall
        clock.
        """
        ...

    def at(self, wall: int) -> int:
        """Convert a wall-clock time (Unix ns) to log time (time as the spool counts it)."""
        ...

    def moment(self) -> AbstractContextManager[None]:
        """Give all entries that are appended in the `with` block the same log time (time as the spool counts it)."""
        ...

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Record that the kernel dropped `count` datagrams at a socket since the log time `since`. `total` is the
        number of all datagrams that were ever dropped at this socket.

        Call this method before you append the datagrams that the kernel queued after the drops. If they were read
        together with datagrams from before the drops, append all of them, and call this method, within one `moment`.
        """
        ...

    def drops_before(self, socket: int) -> tuple[int, int]:
        """Return how many datagrams the kernel has ever dropped at a socket, as an earlier run of the daemon last
        recorded, and the log time of this record.

        `socket` is the number by which the kernel identifies the socket.
        """
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def sessions(self) -> dict[int, OpenInfo]:
        """Return, by number, the sessions of this source that an earlier run of the daemon left
        open.
        """
        ...

    async def room(self) -> None:
        """Wait until the daemon can take more chunks."""
        ...


class FileFinder(Protocol):
    """The methods of a file source that other file sources of the daemon call, to agree on which
    source reads a file.
    """

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        """Return whether this source follows a file, or follows another file of which this file may be a copy.

        `head` is the first bytes of the file's content.
        """
        ...

    def awaits(self, path: str, head: bytes) -> bool:
        """Return whether this source knows a file that may be a copy of a given file and is not followed yet. `path` is
        the given file's former path, and `head` its first bytes."""
        ...


class FileIntake(Protocol):
    """The interface through which file sources pass chunks to the daemon. No call blocks except
    `room`.
    """

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        """Begin a session for a file of which nothing was read. Return the session's number.

        The sessions in `replaces` have read the same file before. Once the new session is closed, its rows replace the
        rows of these sessions.
        """
        ...

    def file(self, number: int, facts: FileFacts) -> None:
        """Record that facts about a session's file have changed: its path, its inode, whether it is silent, or where
        its last gzip member begins.
        """
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append the next bytes of a file's content as `DATA` (at most CHUNK_MAX bytes)."""
        ...

    def document(self, number: int, name: str, data: bytes) -> None:
        """Append the whole content of a document, such as a metadata file, that describes the session's file. Call this
        method for each new or changed document."""
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        """Register `finder`, a function with which other sources find out whether this source follows a file. Return
        the state of each file that an earlier run of the source left open, by session number."""
        ...

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | Literal["claimed", "later"]:
        """Return the states of the sessions that this source must continue with a newly found file, by session number.

        These are the sessions that no source follows now, and that have read this file, an earlier file at the same
        path, or a possible original of this file. Return `claimed` if another source follows this file or its possible
        original. Return `later` if the ingest has not decoded all bytes of these sessions yet.
        """
        ...

    def is_awaited(self, path: str, head: bytes) -> bool:
        """Return whether another source knows a possible copy of a file, but does not follow the copy yet. `path` was
        the file's path, and `head` is its first bytes."""
        ...

    def let_go(self, number: int) -> None:
        """Record that this source no longer finds the session's file. Another source can then continue the session."""
        ...

    async def room(self) -> None:
        """Wait until the daemon can take more chunks."""
        ...


class AnyIntake(Intake, FileIntake, Protocol):
    """The interface through which a source passes chunks to the daemon. It combines the interfaces for network sources
    and for file sources.
    """


class Outcome(StrEnum):
    """The result of sending a packet to a peer."""

    SENT = "sent"
    """Result of a reply: the kernel has accepted the packet, or will accept it when its buffer has room."""
    UNREAD = "unread"
    """Result of a reply that was not sent: the peer has not read earlier packets, so there is no room in the buffer for
    unsent bytes."""
    EXCESS = "excess"
    """Result of a reply that was not sent, because the packet is larger than the peer's allowance: the bytes
    received from the address less the bytes sent to it."""
    GONE = "gone"
    """Result of a reply that was not sent: the peer is no longer connected or known."""
    REFUSED = "refused"
    """Result of a reply that was not sent: the kernel refused to send the packet."""


class SourceFigures(msgspec.Struct):
    """The counters of a source. The daemon exports each under the name of its field (see `daemon.status`)."""

    chunks: int = 0
    bytes: int = msgspec.field(default=0, name="taken_bytes")
    open: int = 0
    """Number of the source's open connections, of its known datagram peers, or of its open sessions of files."""
    refused: dict[str, int] = {}
    """Number of connections that the source rejected or closed, peers that it evicted, datagrams that it dropped and
    files that it ignored, by cause (see `Refusal`)."""
    empty: int = 0
    """Number of the source's connections that ended before a byte arrived, or of its datagrams without content."""
    problems: list[str] = []
    """Messages about current problems with the source's certificate and token files, one sentence
    each.
    """
    unreachable: str = ""
    """The reason why clients cannot reach the source's listener; empty if they can."""
    certificate_expires: float | None = msgspec.field(
        default=None, name="certificate_expiry_timestamp_seconds"
    )
    """Expiry time (Unix seconds) of the current certificate; None without TLS."""
    replies: dict[str, int] = msgspec.field(default_factory=dict, name="acknowledgements")
    """Number of packets that the source was to send to peers, by result (see `Outcome`)."""
    kernel_drops: int = 0
    """Number of datagrams that the kernel dropped because the receive buffer of the source's socket was full."""
    queue_bytes: int = 0
    buffer_bytes: int = 0
    buffer_asked: int = msgspec.field(default=0, name="buffer_asked_bytes")
    files: int = 0
    """Number of files that the source knows: those that it follows, those that wait to be followed, and those that it
    has read to their end."""
    files_ended: int = 0
    """Number of files that the source has read to their end.

    It is 0 for a source that goes on following files; imports stop at the end.
    """
    waiting: dict[str, int] = msgspec.field(default_factory=dict, name="waiting_files")
    """Number of files that wait and are not followed yet, by the reason of the wait."""
    descriptors: int = 0
    """Number of followed files that the source has open."""
    errors: dict[str, int] = {}
    """Number of the source's calls on files and directories that failed and are tried again, by the name of the
    error."""
    raw_bytes: int = 0
    """Number of bytes read from followed files; compressed bytes are counted for compressed files."""
    behind_bytes: int = 0
    """Number of unread bytes in followed files, according to the last check of each file's size."""

    def count_chunk(self, size: int) -> None:
        """Count a chunk of `size` bytes that was passed on."""
        self.chunks += 1
        self.bytes += size

    def refuse(self, cause: str, count: int = 1) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + count

    def replied(self, outcome: Outcome) -> bool:
        """Count a packet by the result of sending it; return whether the packet was sent."""
        self.replies[outcome] = self.replies.get(outcome, 0) + 1
        return outcome is Outcome.SENT


class Source(Protocol):
    """A source: one configured listener, or one set of followed files."""

    address: str
    """The address at which the source listens, with the actual port; empty before the source
    listens.
    """

    async def run(
        self, intake: AnyIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Receive data until the task is cancelled. A source of finished files returns when it has read all of them.

        Call `task_status.started()` once the source listens.
        """
        ...

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - of the source's own type
        """Apply changed settings to the running source.

        `config` differs from the present configuration only in settings that may change at runtime (see
        `config.reload`).
        """
        ...

    def cut(self, number: int, reason: str) -> None:
        """Stop receiving from a session's peer or file.

        Do nothing if the source cannot stop it. `reason` is recorded as the end of the session.
        """
        ...

    def can_reply(self, number: int) -> bool:
        """Return whether a packet for a session's peer can be sent now."""
        ...

    def reply(self, number: int, data: bytes) -> bool:
        """Send a packet to a session's peer without blocking or raising. Return whether the packet was sent.

        Packets arrive whole and in order, or not at all.
        """
        ...

    def figures(self) -> SourceFigures: ...


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """Cause of a refusal: the peer's address is not in the source's `allow` list."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """Cause of a refusal: the TLS handshake failed.

    Possible reasons: the peer does not speak TLS, its TLS version is too old, its certificate is missing, expired or
    not signed by the authority, or the peer rejected the collector's certificate.
    """
    TLS = "tls error"
    """Cause of a refusal: the peer sent bytes after the handshake that are not valid TLS, or that were modified in
    transit."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """Cause of a refusal: the connection does not start with a token line, or the token line exceeds the maximum
    length."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """Cause of a refusal: TLS handshake and token took longer than `greeting_timeout`."""
    USER = "another user"
    """Cause of a refusal: the option `same_user` is set, and the peer's socket belongs to a user other than the
    collector's user and root."""
    USER_UNKNOWN = "unknown user"
    """Cause of a refusal: the option `same_user` is set, and the kernel does not find the user of the peer's socket,
    because the socket is closed or on another host."""
    IDLE = "idle"
    SLOW = "slow"
    """Cause for closing a connection: receiving one record took longer than `record_timeout`."""
    GARBAGE = "garbage"
    """Cause for closing a connection: the peer sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """Cause for closing a connection: the unfinished records of all the source's connections together exceeded
    `pending_max`, and this connection had the largest one."""
    NEW_SESSIONS = "too many new sessions"
    """Cause for closing a connection: the peer's host began more sessions than `new_sessions_rate` allows."""
    PEERS = "too many peers"
    """Cause for evicting a datagram peer in favour of a new one: the source knew `peers_max` peers, and this peer had
    been silent longest."""
    NEW_PEERS = "too many new peers"
    """Cause for dropping a datagram: its peer is unknown, and more new peers had come than `new_peers_rate` allows."""
    OUTSIDE = "outside"
    """Cause for ignoring a file: a link leads to it from the searched directory, but it lies outside that directory, so
    the collector must not read it."""


_OF_CONNECTIONS = (
    Refusal.DESCRIPTORS, Refusal.CONNECTIONS, Refusal.IDLE, Refusal.SLOW, Refusal.GARBAGE,
    Refusal.PENDING, Refusal.NEW_SESSIONS,
)  # fmt: skip

OF_TYPE = {
    "udp": (
        Refusal.ADDRESS, Refusal.PEERS, Refusal.NEW_PEERS, Refusal.USER, Refusal.USER_UNKNOWN,
    ),
    "tcp": (
        *_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_ADDRESS, Refusal.ADDRESS, Refusal.TLS_HANDSHAKE,
        Refusal.TLS, Refusal.NO_TOKEN, Refusal.WRONG_TOKEN, Refusal.GREETING, Refusal.USER,
        Refusal.USER_UNKNOWN,
    ),
    "unix": (*_OF_CONNECTIONS, Refusal.CONNECTIONS_OF_USER),
    "tail": (Refusal.OUTSIDE,),
}  # fmt: skip
"""The causes of refusals that are possible for each type of source."""
