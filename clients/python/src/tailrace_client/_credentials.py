"""Define the credentials that a client sends to a collector on another host, and the certificates with which it
verifies the collector."""

from __future__ import annotations

import os
import re

_FILE_BYTES_MAX = 64 * 1024
_TOKEN = re.compile(rb"[!-~]{16,256}")  # The collector checks tokens with the same pattern.
_ALLOWED = "16 to 256 printable ASCII characters without spaces"


class Credentials:
    """A token for `tcp://` and `tls://`, and the PEM files for `tls://`. Each connection reads the files again, so
    that they may be replaced at any time. `tls_authority` has the certificates of the authority that signs
    collectors' certificates; the default is the system's trust store. `tls_certificate` and `tls_key` are the
    client's own."""

    __slots__ = ("_token", "tls_authority", "tls_certificate", "tls_key", "token_file")

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: str | None = None,
        tls_authority: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        """Use `token`, or else the token in `token_file`. The token is the file's first line that is neither empty nor a
        comment (`#`). Raise ValueError for an invalid token. A valid token has 16 to 256 printable ASCII characters without
        spaces."""
        if token is not None:
            _check(_encoded(token), "`token`")
        self._token = token
        self.token_file = token_file
        self.tls_authority = tls_authority
        self.tls_certificate = tls_certificate
        self.tls_key = tls_key

    @classmethod
    def of_environment(cls) -> Credentials:
        """Return the credentials in TAILRACE_TOKEN or TAILRACE_TOKEN_FILE, TAILRACE_TLS_AUTHORITY, TAILRACE_TLS_CERTIFICATE
        and TAILRACE_TLS_KEY. An invalid token makes the connection fail, but raises no error here."""
        get = os.environ.get
        found = cls(
            token_file=get("TAILRACE_TOKEN_FILE") or None,
            tls_authority=get("TAILRACE_TLS_AUTHORITY") or None,
            tls_certificate=get("TAILRACE_TLS_CERTIFICATE") or None,
            tls_key=get("TAILRACE_TLS_KEY") or None,
        )
        found._token = get("TAILRACE_TOKEN") or None
        return found

    @property
    def has_token(self) -> bool:
        return bool(self._token or self.token_file)

    def first_line(self) -> bytes:
        """Return the first line that a client sends on a connection; empty without a token. Raise OSError for an
        unreadable file, and ValueError for an invalid token; no error's text contains the token."""
        if self._token:
            token = _check(_encoded(self._token), "TAILRACE_TOKEN")
        elif self.token_file:
            token = _read(self.token_file)
        else:
            return b""
        return b"tailrace-token " + token + b"\n"

    def __repr__(self) -> str:
        named = {name: getattr(self, name) for name in self.__slots__ if name != "_token"}
        shown = [f"token={'…' if self._token else None}", *(f"{n}={v!r}" for n, v in named.items())]
        return f"Credentials({', '.join(shown)})"


def _read(path: str) -> bytes:
    """Return the token in a file."""
    # With O_NONBLOCK, the open does not wait, and a pipe without a writer is read as an empty file.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # Remove the byte order mark that some editors put before the text.
        lines = os.read(descriptor, _FILE_BYTES_MAX).removeprefix(b"\xef\xbb\xbf").splitlines()
    finally:
        os.close(descriptor)
    for line in map(bytes.strip, lines):
        if line and not line.startswith(b"#"):
            return _check(line, f"the first line of {path}")
    raise ValueError(f"there is no token in {path}")


def _check(token: bytes, name: str) -> bytes:
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{name} is not a valid token: it must have {_ALLOWED}")
    return token


def _encoded(token: str) -> bytes:
    return token.encode("utf-8", "surrogateescape")
