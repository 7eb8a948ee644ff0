"""The greeting of a connection, before it has a session: TLS handshake and token."""

from __future__ import annotations

import ssl

import trio

from tailrace.security.certificates import Certificates, explain
from tailrace.security.guard import Guard
from tailrace.security.tokens import Tokens
from tailrace.sources.connection import Connection, first_line
from tailrace.sources.refusal import Refusal


class GreetingRefusedError(Exception):
    """A connection gets no session. The text is for people."""

    def __init__(self, cause: Refusal, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause = cause


def greets(guard: Guard) -> bool:
    """Return whether anything is demanded of a connection before it has a session."""
    return guard.certificates is not None or guard.tokens is not None


async def greet(connection: Connection, guard: Guard, patience: float) -> None:
    """Perform the handshake and check the token, as far as they are demanded. Raise
    GreetingRefusedError, also when this takes longer than `patience` seconds."""
    with trio.move_on_after(patience) as waiting:
        if guard.certificates is not None:
            await _shake_hands(connection, guard.certificates)
        if guard.tokens is not None:
            await _check_token(connection, guard.tokens)
    if waiting.cancelled_caught:
        raise GreetingRefusedError(Refusal.GREETING)


async def _shake_hands(connection: Connection, certificates: Certificates) -> None:
    try:
        await connection.secure(certificates.context())
    except ssl.SSLError as error:
        raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, explain(error)) from error
    except OSError as error:
        raise GreetingRefusedError(Refusal.TLS_HANDSHAKE, "the peer has gone") from error


async def _check_token(connection: Connection, tokens: Tokens) -> None:
    """Take in the token's line, and check the token. Raise GreetingRefusedError."""
    connection.opening = None
    data, ended = b"", None
    while (line := first_line(data)) is None and ended is None:
        more, ended = await connection.next()
        data += more
    if line is None or line.token is None:
        raise GreetingRefusedError(Refusal.NO_TOKEN)
    if not tokens.accepts(line.token):
        raise GreetingRefusedError(Refusal.WRONG_TOKEN)
    connection.put_back(line.rest, ended)
