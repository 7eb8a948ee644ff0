"""The file that a peer writes, read while it grows."""

from __future__ import annotations

from pathlib import Path


class Output:
    """Counts the lines of a growing file that hold a mark."""

    def __init__(self, path: Path, mark: bytes) -> None:
        self.count = 0
        self._path = path
        self._mark = mark
        self._at = 0

    def look(self) -> range:
        """Return the numbers of those that came since the last look."""
        if not self._path.exists():
            return range(0)
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._at += whole
        first = self.count
        self.count += data.count(self._mark, 0, whole)
        return range(first, self.count)
