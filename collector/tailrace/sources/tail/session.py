"""Manage the session of one followed file: its content, its documents, and whether it rests (has stopped growing).

`DocumentWatch` reads the documents, such as metadata files, that a format keeps beside its files: It reads each changed
document once, even if several files share the document.

`Writers` determines whether the process that writes a file is still running. A file's path may contain the writer's
host and PID, but the system reuses PIDs, and the PID may belong to another host or PID namespace. So a process counts
as the writer only if it has the file open. If its open files cannot be read, the path must name this host, its user
must own the file, and it must be older than the file and in the collector's PID namespace."""

from __future__ import annotations

import os
import posixpath
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from zlib_ng.zlib_ng import crc32

from tailrace.clock import Clock
from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import Files, Writer
from tailrace.filesystem import spelled
from tailrace.sources.source import FileIntake, SourceFigures
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.location import Roots, TailDescriptors, report
from tailrace.spool.payloads import FileFacts, FileLoss, LossDetail, Rest

KEPT_SECONDS = 1.0
"""Time (seconds) for which the facts about a process are kept, because one process may write many files."""

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_DEAD = {"Z", "X", "x"}


class Process(NamedTuple):
    """A process on this host. PID and start time (clock ticks since boot) together are unique."""

    pid: int
    started: int


class _Seen(NamedTuple):
    at: float
    process: Process | None
    nodes: frozenset[tuple[int, int]] | None
    """Device and inode of each file that the process has open; None if its descriptors cannot be read."""


