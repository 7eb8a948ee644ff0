"""Whether a file rests: its writer is gone, or it has not been written for long."""

from __future__ import annotations

from typing import Literal

from tailrace.ingest.payloads import Rest
from tailrace.sources.tail.session import Desk
from tailrace.sources.tail.writers import Process


class Resting:
    """What is known of one file's writer, and what was said of the file's rest."""

    __slots__ = ("_desk", "_missed", "_process", "_sought", "told")

    def __init__(self, desk: Desk, told: Rest | None = None) -> None:
        self.told = told
        """What was said last; None while the file grows, or may."""
        self._desk = desk
        self._process: Process | None = None
        self._sought = False
        """Whether the writer was looked for since the file grew last."""
        self._missed = False
        """Whether the writer was gone at the last look already."""

    def grows(self) -> None:
        """More of the file was read: what was said of it counts no more."""
        self.told = None
        self._sought = self._missed = False

    def look(self, path: str, birth: int, written: int, unchanged: float) -> bool:
        """Look at a file that is read to its end and has not changed since the last look; return whether
        there is something new to tell. It was written last at `written` (Unix ns), and has not changed
        for so many seconds that we know of. Raise OSError."""
        if self.told is not None and self.told.why in {"process_gone", "ended"}:
            return False
        why = self._why(path, birth, written, unchanged)
        if why is None or (self.told is not None and self.told.why == why):
            return False
        self.told = Rest(why=why, since=written)
        return True

    def _why(
        self, path: str, birth: int, written: int, unchanged: float
    ) -> Literal["process_gone", "waits", "silent"] | None:
        desk = self._desk
        if not self._sought:
            self._process = self._seek(path, birth) or self._process
            self._sought = True
        if self._process is not None and not desk.writers.runs(self._process):
            # What was seen may have been of an earlier process with this PID and file.
            self._process = self._seek(path, birth) or self._process
        if self._process is not None and not desk.writers.runs(self._process):
            # What it wrote last may have come after the look at its file: that is asked once more.
            missed, self._missed = self._missed, True
            return "process_gone" if missed else None
        quiet = (desk.clock.wall_ns() - written) / 1e9
        if (quiet if quiet >= 0 else unchanged) < desk.config.rest_time:
            return None
        return "waits" if self._process else "silent"

    def _seek(self, path: str, birth: int) -> Process | None:
        writer = self._desk.files.writer(path)
        if writer is None:
            return None
        found = self._desk.descriptors.roots.system.stat(path)
        return self._desk.writers.find(writer, found, birth)
