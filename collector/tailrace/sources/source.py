"""The interface between sources and the rest of the daemon.

A source turns the outside world into chunks of sessions and hands them to the `Intake`, which makes
them durable. It receives nothing while the intake has no room: TCP peers then block, and datagrams
wait in the kernel, which counts those that it drops.

`Refusal` has all causes for refusing or ending a connection, forgetting a peer, dropping a datagram or leaving a file alone.
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
"""Bytes in one chunk. While a chunk is decoded, the event loop stands: for a few milliseconds where a kernel reads it,
for up to 0.15 s where Python does (ET3, unusual records). The pump goes on taking datagrams meanwhile.

A chunk costs all stages together what half of its events cost where it has 128 KiB: a Heph event over TCP takes 1.56 µs
of CPU then, and 0.95 where it has 512 KiB (2026-11-23). Without kernels there is no pump, and each chunk is Python's."""

RESERVE = 64
"""Descriptors that sources leave to the rest of the process. Without any, the table's library ends
the process."""


class Intake(Protocol):
    """Where chunks go. All calls come from the event loop; none blocks."""

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        """Begin a session; return its number."""
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append bytes of a session: `DATA`, at most CHUNK_MAX, or a payload of `DATAGRAMS`."""
        ...

    def now(self) -> int:
        """Return the log's time (Unix ns), which goes on steadily when the clock is set."""
        ...

    def at(self, wall: int) -> int:
        """Return the log's time for a time that the wall clock has shown."""
        ...

    def moment(self) -> AbstractContextManager[None]:
        """Let all calls within have one time in the log."""
        ...

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Note that the kernel dropped `count` datagrams since a time of the log, and `total` in the
        life of this socket. Call this before the datagrams behind them are handed on, and in one `moment` with
        those among which they were dropped."""
        ...

    def drops_before(self, socket: int) -> tuple[int, int]:
        """Return how many of a socket's drops an earlier life of the daemon reported, and when it
        last heard of the socket, in the log's time."""
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def sessions(self) -> dict[int, OpenInfo]:
        """Return this source's sessions that an earlier life of the daemon left open."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more."""
        ...


class FileFinder(Protocol):
    """A source of files, as other sources see it."""

    def claims(self, path: str, device: int, inode: int, head: bytes) -> bool:
        """Return whether the source follows this file, whose content begins with `head`, or a file that this one may
        be a copy of."""
        ...

    def awaits(self, path: str, head: bytes) -> bool:
        """Return whether the source has a waiting file that may be a copy of the file that had this path and began
        with `head`."""
        ...


class FileIntake(Protocol):
    """Where the chunks of files go. As with `Intake`, no call blocks but `room`."""

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        """Begin the session of a file, at its first byte; return its number. Once closed, the session
        stands for those that it `replaces`."""
        ...

    def file(self, number: int, facts: FileFacts) -> None:
        """Note new facts of a session's file: its path, its inode, its rest, or a member that has
        begun."""
        ...

    def append(self, kind: EntryKind, number: int, payload: bytes, /) -> int:
        """Append the next bytes of a file's content as `DATA`, at most CHUNK_MAX."""
        ...

    def document(self, number: int, name: str, data: bytes) -> None:
        """Append the whole content of a document beside the file that is new or has changed."""
        ...

    def loss(self, number: int, loss: FileLoss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        """Return this source's files that an earlier life of the source left open, and how far they
        are read, by number. `finder` is asked from now on which files the source claims."""
        ...

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | None:
        """Return the unfollowed sessions that this source continues with a file that it has found, in the form of
        `files`: sessions that read this file, an earlier file at its path, or a file that it may be a copy of. Return
        None as long as another source claims the file."""
        ...

    def is_awaited(self, path: str, head: bytes) -> bool:
        """Return whether another source has a possible copy of a file that had this path and began with `head`."""
        ...

    def let_go(self, number: int) -> None:
        """Leave the session of a file open for another source, since this source no longer finds the file."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more."""
        ...


class AnyIntake(Intake, FileIntake, Protocol):
    """The intake that the daemon gives to every source."""


class Outcome(StrEnum):
    """The fate of a packet for a peer."""

    SENT = "sent"
    """The kernel has it, or gets it as soon as there is room."""
    UNREAD = "unread"
    """The peer has not read earlier ones."""
    EXCESS = "excess"
    """It exceeds what the address has sent to us and not got back."""
    GONE = "gone"
    """There is no such peer any more."""
    REFUSED = "refused"
    """The kernel did not send it."""


class SourceFigures(msgspec.Struct):
    """Figures that a source counts itself. The daemon exports them by the names that fields are encoded by
    (see `daemon.status`)."""

    chunks: int = 0
    bytes: int = msgspec.field(default=0, name="taken_bytes")
    open: int = 0
    """Connections or peers now."""
    refused: dict[str, int] = {}
    """Connections not taken or cut off, peers forgotten, datagrams dropped, files left alone, by cause
    (see `Refusal`)."""
    empty: int = 0
    """Connections that ended without a byte, and datagrams without one."""
    problems: list[str] = []
    """Problems with its files of certificates and tokens now, a sentence each."""
    unreachable: str = ""
    """Why nobody can connect now, although it listens; empty if all is well."""
    certificate_expires: float | None = msgspec.field(
        default=None, name="certificate_expiry_timestamp_seconds"
    )
    """When the certificate in use does (Unix seconds); None without TLS."""
    replies: dict[str, int] = msgspec.field(default_factory=dict, name="acknowledgements")
    """Packets for peers, by what became of them (see `Outcome`)."""
    kernel_drops: int = 0
    """Datagrams the kernel dropped because the socket's buffer was full."""
    queue_bytes: int = 0
    buffer_bytes: int = 0
    buffer_asked: int = msgspec.field(default=0, name="buffer_asked_bytes")
    files: int = 0
    """Files followed, or known and waiting to be."""
    files_ended: int = 0
    """Files read to their end by a source that reads what is there and no more."""
    waiting: dict[str, int] = msgspec.field(default_factory=dict, name="waiting_files")
    """Files known and not followed, by what they wait for."""
    descriptors: int = 0
    """Files held open."""
    errors: dict[str, int] = {}
    """Calls for files and directories that failed and are tried again, by the error's name."""
    raw_bytes: int = 0
    """Bytes of followed files behind the place reached; of compressed files, as they are in the file."""
    behind_bytes: int = 0
    """Bytes of followed files from the place reached to their end, as last seen."""

    def refuse(self, cause: str, count: int = 1) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + count

    def replied(self, outcome: Outcome) -> bool:
        """Count a packet by its outcome; return whether it is on its way."""
        self.replies[outcome] = self.replies.get(outcome, 0) + 1
        return outcome is Outcome.SENT


class Source(Protocol):
    """One configured listener, or one set of followed files."""

    address: str
    """Where it listens, with the real port; empty before that."""

    async def run(
        self, intake: AnyIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take in until cancelled, or until no more will come. Call `task_status.started()` once
        listening."""
        ...

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - of the source's own type
        """Apply the settings that may change while the source runs (see `config.reload`)."""
        ...

    def cut(self, number: int, reason: str) -> None:
        """Disconnect a session's peer, if the source can."""
        ...

    def can_reply(self, number: int) -> bool:
        """Return whether a session has a peer that might take a packet now."""
        ...

    def reply(self, number: int, data: bytes) -> bool:
        """Hand a packet to a session's peer, without waiting or raising; return whether it is on its
        way. A peer gets whole packets only, and in their order."""
        ...

    def figures(self) -> SourceFigures: ...


class Refusal(StrEnum):
    ADDRESS = "address not allowed"
    """The address is not in the source's `allow`."""
    DESCRIPTORS = "out of descriptors"
    CONNECTIONS = "too many connections"
    CONNECTIONS_OF_ADDRESS = "too many connections from one address"
    CONNECTIONS_OF_USER = "too many connections from one user"
    TLS_HANDSHAKE = "tls handshake"
    """The handshake failed. The peer spoke no TLS, or no version new enough; it showed no certificate
    where one is demanded, an expired one or one that the authority has not signed; or it refused
    ours."""
    TLS = "tls error"
    """Bytes after the handshake are not TLS, or were changed on their way."""
    NO_TOKEN = "no token"  # noqa: S105 - a cause
    """The first bytes are no token's line, or a longer line than is allowed."""
    WRONG_TOKEN = "wrong token"  # noqa: S105 - a cause
    GREETING = "greeting too slow"
    """The handshake and the token took longer than `greeting_timeout`."""
    USER = "another user"
    """With `same_user`: the socket at the other end belongs to another user."""
    USER_UNKNOWN = "unknown user"
    """With `same_user`: the kernel names no user of the socket at the other end, which is closed or on another host."""
    IDLE = "idle"
    SLOW = "slow"
    """One record took longer than `record_timeout`."""
    GARBAGE = "garbage"
    """The peer sent `garbage_max` bytes without one readable record."""
    PENDING = "too many pending bytes"
    """Unfinished records of all connections exceeded `pending_max`, and this connection held the
    most."""
    NEW_SESSIONS = "too many new sessions"
    """The peer's host began more sessions than `new_sessions_rate` allows."""
    PEERS = "too many peers"
    """The peer silent longest was forgotten."""
    NEW_PEERS = "too many new peers"
    """A datagram of an unknown peer came beyond `new_peers_rate`."""
    OUTSIDE = "outside"
    """A pattern reaches the file only by a link out of the pattern's root."""


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
"""The causes that a source of each type may have."""
