"""Networks as people write them, in CIDR notation."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_interface,
    ip_network,
)

_MAPPED = 96
"""Bits of an IPv6 address before the IPv4 address that it stands for, in ::ffff:0:0/96."""

Network = IPv4Network | IPv6Network


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
    """An IPv4 address as such, however it is spelled."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
