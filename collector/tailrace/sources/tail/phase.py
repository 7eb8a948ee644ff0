"""Define the phases of a followed file, and the phase after each event, as a table.

A file waits or is read. A file that is rewritten waits again."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Phase of a known file. If a file waits, metrics show the value of its phase as the reason."""

    NEW = "empty"
    """The file is empty, or was just found or rewritten, or has too few bytes to show its format."""
    COPY = "original"
    """The file may be a copy of another file, which still exists."""
    FOREIGN = "source"
    """Another source follows the file, or a file of which it may be a copy."""
    CROWDED = "files_max"
    """As many files as allowed (`files_max`) are followed already."""
    LEFT_OUT = "other_format"
    """The file's first bytes show another format than the source's."""
    FOLLOWED = "followed"
    """The file is read into a session."""
    SHADOW = "shadow"
    """The file begins like a file whose session has ended, and is read only to find out whether it has more content."""


class FileEvent(Enum):
    """An event that moves a file to another phase: either the source decides something about the file, or the file
    itself changes."""

    MAY_BE_COPY = auto()
    OF_OTHER_SOURCE = auto()
    OF_OTHER_FORMAT = auto()
    TOO_MANY = auto()
    CHOSEN = auto()
    """The file is read from now on, into a new session or, if it is a copy, into the session of the original file."""
    CHOSEN_AS_SHADOW = auto()
    GIVEN_UP = auto()
    """The source stops reading the file, because it may be a copy of another file, which is read instead."""
    LONGER = auto()
    """A file that begins like the file of an ended session (phase `SHADOW`) has become longer than that file."""
    REWRITTEN = auto()


WAITING = Phase.NEW, Phase.COPY, Phase.FOREIGN, Phase.CROWDED, Phase.LEFT_OUT
"""Phases in which the next check decides whether to read the file."""
READ = Phase.FOLLOWED, Phase.SHADOW
"""Phases in which the file is read, into a session or only for a comparison."""

# For each event, the phase of a file before the event is mapped to its phase after the event. An event cannot happen in
# a phase that is not listed.
NEXT: dict[FileEvent, dict[Phase, Phase]] = {
    FileEvent.MAY_BE_COPY: dict.fromkeys(WAITING, Phase.COPY),
    FileEvent.OF_OTHER_SOURCE: dict.fromkeys(WAITING, Phase.FOREIGN),
    FileEvent.OF_OTHER_FORMAT: dict.fromkeys(WAITING, Phase.LEFT_OUT),
    FileEvent.TOO_MANY: dict.fromkeys(WAITING, Phase.CROWDED),
    FileEvent.CHOSEN: dict.fromkeys(WAITING, Phase.FOLLOWED),
    FileEvent.CHOSEN_AS_SHADOW: dict.fromkeys(WAITING, Phase.SHADOW),
    FileEvent.GIVEN_UP: {Phase.FOLLOWED: Phase.NEW},
    FileEvent.LONGER: {Phase.SHADOW: Phase.FOLLOWED},
    FileEvent.REWRITTEN: dict.fromkeys(Phase, Phase.NEW)
    # A rewritten file that waits because of `files_max` (`CROWDED`) keeps its position in the queue. A rewritten file
    # that began like the file of an ended session (`SHADOW`) gets a session of its own.
    | {Phase.CROWDED: Phase.CROWDED, Phase.SHADOW: Phase.FOLLOWED},
}
