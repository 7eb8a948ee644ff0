"""The tokens of a listener's clients: a file, one token a line, `#` begins a comment line.

They are secrets: which of them was meant, or how nearly, cannot be told from how long a comparison
takes, and only their digests are kept in memory.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from pathlib import Path

from tailrace.clock import Clock
from tailrace.security.files import Kept, UnusableError, read

SIZE_MIN = 16
"""Bytes of a token: shorter ones can be guessed."""

SIZE_MAX = 256

TOKENS_MAX = 1024
"""In one file: each costs a comparison whenever somebody connects."""

_TOKEN = re.compile(rb"[!-~]+")


class Tokens:
    """Read again when the file has changed; what was good is kept while that cannot be used."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Raise UnusableError."""
        self._path = path
        self._kept = Kept([path], self._read, clock)

    def accepts(self, token: bytes) -> bool:
        given = sha256(token).digest()
        known = False
        for digest in self._kept.get():
            known |= hmac.compare_digest(given, digest)
        return known

    @property
    def problem(self) -> str | None:
        """Why the file as it is now is not used."""
        self._kept.get()
        return self._kept.problem

    def _read(self) -> list[bytes]:
        digests = []
        for number, line in enumerate(read(self._path, secret=True).splitlines(), 1):
            token = line.strip()
            if not token or token.startswith(b"#"):
                continue
            if wrong := _wrong(token):
                raise UnusableError(self._path, f"line {number} {wrong}")
            digests.append(sha256(token).digest())
        if not digests:
            raise UnusableError(self._path, "has no tokens")
        if len(digests) > TOKENS_MAX:
            raise UnusableError(self._path, f"has more than {TOKENS_MAX} tokens")
        return digests


def _wrong(token: bytes) -> str | None:
    """Never shows the token."""
    if _TOKEN.fullmatch(token) is None:
        return "is no token; allowed: printable ASCII characters without spaces"
    if not SIZE_MIN <= len(token) <= SIZE_MAX:
        return f"is a token of {len(token)} characters; allowed: {SIZE_MIN} to {SIZE_MAX}"
    return None
