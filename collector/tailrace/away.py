"""Move away whatever stands where a file belongs. Nothing is deleted."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


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
