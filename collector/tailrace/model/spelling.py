"""Convert paths and arguments, which are bytes for the operating system, to text for columns and checkpoints."""

from __future__ import annotations

import os


def spelled(name: str) -> str:
    r"""Return a path or argument as text, with each byte that is not valid UTF-8 as \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")
