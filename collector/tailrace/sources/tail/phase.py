"""Define the phases of a followed file, and the phase after each event, as a table.

A file waits, is read, or was left. A waiting file gets a decision at each check: the file may be a
copy, belong to another source, lack a place, or be chosen (`watch`). A file that is read, and a file
that was left, wait again once they are rewritten.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Phase of a known file. The value of a waiting phase is the reason for waiting, as in metrics."""

    NEW = "empty"
    """Nothing is decided about the file, because the file is empty or was just found or rewritten."""
    COPY = "original"
    """The file may be a copy of another file, which still exists."""
    FOREIGN = "source"
    """Another source follows the file, or a file that may be the file's original."""
    CROWDED = "files_max"
    """The file may be followed, and no place for followed files is free."""
    FOLLOWED = "followed"
    """The file is read into its own session."""
    SHADOW = "shadow"
    """The file begins like an ended file. Without additional content, the file was read before;
    with additional content, the file becomes a separate file."""
    LEFT = "left"
    """The file is not read until the file is replaced or rewritten."""


class FileEvent(Enum):
    """Decision about a file, or change of a file, that leads to another phase."""

    MAY_BE_COPY = auto()
    OF_OTHER_SOURCE = auto()
    NO_PLACE = auto()
    CHOSEN = auto()
    """The file gets its own session, or continues the session of a file that it is a copy of."""
    CHOSEN_AS_SHADOW = auto()
    GIVEN_UP = auto()
    """No content of the file was read, and its bytes may belong to another file."""
    LONGER = auto()
    """The shadow has more content than the ended file."""
    REWRITTEN = auto()
    """The file was replaced, truncated or rewritten."""
    ENDED = auto()
    """The file's session has ended, and reading stops."""


WAITING = Phase.NEW, Phase.COPY, Phase.FOREIGN, Phase.CROWDED
"""Phases of files about which a decision is due."""
READ = Phase.FOLLOWED, Phase.SHADOW

# The phase after each event. An event cannot happen in a phase that its row lacks.
NEXT: dict[FileEvent, dict[Phase, Phase]] = {
    FileEvent.MAY_BE_COPY: dict.fromkeys(WAITING, Phase.COPY),
    FileEvent.OF_OTHER_SOURCE: dict.fromkeys(WAITING, Phase.FOREIGN),
    FileEvent.NO_PLACE: dict.fromkeys(WAITING, Phase.CROWDED),
    FileEvent.CHOSEN: dict.fromkeys(WAITING, Phase.FOLLOWED),
    FileEvent.CHOSEN_AS_SHADOW: dict.fromkeys(WAITING, Phase.SHADOW),
    FileEvent.GIVEN_UP: {Phase.FOLLOWED: Phase.NEW},
    FileEvent.LONGER: {Phase.SHADOW: Phase.FOLLOWED},
    FileEvent.REWRITTEN: dict.fromkeys(Phase, Phase.NEW)
    # A file that waits for a place keeps its position in the queue.
    | {Phase.CROWDED: Phase.CROWDED, Phase.SHADOW: Phase.FOLLOWED},
    FileEvent.ENDED: dict.fromkeys(Phase, Phase.LEFT),
}
