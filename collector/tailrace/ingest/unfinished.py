"""Count the bytes of unfinished records, and omit these bytes from a checkpoint.

The spool already holds the bytes of an unfinished record. If a checkpoint also held the bytes, peers could make it
large by leaving records unfinished. Instead, the checkpoint states the spool position of the bytes, and a start of the
daemon reads the bytes again. The checkpoint itself holds short records and records that began long ago, so that an
unfinished line or a stalled peer does not delay the release of spool space.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.ingest.state import IngestState
from tailrace.spool.entry import Entry, EntryKind

INLINE_MAX = 4096
"""Maximum size (bytes) of an unfinished record whose bytes are always stored in the checkpoint."""

NAMED_WITHIN = 128 * 2**20
"""Maximum distance (bytes) in the spool between the first byte of an unfinished record and a checkpoint that leaves out
the record's bytes.

A start of the daemon reads this distance again without decoding it, which takes about 0.1 s."""


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
        """Set the number of bytes that the unfinished record of a session has now."""
        before = self._sizes.pop(number, 0)
        if size:
            self._sizes[number] = size
        self.total += size - before

    def largest(self) -> int:
        """Return the number of the session with the largest unfinished record; among equal ones, of the session that
        was opened last."""
        sizes = self._sizes
        return max(sizes, key=lambda number: (sizes[number], number))


def since(state: IngestState) -> int:
    """Return the first spool position to read again in order to restore `state`.

    This is the lowest position with bytes of unfinished records that `state` leaves out. If it leaves out none, it is
    the position of `state` itself."""
    begun = [session.begun for session in state.sessions.values() if session.left_out]
    return min(begun, default=state.position)


def read_again(state: IngestState, entries: Iterable[Entry]) -> dict[int, int]:
    """Restore the bytes of unfinished records that a checkpoint left out. Read them from the spool, from the position
    that `since` returns.

    Return, by session number, how many of these bytes the spool has lost. Zero bytes replace them, so that offsets in
    the session do not change."""
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
