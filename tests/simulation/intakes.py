"""The intakes of sources, whose sessions are noted when they begin."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.daemon.intake import SourceIntake
from tailrace.spool.payloads import OpenInfo


class Intake(SourceIntake):
    def noted(self, note: Callable[[int, OpenInfo], None]) -> None:
        """Let each new session be noted."""
        self._note = note

    def _register(self, info: OpenInfo) -> int:
        number = super()._register(info)
        self._note(number, info)
        return number
