"""Build the access control of one listener from its configuration: TLS, tokens and allowed networks."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from tailrace.clock import Clock, SystemClock
from tailrace.config.document import Problem
from tailrace.config.listen import parse_network
from tailrace.config.load import Loaded, expanded
from tailrace.config.schema import AdminConfig, TcpConfig
from tailrace.errors import ConfigError
from tailrace.security.certificates import Certificates
from tailrace.security.files import UnusableError
from tailrace.security.tokens import Tokens

_REMEMBERED = 4096
"""Number of client addresses whose check `Networks` caches. A check without the cache takes 4 µs."""

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


_CERTIFICATES = ("tls_certificate", "tls_key", "tls_client_authority")


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
    """Return the access control for a listener's configuration. `owner` is its section, such as "sources.runs".
    Raise ConfigError if a file cannot be used."""
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
    files = {key: expanded(path) for key in _CERTIFICATES if (path := getattr(config, key))}
    try:
        if files:
            authority = files.get("tls_client_authority")
            certificates = Certificates(
                files["tls_certificate"], files["tls_key"], authority, clock=clock
            )
    except UnusableError as error:
        wrong[next(key for key, path in files.items() if path == error.path)] = str(error)
    try:
        if config.tokens:
            tokens = Tokens(expanded(config.tokens), clock=clock)
    except UnusableError as error:
        wrong["tokens"] = str(error)
    return Guard(certificates, tokens, Networks(config.allow)), wrong
