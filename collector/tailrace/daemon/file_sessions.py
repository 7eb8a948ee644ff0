"""The open sessions of files, whichever source follows them.

How far a file was read belongs to the store, and outlives the source. A session stays open while its file is there,
even when its source is removed or its patterns lead elsewhere. The log then says that no source follows the file, and
the source of the same format that finds the file, or a copy of it, goes on with the session. Where several sources
lead to one file, one follows it and the others wait.
"""

from __future__ import annotations

from tailrace.daemon.gate import Gate
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.file_state import FileState
from tailrace.ingest.payloads import OpenInfo
from tailrace.sources.source import FileFinder
from tailrace.spool.entry import EntryKind

UNFOLLOWED_MAX = 8192
"""Sessions that wait for a source. When there are more, the oldest are ended."""

Former = dict[int, tuple[OpenInfo, FileState]]
"""Sessions to go on with, by number."""

_Key = tuple[str, int, int] | tuple[str, str]


class FileSessions:
    """The sessions that no source follows, and the running sources of files."""

    def __init__(self, gate: Gate) -> None:
        self._ingest, self._spool, self._gate = gate.ingest, gate.spool, gate
        self._sources: dict[str, tuple[str, FileFinder]] = {}
        """The running sources, each with its format."""
        self._unfollowed: dict[int, OpenInfo] = {}
        self._by_key: dict[_Key, set[int]] | None = None
        """The same sessions by inode, and by the part of a path that copies of the file share; None until it is
        needed."""
        self._known_at = 0
        """Once the ingest has reached this position in the log, it knows how far each of these files was read."""

    def begin(
        self, source: str, format_: str, earlier: dict[int, OpenInfo], finder: FileFinder
    ) -> dict[int, FileState]:
        """Note that a source runs. Return the files of the sessions that it had before."""
        self._sources[source] = format_, finder
        return self._ingest.files(earlier)

    def end(self, source: str) -> None:
        self._sources.pop(source, None)

    def let_go(self, number: int, info: OpenInfo) -> None:
        """Note that no source follows the file of a session."""
        self._gate.append(EntryKind.FILE, number, b"")
        self._unfollowed[number] = info
        while len(self._unfollowed) > UNFOLLOWED_MAX:
            oldest = next(iter(self._unfollowed))
            del self._unfollowed[oldest]
            self._gate.append(EntryKind.CLOSE, oldest, b"source removed")
        self._by_key, self._known_at = None, self._spool.end

    def is_awaited(self, source: str, path: str, head: bytes) -> bool:
        return any(other.awaits(path, head) for other in self._others(source))

    def take_up(
        self, source: str, path: str, device: int, inode: int, head: bytes
    ) -> Former | None:
        """Return the unfollowed sessions that a source continues when it finds this file: sessions of the file, of an
        earlier file at its path, or of a file that it may be a copy of. Return None while another source claims the
        file, or while the ingest does not know yet how far the files were read."""
        format_ = self._sources[source][0]
        claimed = any(o.claims(path, device, inode, head) for o in self._others(source))
        if claimed or self._ingest.position < self._known_at:
            return None
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
