"""Move away whatever stands where a file belongs. Nothing is deleted."""

from __future__ import annotations

import os
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
    """Return whether this name belongs to something other than a file or a link to a file."""
    return os.path.lexists(path) and not path.is_file()


def make_way(path: Path) -> None:
    """Move away what stands in a file's place without being a file. Raise OSError."""
    if is_obstacle(path):
        move_away(path)
