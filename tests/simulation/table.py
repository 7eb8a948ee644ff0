"""Models of the table and of the quarantine; `test_table.py` holds the table's to the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.errors import StoreError
from tailrace.model.columns import Batch
from tests.ingest.log import rows

DOWN = "the table does not answer"


class Table:
    """Rows and a position that change together (see `tailrace.store.table.Table`)."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.down = False
        self.landed = False
        """Whether a commit that is refused is in the table all the same."""
        self.grew: Callable[[], None] = lambda: None
        """Is called when rows were added."""
        self._position: int | None = None

    def position(self) -> int | None:
        return self._position

    def break_(self, *, landed: bool) -> None:
        """Refuse all commits from now on."""
        self.down, self.landed = True, landed

    def mend(self) -> None:
        self.down = False

    def forget_position(self) -> None:
        """Know nothing of the spool that comes: it is another one."""
        self._position = None

    def opened(self) -> Writer:
        """Return the table as one life of a collector writes it. Raise StoreError."""
        if self.down:
            raise StoreError(DOWN)
        return Writer(self)

    def land(self, batch: Batch, position: int) -> None:
        self.rows += rows(batch)
        self._position = position
        self.grew()


class Writer:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._position = table.position()

    def commit(self, batch: Batch, position: int) -> None:
        """Add rows and move the position, once. Raise StoreError: it is not known whether that was done."""
        committed = self._position or 0
        if position < committed or (position == committed and len(batch)):
            raise ValueError(f"{len(batch)} rows at {position}, but {committed} is committed")
        if position == committed:
            return
        table = self._table
        if table.down and not table.landed:
            raise StoreError(DOWN)
        if table.position() != position:  # no earlier attempt landed
            table.land(batch, position)
        if table.down:
            raise StoreError(DOWN)
        self._position = position

    def checkpoint(self) -> bool:
        return not self._table.down


class Quarantine:
    """Frames by session and place. A replay writes the same bytes to the same places."""

    def __init__(self) -> None:
        self.frames: dict[str, dict[int, bytes]] = {}
        """By session, then by place in its file."""

    def write(self, session: str, at: int, data: bytes) -> bool:
        before = self.frames.setdefault(session, {}).setdefault(at, data)
        assert before == data, f"other bytes at {at} of the quarantine of {session}"
        return True

    def sync(self) -> None:
        """Files stay here."""
