"""Count the bytes of unfinished records, and omit these bytes from a checkpoint.

The spool already holds these bytes. If a checkpoint held them, too, peers could make it large by leaving records
unfinished. Instead, a checkpoint states the spool position of the bytes, and a start of the daemon reads them again.
The checkpoint still holds the bytes of short records, and of records that began long ago, so that these records do not
delay the release of spool space.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.ingest.state import IngestState
from tailrace.spool.entry import Entry, EntryKind

INLINE_MAX = 4096
"""Maximum size (bytes) of an unfinished record whose bytes are always stored in the checkpoint."""

NAMED_WITHIN = 128 * 2**20
"""Maximum distance (bytes) in the spool between an unfinished record and a checkpoint that leaves out the record's
bytes. A start of the daemon takes about 0.1 s to read this distance again."""


class UnfinishedSnapshot(NamedTuple):
    """Encoded state of the ingest, and the first spool position whose entries are needed to restore it."""

    state: bytes
    since: int


class Unfinished:
    """Counts the bytes of unfinished records in the sessions of one source."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes: dict[int, int] = {}

    def hold(self, number: int, size: int) -> None:
        before = self._sizes.pop(number, 0)
        if size:
            self._sizes[number] = size
        self.total += size - before

    def largest(self) -> int:
        """Return the session with the largest unfinished record; among equal ones, the session opened last."""
        sizes = self._sizes
        return max(sizes, key=lambda number: (sizes[number], number))


def since(state: IngestState) -> int:
    """Return the first spool position to read again in order to restore `state`."""
    begun = [session.begun for session in state.sessions.values() if session.left_out]
    return min(begun, default=state.position)


def read_again(state: IngestState, entries: Iterable[Entry]) -> dict[int, int]:
    """Restore the bytes that a checkpoint left out, from the spool entries since `since`. Replace lost bytes by zero
    bytes, and return the number of lost bytes by session number."""
    wanted = {number: each for number, each in state.sessions.items() if each.left_out}
    found = {number: bytearray() for number in wanted}
    for entry in entries:
        if entry.position >= state.position:
            break
        session = wanted.get(entry.session)
        if session and entry.kind == EntryKind.DATA and entry.position >= session.begun:
            data = found[entry.session]
            data += entry.payload
            if len(data) > 2 * session.left_out:
                del data[: -session.left_out]
    lacking: dict[int, int] = {}
    for number, session in wanted.items():
        data = found.pop(number)
        session.waiting = bytes(data[-session.left_out :])
        if lack := session.left_out - len(session.waiting):
            session.waiting = bytes(lack) + session.waiting
            lacking[number] = lack
    return lacking
