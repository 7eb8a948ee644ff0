"""Which addresses may talk to a listener."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from tailrace.config.network import parse, plain

_REMEMBERED = 4096
"""Addresses of which the answer is kept."""


class Networks:
    """IPv4 addresses are themselves however they are spelled, as ::ffff:192.0.2.1 too."""

    def __init__(self, networks: Iterable[str]) -> None:
        """In CIDR notation; none at all are all. Raise ValueError."""
        self._networks = [parse(network) for network in networks]
        self.allows = lru_cache(_REMEMBERED)(self._allows)
        """Whether a peer of this address (`host`, without a port) may talk."""

    def __bool__(self) -> bool:
        """Whether there is a list."""
        return bool(self._networks)

    def _allows(self, host: str) -> bool:
        if not self._networks:
            return True
        address = plain(ip_address(host.partition("%")[0]))
        return any(address in network for network in self._networks)
