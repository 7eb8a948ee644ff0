"""Convert paths and arguments, which are bytes for the operating system, to text for columns and checkpoints."""

from __future__ import annotations

import os
import re


def spelled(name: str) -> str:
    r"""Return a path or argument as text, with each byte that is not valid UTF-8 as \xNN."""
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")


def find_spelled(text: str) -> str | None:
    r"""Return the path of an existing file whose `spelled` path is `text`; None if there is none."""
    odd = re.sub(rb"\\x([89a-f][0-9a-f])", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return next(filter(os.path.lexists, (text, os.fsdecode(odd))), None)
