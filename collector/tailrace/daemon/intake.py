"""Write the sessions of the sources to the spool.

`FileSessions` keeps the open sessions of files, because the session of a file stays open while the file exists, even if
its source is removed or its patterns change. The next source of the same format that finds the file or a copy of it
continues the session. If several sources match a file, only one source reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

from tailrace.config.schema import MAIN, TailConfig, UdpConfig
from tailrace.daemon.context import Context
from tailrace.daemon.loops.sync import Gate
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.machine import Ahead
from tailrace.ingest.state import encode
from tailrace.sources.source import FileFinder
from tailrace.spool.entry import EntryKind, pack_document
from tailrace.spool.payloads import DropCount, FileFacts, FileLoss, FileState, OpenInfo

UNFOLLOWED_MAX = 8192
"""Maximum number of open sessions whose file no source follows. If there are more, the oldest is closed."""

Former = dict[int, tuple[OpenInfo, FileState]]
"""Open sessions that a new source continues: by session number, the payload of the session's OPEN entry and the state
of its file."""

_Key = tuple[str, int, int] | tuple[str, str]


class FileSessions:
    """The open sessions whose file no source follows, and the running sources that read files."""

    def __init__(self, gate: Gate) -> None:
        self._ingest, self._spool = gate.ingest, gate.spool
        self._sources: dict[str, tuple[str, FileFinder]] = {}
        self._unfollowed: dict[int, OpenInfo] = {}
        self._by_key: dict[_Key, set[int]] | None = None
        """Numbers of the sessions in `_unfollowed`, by the keys of their files (see `_keys`); None until needed."""
        self._known_at = 0

    def begin(
        self, source: str, format_: str, earlier: dict[int, OpenInfo], finder: FileFinder
    ) -> dict[int, FileState]:
        """Register a running source of files, which continues the sessions `earlier`. Return the states of these
        sessions' files."""
        self._sources[source] = format_, finder
        return self._ingest.files(earlier)

    def end(self, source: str) -> None:
        self._sources.pop(source, None)

    def let_go(self, number: int, info: OpenInfo) -> None:
        self._spool.append(EntryKind.FILE, number, b"")
        self._unfollowed[number] = info
        while len(self._unfollowed) > UNFOLLOWED_MAX:
            oldest = next(iter(self._unfollowed))
            del self._unfollowed[oldest]
            self._spool.append(EntryKind.CLOSE, oldest, b"source removed")
        self._by_key, self._known_at = None, self._spool.end

    def is_awaited(self, source: str, path: str, head: bytes) -> bool:
        return any(other.awaits(path, head) for other in self._others(source))

    def take_up(
        self, source: str, path: str, device: int, inode: int, head: bytes
    ) -> Former | Literal["claimed", "later"]:
        """Return the sessions of a file that no source follows at present; `source` continues them from now on. A
        session is found by the inode of its file, or by the path of the file or of a copy. Return `claimed` if another
        source follows the file or its possible original. Return `later` if it is not known yet how far such files were
        read."""
        format_ = self._sources[source][0]
        if any(o.claims(path, device, inode, head) for o in self._others(source)):
            return "claimed"
        if self._ingest.position < self._known_at:
            return "later"
        by_key = self._keys()
        found = [by_key.get(key, set()) for key in _keys(format_, path, device, inode)]
        files = self._ingest.files(sorted(set().union(*found) & self._unfollowed.keys()))
        return {number: (self._unfollowed.pop(number), file) for number, file in files.items()}

    def _others(self, source: str) -> list[FileFinder]:
        format_ = self._sources[source][0]
        return [f for name, (its, f) in self._sources.items() if name != source and its == format_]

    def _keys(self) -> dict[_Key, set[int]]:
        if self._by_key is None:
            self._by_key = {}
            for number, file in self._ingest.files(self._unfollowed).items():
                facts, format_ = file.facts, self._unfollowed[number].format
                for key in _keys(format_, facts.path, facts.device, facts.inode):
                    self._by_key.setdefault(key, set()).add(number)
        return self._by_key


def _keys(format_: str, path: str, device: int, inode: int) -> tuple[_Key, _Key]:
    return (format_, device, inode), (format_, FORMATS[format_].files.copy(path))


_RANK = re.compile(r"/rank-([0-9]{1,9})(?=/)")

STOP = "stop"
"""Reason that is stored when a session is closed because its source stops."""


