"""Convert paths and arguments to text: the system treats them as bytes, but columns and checkpoints hold UTF-8."""

from __future__ import annotations

import os


def spelled(name: str) -> str:
    r"""Return a system name as text; each byte that is not UTF-8 becomes \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")
