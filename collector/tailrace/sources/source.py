"""The interface between sources and the rest of the daemon.

A source turns input into chunks of sessions and passes the chunks to the `Intake`, which makes them
durable. A source receives nothing while the intake has no room. TCP peers then block. Datagrams
wait in the kernel, which counts the datagrams that it drops.

`Refusal` lists all reasons for rejecting or closing a connection, evicting a peer, dropping a
datagram or ignoring a file.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import trio

from tailrace.kernels import active
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, OpenInfo

CHUNK_MAX = (512 if active() else 128) * 1024
"""Maximum size (bytes) of one chunk. The event loop is blocked while a chunk is decoded: a few
milliseconds with a kernel, and up to 0.15 s in Python (ET3, unusual records). The datagram pump
continues meanwhile.

Larger chunks reduce the CPU cost of each event: a Heph event over TCP costs 1.56 µs of CPU with
chunks of 128 KiB, and 0.95 µs with chunks of 512 KiB (2026-11-23). Without kernels, no pump exists
and Python decodes every chunk, so the chunks are smaller."""

RESERVE = 64
"""Number of file descriptors that sources leave to the rest of the process. The table's library
ends the process if no descriptor is free."""


class Intake(Protocol):
    """The interface to which sources pass chunks. All calls come from the event loop, and no call
    blocks except `room`."""

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        """Begin a session and return its number."""
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append a chunk to a session: `DATA` of at most CHUNK_MAX bytes, or a payload of
        `DATAGRAMS`."""
        ...

    def now(self) -> int:
        """Return the log's time (Unix ns), which stays monotonic when the wall clock is set."""
        ...

    def at(self, wall: int) -> int:
        """Convert a time of the wall clock to the log's time."""
        ...

    def moment(self) -> AbstractContextManager[None]:
        """Give all entries appended in the block the same log time."""
        ...

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Record that the kernel dropped `count` datagrams since the log time `since`. `total` is
        the number of all datagrams dropped at this socket.

        Call this method before the datagrams queued after the drops are passed on. If datagrams
        were dropped between the datagrams of one part, use one `moment` for the part and the drops.
        """
        ...

    def drops_before(self, socket: int) -> tuple[int, int]:
        """Return the number of a socket's drops that an earlier run of the daemon reported, and the
        log time of the last report about the socket."""
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def sessions(self) -> dict[int, OpenInfo]:
        """Return this source's sessions that an earlier run of the daemon left open, by number."""
        ...

    async def room(self) -> None:
        """Wait until the intake has room for more chunks."""
        ...


class FileFinder(Protocol):
    """The interface of a file source that other file sources use."""

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        """Return whether the source follows a file, or follows a file that the given file may be a
        copy of. `head` is the first bytes of the given file's content."""
        ...

    def awaits(self, path: str, head: bytes) -> bool:
        """Return whether the source has a waiting file that may be a copy of the file that had this
        path and began with `head`."""
        ...


class FileIntake(Protocol):
    """The interface to which file sources pass chunks. No call blocks except `room`."""

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        """Begin a session for a file at the file's first byte; return the session's number. After
        its close, the session replaces the sessions in `replaces`."""
        ...

    def file(self, number: int, facts: FileFacts) -> None:
        """Record changed facts of a session's file: path, inode, rest, or the beginning of a gzip
        member."""
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append the next bytes of a file's content as `DATA` (at most CHUNK_MAX bytes)."""
        ...

    def document(self, number: int, name: str, data: bytes) -> None:
        """Append the whole content of a document that belongs to the file. Call this method for
        each new or changed document."""
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        """Return the state of each file that an earlier run of the source left open, by session
        number. From now on, the intake asks `finder` whether the source claims a file."""
        ...

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | None:
        """Return the states of the unfollowed sessions that this source must continue, by session
        number.

        The result contains the sessions of the given file, of an earlier file at the same path, and
        of a file that the given file may be a copy of. Return None while another source claims the
        file."""
        ...

    def is_awaited(self, path: str, head: bytes) -> bool:
        """Return whether another source has a possible copy of the file that had this path and
        began with `head`."""
        ...

    def let_go(self, number: int) -> None:
        """Release a session so that another source can continue it, because this source no longer
        finds the file."""
        ...

    async def room(self) -> None:
        """Wait until the intake has room for more chunks."""
        ...


class AnyIntake(Intake, FileIntake, Protocol):
    """The intake interface that the daemon passes to each source."""


class Outcome(StrEnum):
    """The result of sending a packet to a peer."""

    SENT = "sent"
    """The kernel has accepted the packet, or will accept the packet when its buffer has room."""
    UNREAD = "unread"
    """The peer has not read earlier packets."""
    EXCESS = "excess"
    """The packet is larger than the peer's allowance: the bytes received from the address less the
    bytes sent to it."""
    GONE = "gone"
    """The peer is no longer connected or known."""
    REFUSED = "refused"
    """The kernel refused to send the packet."""


