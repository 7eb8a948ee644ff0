"""Put the content together again that a source of files passes on, as the daemon would."""

from __future__ import annotations

import zlib
from typing import Literal

import trio
from msgspec import structs

from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import without_gz
from tailrace.sources.source import CHUNK_MAX, FileFinder
from tailrace.sources.tail.location import System
from tailrace.sources.tail.watch import TailSource
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, Rest

NEVER = 1e18


class TestClock:
    """Trio's time, which tests can set."""

    __test__ = False

    def wall_ns(self) -> int:
        return int((1e9 + trio.current_time()) * 1e9)

    def monotonic(self) -> float:
        return trio.current_time()


class Session:
    def __init__(self, facts: FileFacts, group: str) -> None:
        self.state = FileState(facts, crc=0)
        self.group = group
        self.content = bytearray()
        """The content of the file. Holes are zeros."""
        self.losses: list[FileLoss] = []
        self.documents: dict[str, bytes] = {}
        self.moves: list[FileFacts] = []
        self.closed: str | None = None
        self.unfollowed = False

    def lost(self, detail: str) -> int:
        return sum(loss.size for loss in self.losses if loss.detail == detail)


class Recorder:
    """A `FileIntake` in memory. Sessions are numbered in the order of their beginnings."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.calls: list[str] = []
        self.chunks: list[tuple[int, int]] = []
        """Session and size of each chunk, in order."""
        self.delay = 0.0
        """Time (seconds) that a wait for room takes."""
        self.fills_after: int | None = None
        """Number of chunks after which there is no room."""
        self.knows_from = 0.0
        """Time from which the ingest knows what former sessions have read."""
        self.keeps_holes = True
        """Whether the content keeps holes, as zeros."""
        self._opened = trio.Event()
        self._opened.set()

    @property
    def contents(self) -> list[bytes]:
        return [bytes(session.content) for session in self.sessions]

    @property
    def open(self) -> list[Session]:
        return [session for session in self.sessions if session.closed is None]

    def open_file(
        self,
        facts: FileFacts,
        group: str,
        *,
        record_max: int,
        dialect: str,
        replaces: tuple[str, ...] = (),
    ) -> int:
        assert replaces == ()
        self.sessions.append(Session(facts, group))
        return len(self.sessions) - 1

    def session(self, number: int) -> str:
        return f"session{number}"

    def file(self, number: int, facts: FileFacts) -> None:
        session = self._session(number)
        session.moves.append(facts)
        session.state.facts = facts

    def append(self, kind: EntryKind, number: int, data: bytes, /) -> int:
        assert kind is EntryKind.DATA
        assert 0 < len(data) <= CHUNK_MAX
        session = self._session(number)
        session.content += data
        session.state.read(data)
        session.state.facts = structs.replace(
            session.state.facts, copied_in=()
        )  # as the ingest does
        self.chunks.append((number, len(data)))
        if len(self.chunks) == self.fills_after:
            self.fill()
        return len(self.chunks)

    def document(self, number: int, name: str, data: bytes) -> None:
        session = self._session(number)
        session.documents[name] = data
        session.state.documents[name] = zlib.crc32(data)
        self.calls.append(f"document {number} {name}")

    def loss(self, number: int, loss: FileLoss) -> None:
        session = self._session(number)
        session.losses.append(loss)
        session.state.lose(loss)
        if self.keeps_holes:
            session.content += bytes(loss.skip)

    def close(self, number: int, reason: str) -> None:
        self._session(number).closed = reason

    def files(self, finder: FileFinder | None = None) -> dict[int, FileState]:
        """Return the open files, whichever source of a test asks."""
        return {
            number: session.state
            for number, session in enumerate(self.sessions)
            if session.closed is None and not session.unfollowed
        }

    def is_awaited(self, path: str, head: bytes) -> bool:
        return False

    def take_up(
        self, path: str, device: int, inode: int, head: bytes
    ) -> dict[int, FileState] | Literal["later"]:
        if self.knows_from and trio.current_time() < self.knows_from:
            return "later"
        found = {}
        for number, session in enumerate(self.sessions):
            facts = session.state.facts
            same = (facts.device, facts.inode) == (device, inode)
            if session.unfollowed and (same or without_gz(facts.path) == without_gz(path)):
                session.unfollowed = False
                found[number] = session.state
        return found

    def let_go(self, number: int) -> None:
        session = self._session(number)
        session.unfollowed = True
        rest = Rest(why="unfollowed", since=0)
        session.state.facts = structs.replace(session.state.facts, rest=rest)

    def fill(self) -> None:
        """Let there be no room until `drain` is called."""
        if self._opened.is_set():
            self._opened = trio.Event()

    def drain(self) -> None:
        self._opened.set()

    async def room(self) -> None:
        await self._opened.wait()
        if self.delay:
            await trio.sleep(self.delay)

    def _session(self, number: int) -> Session:
        session = self.sessions[number]
        assert session.closed is None, "handed on after the close"
        return session


class Tail:
    """A source on a directory, run in a nursery. Time passes only when a test lets it."""

    def __init__(self, nursery: trio.Nursery, intake: Recorder, *paths: object, **keys) -> None:
        format_ = keys.pop("format", "jets")
        # The files of most tests have times in 1970, so do not call them silent.
        keys.setdefault("rest_time", NEVER)
        self.once = keys.pop("once", False)
        self.chosen = keys.pop("chosen", None)
        self.system = keys.pop("system", System())
        self.intake = intake
        self.config = TailConfig(format=format_, paths=[str(path) for path in paths], **keys)
        self.nursery = nursery
        self.start()

    def start(self) -> None:
        self.source = TailSource(
            "tail", self.config, TestClock(), once=self.once, chosen=self.chosen, system=self.system
        )
        self.scope = trio.CancelScope()
        self.stopped = trio.Event()
        self.nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            await self.source.run(self.intake)
        self.stopped.set()

    async def stop(self) -> None:
        self.scope.cancel()
        await self.stopped.wait()

    async def restart(self) -> None:
        await self.stop()
        self.start()
