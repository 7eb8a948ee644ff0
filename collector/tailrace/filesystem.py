"""Explain errors of the file system, rename files or directories that are in the way of a file, and spell paths as text.

The error number ENOSPC means one of four exhausted resources: bytes, inodes, the quota of a directory tree, or the
names in one directory. The messages of this module state the resource, and a command that displays it."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMLINK})
"""Error numbers of a failed write that may succeed once space is freed or a limit is raised."""

FEW_INODES = 16
"""If at most this many inodes are free, a failed write is explained by a lack of inodes. The writer that failed may
have freed some inodes again."""

LITTLE = 256 * 2**20
"""If fewer bytes than this are free, a failed write is explained by a lack of space. No single write is as large."""

_MEANING = {
    errno.EDQUOT: " on {0}: quota -s, or whoever set the quota",
    errno.EFBIG: ": the limit of this process (ulimit -f) or of {0}",
    errno.EMLINK: ": the directory can hold no more directories",
    errno.EROFS: ": {0}; if it was mounted for writing, the kernel's log says what failed (dmesg)",
    errno.EIO: ": the disk of {0} failed; the kernel's log says how (dmesg)",
}
"""Texts that are added to the system's text for an error number. `{0}` is the mount point."""


class FreeRoom(NamedTuple):
    """The free space of a file system for this user. `inodes` is None if the number of inodes is not fixed."""

    mount: Path
    bytes: int
    inodes: int | None

    @property
    def lack(self) -> str | None:
        """Return a message about the exhausted resource (bytes or inodes), or None if neither is exhausted."""
        if self.inodes is not None and self.inodes <= FEW_INODES and self.bytes:
            return f"no inodes are left on {self.mount}: df -i {self.mount}"
        return None if self.bytes else f"no space is left on {self.mount}: df -h {self.mount}"


def free_room(path: Path) -> FreeRoom:
    """Return the free space of the file system of a path, which need not exist. Raise OSError if it cannot be examined."""
    place = next(part for part in (path.absolute(), *path.absolute().parents) if part.exists())
    found = os.statvfs(place)
    inodes = found.f_favail if found.f_files else None
    return FreeRoom(_mount(place), found.f_bavail * found.f_frsize, inodes)


def is_local(path: str) -> bool:
    """Return whether a path is on a local file system instead of a URL."""
    return "://" not in path


def refusal_text(number: int | None, path: Path | str) -> str:
    """Return the meaning of the error number of a failed call on `path`, and advice to the user."""
    words = os.strerror(number or 0)
    with suppress(OSError):
        if is_local(str(path)):
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
    size = f"{free.bytes / 2**20:.1f} MiB"
    if free.bytes < LITTLE:
        return f"{words}: {size} are free on {free.mount}: df -h {free.mount}"
    inodes = "" if free.inodes is None else f" and {free.inodes} inodes"
    return (
        f"{words}, though {size}{inodes} are free on {free.mount}: a quota of this directory, or a"
        " directory that can hold no more names"
    )


def _obstacle(path: Path) -> str:
    """Return a message about an object that prevents the creation of the directory `path`, or an empty string."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return f": {part} is a link to {part.readlink()}, which is not there; make that, or remove the link"
        if part.exists():
            return "" if part.is_dir() else f": {part} is not a directory; move it away"
    return ""


def _mount(place: Path) -> Path:
    device = place.stat().st_dev
    for parent in place.parents:
        if parent.stat().st_dev != device:
            return place
        place = parent
    return place


def move_away(path: Path) -> Path:
    """Rename a file to `<name>.bad` or, if this name exists, to `<name>.bad2` and so on. Return the new path."""
    bad, number = path.with_name(f"{path.name}.bad"), 1
    while os.path.lexists(bad):
        number += 1
        bad = path.with_name(f"{path.name}.bad{number}")
    return path.rename(bad)


def is_obstacle(path: Path) -> bool:
    """Return whether a path exists and is not a regular file. A link to a file counts as an obstacle."""
    return os.path.lexists(path) and not is_file(path)


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file and not a link."""
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def make_way(path: Path) -> None:
    """Rename the object at a path, unless it is a regular file. Raise OSError if it cannot be renamed."""
    if is_obstacle(path):
        move_away(path)


def spelled(name: str) -> str:
    r"""Return a path or argument as text, with each byte that is not valid UTF-8 as \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")


def find_spelled(text: str) -> str | None:
    r"""Return the path of the existing file that `spelled` shows as `text`; None if there is none."""
    odd = re.sub(rb"\\x([89a-f][0-9a-f])", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return next(filter(os.path.lexists, (text, os.fsdecode(odd))), None)
