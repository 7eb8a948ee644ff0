"""Define the interface between sources and the daemon.

A source turns input into chunks of sessions and passes the chunks to the `Intake`, which makes them durable. While the
intake has no room, a source receives nothing: TCP peers block, and datagrams wait in the kernel, which may drop some.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from tailrace.kernels import active
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, OpenInfo

if TYPE_CHECKING:
    import trio

CHUNK_MAX = (512 if active() else 128) * 1024
"""Maximum size (bytes) of one chunk. While a chunk is decoded, the event loop is blocked (up to 0.15 s in Python).

Larger chunks cost less CPU time: a Heph event over TCP costs 1.56 µs with chunks of 128 KiB, and 0.95 µs with chunks of
512 KiB (2026-11-23)."""

UNSENT_MAX = 24 * 2**10
"""Maximum number of bytes that a connection buffers: room for all replies that are sent to a client at one time."""

PUMP_ROOM = 4 * 2**20
"""Size (bytes) of each of the two buffers in which the thread of a datagram socket stores datagrams."""

PUMP_BYTES = 2 * PUMP_ROOM + 2 * 2**20
"""Maximum memory (bytes) of a datagram socket's thread: two buffers of `PUMP_ROOM`, and 32 for one datagram each."""

RESERVE = 64
"""Number of file descriptors that sources leave free for the library that writes the table. Without a free descriptor,
the library aborts the process."""


class Intake(Protocol):
    """The interface through which sources pass chunks to the daemon, from the event loop. No call blocks except `room`."""

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        """Begin a session and return its number."""

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append a log entry for a session: `DATA` with at most CHUNK_MAX bytes of a byte stream, or packed
        `DATAGRAMS`."""

    def now(self) -> int:
        """Return the time of the spool's log (Unix ns), which never goes back."""

    def at(self, wall: int) -> int:
        """Convert a wall-clock time (Unix ns) to the log's time, which never goes back."""

    def moment(self) -> AbstractContextManager[None]:
        """Return a context manager. All log entries that are appended in its `with` block get the same time."""

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Record that the kernel has dropped `count` datagrams at a socket after the time `since` of the log. `total`
        is the kernel's count of all datagrams that it has dropped at this socket.

        Call this method before the datagrams that the kernel queued after the drops are appended. If datagrams from
        before the drops were read together with the later ones, make this call and append all of them in one `with`
        block of `moment`, so that all have the same time in the log."""

    def drops_before(self, socket: int) -> tuple[int, int]:
        """Return the last recorded count of datagrams that the kernel has dropped at a socket, and the time of that
        record in the log."""

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def sessions(self) -> dict[int, OpenInfo]:
        """Return, by number, the sessions of this source that an earlier run of the daemon left open."""

    async def room(self) -> None:
        """Wait until the daemon can take more chunks."""


class FileIntake(Intake, Protocol):
    """The interface through which sources of files pass chunks to the daemon."""

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        """Begin a session for a file of which nothing was read. Return the session's number. The session's rows later
        replace the rows of the sessions `replaces`, which have read the same file before."""

    def session(self, number: int) -> str:
        """Return the id of an open session."""

    def file(self, number: int, facts: FileFacts) -> None:
        """Record changed facts about a session's file, such as its path."""

    def document(self, number: int, name: str, data: bytes) -> None:
        """Append the whole content of a new or changed document, such as a metadata file, of the session's file."""

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        """Register `finder`. Return, by session number, the state of the file of each session that an earlier run of
        the daemon left open."""

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | Literal["claimed", "later"]:
        """Return the sessions that this source continues from now on. No source follows the files of these sessions at
        present, and they have read a newly found file, or a file of which it may be a copy. Return `claimed` if another
        source already reads such a file (see `FileFinder.claims`), and `later` if not all input of these sessions is
        decoded yet."""

    def is_awaited(self, path: str, head: bytes) -> bool:
        """Return whether another source has an unread file that may be a copy of a given file. The given file had the
        path `path`, and begins with `head`."""

    def let_go(self, number: int) -> None:
        """Record that this source no longer follows the session's file, so that another source can continue the
        session."""


class FileFinder(Protocol):
    """The methods by which file sources agree on which source reads a file."""

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        """Return whether another source must not read a file that it has found. Return True if this source reads the
        file or its possible original itself, or has ended a session of one of the two. The file begins with `head`."""

    def awaits(self, path: str, head: bytes) -> bool:
        """Return whether this source has an unread file that may be a copy of another source's file. The other source's
        file had the path `path`, and begins with `head`."""


class Outcome(StrEnum):
    """The result of sending a packet to a peer."""

    SENT = "sent"
    """The kernel has accepted the packet, or will accept it when its buffer has room."""
    UNREAD = "unread"
    """Not sent, because the peer has not read earlier packets and the buffer is full."""
    EXCESS = "excess"
    """Not sent, because the collector would have sent more bytes to the address than it received from there."""
    GONE = "gone"
    """Not sent, because the peer is no longer connected or known."""
    REFUSED = "refused"
    """Not sent, because the kernel refused it."""