class Writers:
    """Finds the processes that write files, by the host and PID in the files' paths."""

    def __init__(
        self,
        clock: Clock,
        *,
        proc: str = "/proc",
        stat: Callable[[str], os.stat_result] = os.stat,
    ) -> None:
        self._stat = stat
        self._clock = clock
        self._proc = proc
        self._host = socket.gethostname().partition(".")[0]
        self._seen: dict[int, _Seen] = {}

    def find(self, writer: Writer, file: os.stat_result, birth: int) -> Process | None:
        """Return the running process that certainly writes a file, or None. `birth` is the file's creation time (Unix
        ns, or 0)."""
        seen = self._look(writer.pid)
        if seen.process is None:
            return None
        if seen.nodes is not None:
            writes = (file.st_dev, file.st_ino) in seen.nodes
        else:
            writes = writer.host == self._host and self._is_ours(seen.process, file, birth)
        return seen.process if writes else None

    def runs(self, process: Process) -> bool:
        return self._look(process.pid).process == process

    def _look(self, pid: int) -> _Seen:
        now = self._clock.monotonic()
        seen = self._seen.get(pid)
        if seen is None or not 0 <= now - seen.at < KEPT_SECONDS:
            if len(self._seen) > 4096:
                self._seen.clear()
            process = self._process(pid)
            nodes = self._open_files(pid) if process else None
            seen = self._seen[pid] = _Seen(now, process, nodes)
        return seen

    def _process(self, pid: int) -> Process | None:
        try:
            with open(f"{self._proc}/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 - as fast as it can be
                state, *fields = stat.read().rpartition(")")[2].split()
        except (OSError, ValueError):
            return None
        return None if state in _DEAD else Process(pid, int(fields[18]))

    def _open_files(self, pid: int) -> frozenset[tuple[int, int]] | None:
        directory = f"{self._proc}/{pid}/fd"
        nodes = set()
        try:
            for name in os.listdir(directory):  # noqa: PTH208 - as fast as it can be
                try:
                    found = self._stat(f"{directory}/{name}")
                except FileNotFoundError:
                    continue
                nodes.add((found.st_dev, found.st_ino))
        except OSError:
            return None
        return frozenset(nodes)

    def _is_ours(self, process: Process, file: os.stat_result, birth: int) -> bool:
        """Return whether a process may have created a file: it belongs to the file's owner and is older than the file."""
        about = Path(self._proc, str(process.pid))
        try:
            owner = int(_after(about / "status", "Uid:")[1])
            numbers = _after(about / "status", "NSpid:")
            booted = int(_after(Path(self._proc, "stat"), "btime")[0])
        except (OSError, ValueError, IndexError):
            return False
        # Assume the earliest possible boot time, because the kernel states it only in whole seconds.
        started = (booted - 1) * 10**9 + process.started * _TICK_NS
        return (
            owner == file.st_uid
            and numbers == [str(process.pid)]
            and started <= (birth or file.st_mtime_ns)
        )


def _after(path: Path, word: str) -> list[str]:
    """Return the words of the line that begins with the word `word`, without this word."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith(word)), [])


CACHED, CACHED_BYTES = 16, 16 * 2**20
"""Maximum number and total size (bytes) of documents in memory, besides the document that was read last."""


class _Document:
    """A document, such as a metadata file, and the streams whose format refers to it."""

    def __init__(self) -> None:
        self.signature: tuple[int, ...] | None = None
        self.crc: int | None = None
        """CRC-32 of the content that was last read; None if it was never read."""
        self.settled = False
        """Whether the document was read again since its times last changed: two quick changes may have equal times."""
        self.readers: dict[Handoff, str] = {}
        """The sessions whose traces refer to this document (a file beside them), each with its name for the document."""


class DocumentWatch:
    """Reads the documents, such as metadata files, beside the files of one source. Errors are counted by `failed`."""

    def __init__(
        self,
        files: Files,
        roots: Roots,
        intake: FileIntake,
        failed: Callable[[str], None],
    ) -> None:
        self._files = files
        self._roots = roots
        self._intake = intake
        self._failed = failed
        self._documents: dict[str, _Document] = {}
        self._of: dict[Handoff, list[str]] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._documents)

    def follow(self, handoff: Handoff, path: str) -> None:
        """Pass the documents (such as metadata files) beside the file at `path` to the session `handoff`, now and after
        each change."""
        self.forget(handoff)
        for name in self._files.documents(path):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            self._of.setdefault(handoff, []).append(place)
            document = self._documents.setdefault(place, _Document())
            document.readers[handoff] = spelled(name)
            changed = self._examine(place, document)
            self._send(place, document, list(document.readers) if changed else [handoff])

    def forget(self, handoff: Handoff) -> None:
        for place in self._of.pop(handoff, ()):
            document = self._documents[place]
            del document.readers[handoff]
            if not document.readers:
                del self._documents[place]
                self._cache.pop(place, None)

    def look_at_all(self) -> Iterator[None]:
        for place in list(self._documents):
            document = self._documents.get(place)
            if document is not None and self._examine(place, document):
                self._send(place, document, list(document.readers))
            yield

    def _examine(self, place: str, document: _Document) -> bool:
        try:
            found = self._roots.system.stat(place)
        except OSError as error:
            report(error, self._failed)
            return False
        signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        rests = signature == document.signature
        if rests and document.settled:
            return False
        before = document.crc
        if self._read(place, document) is None:
            return False
        document.signature, document.settled = signature, rests
        return document.crc != before

    def _send(self, place: str, document: _Document, handoffs: list[Handoff]) -> None:
        handoffs = [s for s in handoffs if s.sent.get(document.readers[s]) != document.crc]
        if document.crc is None or not handoffs:
            return
        data = self._cache.get(place)
        if data is None and (data := self._read(place, document)) is None:
            return
        for handoff in handoffs:
            name = document.readers[handoff]
            if handoff.number is not None:
                handoff.sent[name] = document.crc
                self._intake.document(handoff.number, name, data)

    def _read(self, place: str, document: _Document) -> bytes | None:
        try:
            with os.fdopen(self._roots.open(place), "rb") as file:
                data = file.read(self._files.document_max + 1)
        except OSError as error:
            report(error, self._failed)
            return None
        if len(data) > self._files.document_max:
            self._failed("document_max")
            return None
        document.crc = crc32(data)
        self._cache[place] = data
        self._cache.move_to_end(place)
        while len(self._cache) > CACHED or (
            len(self._cache) > 1 and sum(map(len, self._cache.values())) > CACHED_BYTES
        ):
            self._cache.popitem(last=False)
        return data


SUCCEEDED = frozenset({"replaced", "rewritten", "truncated"})
"""Reasons for the end of a session. After such an end, the path and its documents may belong to new content."""


class Desk(msgspec.Struct):
    """Resources that all followed files of one source share."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: TailDescriptors
    documents: DocumentWatch
    clock: Clock
    writers: Writers
    remember: Callable[[str, Trail], None]
    """Function to call at the end of each session, with the file's path and the trail (digest) of the file's
    content."""
    replaces: Mapping[str, tuple[str, ...]] = {}
    """The earlier sessions of a file, by its path, whose rows the file's new session replaces."""


class Handoff:
    """The session of one file. `content` is the trail (digest) of the content that was passed to the daemon."""

    def __init__(self, desk: Desk) -> None:
        self.number: int | None = None
        """The session's number; None while the session is not open."""
        self.content = Trail()
        self.lost = False
        self.sent: dict[str, int] = {}
        """CRC-32 of each document that was passed to the session, by the document's name."""
        self.is_moved = False
        """Whether the file has a new path, and the documents beside this path were not passed on to the daemon yet."""
        self._desk = desk

    def lose(
        self, detail: LossDetail, size: int, data: bytes = b"", *, stated: bool = False
    ) -> None:
        """Record a loss of bytes; report it to the daemon if the session is open."""
        self.lost = True
        if self.number is not None:
            loss = FileLoss(detail=detail, size=size, data=data, stated=stated)
            self._desk.intake.loss(self.number, loss)

    def tell(self, facts: FileFacts) -> None:
        """Report changed facts of the file to the daemon."""
        if self.number is not None:
            self._desk.intake.file(self.number, facts)

    def moved(self) -> None:
        """Record that the file was renamed. Pass on no document until a check of the new path calls `documents`."""
        self._desk.documents.forget(self)
        self.is_moved = True

    def documents(self, path: str) -> None:
        self.is_moved = False
        if self.number is not None:
            self._desk.documents.follow(self, path)

    def let_go(self) -> None:
        if self.number is not None:
            self._desk.documents.forget(self)
            self._desk.intake.let_go(self.number)
            self.number = None

    def end(self, path: str, reason: str) -> None:
        if self.number is None:
            return
        if reason not in SUCCEEDED:
            # Pass on changed documents before the session ends. After a restart, the daemon reads documents only once
            # a search has found the file.
            self._desk.documents.follow(self, path)
        self._desk.documents.forget(self)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(path, self.content)
        self.number = None


class Resting:
    """Determines whether a file rests: it has stopped growing because its writer has ended or pauses."""

    __slots__ = ("_desk", "_missed", "_process", "_sought", "told")

    def __init__(self, desk: Desk, told: Rest | None = None) -> None:
        self.told = told
        """The last report to the daemon: why the file has stopped growing, and since when. None while the file may
        grow."""
        self._desk = desk
        self._process: Process | None = None
        self._sought = False
        """Whether the process that writes the file was searched for since the file last grew."""
        self._missed = False
        """Whether the last check already found that the writer has ended."""

    def grows(self) -> None:
        self.told = None
        self._sought = self._missed = False

    def is_followed(self) -> bool:
        """Record that the source follows the file. Return whether the last report to the daemon was that no source
        follows it."""
        told = self.told
        if told is None or told.why != "unfollowed":
            return False
        self.told = None
        return True

    def look(self, path: str, birth: int, written: int, unchanged: float, pending: int) -> bool:
        """Find out why a file that was read to its end and has not changed for `unchanged` seconds has stopped growing.
        Return whether this must be reported to the daemon. `written` is the time of the last write (Unix ns), and
        `pending` the number of bytes after the last complete gzip member. Raise OSError on failure."""
        if self.told is not None and self.told.why in {"process_gone", "ended"}:
            return False
        why = self._why(path, birth, written, unchanged)
        if why is None or (self.told is not None and self.told.why == why):
            return False
        self.told = Rest(why=why, since=written, pending=pending)
        return True

    def _why(
        self, path: str, birth: int, written: int, unchanged: float
    ) -> Literal["process_gone", "waits", "silent"] | None:
        desk = self._desk
        if not self._sought:
            self._process = self._seek(path, birth) or self._process
            self._sought = True
        if self._process is not None and not desk.writers.runs(self._process):
            # The file may have a new writer with the same PID, which the system has reused.
            self._process = self._seek(path, birth) or self._process
        if self._process is not None and not desk.writers.runs(self._process):
            # The process may have written to the file after the file was read, so report its end at the next check.
            missed, self._missed = self._missed, True
            return "process_gone" if missed else None
        quiet = (desk.clock.wall_ns() - written) / 1e9
        if (quiet if quiet >= 0 else unchanged) < desk.config.rest_time:
            return None
        return "waits" if self._process else "silent"

    def _seek(self, path: str, birth: int) -> Process | None:
        writer = self._desk.files.writer(path)
        if writer is None:
            return None
        found = self._desk.descriptors.roots.system.stat(path)
        return self._desk.writers.find(writer, found, birth)
