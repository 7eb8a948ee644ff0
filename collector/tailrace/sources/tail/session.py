"""The session of one file, from its opening to its close: content, documents, rest.

`Handoff` hands on all of the file. `DocumentWatch` reads the documents beside the streams once when they change,
however many streams share them. `Resting` decides whether the file rests: its writer is gone, or nothing was
written for long.

`Writers` know whether the process that writes a file still runs, as far as this host can find out. A file's path may
name its writer by host and PID. A PID alone proves little: the system reuses PIDs, and the PID may be of another host
or of another PID namespace. A process therefore counts as the writer only once it was seen to be the writer. From
then on its start time identifies it, too. Only a process that was seen can be said to have ended.

A process is seen to be the writer when it has the file open. Another user's descriptors cannot be
read. A process of another user must have this host in the file's path, own the file, be older than
the file, and be in our PID namespace.
"""

from __future__ import annotations

import errno
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
from tailrace.sources.tail.location import Roots, TailDescriptors
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, LossDetail, Rest

KEPT_SECONDS = 1.0
"""Seconds for which what was seen of a process counts, because one process may write many files."""

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_DEAD = {"Z", "X", "x"}


class Process(NamedTuple):
    """A process of this host. `started` is in clock ticks since the boot. No two processes have the
    same PID and start."""

    pid: int
    started: int


class _Seen(NamedTuple):
    at: float
    process: Process | None
    nodes: frozenset[tuple[int, int]] | None
    """Device and inode of the files it has open; None where they cannot be read."""


class Writers:
    """The processes that files' paths name. `proc` is the directory in which the system shows its
    processes."""

    def __init__(
        self,
        clock: Clock,
        *,
        proc: str = "/proc",
        host: str | None = None,
        stat: Callable[[str], os.stat_result] = os.stat,
    ) -> None:
        self._stat = stat
        self._clock = clock
        self._proc = proc
        self._host = (socket.gethostname() if host is None else host).partition(".")[0]
        self._seen: dict[int, _Seen] = {}

    def find(self, writer: Writer, file: os.stat_result, birth: int) -> Process | None:
        """Return the process that writes a file, made at `birth` (Unix ns, or 0), if it is seen."""
        seen = self._look(writer.pid)
        if seen.process is None:
            return None
        if seen.nodes is not None:
            return seen.process if (file.st_dev, file.st_ino) in seen.nodes else None
        if writer.host != self._host or not self._is_ours(seen.process, file, birth):
            return None
        return seen.process

    def runs(self, process: Process) -> bool:
        """Return whether a process that was seen still runs."""
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
        """Return the process with this PID, None if there is none or it has ended."""
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
        """Return whether a process whose descriptors cannot be read may have made a file."""
        about = Path(self._proc, str(process.pid))
        try:
            owner = int(_after(about / "status", "Uid:")[1])
            numbers = _after(about / "status", "NSpid:")
            booted = int(_after(Path(self._proc, "stat"), "btime")[0])
        except (OSError, ValueError, IndexError):
            return False
        # The boot time is in whole seconds.
        started = (booted - 1) * 10**9 + process.started * _TICK_NS
        return (
            owner == file.st_uid
            and numbers == [str(process.pid)]
            and started <= (birth or file.st_mtime_ns)
        )


def _after(path: Path, word: str) -> list[str]:
    """Return the words that follow `word` on the line that begins with it."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith(word)), [])


CACHED, CACHED_BYTES = 16, 16 * 2**20
"""Number and bytes of the documents whose content is kept. Streams that begin together share
documents. The document read last is kept whatever its size."""

Signature = tuple[int, int, int, int]


class _Document:
    """One document, and the streams that it belongs to."""

    def __init__(self) -> None:
        self.signature: Signature | None = None
        self.crc: int | None = None
        """CRC-32 of the content last read; None if it was never read."""
        self.settled = False
        """Whether it was read again after it came to rest, because its times may be too coarse to
        tell."""
        self.readers: dict[Handoff, str] = {}
        """Its streams, each with the name that the stream has for it."""


class DocumentWatch:
    """The documents of one source. It raises nothing: it calls `failed` with the name of an error,
    and tries again."""

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
        """Hand on the documents of the stream at this path, now and when they change."""
        self.forget(handoff)
        names = self._files.documents(path)
        if not names:
            return
        places = self._of[handoff] = []
        for name in names:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            self._documents.setdefault(place, _Document()).readers[handoff] = spelled(name)
            places.append(place)
        self.look(handoff)

    def forget(self, handoff: Handoff) -> None:
        for place in self._of.pop(handoff, ()):
            document = self._documents[place]
            del document.readers[handoff]
            if not document.readers:
                del self._documents[place]
                self._cache.pop(place, None)

    def look(self, handoff: Handoff) -> None:
        """Hand on what is new in the documents of one stream. A changed document goes to its other
        streams, too."""
        for place in self._of.get(handoff, ()):
            document = self._documents[place]
            changed = self._examine(place, document)
            self._send(place, document, list(document.readers) if changed else [handoff])

    def look_at_all(self) -> Iterator[None]:
        """Hand on what has changed. Yield after each document, to let other tasks run."""
        for place in list(self._documents):
            document = self._documents.get(place)
            if document is not None and self._examine(place, document):
                self._send(place, document, list(document.readers))
            yield

    def _examine(self, place: str, document: _Document) -> bool:
        """Read a document that may have changed; return whether its content has."""
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
        """Return the content of a document as it is now, None if it cannot be read."""
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
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self._failed(errno.errorcode.get(error.errno or 0, "unknown"))


SUCCEEDED = frozenset({"replaced", "rewritten", "truncated"})
"""Ends after which the documents beside the file may already be the next file's."""


