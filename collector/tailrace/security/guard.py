"""Control who may use a listener: by certificates (TLS), tokens and networks.

The files of certificates, keys and tokens are read again when they change. Changes are looked for when a client comes,
at most once a second. If the new content is not usable, the old content stays in use, for example while only one of two
files that belong together has been replaced.

The minimum version of TLS is 1.2. TLS sessions are not resumed, so each connection is checked against the current
files. A new certificate is first tested in a TLS handshake in memory, which also shows its validity period.

A file of tokens has one token a line; a line that begins with `#` is a comment. The time of a comparison does not depend
on the tokens, and only their digests stay in memory.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import ssl
import stat
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from tailrace.clock import Clock, SystemClock
from tailrace.config.document import Problem
from tailrace.config.listen import parse_network
from tailrace.config.load import Loaded, expanded
from tailrace.config.schema import AdminConfig, TcpConfig
from tailrace.config.text import EncodingError, decoded, unmarked
from tailrace.errors import ConfigError

LOOK_EVERY = 1.0
"""Minimum time (seconds) between two checks whether the files of a `Kept` value have changed."""

FILE_MAX = 2**20
"""Maximum size (bytes) of a file that is read. Certificates, keys and lists of tokens are smaller."""

T = TypeVar("T")


class UnusableError(Exception):
    """Raised for a file that cannot be used. `path` is the file, and `message` the reason."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class Kept(Generic[T]):
    """A value that `make` builds from the current content of files or, if this cannot be used, from the last usable
    content."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T], clock: Clock) -> None:
        """Build the value from the files `paths`. Raise UnusableError if a file cannot be used."""
        self.problem: str | None = None
        """Why the current content of the files cannot be used; None if it is in use."""
        self._paths = paths
        self._make = make
        self._clock = clock
        self._looked = clock.monotonic()
        self._seen = self._state()
        self._value = make()

    def get(self) -> T:
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look()
        return self._value

    def _look(self) -> None:
        """Build the value again if a file has changed. Also build it again after a failed attempt: a file that was
        incomplete then may be complete now, even with the same size and time."""
        state = self._state()
        if state == self._seen and self.problem is None:
            return
        self._seen = state
        try:
            self._value = self._make()
        except UnusableError as error:
            self.problem = f"{error}; the earlier content is still used"
        else:
            self.problem = None

    def _state(self) -> list[tuple[int, ...] | None]:
        return [_state(path) for path in self._paths]


def read_file(path: Path, *, secret: bool = False) -> bytes:
    """Return the content of a file. Raise UnusableError if it cannot be read, is too large, or is `secret` but
    readable by all users of the host."""
    try:
        with open(path, "rb", opener=_open) as file:
            found = os.fstat(file.fileno())
            content = file.read(FILE_MAX + 1) if stat.S_ISREG(found.st_mode) else None
    except OSError as error:
        raise UnusableError(path, f"cannot be read: {error.strerror}") from error
    if content is None:
        raise UnusableError(path, "is not a file")
    if len(content) > FILE_MAX:
        raise UnusableError(path, f"is larger than {FILE_MAX} bytes")
    if secret and found.st_mode & stat.S_IROTH:
        raise UnusableError(path, f"can be read by every user of this host; run chmod o-r {path}")
    return content


def _open(path: str, flags: int) -> int:
    """Open a file. If it is a pipe, do not wait for a program that writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


TOKEN_MIN = 16
"""Minimum length (bytes) of a token. A shorter one could be guessed."""

TOKEN_MAX = 256

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
        content = unmarked(read_file(self._path, secret=True))
        if b"\0" in content:
            try:
                decoded(content)
            except EncodingError as error:
                raise UnusableError(self._path, str(error)) from None
        for number, line in enumerate(content.splitlines(), 1):
            token = line.strip()
            if not token or token.startswith(b"#"):
                continue
            # Do not quote the token in the message.
            wrong = ""
            if _TOKEN.fullmatch(token) is None:
                wrong = "is not a token; allowed: printable ASCII characters without spaces"
            elif not TOKEN_MIN <= len(token) <= TOKEN_MAX:
                size = f"{len(token)} characters; allowed: {TOKEN_MIN} to {TOKEN_MAX}"
                wrong = f"is a token of {size}"
            if wrong:
                raise UnusableError(self._path, f"line {number} {wrong}")
            digests.append(sha256(token).digest())
        if not digests:
            raise UnusableError(self._path, "has no tokens")
        if len(digests) > TOKENS_MAX:
            raise UnusableError(self._path, f"has more than {TOKENS_MAX} tokens")
        return digests


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
            if _BEGIN not in read_file(self._authority):
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
    if _BEGIN not in read_file(certificate):
        raise UnusableError(certificate, "holds no certificate in PEM")
    if b"PRIVATE KEY-----" not in read_file(key, secret=True):
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


