"""Provide TLS for a listener from its certificate, its key and the authority for client certificates.

The minimum version is TLS 1.2. TLS sessions are not resumed, so each connection is checked against the current
files. A new certificate is first tested in a TLS handshake in memory, which also shows its validity period.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.security.files import Kept, UnusableError, read

_BEGIN = b"-----BEGIN CERTIFICATE-----"

_NO_CHECK_TIME = 0x200000
"""Value of OpenSSL's flag X509_V_FLAG_NO_CHECK_TIME, for which Python has no name."""


class _Usable(NamedTuple):
    context: ssl.SSLContext
    begins: float
    ends: float
    """End of the certificate's validity period (Unix seconds)."""

    def validity(self, now: float) -> str | None:
        """Return why the certificate is not valid at time `now` (Unix seconds); None if it is valid."""
        if now < self.begins:
            return f"is not valid before {_day(self.begins)}"
        if now > self.ends:
            return f"expired at {_day(self.ends)}"
        return None


class Certificates:
    """Provides the TLS context for new connections, and builds it again when a file changes. A certificate outside its
    validity period never replaces a valid one. If the daemon starts with such a certificate, it is used, so that the
    other listeners work."""

    def __init__(
        self, certificate: Path, key: Path, authority: Path | None, *, clock: Clock
    ) -> None:
        """Read the PEM files. With `authority`, clients must present a certificate that it has signed. Raise
        UnusableError if a file cannot be used."""
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self._clock = clock
        self._usable: _Usable | None = None
        self._kept = Kept([*filter(None, (certificate, key, authority))], self._make, clock)

    def context(self) -> ssl.SSLContext:
        return self._kept.get().context

    @property
    def expires(self) -> float:
        """Return when the certificate in use expires (Unix seconds)."""
        return self._kept.get().ends

    @property
    def problem(self) -> str | None:
        """Return why the current certificate files cannot be used or, if they are in use, why the certificate is not
        valid; None if there is no problem."""
        validity = self._kept.get().validity(self._now())
        if self._kept.problem is not None:
            return self._kept.problem
        return f"{self._certificate}: {validity}" if validity else None

    def _make(self) -> _Usable:
        context = _context(self._certificate, self._key)
        usable = _Usable(context, *_validity(context, self._certificate))
        if self._authority is not None:  # accept only clients with a certificate of the authority
            if _BEGIN not in read(self._authority):
                raise UnusableError(self._authority, "holds no certificate in PEM")
            _trust(context, self._authority)
            context.verify_mode = ssl.CERT_REQUIRED
        before, now = self._usable, self._now()
        validity = usable.validity(now)
        if validity and before is not None and before.validity(now) is None:
            raise UnusableError(self._certificate, validity)
        self._usable = usable
        return usable

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    if _BEGIN not in read(certificate):
        raise UnusableError(certificate, "holds no certificate in PEM")
    if b"PRIVATE KEY-----" not in read(key, secret=True):
        raise UnusableError(key, "holds no private key in PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.num_tickets = 0  # Send no session tickets: a client that only sends would leave them unread in its socket.
    # Check the certificate file before the key is read, so that an error names the right file.
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedError:
        raise UnusableError(key, "is encrypted; allowed: a key without a password") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UnusableError(key, f"is not the key of {certificate}") from error
        raise UnusableError(key, f"cannot be used: {explain(error)}") from error
    except OSError as error:
        raise UnusableError(key, f"cannot be read: {error.strerror}") from error
    return context


def _trust(context: ssl.SSLContext, certificates: Path) -> None:
    try:
        context.load_verify_locations(certificates)
    except ssl.SSLError as error:
        raise UnusableError(certificates, f"cannot be used: {explain(error)}") from error
    except OSError as error:
        raise UnusableError(certificates, f"cannot be read: {error.strerror}") from error


def _validity(context: ssl.SSLContext, certificate: Path) -> tuple[float, float]:
    """Return the begin and end (Unix seconds) of a certificate's validity period, from a TLS handshake in memory.
    Raise UnusableError if it fails."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    _trust(client, certificate)
    sent, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(answered, sent)
    answering = context.wrap_bio(sent, answered, server_side=True)
    try:
        for side in (asking, answering, asking):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise UnusableError(certificate, f"fails in a handshake: {explain(error)}") from error
    shown = asking.getpeercert()
    assert shown is not None  # noqa: S101 - the client requires one
    begins, ends = shown["notBefore"], shown["notAfter"]
    return ssl.cert_time_to_seconds(str(begins)), ssl.cert_time_to_seconds(str(ends))


def explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()


class _EncryptedError(Exception):
    pass


def _no_password() -> str:
    """Raise an error for an encrypted key, because OpenSSL would otherwise prompt for its password at the terminal."""
    raise _EncryptedError


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")
