"""Model the table and the quarantine. `test_table.py` compares the model of the table with the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.errors import FullError, StoreError
from tailrace.rows.batch import Batch
from tailrace.store.durable import CHECKPOINT_EVERY
from tests.ingest.log import rows

DOWN = "the table does not answer"
FULL = "no room for the files of a commit"


class Table:
    """Rows and a position that change together (see `tailrace.store.table.Table`)."""

    def __init__(self, store: list[dict[str, Any]] | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        """The rows of this collector."""
        self.store = [] if store is None else store
        """The rows of all collectors of the store, in the order of their commits."""
        self.down = False
        self.landed = False
        """Whether a commit that is refused is in the table nevertheless."""
        self.full = False
        """Whether there is no room for the files of a commit."""
        self.lost = False
        """Whether the table's name leads elsewhere: a commit is accepted, but its rows are in no table that anybody
        finds.
        """
        self.grew: Callable[[int], None] = lambda _: None
        """Function that is called with the position when rows were added."""
        self._position: int | None = None

    def position(self) -> int | None:
        return self._position

    def break_(self, *, landed: bool) -> None:
        """Refuse all commits from now on."""
        self.down, self.landed = True, landed

    def mend(self) -> None:
        self.down = False

    def empty(self) -> None:
        self.full = False

    def forget_position(self) -> None:
        """Forget the position in the spool, because the next spool is another one."""
        self._position = None

    def opened(self) -> Writer:
        """Return the table for one life of a collector. Raise StoreError if it does not answer."""
        if self.down:
            raise StoreError(DOWN)
        return Writer(self)

    def add(self, new: list[dict[str, Any]], position: int) -> None:
        self.rows += new
        self.store += new
        self._position = position
        self.grew(position)


class Writer:
    checkpoint_every = CHECKPOINT_EVERY

    def __init__(self, table: Table) -> None:
        self._table = table
        self._position = table.position()

    def prepare(self, batch: Batch) -> list[dict[str, Any]]:
        """Return rows that are ready for `land`. Raise FullError if there is no room."""
        self._check_room()
        return rows(batch)

    def land(self, new: list[dict[str, Any]], position: int) -> None:
        """Add rows and move the position, once. If it raises StoreError, it is unknown whether this was done."""
        committed = self._position or 0
        if position < committed or (position == committed and new):
            raise ValueError(f"{len(new)} rows at {position}, but {committed} is committed")
        if position == committed:
            return
        table = self._table
        self._check_room()
        if table.down and not table.landed:
            raise StoreError(DOWN)
        if not table.lost and table.position() != position:  # No earlier attempt has succeeded.
            table.add(new, position)
        if table.down:
            raise StoreError(DOWN)
        self._position = position

    def checkpoint(self) -> bool:
        return not self._table.down

    def _check_room(self) -> None:
        if self._table.full:
            raise FullError(FULL)


class Quarantine:
    """Frames by session and position. A replay writes the same bytes to the same positions."""

    def __init__(self) -> None:
        self.frames: dict[str, dict[int, bytes]] = {}
        """By session, the frames by their position in the session's file."""

    def keep(self, pieces: Iterable[tuple[str, int, bytes]]) -> None:
        for session, at, data in pieces:
            before = self.frames.setdefault(session, {}).setdefault(at, data)
            assert before == data, f"other bytes at {at} of the quarantine of {session}"
