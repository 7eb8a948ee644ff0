"""Which addresses may talk to a listener."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)

_REMEMBERED = 4096
"""Addresses of which the answer is kept."""

_MAPPED = 96
"""Bits of an IPv6 address before the IPv4 address that it stands for, in ::ffff:0:0/96."""

Network = IPv4Network | IPv6Network


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
        address = _plain(ip_address(host.partition("%")[0]))
        return any(address in network for network in self._networks)


def parse(text: str) -> Network:
    """`192.0.2.0/24`, `2001:db8::/32`, or one address. Raise ValueError."""
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is no network; allowed: CIDR notation, as in "192.0.2.0/24" or "2001:db8::/32"'
        ) from None
    network = interface.network
    if interface.ip != network.network_address:
        raise ValueError(f"{text!r} has bits behind its prefix; did you mean {network}?")
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED:
        address = _plain(network.network_address)
        if isinstance(address, IPv4Address):
            return ip_network((address, network.prefixlen - _MAPPED))
    return network


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
