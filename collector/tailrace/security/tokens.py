"""Read the tokens of a listener's clients from a file: one token a line; a line that begins with `#` is a comment.

The time of a comparison does not depend on the tokens, and only their digests stay in memory.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from pathlib import Path

from tailrace.clock import Clock
from tailrace.config.text import EncodingError, decoded, unmarked
from tailrace.security.files import Kept, UnusableError, read

SIZE_MIN = 16
"""Minimum length (bytes) of a token. A shorter one could be guessed."""

SIZE_MAX = 256

TOKENS_MAX = 1024
"""Maximum number of tokens in a file. The token of each new connection is compared with all of them."""

_TOKEN = re.compile(rb"[!-~]+")


class Tokens:
    """The tokens of a file, which is read again when it changes. If it is then invalid, the old tokens stay valid."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Read the file of tokens. Raise UnusableError if it cannot be used."""
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
        """Return why the new content of the changed token file is not used, or None."""
        self._kept.get()
        return self._kept.problem

    def _read(self) -> list[bytes]:
        digests = []
        content = unmarked(read(self._path, secret=True))
        if b"\0" in content:
            try:
                decoded(content)
            except EncodingError as error:
                raise UnusableError(self._path, str(error)) from None
        for number, line in enumerate(content.splitlines(), 1):
            token = line.strip()
            if not token or token.startswith(b"#"):
                continue
            # Name no token in a message.
            wrong = ""
            if _TOKEN.fullmatch(token) is None:
                wrong = "is not a token; allowed: printable ASCII characters without spaces"
            elif not SIZE_MIN <= len(token) <= SIZE_MAX:
                wrong = f"is a token of {len(token)} characters; allowed: {SIZE_MIN} to {SIZE_MAX}"
            if wrong:
                raise UnusableError(self._path, f"line {number} {wrong}")
            digests.append(sha256(token).digest())
        if not digests:
            raise UnusableError(self._path, "has no tokens")
        if len(digests) > TOKENS_MAX:
            raise UnusableError(self._path, f"has more than {TOKENS_MAX} tokens")
        return digests
