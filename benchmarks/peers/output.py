"""Read the file that a peer writes, while it grows."""

from __future__ import annotations

from pathlib import Path


class Output:
    """Reads the new lines of a growing file, and finds those that contain a mark."""

    def __init__(self, path: Path, mark: bytes) -> None:
        self.count = 0
        self._path = path
        self._mark = mark
        self._at = 0

    def look(self) -> range:
        """Return the event numbers in those lines that were added since the last call."""
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
