"""Explain why a file system refused an operation, and move away whatever stands where a file belongs.

The system has one number, ENOSPC, for four things that may be used up: bytes, inodes, a quota of a directory tree, and the
names that one directory holds. A person who looks at the wrong one finds room and is misled. So whoever reports such an
error asks the file system what is left, and names the command that shows it.

`make_way` renames whatever stands in the place of a file, and deletes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMLINK})
"""Errors of a write that go away once there is room again, or a higher limit."""

FEW_INODES = 16
"""So few free inodes count as none: the writer that was refused an inode may have freed others before we look."""
LITTLE = 256 * 2**20
"""If at least this many bytes are free, a refused write did not lack bytes, since no call asks for more at once."""

_MEANING = {
    errno.EDQUOT: " on {0}: quota -s, or whoever set the quota",
    errno.EFBIG: ": the limit of this process (ulimit -f) or of {0}",
    errno.EMLINK: ": the directory can hold no more directories",
    errno.EROFS: ": {0}; if it was mounted for writing, the kernel's log says what failed (dmesg)",
    errno.EIO: ": the disk of {0} failed; the kernel's log says how (dmesg)",
}
"""Texts behind the name of an error: its meaning on a file system that is mounted there, and what to look at."""


class FreeRoom(NamedTuple):
    """The room on a file system that this user may still take. `inodes` is None where the file system has no fixed number."""

    mount: Path
    bytes: int
    inodes: int | None

    @property
    def lack(self) -> str | None:
        """Return a sentence that names what is used up, bytes or inodes; None if the file system has both."""
        if self.inodes is not None and self.inodes <= FEW_INODES and self.bytes:
            return f"no inodes are left on {self.mount}: df -i {self.mount}"
        return None if self.bytes else f"no space is left on {self.mount}: df -h {self.mount}"


def free_room(path: Path) -> FreeRoom:
    """Return the room on the file system on which a path is, or would be made. Raise OSError."""
    place = next(part for part in (path.absolute(), *path.absolute().parents) if part.exists())
    found = os.statvfs(place)
    inodes = found.f_favail if found.f_files else None
    return FreeRoom(_mount(place), found.f_bavail * found.f_frsize, inodes)


def refusal_text(number: int | None, path: Path | str) -> str:
    """Return why the system refused to change a path: what its error number means there, and what to look at."""
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
    """Return which part of a path is in the way of a directory; nothing if that cannot be seen any more."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return f": {part} is a link to {part.readlink()}, which is not there; make that, or remove the link"
        if part.exists():
            return "" if part.is_dir() else f": {part} is not a directory; move it away"
    return ""


def _mount(place: Path) -> Path:
    """Return where the file system of an existing path is mounted, as far as its parents show it."""
    device = place.stat().st_dev
    for parent in place.parents:
        if parent.stat().st_dev != device:
            return place
        place = parent
    return place


def _mib(free: FreeRoom) -> str:
    return f"{free.bytes / 2**20:.1f} MiB"


def move_away(path: Path) -> Path:
    """Rename to `<name>.bad`, or to `<name>.bad2` and so on if that name is taken; return the new path.

    Raise OSError."""
    bad, number = path.with_name(f"{path.name}.bad"), 1
    while os.path.lexists(bad):
        number += 1
        bad = path.with_name(f"{path.name}.bad{number}")
    return path.rename(bad)


def is_obstacle(path: Path) -> bool:
    """Return whether this name belongs to something other than a file. A link to a file is none."""
    return os.path.lexists(path) and not is_file(path)


def is_file(path: Path) -> bool:
    """Return whether this name belongs to a file, not to a link."""
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def make_way(path: Path) -> None:
    """Move away what stands in a file's place without being a file. Raise OSError."""
    if is_obstacle(path):
        move_away(path)
