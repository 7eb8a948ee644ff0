"""Manage the session of one followed file: its content, its documents (files that describe its stream, such as
metadata), and whether it rests (has stopped growing).

`Handoff` is the session. `DocumentWatch` reads the documents that a format keeps beside its files: each changed
document once, even if several files share it. `Resting` determines whether the file has stopped growing: its writer has
ended, or nothing was written for a long time.

`Writers` determines whether the process that writes a file is still running. A file's path may contain the writer's
host and PID. The PID alone does not identify the writer: the system reuses PIDs, and the PID may belong to another host
or PID namespace. So a process counts as the writer only after it was observed while it was running; its PID and start
time then identify it. `Resting` reports the end of no other process.

A process is the writer if it has the file open. The open files of another user's process cannot be read. Such a process
counts as the writer if the file's path names this host, its user owns the file, and it is older than the file and in
the collector's PID namespace.
"""

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
from tailrace.model.spelling import spelled
from tailrace.sources.source import FileIntake, SourceFigures
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.location import MISSING, Roots, TailDescriptors, name_of
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, LossDetail, Rest

KEPT_SECONDS = 1.0
"""Time (seconds) for which the facts about a process are kept in memory, because one process may write many files."""

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_DEAD = {"Z", "X", "x"}


class Process(NamedTuple):
    """A process on this host. `started` is the start time in clock ticks since boot. PID and start
    time together are unique."""

    pid: int
    started: int


class _Seen(NamedTuple):
    at: float
    process: Process | None
    nodes: frozenset[tuple[int, int]] | None
    """Device and inode of each file that the process has open; None if the process's descriptors
    cannot be read."""


class Writers:
    """Finds the processes that write files, by the host and PID in the files' paths. `proc` is the
    path of the proc file system."""

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
        """Return the running process that writes a file, or None if no process certainly does. `birth` is the file's
        creation time (Unix ns, or 0)."""
        seen = self._look(writer.pid)
        if seen.process is None:
            return None
        if seen.nodes is not None:
            return seen.process if (file.st_dev, file.st_ino) in seen.nodes else None
        if writer.host != self._host or not self._is_ours(seen.process, file, birth):
            return None
        return seen.process

    def runs(self, process: Process) -> bool:
        """Return whether a process that `find` has returned is still running."""
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
        """Return the process with this PID, or None if the process does not exist or has ended."""
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
        """Return whether a process whose descriptors cannot be read may have created a file: it
        belongs to the file's owner and is older than the file."""
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
    """Find the first line that begins with `word` in a text file. Return the other words of this line."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith(word)), [])


CACHED, CACHED_BYTES = 16, 16 * 2**20
"""Maximum number and total size (bytes) of documents (files that describe streams, such as metadata files) in
memory. Streams that begin together share documents. The document that was read last is always kept."""

Signature = tuple[int, int, int, int]


class _Document:
    """A document (a file that describes streams, such as a metadata file), and the streams whose format refers to it."""

    def __init__(self) -> None:
        self.signature: Signature | None = None
        self.crc: int | None = None
        """CRC-32 of the content that was last read from the document (such as a metadata file); None if it was never
        read."""
        self.settled = False
        """Whether the document was read again after its size and times had stopped changing. Two changes in quick
        succession have equal times, so only this second reading detects the later one."""
        self.readers: dict[Handoff, str] = {}
        """The sessions of the streams that refer to the document (such as a metadata file), each with the name by which
        it knows the document."""


class DocumentWatch:
    """Reads the documents (such as metadata files) beside the files of one source. For each error, it calls `failed`
    with the error's name and tries again later; no method raises."""

    def __init__(
        self, files: Files, roots: Roots, intake: FileIntake, failed: Callable[[str], None]
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
        each change. If other sessions share a document and it has changed, pass it to these, too."""
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
        """Pass all changed documents (such as metadata files) to the sessions. Yield after each document, to let other
        tasks run.
        """
        for place in list(self._documents):
            document = self._documents.get(place)
            if document is not None and self._examine(place, document):
                self._send(place, document, list(document.readers))
            yield

    def _examine(self, place: str, document: _Document) -> bool:
        """Read a document (such as a metadata file) if it may have changed; return whether its content has changed."""
        try:
            found = self._roots.system.stat(place)
        except OSError as error:
            self._fails(error)
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
        """Return the current content of a document (such as a metadata file), or None if the document cannot be read."""
        try:
            with os.fdopen(self._roots.open(place), "rb") as file:
                data = file.read(self._files.document_max + 1)
        except OSError as error:
            self._fails(error)
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

    def _fails(self, error: OSError) -> None:
        if not isinstance(error, MISSING):
            self._failed(name_of(error))


SUCCEEDED = frozenset({"replaced", "rewritten", "truncated"})
"""Reasons for the end of a session after which the file's path has new content. Documents beside the file, such as
metadata files, may then belong to the new content."""


class Desk(msgspec.Struct):
    """Resources that all followed files of one source share, such as configuration, counters, descriptors and clock."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: TailDescriptors
    documents: DocumentWatch
    clock: Clock
    writers: Writers
    remember: Callable[[str, Trail], None]
    """Function to call at the end of each session, with the file's path and the trail (first and last bytes, size and
    checksum) of the content that was read."""
    replaces: Mapping[str, tuple[str, ...]] = {}
    """The earlier sessions of a file, by its path. The rows of the file's new session replace their rows (see
    `Chosen`)."""


class Handoff:
    """The session of one file. `content` is the trail (first and last bytes, size and checksum) of the content that was
    passed to the daemon."""

    def __init__(self, desk: Desk) -> None:
        self.number: int | None = None
        """The session's number; None while the session is not open."""
        self.content = Trail()
        self.lost = False
        """Whether this run of the daemon has found a loss of bytes in the file."""
        self.sent: dict[str, int] = {}
        """CRC-32 of each document (such as a metadata file) that was passed to the session, by the document's name."""
        self.is_moved = False
        """Whether the file has another path now, and the documents beside this path were not passed on yet."""
        self._desk = desk

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState) -> Handoff:
        handoff = cls(desk)
        handoff.number = number
        handoff.content = Trail.of(state)
        handoff.sent = state.documents.copy()
        return handoff

    def lose(
        self, detail: LossDetail, size: int, data: bytes = b"", *, stated: bool = False
    ) -> None:
        """Record a loss of bytes; report it to the daemon if the session is open."""
        self.lost = True
        if self.number is not None:
            loss = FileLoss(detail=detail, size=size, data=data, stated=stated)
            self._desk.intake.loss(self.number, loss)

    def tell(self, facts: FileFacts) -> None:
        """Report changed facts of the file to the daemon: its path, its inode, whether it has stopped growing, or where
        its last gzip member begins."""
        if self.number is not None:
            self._desk.intake.file(self.number, facts)

    def moved(self) -> None:
        """Pass on no document (such as a metadata file) until a check of the file at its new path calls `documents`."""
        self._desk.documents.forget(self)
        self.is_moved = True

    def documents(self, path: str) -> None:
        """Pass on the documents (such as metadata files) that the format keeps beside the file's current path."""
        self.is_moved = False
        if self.number is not None:
            self._desk.documents.follow(self, path)

    def let_go(self) -> None:
        """Release the open session so that another source can continue it."""
        if self.number is not None:
            self._desk.documents.forget(self)
            self._desk.intake.let_go(self.number)
            self.number = None

    def end(self, path: str, reason: str) -> None:
        if self.number is None:
            return
        if reason not in SUCCEEDED:
            # Pass the latest documents (such as metadata files) to the session before it is closed. After a restart,
            # changes are noticed only once a search has found the file.
            self._desk.documents.follow(self, path)
        self._desk.documents.forget(self)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(path, self.content)
        self.number = None


