"""Errors of files and directories: counted and logged."""

from __future__ import annotations

import errno
import logging

from tailrace.sources.refusal import Refusal
from tailrace.sources.source import SourceFigures

PATHS_SHOWN = 5
OUTSIDE_MAX = 4096
"""Links out of the roots that are remembered. When there are more, all are forgotten and counted
again."""

logger = logging.getLogger(__name__)


class Complaints:
    """The errors of one source, counted in its `figures`."""

    def __init__(self, source: str, figures: SourceFigures) -> None:
        self._source = source
        self._figures = figures
        self._outside: set[str] = set()
        self._strange: set[str] = set()

    def failed(self, name: str) -> None:
        """Count an error by its name, and log the first error of each name."""
        if name not in self._figures.errors:
            logger.warning(
                "source %s: %s; it is tried again, and counted",
                self._source, name, extra={"source": self._source},
            )  # fmt: skip
        self._figures.errors[name] = self._figures.errors.get(name, 0) + 1

    def leads_outside(self, path: str) -> None:
        """Count a link that leads out of all roots, once, and log the first few."""
        if path in self._outside:
            return
        if len(self._outside) == OUTSIDE_MAX:
            self._outside.clear()
        self._outside.add(path)
        self._figures.refuse(Refusal.OUTSIDE)
        if self._figures.refused[Refusal.OUTSIDE] <= PATHS_SHOWN:
            logger.warning(
                "source %s: %r leads out of the configured paths and is not followed; the first %d"
                " are named, all counted",
                self._source, path, PATHS_SHOWN, extra={"source": self._source},
            )  # fmt: skip

    def is_of_no_format(self, path: str) -> None:
        """Log the first few files that a pattern spells and the source's format does not recognise, each once."""
        if path not in self._strange and len(self._strange) < PATHS_SHOWN:
            self._strange.add(path)
            logger.warning(
                "source %s: %r has neither the name nor the content of the source's format, and is not followed; give its"
                " path in `paths` to follow it all the same; the first %d are named",
                self._source, path, PATHS_SHOWN, extra={"source": self._source},
            )  # fmt: skip


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
