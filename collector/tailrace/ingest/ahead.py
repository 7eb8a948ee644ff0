"""The state that sources need at the end of the log, found before the log is decoded.

Sources append to the log while an older part of the log is still being decoded. To continue what an
earlier life of the daemon left open, a source needs the open sessions and the kernel's counts of
drops, both as they stand at the log's end. A few kinds of entries give both, and no other entry has to
be decoded for them. How far a file is read depends on all entries, so sources of files wait.
"""

from __future__ import annotations

from tailrace.ingest.machine import Ingest
from tailrace.ingest.state import decode
from tailrace.spool.entry import LAST, Entry, EntryKind
from tailrace.spool.payloads import DropCount, OpenInfo


class Ahead:
    """The log's end, reached by `apply` for each entry from the ingest's position on."""

    def __init__(self, ingest: Ingest) -> None:
        self.sessions: dict[int, OpenInfo] = ingest.open_sessions()
        """The open sessions, by number."""
        self.now = ingest.now
        """The time of the last entry (Unix ns)."""
        self.clock = ingest.state.ahead
        """How far the wall clock is ahead of the log's time (ns)."""
        self._ingest = ingest
        self._told: dict[str, DropCount] = {}

    def apply(self, entry: Entry) -> None:
        """Take the next entry."""
        self.now = entry.time_ns
        if entry.kind == EntryKind.OPEN:
            self.sessions[entry.session] = decode(entry.payload, OpenInfo)
        elif entry.kind == EntryKind.CLOSE:
            self.sessions.pop(entry.session, None)
        elif entry.kind == EntryKind.STOP and entry.payload == LAST:
            self.sessions = {number: info for number, info in self.sessions.items() if info.file}
        elif entry.kind == EntryKind.CLOCK:
            self.clock = decode(entry.payload, int)
        elif entry.kind == EntryKind.DROPS:
            dropped = decode(entry.payload, DropCount)
            self._told[dropped.source] = dropped

    def drops_told(self, source: str, socket: int) -> int:
        """Return how many drops at a socket the log tells of, given the kernel's number of the
        socket."""
        last = self._told.get(source)
        if last is None:
            return self._ingest.common(source).drops.told(socket)
        return last.total if last.socket == socket else 0
