"""Parse networks in CIDR notation."""

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
"""Bits of an IPv4-mapped IPv6 address (::ffff:0:0/96) that precede the IPv4 address."""

Network = IPv4Network | IPv6Network


def parse(text: str) -> Network:
    """Return the network of `192.0.2.0/24`, `2001:db8::/32` or a single address. Raise ValueError."""
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is not a network; allowed: CIDR notation, as in "192.0.2.0/24" or "2001:db8::/32"'
        ) from None
    network = interface.network
    if interface.ip != network.network_address:
        raise ValueError(f"{text!r} has bits set after its prefix; did you mean {network}?")
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED:
        address = _plain(network.network_address)
        if isinstance(address, IPv4Address):
            return ip_network((address, network.prefixlen - _MAPPED))
    return network


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return an IPv4-mapped address as the IPv4 address it stands for."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
