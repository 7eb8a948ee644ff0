"""The way from the sources into the spool: begins and ends sessions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import structs

from tailrace.config.schema import MAIN, TailConfig, UdpConfig
from tailrace.daemon.context import Context
from tailrace.daemon.file_sessions import FileSessions
from tailrace.daemon.gate import Gate
from tailrace.daemon.room import RoomQueue
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.file_state import FileState
from tailrace.ingest.payloads import DropCount, FileFacts, FileLoss, OpenInfo
from tailrace.ingest.state import encode
from tailrace.sources.source import FileFinder
from tailrace.spool.entry import Datagrams, EntryKind, pack_document

_RANK = re.compile(r"/rank-([0-9]{1,9})(?=/)")

STOP = "stop"
"""The reason of sessions that end because their source is stopped."""


class SourceIntake:
    """The intake of one source (see `sources.source`: `Intake` and `FileIntake`)."""

    def __init__(
        self,
        name: str,
        format_: str,
        context: Context,
        gate: Gate,
        *,
        files: FileSessions,
        ahead: Ahead,
        earlier: dict[int, OpenInfo],
    ) -> None:
        self.stopped = STOP
        """The reason that closes sessions which end with their source."""
        self._name = name
        self._format = format_
        self._context = context
        self._spool = gate.spool
        self._gate = gate
        self._earlier = earlier
        self._open_now = earlier.copy()
        self._ahead = ahead
        self._files = files

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        info = self._info(transport, peer, record_max)
        return self._open(structs.replace(info, garbage_max=garbage_max))

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        info = self._info("tail", facts.path, record_max)
        rank = rank_of(facts.path) if info.job or info.node else None
        return self._open(
            structs.replace(
                info, file=facts, group=group, dialect=dialect, rank=rank, replaces=replaces
            )
        )

    def data(self, number: int, data: bytes) -> None:
        self._gate.append(EntryKind.DATA, number, data)

    def datagrams(self, number: int, datagrams: Datagrams) -> None:
        self._gate.append(EntryKind.DATAGRAMS, number, datagrams.payload)

    def now(self) -> int:
        return self._spool.timeline.now()

    def at(self, wall: int) -> int:
        return self._spool.timeline.at(wall)

    def moment(self) -> AbstractContextManager[None]:
        return self._spool.timeline.moment()

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        dropped = DropCount(source=self._name, count=count, since=since, socket=socket, total=total)
        self._gate.append(EntryKind.DROPS, 0, encode(dropped))

    def drops_before(self, socket: int) -> tuple[int, int]:
        return self._ahead.drops_told(self._name, socket), self._ahead.now

    def file(self, number: int, facts: FileFacts) -> None:
        self._gate.append(EntryKind.FILE, number, encode(facts))

    def document(self, number: int, name: str, data: bytes) -> None:
        for payload in pack_document(name, data):
            self._gate.append(EntryKind.DOCUMENT, number, payload)

    def loss(self, number: int, loss: FileLoss) -> None:
        self._gate.append(EntryKind.LOSS, number, encode(loss))

    def close(self, number: int, reason: str) -> None:
        reason = self.stopped if reason == STOP else reason
        self._gate.append(EntryKind.CLOSE, number, reason.encode())
        self._open_now.pop(number, None)

    @property
    def open_now(self) -> dict[int, OpenInfo]:
        """Return the open sessions by number; the ingest may not know all of them yet."""
        return self._open_now

    def sessions(self) -> dict[int, OpenInfo]:
        return self._earlier

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        return self._files.begin(self._name, self._format, self._earlier, finder)

    def is_awaited(self, path: str, head: bytes) -> bool:
        return self._files.is_awaited(self._name, path, head)

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | None:
        former = self._files.take_up(self._name, path, device, inode, head)
        if former is None:
            return None
        self._open_now.update({number: info for number, (info, _) in former.items()})
        return {number: file for number, (_, file) in former.items()}

    def let_go(self, number: int) -> None:
        self._files.let_go(number, self._open_now.pop(number))

    async def room(self) -> None:
        await self._queue.wait()

    def _info(self, transport: str, peer: str, record_max: int) -> OpenInfo:
        job, name = self._context.config.job, self._context.config.collector.name
        return OpenInfo(
            source=self._name,
            format=self._format,
            session=draw(self._context.clock.wall_ns(), self._context.chance.entropy),
            transport=transport,
            peer=peer,
            record_max=record_max,
            pending_max=self._pending_max,
            ledger=self._context.config.ledger,
            node=job.node,
            job=job.id,
            collector="" if name == MAIN else name,
        )

    @property
    def _queue(self) -> RoomQueue:
        """Return the queue in which this source waits for room."""
        config = self._context.config.sources.get(self._name)
        if isinstance(config, UdpConfig):
            return self._gate.of_datagrams
        return self._gate.of_files if isinstance(config, TailConfig) else self._gate.of_connections

    @property
    def _pending_max(self) -> int:
        """Return 0 for a source whose chunks leave no record unfinished."""
        config = self._context.config.sources.get(self._name)
        return 0 if config is None or isinstance(config, UdpConfig) else int(config.pending_max)

    def _open(self, info: OpenInfo) -> int:
        number = self._spool.end  # where its entry begins
        self._gate.append(EntryKind.OPEN, number, encode(info))
        self._open_now[number] = info
        return number


def rank_of(path: str) -> int | None:
    """Return the rank whose directory, `rank-N`, a file is in; the innermost counts."""
    found = _RANK.findall(path)
    return int(found[-1]) if found else None


def draw(now_ns: int, entropy: Callable[[int], bytes] = os.urandom) -> str:
    """Return a session's id: ids sort by time, and no two are alike."""
    return f"{now_ns // 1_000_000:011x}{entropy(3).hex()}"
