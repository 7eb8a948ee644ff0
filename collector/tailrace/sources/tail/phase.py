"""Define the phases of a followed file, and the phase after each event, as a table.

A file waits, is read, or is no longer read. At each check of a waiting file, `watch` decides whether the file is read
from now on. It waits on if it may be a copy, if another source follows it, or if too many files are followed already. A
file that is rewritten waits again.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Phase of a known file. If a file waits, metrics show the value of its phase as the reason for waiting."""

    NEW = "empty"
    """Phase of a file about which nothing is decided, because it is empty or was just found or rewritten."""
    COPY = "original"
    """Phase of a file that may be a copy of another file, which still exists."""
    FOREIGN = "source"
    """Phase of a file that another source follows, or that may be a copy of a file which another source follows."""
    CROWDED = "files_max"
    """Phase of a file that waits to be followed, because as many files as allowed (`files_max`) are followed
    already."""
    FOLLOWED = "followed"
    """Phase of a file that is read into a session."""
    SHADOW = "shadow"
    """Phase of a file that begins like a file that has ended. It is read only for a comparison with that file. If it
    has more content, it is read into a session; otherwise nothing of it is stored."""
    LEFT = "left"
    """Phase of a file that is not read until it is replaced or rewritten."""


class FileEvent(Enum):
    """A decision about a file, or a change of the file. `NEXT` has the phase that follows each event."""

    MAY_BE_COPY = auto()
    OF_OTHER_SOURCE = auto()
    TOO_MANY = auto()
    CHOSEN = auto()
    """Event: the file is read from now on, into a new session or into the session of a file of which it is a copy."""
    CHOSEN_AS_SHADOW = auto()
    GIVEN_UP = auto()
    """Event: the source stops reading this file, because the file may be a copy of another one, which is read instead.
    Later checks decide whether this file is read after all."""
    LONGER = auto()
    """Event: a file that is read only to compare it with an ended file (`SHADOW`) has more content than the ended
    file."""
    REWRITTEN = auto()
    """Event: the file was replaced, truncated or rewritten, so that its content is new."""
    ENDED = auto()
    """Event: the session of the file has ended, and reading stops."""


WAITING = Phase.NEW, Phase.COPY, Phase.FOREIGN, Phase.CROWDED
"""Phases in which the next check decides whether to read the file."""
READ = Phase.FOLLOWED, Phase.SHADOW

# The phase of a file after each event, by its phase before the event. An event cannot happen in a phase that is not
# listed for it.
NEXT: dict[FileEvent, dict[Phase, Phase]] = {
    FileEvent.MAY_BE_COPY: dict.fromkeys(WAITING, Phase.COPY),
    FileEvent.OF_OTHER_SOURCE: dict.fromkeys(WAITING, Phase.FOREIGN),
    FileEvent.TOO_MANY: dict.fromkeys(WAITING, Phase.CROWDED),
    FileEvent.CHOSEN: dict.fromkeys(WAITING, Phase.FOLLOWED),
    FileEvent.CHOSEN_AS_SHADOW: dict.fromkeys(WAITING, Phase.SHADOW),
    FileEvent.GIVEN_UP: {Phase.FOLLOWED: Phase.NEW},
    FileEvent.LONGER: {Phase.SHADOW: Phase.FOLLOWED},
    FileEvent.REWRITTEN: dict.fromkeys(Phase, Phase.NEW)
    # A rewritten file becomes `NEW`, with two exceptions. In `CROWDED`, it keeps its position in the queue. In
    # `SHADOW`, it gets a session.
    | {Phase.CROWDED: Phase.CROWDED, Phase.SHADOW: Phase.FOLLOWED},
    FileEvent.ENDED: dict.fromkeys(Phase, Phase.LEFT),
}
