"""Spell paths and arguments as text: to the system they are bytes, columns and checkpoints hold UTF-8."""

from __future__ import annotations

import os


def spelled(name: str) -> str:
    r"""Return a name as the system gives it; each byte that is not UTF-8 is spelled \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")