class SourceFigures(msgspec.Struct):
    """The counters of a source. The daemon exports each counter under the encoded name of its field
    (see `daemon.status`)."""

    chunks: int = 0
    bytes: int = msgspec.field(default=0, name="taken_bytes")
    open: int = 0
    """Number of current connections, peers or open sessions of files."""
    refused: dict[str, int] = {}
    """Number of rejected or closed connections, evicted peers, dropped datagrams and ignored files,
    by cause (see `Refusal`)."""
    empty: int = 0
    """Number of connections that ended without receiving a byte, and of empty datagrams."""
    problems: list[str] = []
    """Messages about current problems with the source's certificate and token files, one sentence
    each."""
    unreachable: str = ""
    """The reason why clients cannot reach the listening source; empty if clients can connect."""
    certificate_expires: float | None = msgspec.field(
        default=None, name="certificate_expiry_timestamp_seconds"
    )
    """Expiry time (Unix seconds) of the current certificate; None without TLS."""
    replies: dict[str, int] = msgspec.field(default_factory=dict, name="acknowledgements")
    """Number of packets for peers, by result (see `Outcome`)."""
    kernel_drops: int = 0
    """Number of datagrams that the kernel dropped because the socket's buffer was full."""
    queue_bytes: int = 0
    buffer_bytes: int = 0
    buffer_asked: int = msgspec.field(default=0, name="buffer_asked_bytes")
    files: int = 0
    """Number of files that are followed, wait to be followed, or were read to their end."""
    files_ended: int = 0
    """Number of files read to their end by a source that stops at the end of its files."""
    waiting: dict[str, int] = msgspec.field(default_factory=dict, name="waiting_files")
    """Number of known files that are not followed, by the reason for waiting."""
    descriptors: int = 0
    """Number of files that are open."""
    errors: dict[str, int] = {}
    """Number of failed calls on files and directories that are retried, by the error's name."""
    raw_bytes: int = 0
    """Number of bytes read from followed files; compressed bytes are counted for compressed files."""
    behind_bytes: int = 0
    """Number of unread bytes in followed files, according to the last check of each file's size."""

    def refuse(self, cause: str, count: int = 1) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + count

    def replied(self, outcome: Outcome) -> bool:
        """Count a packet by its outcome; return whether the packet was sent."""
        self.replies[outcome] = self.replies.get(outcome, 0) + 1
        return outcome is Outcome.SENT


class Source(Protocol):
    """A source: one configured listener, or one set of followed files."""

    address: str
    """The address at which the source listens, with the actual port; empty before the source
    listens."""

    async def run(
        self, intake: AnyIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Receive data until cancelled or until the input has ended. Call `task_status.started()`
        once the source listens."""
        ...

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - of the source's own type
        """Apply the settings that may change at runtime (see `config.reload`)."""
        ...

    def cut(self, number: int, reason: str) -> None:
        """Disconnect a session's peer if the source can disconnect peers."""
        ...

    def can_reply(self, number: int) -> bool:
        """Return whether a session has a peer that can accept a packet now."""
        ...

    def reply(self, number: int, data: bytes) -> bool:
        """Send a packet to a session's peer without blocking or raising; return whether the packet
        was sent. A peer receives only whole packets, in order."""
        ...

    def figures(self) -> SourceFigures: ...


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """The peer's address is not in the source's `allow` list."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """The TLS handshake failed.

    Possible causes: the peer does not speak TLS, its TLS version is too old, its certificate is
    missing, expired or not signed by the authority, or the peer rejected the collector's
    certificate."""
    TLS = "tls error"
    """The peer sent bytes after the handshake that are not valid TLS, or that were modified in
    transit."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """The connection does not start with a token line, or the token line exceeds the maximum
    length."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """TLS handshake and token took longer than `greeting_timeout`."""
    USER = "another user"
    """With `same_user`, the peer's socket belongs to another user."""
    USER_UNKNOWN = "unknown user"
    """With `same_user`, the kernel cannot name the user of the peer's socket, because the socket is
    closed or on another host."""
    IDLE = "idle"
    SLOW = "slow"
    """Receiving one record took longer than `record_timeout`."""
    GARBAGE = "garbage"
    """The peer sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """The unfinished records of all connections exceeded `pending_max`, and this connection held
    the most bytes."""
    NEW_SESSIONS = "too many new sessions"
    """The peer's host began more sessions than `new_sessions_rate` allows."""
    PEERS = "too many peers"
    """The peer that was silent for the longest time was evicted."""
    NEW_PEERS = "too many new peers"
    """An unknown peer sent a datagram after the limit `new_peers_rate` had been reached."""
    OUTSIDE = "outside"
    """The pattern matches the file only through a link that leads out of the pattern's root."""


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
"""The refusal causes that are possible for each type of source."""