class SourceIntake:
    """Writes the sessions of one source to the spool. It implements `FileIntake` of `sources.source`."""

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
        self._name = name
        self._format = format_
        self._context = context
        self._spool = gate.spool
        self._gate = gate
        self.append = gate.spool.append
        self._earlier = earlier
        self.open_now = earlier.copy()
        """The open sessions of this source by number, including those that are not decoded yet."""
        self._ahead = ahead
        self._files = files

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:
        return self._begin(self._info(transport, peer, record_max, garbage_max=garbage_max))

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        job = self._context.config.job
        ranks = _RANK.findall(facts.path) if job.id or job.node else []
        rank = int(ranks[-1]) if ranks else None
        return self._begin(
            self._info(
                "tail", facts.path, record_max,
                file=facts, group=group, dialect=dialect, rank=rank, replaces=replaces,
            )
        )  # fmt: skip

    def now(self) -> int:
        return self._spool.timeline.now()

    def at(self, wall: int) -> int:
        return self._spool.timeline.at(wall)

    def moment(self) -> AbstractContextManager[None]:
        return self._spool.timeline.moment()

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        dropped = DropCount(source=self._name, count=count, since=since, socket=socket, total=total)
        self._spool.append(EntryKind.DROPS, 0, encode(dropped))

    def drops_before(self, socket: int) -> tuple[int, int]:
        return self._ahead.drops_told(self._name, socket), self._ahead.now

    def session(self, number: int) -> str:
        return self.open_now[number].session

    def file(self, number: int, facts: FileFacts) -> None:
        self._spool.append(EntryKind.FILE, number, encode(facts))

    def document(self, number: int, name: str, data: bytes) -> None:
        for payload in pack_document(name, data):
            self._spool.append(EntryKind.DOCUMENT, number, payload)

    def loss(self, number: int, loss: FileLoss) -> None:
        self._spool.append(EntryKind.LOSS, number, encode(loss))

    def close(self, number: int, reason: str) -> None:
        reason = self.stopped if reason == STOP else reason
        self._spool.append(EntryKind.CLOSE, number, reason.encode())
        self.open_now.pop(number, None)

    def sessions(self) -> dict[int, OpenInfo]:
        return self._earlier

    def files(self, finder: FileFinder) -> dict[int, FileState]:
        return self._files.begin(self._name, self._format, self._earlier, finder)

    def is_awaited(self, path: str, head: bytes) -> bool:
        return self._files.is_awaited(self._name, path, head)

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | Literal["claimed", "later"]:
        former = self._files.take_up(self._name, path, device, inode, head)
        if isinstance(former, str):
            return former
        self.open_now.update({number: info for number, (info, _) in former.items()})
        return {number: file for number, (_, file) in former.items()}

    def let_go(self, number: int) -> None:
        self._files.let_go(number, self.open_now.pop(number))

    async def room(self) -> None:
        config = self._context.config.sources.get(self._name)
        if isinstance(config, UdpConfig):
            await self._gate.of_datagrams.wait()
        elif isinstance(config, TailConfig):
            await self._gate.of_files.wait()
        else:
            await self._gate.of_connections.wait()

    def _info(self, transport: str, peer: str, record_max: int, **more: Any) -> OpenInfo:  # noqa: ANN401 - its fields
        job, name = self._context.config.job, self._context.config.collector.name
        source = self._context.config.sources.get(self._name)
        limit = 0 if source is None or isinstance(source, UdpConfig) else source.pending_max
        return OpenInfo(
            source=self._name,
            format=self._format,
            session=draw(self._context.clock.wall_ns(), self._context.chance.entropy),
            transport=transport,
            peer=peer,
            record_max=record_max,
            pending_max=int(limit),
            ledger=self._context.config.ledger,
            node=job.node,
            job=job.id,
            collector="" if name == MAIN else name,
            **more,
        )

    def _begin(self, info: OpenInfo) -> int:
        """Open a session, and return its number, which is the spool position of its first entry."""
        number = self._spool.end
        self.open_now[number] = info
        self._spool.append(EntryKind.OPEN, number, encode(info))
        return number


def draw(now_ns: int, entropy: Callable[[int], bytes] = os.urandom) -> str:
    """Return a new unique session id. Ids sort by the time (ms) at which they were created."""
    return f"{now_ns // 1_000_000:011x}{entropy(3).hex()}"
