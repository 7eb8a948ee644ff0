"""Observe the intakes of sources, to record sessions when they begin."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.daemon.intake import SourceIntake
from tailrace.spool.payloads import OpenInfo


class Intake(SourceIntake):
    def noted(self, note: Callable[[int, OpenInfo], None]) -> None:
        """Call a function for each new session of an intake."""
        self._note = note

    def _begin(self, info: OpenInfo) -> int:
        number = super()._begin(info)
        self._note(number, info)
        return number