class SourceFigures(msgspec.Struct):
    """The counters of a source. The daemon exports each under the name of its field."""

    chunks: int = 0
    bytes: int = msgspec.field(default=0, name="taken_bytes")
    open: int = 0
    """Number of open connections, known datagram peers, or open sessions of files."""
    refused: dict[str, int] = {}
    """Number of rejected connections, evicted peers, dropped datagrams and ignored files, by cause (`Refusal`)."""
    empty: int = 0
    """Number of connections that ended before a byte arrived, or of datagrams without content."""
    problems: list[str] = []
    """Messages about current problems with certificate and token files."""
    unreachable: str = ""
    """The reason why clients cannot reach the listener; empty if they can."""
    certificate_expires: float | None = msgspec.field(
        default=None, name="certificate_expiry_timestamp_seconds"
    )
    """Expiry time (Unix seconds) of the current certificate; None without TLS."""
    replies: dict[str, int] = msgspec.field(default_factory=dict, name="acknowledgements")
    """Number of packets for peers, by result (`Outcome`)."""
    kernel_drops: int = 0
    """Number of datagrams that the kernel dropped because the receive buffer was full."""
    queue_bytes: int = 0
    buffer_bytes: int = 0
    buffer_asked: int = msgspec.field(default=0, name="buffer_asked_bytes")
    files: int = 0
    """Number of known files: those that are followed, that wait, or that were read to the end."""
    files_ended: int = 0
    """Number of files read to the end by an import; 0 for a source that goes on following files."""
    waiting: dict[str, int] = msgspec.field(default_factory=dict, name="waiting_files")
    """Number of files that are not followed yet, by the reason of the wait."""
    descriptors: int = 0
    """Number of followed files that are open."""
    errors: dict[str, int] = {}
    """Number of failed calls on files and directories, which are tried again, by the name of the error."""
    raw_bytes: int = 0
    """Number of bytes read from followed files; compressed bytes of compressed files."""
    behind_bytes: int = 0
    """Number of unread bytes in followed files at their last checks."""

    def count_chunk(self, size: int) -> None:
        self.chunks += 1
        self.bytes += size

    def refuse(self, cause: str, count: int = 1) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + count

    def replied(self, outcome: Outcome) -> bool:
        self.replies[outcome] = self.replies.get(outcome, 0) + 1
        return outcome is Outcome.SENT


class Source(ABC):
    """One configured listener, or one set of followed files."""

    address = ""
    """The address at which the source listens, with the actual port; empty before it listens."""

    @abstractmethod
    async def run(self, intake: FileIntake, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Receive data until cancelled; call `task_status.started()` once the source listens. A source of finished files
        returns when it has read all of them."""

    @abstractmethod
    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - of the source's own type
        """Apply a new configuration to the running source. The new configuration differs only in settings that may
        change at runtime (see `config.reload`)."""

    def cut(self, number: int, reason: str) -> None:  # noqa: B027 - datagram peers and files have no connection
        """Disconnect a session's peer, if it has a connection. `reason` is recorded as the end of the session."""

    def can_reply(self, number: int) -> bool:  # noqa: ARG002 - nobody is at the other end of a file
        """Return whether a packet for a session's peer can be sent now."""
        return False

    def reply(self, number: int, data: bytes) -> bool:  # noqa: ARG002 - nor here
        """Send a packet whole and in order to a session's peer, without blocking or raising. Return whether it was
        sent."""
        return False

    @abstractmethod
    def figures(self) -> SourceFigures: ...


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """The peer's address is not in the source's `allow` list."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """The TLS handshake failed, for example because of the peer's TLS version or certificate."""
    TLS = "tls error"
    """The peer sent bytes after the handshake that are not valid TLS."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """The connection does not start with a token line of allowed length."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """TLS handshake and token took longer than `greeting_timeout`."""
    USER = "another user"
    """The option `same_user` is set, and the peer's socket belongs to a user other than the collector's and root."""
    USER_UNKNOWN = "unknown user"
    """The option `same_user` is set, and the peer's socket is closed or on another host, so its user is unknown."""
    IDLE = "idle"
    SLOW = "slow"
    """Receiving one record took longer than `record_timeout`."""
    GARBAGE = "garbage"
    """The peer sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """The unfinished records of the source exceeded `pending_max`, and this connection had the largest one."""
    NEW_SESSIONS = "too many new sessions"
    """The peer's host began more sessions than `new_sessions_rate` allows."""
    PEERS = "too many peers"
    """The source knew `peers_max` datagram peers, and dropped this peer to make room for a new one."""
    NEW_PEERS = "too many new peers"
    """A datagram came from an unknown peer, after more new peers than `new_peers_rate` allows."""
    OUTSIDE = "outside"
    """A link leads to a file outside the searched directory, which the collector must not read."""


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
