"""Parse listen addresses (`host:port`, `[v6]:port`, path of a unix socket) and networks in CIDR notation."""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network

_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*)(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
_FORM = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]+)")
_ALLOWED = "allowed: host:port or [v6]:port"
_MODE = re.compile(r"0?[0-7]{3}")

PATH_MAX = 107
"""Maximum length (bytes) of the path of a unix socket in Linux."""


def parse(text: str) -> tuple[str, int]:
    """Parse `host:port` or `[v6]:port`. Return the host in canonical form, and the port; port 0 lets the system
    choose one. Raise ValueError for any other text."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{text!r} is not an address; {_ALLOWED}")
    if len(form["port"]) > 5 or int(form["port"]) > 65_535:
        raise ValueError(f"{text!r} has a port out of range; allowed: 0 to 65535")
    if form["v6"] is None:
        return _host(form["host"]), int(form["port"])
    try:
        return IPv6Address(form["v6"]).compressed, int(form["port"])
    except ValueError:
        raise ValueError(f"{form['v6']!r} is not an IPv6 address; {_ALLOWED}") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener at `host`, a result of `parse`. Only host names that RFC
    6761 reserves count, because the address of any other name may change."""
    try:
        address = ip_address(host)
    except ValueError:
        return is_localhost(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_localhost(host: str) -> bool:
    """Return whether a host name stands for this machine by definition (RFC 6761)."""
    name = host.lower()
    return name == "localhost" or name.endswith(".localhost")


def _host(text: str) -> str:
    if not text:
        raise ValueError(f'has no host; {_ALLOWED}, "0.0.0.0:port" for every interface')
    # A text of digits and dots alone must be an IPv4 address. It is never a host name.
    if not text.strip("0123456789."):
        try:
            return ip_address(text).compressed
        except ValueError:
            raise ValueError(f"{text!r} is not an IPv4 address; {_ALLOWED}") from None
    if _HOST_NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a host name; {_ALLOWED}")
    return text.lower()


def parse_path(text: str) -> str:
    """Return the path of a unix socket in canonical form. Raise ValueError if it is not absolute or too long."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"{text!r} is not the path of a socket; allowed: an absolute path")
    size = len(os.fsencode(text))
    if size > PATH_MAX:
        raise ValueError(f"is a path of {size} bytes; allowed: at most {PATH_MAX} for a socket")
    return os.path.normpath(text)


def parse_mode(text: str) -> int:
    """Return the file mode that an octal string such as "0660" stands for. Raise ValueError for other strings."""
    if _MODE.fullmatch(text) is None:
        raise ValueError(f'{text!r} is not a file mode; allowed: octal, as in "0660"')
    return int(text, 8)


_MAPPED = 96
"""Number of bits that precede the IPv4 address in an IPv4-mapped IPv6 address (::ffff:0:0/96)."""

Network = IPv4Network | IPv6Network


def parse_network(text: str) -> Network:
    """Parse a network, such as `192.0.2.0/24` or `2001:db8::/32`, or a single address. Raise ValueError for any
    other text. An IPv4-mapped IPv6 network is returned as an IPv4 network."""
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
        address = network.network_address.ipv4_mapped
        if address is not None:
            return ip_network((address, network.prefixlen - _MAPPED))
    return network