_REMEMBERED = 4096
"""Maximum number of client addresses for which `Networks` caches whether clients may connect. Without the cache, a
check takes 4 µs."""

_MAPPED = bytes(10) + b"\xff\xff"
"""First 12 bytes of an IPv6 address that stands for an IPv4 address."""


class Networks:
    """The networks from which clients may connect. IPv4 addresses and their IPv6 forms count as the same."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Parse networks in CIDR notation; an empty list allows every address. Raise ValueError for an invalid one."""
        self._networks = [
            (network.max_prefixlen, int(network.netmask), int(network.network_address))
            for network in map(parse_network, networks)
        ]
        self.allows = lru_cache(_REMEMBERED)(self._allows)
        """Function that returns whether clients may connect from an address (`host`, without a port)."""

    def __bool__(self) -> bool:
        """Return whether clients may connect only from certain networks."""
        return bool(self._networks)

    def _allows(self, host: str) -> bool:
        if not self._networks:
            return True
        if ":" in host:
            packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
            packed = packed.removeprefix(_MAPPED)
        else:
            packed = socket.inet_pton(socket.AF_INET, host)
        number = int.from_bytes(packed)
        return any(
            bits == 8 * len(packed) and number & mask == network
            for bits, mask, network in self._networks
        )


_CERTIFICATE_KEYS = ("tls_certificate", "tls_key", "tls_client_authority")


class Guard(NamedTuple):
    """The access control of one listener. A part that is None or empty restricts no client."""

    certificates: Certificates | None = None
    tokens: Tokens | None = None
    networks: Networks = Networks([])

    @property
    def problems(self) -> list[str]:
        """Return a message for each problem with the current certificate and token files."""
        files = [self.certificates, self.tokens]
        return [each.problem for each in files if each is not None and each.problem is not None]

    @property
    def expires(self) -> float | None:
        """Return when the certificate in use expires (Unix seconds); None without TLS."""
        return self.certificates.expires if self.certificates else None


OPEN = Guard()


def guard(owner: str, config: AdminConfig | TcpConfig, clock: Clock) -> Guard:
    """Return the access control for a listener's configuration. `owner` is the section of the listener in the
    configuration, such as "sources.runs". Raise ConfigError if a file cannot be used."""
    made, wrong = _made(config, clock)
    if wrong:
        raise ConfigError([f"{owner}.{key}: {message}" for key, message in wrong.items()])
    return made


def problems(loaded: Loaded) -> list[Problem]:
    """Return a problem, with the configuration key, for each certificate, key or token file that cannot be used."""
    config = loaded.config
    listeners = {("admin",): config.admin} | {
        ("sources", name): source
        for name, source in config.sources.items()
        if isinstance(source, TcpConfig)
    }
    return [
        Problem(loaded.where(*owner, key), message)
        for owner, listener in listeners.items()
        for key, message in _made(listener, SystemClock())[1].items()
    ]


def _made(config: AdminConfig | TcpConfig, clock: Clock) -> tuple[Guard, dict[str, str]]:
    """Return the access control of a listener, and an error message for each key with an unusable file."""
    wrong: dict[str, str] = {}
    certificates, tokens = None, None
    files = {key: expanded(path) for key in _CERTIFICATE_KEYS if (path := getattr(config, key))}
    try:
        if files:
            authority = files.get("tls_client_authority")
            certificate, key = files["tls_certificate"], files["tls_key"]
            certificates = Certificates(certificate, key, authority, clock=clock)
    except UnusableError as error:
        wrong[next(key for key, path in files.items() if path == error.path)] = str(error)
    try:
        if config.tokens:
            tokens = Tokens(expanded(config.tokens), clock=clock)
    except UnusableError as error:
        wrong["tokens"] = str(error)
    return Guard(certificates, tokens, Networks(config.allow)), wrong
