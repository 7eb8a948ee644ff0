"""Explain errors of the file system, and rename files or directories that are in the way of a file.

The system has one error number, ENOSPC, for four exhausted resources: bytes, inodes, the quota of a directory tree, and
the names in one directory. A message that only says "no space" misleads a user who finds free bytes. So this module
finds out which resource is exhausted. Its message has a command that displays the resource.

`make_way` renames any object in the place of a file, and deletes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMLINK})
"""Error numbers of a failed write that may succeed later, when space was freed or a limit was raised."""

FEW_INODES = 16
"""Maximum number of free inodes at which `FreeRoom.lack` reports that no inodes are left.

The number is not 0, because the writer that failed may have freed some inodes since its failure."""
LITTLE = 256 * 2**20
"""If at least this number of bytes are free, a failed write has another cause than a lack of bytes.

No single write of the collector has that many bytes.
"""

_MEANING = {
    errno.EDQUOT: " on {0}: quota -s, or whoever set the quota",
    errno.EFBIG: ": the limit of this process (ulimit -f) or of {0}",
    errno.EMLINK: ": the directory can hold no more directories",
    errno.EROFS: ": {0}; if it was mounted for writing, the kernel's log says what failed (dmesg)",
    errno.EIO: ": the disk of {0} failed; the kernel's log says how (dmesg)",
}
"""Explanations that are added to the system's text for an error number. `{0}` is the mount point."""


class FreeRoom(NamedTuple):
    """The free space of a file system for this user.

    `inodes` is the number of free inodes, or None if the file system has no fixed number of inodes."""

    mount: Path
    bytes: int
    inodes: int | None

    @property
    def lack(self) -> str | None:
        """Return a message that states which resource is exhausted: bytes or inodes. Return None if neither is."""
        if self.inodes is not None and self.inodes <= FEW_INODES and self.bytes:
            return f"no inodes are left on {self.mount}: df -i {self.mount}"
        return None if self.bytes else f"no space is left on {self.mount}: df -h {self.mount}"


def free_room(path: Path) -> FreeRoom:
    """Return the free space of the file system of a path, which need not exist.

    Raise OSError if the file system cannot be examined."""
    place = next(part for part in (path.absolute(), *path.absolute().parents) if part.exists())
    found = os.statvfs(place)
    inodes = found.f_favail if found.f_files else None
    return FreeRoom(_mount(place), found.f_bavail * found.f_frsize, inodes)


def refusal_text(number: int | None, path: Path | str) -> str:
    """Return a text for the user about a failed call: the meaning of its error number, and advice.

    `path` is the path that was passed to the call.
    """
    words = os.strerror(number or 0)
    with suppress(OSError):
        if "://" not in str(path):
            free = free_room(Path(path))
            if number == errno.ENOSPC:
                return _no_room(words, free)
            if number in (errno.EEXIST, errno.ENOTDIR):
                return words + _obstacle(Path(path))
            return words + _MEANING.get(number or 0, "").format(free.mount)
    return words


def _no_room(words: str, free: FreeRoom) -> str:
    if free.bytes and free.lack:
        return free.lack
    if free.bytes < LITTLE:
        return f"{words}: {_mib(free)} are free on {free.mount}: df -h {free.mount}"
    inodes = "" if free.inodes is None else f" and {free.inodes} inodes"
    return (
        f"{words}, though {_mib(free)}{inodes} are free on {free.mount}: a quota of this directory, or a"
        " directory that can hold no more names"
    )


def _obstacle(path: Path) -> str:
    """Return a message about an object in `path` because of which no directory can be created there; an empty string if
    there is none.
    """
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return f": {part} is a link to {part.readlink()}, which is not there; make that, or remove the link"
        if part.exists():
            return "" if part.is_dir() else f": {part} is not a directory; move it away"
    return ""


def _mount(place: Path) -> Path:
    """Return the mount point of an existing path: the highest directory above it that is on the same device."""
    device = place.stat().st_dev
    for parent in place.parents:
        if parent.stat().st_dev != device:
            return place
        place = parent
    return place


def _mib(free: FreeRoom) -> str:
    return f"{free.bytes / 2**20:.1f} MiB"


def move_away(path: Path) -> Path:
    """Rename a file to `<name>.bad` or, if this name exists, to `<name>.bad2` and so on. Return the new path.

    Raise OSError if the file cannot be renamed.
    """
    bad, number = path.with_name(f"{path.name}.bad"), 1
    while os.path.lexists(bad):
        number += 1
        bad = path.with_name(f"{path.name}.bad{number}")
    return path.rename(bad)


def is_obstacle(path: Path) -> bool:
    """Return whether the object at a path is something other than a regular file, and so is in the way of a file. A
    link to a file counts, too."""
    return os.path.lexists(path) and not is_file(path)


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file and not a link."""
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def make_way(path: Path) -> None:
    """Rename the object at the path of a file, unless it is a regular file. Raise OSError if it cannot be renamed."""
    if is_obstacle(path):
        move_away(path)
