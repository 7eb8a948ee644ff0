"""Access control of one listener by TLS, tokens and a list of networks, from its configuration keys."""

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
"""Number of addresses with a cached result. A lookup without the cache takes 4 µs."""

_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of IPv4-mapped IPv6 addresses."""


class Networks:
    """A list of allowed networks. An IPv4 address equals its IPv4-mapped form (::ffff:192.0.2.1)."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Parse networks in CIDR notation. An empty list allows every address. Raise ValueError."""
        self._networks = [
            (network.max_prefixlen, int(network.netmask), int(network.network_address))
            for network in map(parse_network, networks)
        ]
        self.allows = lru_cache(_REMEMBERED)(self._allows)
        """Function that returns whether an address (`host`, without a port) is allowed."""

    def __bool__(self) -> bool:
        """Return whether the list has networks."""
        return bool(self._networks)

    def _allows(self, host: str) -> bool:
        if not self._networks:
            return True
        packed = _packed(host)
        number = int.from_bytes(packed)
        return any(
            bits == 8 * len(packed) and number & mask == network
            for bits, mask, network in self._networks
        )


def _packed(host: str) -> bytes:
    """Return the bytes of an address that a socket reports, as IPv4 if the address is IPv4-mapped."""
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed


_CERTIFICATES = ("tls_certificate", "tls_key", "tls_client_authority")


class Guard(NamedTuple):
    """The access control of one listener. A missing part (None, or an empty list) admits all clients."""

    certificates: Certificates | None = None
    tokens: Tokens | None = None
    networks: Networks = Networks([])

    @property
    def problems(self) -> list[str]:
        """Return the problems with the current certificate and token files, one message each."""
        files = [self.certificates, self.tokens]
        return [each.problem for each in files if each is not None and each.problem is not None]

    @property
    def expires(self) -> float | None:
        """Return the expiry time of the current certificate (Unix seconds), or None without TLS."""
        return self.certificates.expires if self.certificates else None


OPEN = Guard()
"""Access control that admits all clients."""


def guard(owner: str, config: AdminConfig | TcpConfig, clock: Clock) -> Guard:
    """Build the access control of section `owner`, such as "sources.runs". Raise ConfigError for unusable files."""
    made, wrong = _made(config, clock)
    if wrong:
        raise ConfigError([f"{owner}.{key}: {message}" for key, message in wrong.items()])
    return made


def problems(loaded: Loaded) -> list[Problem]:
    """Return the unusable files of a configuration, each with the location of its key."""
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
    """Return the access control, and the problem of each key with an unusable file."""
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
