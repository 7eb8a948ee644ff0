"""What sources and the rest of the daemon want of each other.

A source turns the outside world into chunks of sessions and hands them to the `Intake`, which
makes them durable. It takes nothing in while the intake has no room: a TCP peer then blocks, and
datagrams wait in the kernel, which counts what it must drop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

import msgspec
import trio

from tailrace.ingest.state import FileFacts, FileState, Loss, OpenInfo

CHUNK_MAX = 128 * 1024
"""Bytes in one chunk: what is decoded without letting the receivers run, a few milliseconds."""


RESERVE = 64
"""Descriptors left to the rest of the process, whatever comes: the table's library ends it without."""


class Intake(Protocol):
    """Where chunks go. All calls are made from the event loop; none blocks."""

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        """Begin a session; its number."""
        ...

    def data(self, number: int, data: bytes) -> None: ...

    def datagrams(self, number: int, datagrams: list[bytes]) -> None: ...

    def now(self) -> int:
        """Return the log's time (Unix ns), which goes on steadily when the clock is set."""
        ...

    def at(self, wall: int) -> int:
        """Return the log's time for a time that the clock has shown."""
        ...

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """The kernel dropped so many datagrams since a time of the log, and `total` since there is this
        socket. To be called before the datagrams are handed on that were read until now."""
        ...

    def drops_before(self, socket: int) -> tuple[int, int]:
        """How many of a socket's drops an earlier life of the daemon has told of, and when it was last
        heard of, in the log's time."""
        ...

    def loss(self, number: int, loss: Loss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def sessions(self) -> dict[int, OpenInfo]:
        """This source's sessions that an earlier life of the daemon left open."""
        ...

    async def room(self) -> None:
        """Return when there is room for more; at once if there is."""
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
        """Begin the session of a file, at its first byte; return its number. Once closed, it stands
        for the sessions that it `replaces`."""
        ...

    def file(self, number: int, facts: FileFacts) -> None:
        """A session's file has another name or place, or a member of it has begun."""
        ...

    def data(self, number: int, data: bytes) -> None:
        """The next bytes of its content, at most CHUNK_MAX."""
        ...

    def document(self, number: int, name: str, data: bytes) -> None:
        """A document beside it was found or has changed; its whole content."""
        ...

    def loss(self, number: int, loss: Loss) -> None: ...

    def close(self, number: int, reason: str) -> None: ...

    def files(self) -> dict[int, FileState]:
        """This source's files that an earlier life of the daemon left open, and how far they are
        read, by number."""
        ...

    async def room(self) -> None:
        """Return when there is room for more; at once if there is."""
        ...


class AnyIntake(Intake, FileIntake, Protocol):
    """What the daemon gives to every source."""


class Outcome(StrEnum):
    """What became of a packet for a peer."""

    SENT = "sent"
    """The kernel has it, or will as soon as it has room."""
    UNREAD = "unread"
    """The peer has not read earlier ones."""
    EXCESS = "excess"
    """It is larger than what the address has sent and not had back."""
    GONE = "gone"
    """There is no such peer any more."""
    REFUSED = "refused"
    """The kernel would not send it."""


class SourceFigures(msgspec.Struct):
    """What a source counts itself. The daemon exports it by the names that fields are encoded by
    (see `daemon.status`)."""

    chunks: int = 0
    bytes: int = msgspec.field(default=0, name="taken_bytes")
    open: int = 0
    """Connections or peers now."""
    refused: dict[str, int] = {}
    """Connections not taken or cut off, peers forgotten, datagrams dropped, files left alone, by cause
    (see `Refusal`)."""
    problems: list[str] = []
    """What is wrong with its files of certificates and tokens now, a sentence each."""
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
        """Count it; whether the packet is on its way."""
        self.replies[outcome] = self.replies.get(outcome, 0) + 1
        return outcome is Outcome.SENT


class Source(Protocol):
    address: str
    """Where it listens, with the real port; empty before it does."""

    async def run(
        self, intake: AnyIntake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take in until cancelled, or until there will be no more; `task_status.started()` once listening."""
        ...

    def reconfigure(self, config: Any) -> None:  # noqa: ANN401 - of the source's own type
        """Take over what may change while it runs (see `config.reload`)."""
        ...

    def cut(self, number: int, reason: str) -> None:
        """Be rid of a session's peer, if the source can."""
        ...

    def hears(self, number: int) -> bool:
        """Whether a session has a peer that might take a packet now."""
        ...

    def reply(self, number: int, data: bytes) -> bool:
        """Hand a packet to a session's peer, now or never: it neither waits nor raises. Whether it is
        on its way. What a peer gets of several packets are whole ones, in their order."""
        ...

    def figures(self) -> SourceFigures: ...
