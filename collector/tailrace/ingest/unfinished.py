"""Unfinished records: how many bytes they are, and how a checkpoint leaves these bytes out.

The bytes of an unfinished record are in the spool already. A checkpoint that held them as well would
grow by all that peers can make the daemon wait for. So the checkpoint says from which position on the
spool has the bytes, and a start reads them again. The checkpoint itself holds short records, and records
that began long ago: neither a line that waits for its end nor a peer that stalls may hold back the
release of the spool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.ingest.state import IngestState
from tailrace.spool.entry import Entry, EntryKind

INLINE_MAX = 4096
"""Bytes of one unfinished record that a checkpoint holds itself."""

NAMED_WITHIN = 128 * 2**20
"""Bytes of the spool before a checkpoint's position that a start may read again, without decoding them.
This takes about 0.1 s."""


class UnfinishedSnapshot(NamedTuple):
    """A state of the ingest, and the position from which on it needs the spool."""

    state: bytes
    since: int


class Unfinished:
    """How many bytes of unfinished records the sessions of one source hold."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes: dict[int, int] = {}

    def hold(self, number: int, size: int) -> None:
        """Take note of the bytes that a session holds now."""
        before = self._sizes.pop(number, 0)
        if size:
            self._sizes[number] = size
        self.total += size - before

    def largest(self) -> int:
        """Return the session that holds the most. If several do, return the one opened last."""
        sizes = self._sizes
        return max(sizes, key=lambda number: (sizes[number], number))


def since(state: IngestState) -> int:
    """Return the position from which on a state needs the spool."""
    begun = [session.begun for session in state.sessions.values() if session.left_out]
    return min(begun, default=state.position)


def read_again(state: IngestState, entries: Iterable[Entry]) -> dict[int, int]:
    """Fill in the bytes that a checkpoint left out, from the spool's entries from `since` on.

    Return, by session, how many bytes the spool lacks. Zeros stand for them, so that places in the session
    do not change."""
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
