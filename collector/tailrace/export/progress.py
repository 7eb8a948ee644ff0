"""Say on a terminal how far an export is."""

from __future__ import annotations

import time
from typing import TextIO

EVERY_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class RowCount:
    """Counts rows: those that were read, and in the end those that are in the file. `terminal` shows the count, or is None."""

    def __init__(self, terminal: TextIO | None) -> None:
        self.rows = 0
        self._terminal = terminal
        self._of = 0
        self._said = time.monotonic()

    def begin(self, of: int) -> None:
        """Begin to count: `of` is about how many rows there will be."""
        self.rows = 0
        self._of = of

    def add(self, rows: int) -> None:
        self.rows += rows
        now = time.monotonic()
        if self._terminal and now >= self._said + EVERY_SECONDS:
            self._said = now
            share = f" ({min(self.rows / self._of, 1):.0%})" if self._of else ""
            self._terminal.write(f"{_CLEAR}exporting ... {self.rows:,} rows{share}")
            self._terminal.flush()

    def written(self, rows: int) -> None:
        """Set the number of rows in the file, if it differs from the number of rows that were read."""
        self.rows = rows

    def end(self) -> None:
        """Clear the line."""
        if self._terminal:
            self._terminal.write(_CLEAR)
            self._terminal.flush()
