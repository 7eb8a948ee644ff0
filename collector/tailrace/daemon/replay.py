"""Brings the ingest at a start to where an earlier life of the daemon ended.

The ingest goes on from a checkpoint. Entries from there up to the last commit are decoded once more for
the ingest's state alone, since their rows are in the table. The sources need not wait for that: what
they must know of the log's end, `look_ahead` finds without decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tailrace.errors import StoreError
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.machine import Ingest, read_state
from tailrace.ingest.unfinished import read_again, since
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.spool.entry import Entry
from tailrace.spool.spool import Spool

READ_BYTES = 1 * 2**20
"""Read from the spool at a time."""


def refills(spool: Spool, checkpoints: Checkpoints, position: int | None) -> bool:
    """Return whether the log can reproduce all rows from a position on; None means from its beginning."""
    at = position or 0
    checkpoint = checkpoints.newest(at)
    return at <= spool.end and spool.begin <= (checkpoint.position if checkpoint else 0)


def restored(spool: Spool, checkpoint: Checkpoint | None, committed: int) -> Ingest:
    """Return the ingest that a checkpoint holds. The table has all rows below `committed`.

    Raise StoreError if spool, table and checkpoint do not belong together."""
    if committed > spool.end:
        raise StoreError(
            f"the table holds what the spool had up to {committed}, but {spool.directory}"
            f" ends at {spool.end}: it is not the spool of this table, or an older copy, or its end is"
            " lost. Restore it from a copy, or move it away to begin a new one; what was received after"
            " that position is lost then."
        )
    ingest = _from_checkpoint(spool, checkpoint) if checkpoint else Ingest()
    if ingest.position < spool.begin:
        raise StoreError(
            f"{spool.directory}: the decoder state for position {spool.begin} is"
            " lost, so what follows cannot be told apart from what is in the table: restore the"
            f" directory from a copy, or move it away to begin a new one. The table keeps what it has up to"
            f" {committed}; what came after that is lost then."
        )
    return ingest


def _from_checkpoint(spool: Spool, checkpoint: Checkpoint) -> Ingest:
    """Return the ingest that a checkpoint holds, with the unfinished records that it left in the spool."""
    state = read_state(checkpoint.state)
    begin = since(state)
    damage: list[StoreError] = []
    lacking = read_again(state, _readable(spool, max(begin, spool.begin), damage.append))
    if damage:
        lacking = {n: each.left_out for n, each in state.sessions.items() if each.left_out}
    return Ingest(state, lacking)


def repeat(ingest: Ingest, entry: Entry) -> Iterator[None]:
    """Take an entry in steps, only to update the ingest's state: its rows are in the table, and its consequences in the log."""
    yield from ingest.steps(entry)
    ingest.yielded.take()
    ingest.rejected.clear()


def replay(
    ingest: Ingest, committed: int, *, read: Callable[[], list[Entry]], working: Callable[[], None]
) -> None:
    """Repeat all entries below `committed`. `read` returns the next entries; `working` is called now and then."""
    while ingest.position < committed:
        working()
        for entry in read():
            if entry.end > committed:
                break
            for _ in repeat(ingest, entry):
                pass


def look_ahead(spool: Spool, ingest: Ingest) -> Ahead:
    """Return what the end of the log says. Read all entries that are not decoded, and decode none of them."""
    ahead = Ahead(ingest)
    for entry in _readable(spool, ingest.position):
        ahead.apply(entry)
    return ahead


def _readable(
    spool: Spool, position: int, damaged: Callable[[StoreError], None] = lambda _: None
) -> Iterator[Entry]:
    """Yield the durable entries from a position on. Pass over bytes that the disk lost, and call `damaged` for each loss."""
    while position < spool.durable:
        try:
            entries = spool.read(position, READ_BYTES)
        except StoreError as error:
            damaged(error)
            position = spool.next_readable(position)
            continue
        yield from entries
        position = entries[-1].end
