"""What a connection goes through before it has a session: its TLS handshake and its token."""

from __future__ import annotations

import trio

from tailrace.security.guard import Guard
from tailrace.security.tokens import Tokens
from tailrace.sources.connection import Connection
from tailrace.sources.refusal import Refusal
from tailrace.sources.token_line import first_line


async def greet(connection: Connection, guard: Guard, patience: float) -> Refusal | None:
    """Return when a connection may have a session, or the cause why it gets none."""
    with trio.move_on_after(patience):
        if guard.certificates is not None:
            try:
                await connection.secure(guard.certificates.context())
            except OSError:
                return Refusal.TLS_HANDSHAKE
        if guard.tokens is not None:
            return await _show(connection, guard.tokens)
        return None
    return Refusal.GREETING


async def _show(connection: Connection, tokens: Tokens) -> Refusal | None:
    """Take in the token's line."""
    connection.opening = None
    data, ended = b"", None
    while (line := first_line(data)) is None and ended is None:
        more, ended = await connection.next()
        data += more
    if line is None or line.token is None:
        return Refusal.NO_TOKEN
    if not tokens.accepts(line.token):
        return Refusal.WRONG_TOKEN
    connection.put_back(line.rest, ended)
    return None
