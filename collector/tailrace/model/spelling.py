"""Paths and arguments as text: on this system they are bytes, and columns and checkpoints hold UTF-8."""

from __future__ import annotations

import os


def spelled(name: str) -> str:
    r"""A name as the system gives it; of bytes that are no UTF-8 each is spelled as \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")
