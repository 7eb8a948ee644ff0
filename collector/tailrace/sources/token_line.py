"""The line with a token that may come before a connection's first byte of its format.

A source that demands no token accepts and drops such a line, so that clients can be given theirs
first.
"""

from __future__ import annotations

from typing import NamedTuple

TOKEN = b"tailrace-token "
LINE_MAX = 512
"""Bytes of a token's line, with its end."""


class TokenLine(NamedTuple):
    """A connection's first bytes: the token in their first line, None if there is none, and the bytes
    behind it."""

    token: bytes | None
    rest: bytes


def first_line(data: bytes) -> TokenLine | None:
    """Return the first line, None while more bytes are needed to tell."""
    if data.startswith(TOKEN[: len(data)]):
        end = data.find(b"\n", 0, LINE_MAX)
        if end >= 0:
            return TokenLine(data[len(TOKEN) : end], data[end + 1 :])
        if len(data) < LINE_MAX:
            return None
    return TokenLine(None, data)