class Desk(msgspec.Struct):
    """The parts that all files of a source share."""

    intake: FileIntake
    config: TailConfig
    files: Files
    figures: SourceFigures
    descriptors: TailDescriptors
    documents: DocumentWatch
    clock: Clock
    writers: Writers
    remember: Callable[[str, Trail], None]
    """Called at the end of every session with its path and what was read in it."""
    replaces: Mapping[str, tuple[str, ...]] = {}
    """See `Chosen`."""


class Handoff:
    """The session of one file, which is opened with the first thing to hand on. `content` is how far
    it has come."""

    def __init__(self, desk: Desk) -> None:
        self.number: int | None = None
        """The number of the session; None while it is not open."""
        self.content = Trail()
        self.lost = False
        """Whether this life has found that the session lacks something."""
        self.sent: dict[str, int] = {}
        """CRC-32 of each document handed on."""
        self._desk = desk

    @classmethod
    def resumed(cls, desk: Desk, number: int, state: FileState) -> Handoff:
        handoff = cls(desk)
        handoff.number = number
        handoff.content = Trail.of(state)
        handoff.sent = state.documents.copy()
        return handoff

    def open(self, path: str, facts: FileFacts) -> int:
        """Open the session if it is not open; return its number. Its documents are sought beside the
        path."""
        if self.number is None:
            desk = self._desk
            self.number = desk.intake.open_file(
                facts,
                desk.files.group(facts.path),
                record_max=desk.config.record_max,
                dialect=desk.config.dialect,
                replaces=desk.replaces.get(path, ()),
            )
            self.documents(path)
        return self.number

    def data(self, path: str, facts: FileFacts, data: bytes) -> None:
        self._desk.intake.append(EntryKind.DATA, self.open(path, facts), data)
        self.content.add(data)
        self._desk.figures.chunks += 1
        self._desk.figures.bytes += len(data)

    def hole(self, path: str, facts: FileFacts, size: int) -> None:
        self.open(path, facts)
        self.lose("hole", size)
        self.content.pass_over(size)

    def lose(
        self, detail: LossDetail, size: int, data: bytes = b"", *, stated: bool = False
    ) -> None:
        """Report a loss if the session is open."""
        self.lost = True
        if self.number is not None:
            loss = FileLoss(detail=detail, size=size, data=data, stated=stated)
            self._desk.intake.loss(self.number, loss)

    def bad(self, path: str, facts: FileFacts, size: int, data: bytes) -> None:
        self.open(path, facts)
        self.lose("bad_member", size, data)

    def tell(self, facts: FileFacts) -> None:
        """Hand on that the file has another name or place, that it rests, or that a member of it has
        begun."""
        if self.number is not None:
            self._desk.intake.file(self.number, facts)

    def documents(self, path: str) -> None:
        """Hand on the documents beside the file, which has this path now."""
        if self.number is not None:
            self._desk.documents.follow(self, path)

    def let_go(self) -> None:
        """Leave the session open for another source."""
        if self.number is not None:
            self._desk.documents.forget(self)
            self._desk.intake.let_go(self.number)
            self.number = None

    def end(self, path: str, reason: str, unread: int = 0) -> None:
        if self.number is None:
            return
        if unread:
            self.lose("unread", unread)
        if reason not in SUCCEEDED:
            # Nobody has looked at them yet if the file was not found again after a restart.
            self._desk.documents.follow(self, path)
        self._desk.documents.forget(self)
        self._desk.intake.close(self.number, reason)
        self._desk.remember(path, self.content)
        self.number = None


class Resting:
    """One file's writer as far as it is known, and the last report on the file's rest."""

    __slots__ = ("_desk", "_missed", "_process", "_sought", "told")

    def __init__(self, desk: Desk, told: Rest | None = None) -> None:
        self.told = told
        """The last report; None while the file grows, or may."""
        self._desk = desk
        self._process: Process | None = None
        self._sought = False
        """Whether the writer was looked for since the file last grew."""
        self._missed = False
        """Whether the writer was already gone at the last look."""

    def grows(self) -> None:
        """Note that more of the file was read, so that the last report counts no more."""
        self.told = None
        self._sought = self._missed = False

    def is_followed(self) -> bool:
        """Note that the file is followed; return whether the last report was that it is not."""
        told = self.told
        if told is None or told.why != "unfollowed":
            return False
        self.told = None
        return True

    def look(self, path: str, birth: int, written: int, unchanged: float, pending: int) -> bool:
        """Look at a file that is read to its end and has not changed since the last look; return
        whether there is something new to report. The file was last written at `written` (Unix ns),
        and has not changed for `unchanged` seconds that we know of. `pending` bytes at its end are no whole
        member. Raise OSError."""
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
            # The process seen before may be an earlier one with this PID and file.
            self._process = self._seek(path, birth) or self._process
        if self._process is not None and not desk.writers.runs(self._process):
            # It may have written its last bytes after the look at its file: look once more.
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
