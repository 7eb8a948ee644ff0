"""Which addresses may talk to a listener."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from functools import lru_cache

from tailrace.config.network import parse

_REMEMBERED = 4096
"""Addresses of which the answer is kept. Others are looked up, 4 us each."""

_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv6 address begins with that stands for an IPv4 address."""


class Networks:
    """IPv4 addresses are themselves however they are spelled, as ::ffff:192.0.2.1 too."""

    def __init__(self, networks: Iterable[str]) -> None:
        """In CIDR notation; none at all are all. Raise ValueError."""
        self._networks = [
            (network.max_prefixlen, int(network.netmask), int(network.network_address))
            for network in map(parse, networks)
        ]
        self.allows = lru_cache(_REMEMBERED)(self._allows)
        """Whether a peer of this address (`host`, without a port) may talk."""

    def __bool__(self) -> bool:
        """Whether there is a list."""
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
    """The bytes of an address as a socket gives it."""
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed
