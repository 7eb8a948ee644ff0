"""The way from the sources into the spool: begins and ends sessions, and makes sources wait for room."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import UdpConfig
from tailrace.daemon.current import Current
from tailrace.daemon.loops.driving import flagged
from tailrace.daemon.loops.steps import Flag
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.file_state import FileState
from tailrace.ingest.machine import Ingest
from tailrace.ingest.payloads import DropCount, FileFacts, FileLoss, OpenInfo
from tailrace.ingest.state import encode
from tailrace.spool.entry import Datagrams, EntryKind, pack_document
from tailrace.spool.spool import Spool

BUFFER_MAX = 32 * 2**20
"""Bytes received and not yet on disk at which sources wait: a disk that stalls for a second."""

SYNC_EARLY = 4 * 2**20
"""Bytes received at which the next sync does not wait for its time."""

STOP = "stop"
"""The reason of sessions that end because their source is stopped."""


class Gate:
    """Open while the spool has room. The sync loop opens and closes it."""

    def __init__(self, spool: Spool) -> None:
        self.dirty = Flag()
        self.urgent = Flag()
        self.opened = Flag()
        """Pulsed after each sync: sources that wait for room look again."""
        self.full = False
        """Whether the spool is at its limit or its disk has no room."""
        self._spool = spool

    @property
    def closed(self) -> bool:
        spool = self._spool
        return self.full or spool.held > spool.held_max or spool.buffered > BUFFER_MAX

    def touched(self) -> None:
        """Note that an entry was appended."""
        self.dirty.set()
        if self._spool.buffered > SYNC_EARLY:
            self.urgent.set()


class SourceIntake:
    """The intake of one source (see `sources.source`: `Intake` and `FileIntake`)."""

    def __init__(
        self,
        name: str,
        format_: str,
        current: Current,
        *,
        spool: Spool,
        gate: Gate,
        ingest: Ingest,
        ahead: Ahead,
        clock: Clock,
        earlier: dict[int, OpenInfo],
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.stopped = STOP
        """The reason that closes sessions which end with their source."""
        self._name = name
        self._format = format_
        self._current = current
        self._spool = spool
        self._gate = gate
        self._clock = clock
        self._earlier = earlier
        self._entropy = entropy
        self._open_now = earlier.copy()
        self._ahead = ahead
        self._files = ingest.files(name)

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
        return self._open(
            structs.replace(info, file=facts, group=group, dialect=dialect, replaces=replaces)
        )

    def data(self, number: int, data: bytes) -> None:
        self._append(EntryKind.DATA, number, data)

    def datagrams(self, number: int, datagrams: Datagrams) -> None:
        self._append(EntryKind.DATAGRAMS, number, datagrams.payload)

    def now(self) -> int:
        return self._spool.timeline.now()

    def at(self, wall: int) -> int:
        return self._spool.timeline.at(wall)

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        dropped = DropCount(source=self._name, count=count, since=since, socket=socket, total=total)
        self._append(EntryKind.DROPS, 0, encode(dropped))

    def drops_before(self, socket: int) -> tuple[int, int]:
        return self._ahead.drops_told(self._name, socket), self._ahead.now

    def file(self, number: int, facts: FileFacts) -> None:
        self._append(EntryKind.FILE, number, encode(facts))

    def document(self, number: int, name: str, data: bytes) -> None:
        for payload in pack_document(name, data):
            self._append(EntryKind.DOCUMENT, number, payload)

    def loss(self, number: int, loss: FileLoss) -> None:
        self._append(EntryKind.LOSS, number, encode(loss))

    def close(self, number: int, reason: str) -> None:
        reason = self.stopped if reason == STOP else reason
        self._append(EntryKind.CLOSE, number, reason.encode())
        self._open_now.pop(number, None)

    @property
    def open_now(self) -> dict[int, OpenInfo]:
        """Return the open sessions by number; the ingest may not know all of them yet."""
        return self._open_now

    def sessions(self) -> dict[int, OpenInfo]:
        return self._earlier

    def files(self) -> dict[int, FileState]:
        return self._files

    async def room(self) -> None:
        while self._gate.closed:
            await flagged(self._gate.opened)

    def _info(self, transport: str, peer: str, record_max: int) -> OpenInfo:
        return OpenInfo(
            source=self._name,
            format=self._format,
            session=draw(self._clock.wall_ns(), self._entropy),
            transport=transport,
            peer=peer,
            record_max=record_max,
            pending_max=self._pending_max,
            ledger=self._current.config.ledger,
        )

    @property
    def _pending_max(self) -> int:
        """Return 0 for a source whose chunks leave no record unfinished."""
        config = self._current.config.sources.get(self._name)
        return 0 if config is None or isinstance(config, UdpConfig) else int(config.pending_max)

    def _open(self, info: OpenInfo) -> int:
        number = self._spool.end
        self._append(EntryKind.OPEN, number, encode(info))
        self._open_now[number] = info
        return number

    def _append(self, kind: EntryKind, number: int, payload: bytes) -> None:
        self._spool.append(kind, number, payload)
        self._gate.touched()


def draw(now_ns: int, entropy: Callable[[int], bytes] = os.urandom) -> str:
    """Return a session's id: ids sort by time, and no two are alike."""
    return f"{now_ns // 1_000_000:011x}{entropy(3).hex()}"
