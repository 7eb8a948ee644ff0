"""Whether a file rests: its writer is gone, or nothing was written for long."""

from __future__ import annotations

from typing import Literal

from tailrace.ingest.payloads import Rest
from tailrace.sources.tail.handoff import Desk
from tailrace.sources.tail.writers import Process


class Resting:
    """One file's writer as far as it is known, and the last report on the file's rest."""

    __slots__ = ("_desk", "_missed", "_process", "_sought", "told")

    def __init__(self, desk: Desk, told: Rest | None = None) -> None:
        self.told = told
        """The last report; None while the file grows, or may."""
        self._desk = desk
        self._process: Process | None = None
        self._sought = False
        """Whether the writer was looked for since the file last grew."""
        self._missed = False
        """Whether the writer was already gone at the last look."""

    def grows(self) -> None:
        """Note that more of the file was read, so that the last report counts no more."""
        self.told = None
        self._sought = self._missed = False

    def is_followed(self) -> bool:
        """Note that the file is followed; return whether the last report was that it is not."""
        told = self.told
        if told is None or told.why != "unfollowed":
            return False
        self.told = None
        return True

    def look(self, path: str, birth: int, written: int, unchanged: float, pending: int) -> bool:
        """Look at a file that is read to its end and has not changed since the last look; return
        whether there is something new to report. The file was last written at `written` (Unix ns),
        and has not changed for `unchanged` seconds that we know of. `pending` bytes at its end are no whole
        member. Raise OSError."""
        if self.told is not None and self.told.why in {"process_gone", "ended"}:
            return False
        why = self._why(path, birth, written, unchanged)
        if why is None or (self.told is not None and self.told.why == why):
            return False
        self.told = Rest(why=why, since=written, pending=pending)
        return True

    def _why(
        self, path: str, birth: int, written: int, unchanged: float
    ) -> Literal["process_gone", "waits", "silent"] | None:
        desk = self._desk
        if not self._sought:
            self._process = self._seek(path, birth) or self._process
            self._sought = True
        if self._process is not None and not desk.writers.runs(self._process):
            # The process seen before may be an earlier one with this PID and file.
            self._process = self._seek(path, birth) or self._process
        if self._process is not None and not desk.writers.runs(self._process):
            # It may have written its last bytes after the look at its file: look once more.
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
