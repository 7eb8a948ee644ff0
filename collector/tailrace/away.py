"""Make way for a file where something else has its name. Nothing is deleted."""

from __future__ import annotations

import os
from pathlib import Path


def move_away(path: Path) -> Path:
    """Rename to `<name>.bad`, or `<name>.bad2` and so on where that is taken; return the new path.

    Raise OSError."""
    bad, number = path.with_name(f"{path.name}.bad"), 1
    while os.path.lexists(bad):
        number += 1
        bad = path.with_name(f"{path.name}.bad{number}")
    return path.rename(bad)


def is_obstacle(path: Path) -> bool:
    """Return whether there is something of this name that is no file, nor a link to one."""
    return os.path.lexists(path) and not path.is_file()


def make_way(path: Path) -> None:
    """Move away what is in a file's place and is none. Raise OSError."""
    if is_obstacle(path):
        move_away(path)
