"""Which file goes on with which: copies and their originals.

gzip writes a file's copy beside it and then removes the file; libovni copies a stream elsewhere and
removes it; rsync puts a longer copy in a file's place. The stream is one and is to be read once: a
file that may be a copy waits for as long as its original is there, goes on with its session when it
is gone, and is compared with what was read of one that ended before.
"""

from __future__ import annotations

from tailrace.sources.tail.catalog import Catalog
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.identity import Trail, relation


def is_copy(catalog: Catalog, file: Followed, now: float) -> bool:
    """Whether a file may be a copy of one that is followed, or the beginning of a copy of one that has
    ended. Raise OSError."""
    if _has_original(catalog, file, now):  # which looks at others, and may end their sessions
        return True
    ended = ended_like(catalog, file)
    return ended is not None and len(file.head()) < len(ended.head)


def _has_original(catalog: Catalog, file: Followed, now: float) -> bool:
    """Whether a file that begins like this one is followed, or will be before it. Raise OSError."""
    head = file.head()
    if any(_has_begun_alike(elder, head, now) for elder in catalog.elders(file)):
        return True
    for other in catalog.relatives(file):
        if _is_alike(other, head):
            # It may have grown since the last look, or not be what it was.
            other.look(now)
            if _is_alike(other, head) and other.may_have_copy(file, head):
                return True
    return False


def _has_begun_alike(file: Followed, head: bytes, now: float) -> bool:
    """Whether a file that was known to be empty has content by now, and begins like that."""
    if file.phase != "new":
        return False
    try:
        file.look(now)
        return file.size > 0 and relation(file.head(), head) != "other"
    except OSError:
        return False  # it is not for others to say that it cannot be read


def replaced(catalog: Catalog, file: Followed, now: float) -> list[Followed]:
    """Return the relatives that are seen now to have another file in their place."""
    return [other for other in catalog.relatives(file) if _was_replaced(other, now)]


def _was_replaced(file: Followed, now: float) -> bool:
    try:
        return file.location.gone is None and file.look(now)
    except OSError:
        return False  # it is not for others to say that it cannot be read


def yielding(catalog: Catalog, file: Followed) -> list[Followed]:
    """Of what is followed, the files of which nothing could be read that may be copies of this one."""
    return [
        other
        for other in catalog.relatives(file)
        if other.phase == "follows" and other.is_blank and not other.behind
    ]


def _is_alike(file: Followed, head: bytes) -> bool:
    return file.phase == "follows" and relation(file.handoff.content.head, head) != "other"


def ended_like(catalog: Catalog, file: Followed) -> Trail | None:
    """What was read of a file that has ended and began like this one. Raise OSError.

    Not of one at the same path: what is begun there again is another run, be it the same to the byte.
    """
    head = file.head()
    for ended in catalog.ended(file):
        if ended.path != file.location.path and relation(ended.content.head, head) != "other":
            return ended.content
    return None


def heir(catalog: Catalog, file: Followed, now: float) -> Followed | None:
    """The copy that goes on with the session of a file that is gone. Raise OSError."""
    if file.handoff.number is None:
        return None
    for other in catalog.waiting(file):
        other.look(now)
        if other.size and file.may_have_copy(other, other.head()):
            return other
    return None