class Resting:
    """Determines whether a file rests: whether it has stopped growing because its writer has ended or pauses. Remembers
    the writer and what was last reported.
    """

    __slots__ = ("_desk", "_missed", "_process", "_sought", "told")

    def __init__(self, desk: Desk, told: Rest | None = None) -> None:
        self.told = told
        """The last report: why the file has stopped growing, and since when; None while the file may grow."""
        self._desk = desk
        self._process: Process | None = None
        self._sought = False
        """Whether the process that writes the file was searched for since the file last grew."""
        self._missed = False
        """Whether the last check already found that the process that writes the file has ended."""

    def grows(self) -> None:
        """Record that more of the file was read, so that it no longer counts as a file that has stopped growing."""
        self.told = None
        self._sought = self._missed = False

    def is_followed(self) -> bool:
        """Record that the source follows the file; return whether it was reported as `unfollowed`."""
        told = self.told
        if told is None or told.why != "unfollowed":
            return False
        self.told = None
        return True

    def look(self, path: str, birth: int, written: int, unchanged: float, pending: int) -> bool:
        """Find out why a file has stopped growing. Return whether the reason must be reported, because it is not the
        last reported one.

        Call this method only if the file was read to its end and has not changed since the last check.

        `written` is the time of the last write (Unix ns). `unchanged` is the time (seconds) during which checks found
        no change. `pending` is the number of bytes behind the last complete gzip member. Raise OSError if the file
        cannot be examined."""
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
            # Search for the writer again: the process that was found before may be an earlier owner of the writer's
            # PID, which the system has reused.
            self._process = self._seek(path, birth) or self._process
        if self._process is not None and not desk.writers.runs(self._process):
            # Report the end of the process at the next check, because the process may have written to the file after
            # the file was read.
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
