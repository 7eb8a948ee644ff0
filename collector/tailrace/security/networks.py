"""Decide which addresses may talk to a listener."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import lru_cache

from tailrace.config.network import parse

_REMEMBERED = 4096
"""Addresses whose answer is cached. Any other address takes 4 us to look up."""

_MAPPED = bytes(10) + b"\xff\xff"
"""The prefix of an IPv4-mapped IPv6 address."""


class Networks:
    """A list of networks. An IPv4 address is the same address in any spelling, including
    ::ffff:192.0.2.1."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Parse networks in CIDR notation. An empty list allows every address. Raise ValueError."""
        self._networks = [
            (network.max_prefixlen, int(network.netmask), int(network.network_address))
            for network in map(parse, networks)
        ]
        self.allows = lru_cache(_REMEMBERED)(self._allows)
        """Whether a peer with this address (`host`, without a port) may talk."""

    def __bool__(self) -> bool:
        """Return whether there is a list."""
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
    """Return the bytes of an address in the form that a socket reports."""
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed
