"""The line with a token that may come before a connection's first byte of its format.

A source that demands none takes such a line, too, and drops it, so that clients can be given theirs
first.
"""

from __future__ import annotations

from typing import NamedTuple

TOKEN = b"tailrace-token "
LINE_MAX = 512
"""Bytes of a token's line, its end included."""


class TokenLine(NamedTuple):
    """A connection's first bytes: the token of the line they begin with, None if they begin with none,
    and what is behind it."""

    token: bytes | None
    rest: bytes


def first_line(data: bytes) -> TokenLine | None:
    """None while it cannot be told."""
    if data.startswith(TOKEN[: len(data)]):
        end = data.find(b"\n", 0, LINE_MAX)
        if end >= 0:
            return TokenLine(data[len(TOKEN) : end], data[end + 1 :])
        if len(data) < LINE_MAX:
            return None
    return TokenLine(None, data)
