"""Convert paths and command-line arguments to text.

The operating system treats them as bytes, but columns and checkpoints contain UTF-8.
"""

from __future__ import annotations

import os


def spelled(name: str) -> str:
    r"""Return a path or argument as text in which each byte that is not valid UTF-8 is written as \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")
