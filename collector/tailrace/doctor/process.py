"""Check what limits the collector's process: open files, and the networks that its systemd unit admits.

The kernel drops packets of networks in IPAddressDeny= without an error on either side. The check reads the unit's files,
so that `tailrace check` works within the unit's own sandbox. A filter that was set on the running service alone
(`systemctl set-property --runtime`) is visible as a drop-in.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tailrace.config.check import needed, too_few
from tailrace.config.listen import Network, is_loopback, parse, parse_network
from tailrace.config.load import store_path
from tailrace.config.schema import MAIN, AdminConfig, Config, TcpConfig, UdpConfig
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

UNIT_CHECK = "unit"
UNIT = "tailrace.service"
"""The unit of the collector `main`."""

DIRECTORIES = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
"""Directories of units; the first that has the unit counts. `system.control` below the first two has
settings made by hand."""

ALL = (ip_network("0.0.0.0/0"), ip_network("::/0"))
NAMES = {
    "any": ALL,
    "localhost": (ip_network("127.0.0.0/8"), ip_network("::1/128")),
    "link-local": (ip_network("169.254.0.0/16"), ip_network("fe80::/64")),
    "multicast": (ip_network("224.0.0.0/4"), ip_network("ff00::/8")),
}
"""systemd's names for networks."""


class Filter(NamedTuple):
    """The networks of a unit. `allowed` overrides `denied`, and a network in neither is admitted."""

    allowed: list[Network]
    denied: list[Network]

    def blocks(self, network: Network) -> bool:
        """Return whether no address of a network, except loopback, is admitted."""
        return any(_within(network, denied) for denied in self.denied) and not any(
            _overlap(network, allowed) for allowed in self.allowed if not allowed.is_loopback
        )


class Blocked(NamedTuple):
    unit: str
    key: str
    address: str
    networks: list[Network]

    def __str__(self) -> str:
        networks = "every network but loopback"
        if not set(self.networks) & set(ALL):
            networks = ", ".join(map(str, self.networks))
        return f"{self.unit} blocks {networks}, which {self.key} ({self.address}) must reach"


def check_unit(host: Host) -> Iterator[Finding]:
    found, unit = blocked(host.config, host.root), name_of(host.config)
    for one in found:
        yield Finding(
            check=UNIT_CHECK,
            severity=Severity.PROBLEM,
            what=f"{one}.",
            why="If the unit runs this configuration, IPAddressDeny= drops these packets without telling anybody.",
            commands=[
                f"sudo systemctl edit {unit}  # [Service] IPAddressAllow=NETWORK, as in deploy/systemd/networks.conf",
                f"sudo systemctl restart {unit}",
            ],
            figures={"address": one.address},
        )
    if not found and read(host.root, unit) is not None:
        yield good(UNIT_CHECK, f"{unit} blocks no network that the configuration is for.")


def name_of(config: Config) -> str:
    """Return the unit of a configuration's collector: an instance of a template, unless it is `main`."""
    name = config.collector.name
    return UNIT if name == MAIN else f"tailrace@{name}.service"


def blocked(config: Config, root: Path = Path("/")) -> list[Blocked]:
    """Return the listeners and stores of a configuration whose peers the unit's filter blocks, or nothing
    without an installed unit."""
    name = name_of(config)
    unit = read(root, name)
    if unit is None:
        return []
    meant = [(key, address, list(networks)) for key, address, networks in _meant(config)]
    found = [
        Blocked(name, key, address, [network for network in networks if unit.blocks(network)])
        for key, address, networks in meant
    ]
    # If any network will do, one family that is not blocked is enough.
    return [
        one for one, (_, _, networks) in zip(found, meant, strict=True)
        if one.networks and (one.networks == networks or not set(networks) & set(ALL))
    ]  # fmt: skip


def read(root: Path, name: str = UNIT) -> Filter | None:
    """Return the filter of an installed unit with its drop-ins, or None if there is no unit. An instance may have a unit
    of its own in place of its template, and has the drop-ins of both."""
    places = [root / place / "system" for place in DIRECTORIES]
    base, at, _ = name.partition("@")
    names = [name, f"{base}@.service"] if at else [name]
    texts_there = (_text(place / each) for each in names for place in places)
    unit = next((text for text in texts_there if text is not None), None)
    if unit is None:
        return None
    by_hand = [root / place / "system.control" for place in DIRECTORIES[:2]]
    drop_ins: dict[str, Path] = {}
    for each in reversed(names):
        for place in reversed([*by_hand, *places]):
            drop_ins |= {path.name: path for path in place.glob(f"{each}.d/*.conf")}
    texts = [unit, *(_text(drop_ins[name]) or "" for name in sorted(drop_ins))]
    found: dict[str, list[Network]] = {"IPAddressAllow": [], "IPAddressDeny": []}
    for key, value in chain.from_iterable(map(_settings, texts)):
        if key in found:
            found[key] = [*found[key], *_networks(value)] if value else []
    return Filter(found["IPAddressAllow"], found["IPAddressDeny"])


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of [Service]. An empty value resets the earlier values."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif section == "[Service]" and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            yield key.strip(), value.strip()


def _networks(value: str) -> Iterator[Network]:
    for word in value.split():
        if word in NAMES:
            yield from NAMES[word]
        else:
            try:
                yield ip_network(word, strict=False)
            except ValueError:
                continue  # systemd ignores it, too, and logs that


def _meant(config: Config) -> Iterator[tuple[str, str, tuple[Network, ...]]]:
    """Yield key, address and networks of every setting that concerns other machines."""
    listeners: dict[str, AdminConfig | UdpConfig | TcpConfig] = {"admin.listen": config.admin}
    for name, source in config.sources.items():
        if isinstance(source, UdpConfig | TcpConfig):
            listeners[f"sources.{name}.listen"] = source
    for key, listener in listeners.items():
        host, _ = parse(listener.listen)
        if not is_loopback(host):
            networks = tuple(map(parse_network, listener.allow)) or _of_family(host)
            yield key, listener.listen, networks
    store = store_path(config)
    if "://" in store:
        yield "store.path", store, ALL


def _of_family(host: str) -> tuple[Network, ...]:
    """Return the networks that can reach an address. `::`, and any name, may be of both families."""
    try:
        address = ip_address(host)
    except ValueError:
        return ALL
    return ALL if address.is_unspecified and address.version == 6 else (ALL[address.version == 6],)


def _within(network: Network, other: Network) -> bool:
    return network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type] # same family


def _overlap(network: Network, other: Network) -> bool:
    return network.version == other.version and network.overlaps(other)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


OPEN_FILES = "open files"


def check_limits(host: Host) -> Iterator[Finding]:
    """Compare with the hard limit, to which the daemon raises its own soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(host.config)
    figures = {"needed": wanted, "hard": hard}
    short = too_few(host.config, hard)
    if short is None:
        yield good(
            OPEN_FILES,
            f"At most {wanted:,} descriptors are used of {_count(hard)} allowed.",
            **figures,
        )
        return
    file = "/etc/security/limits.d/60-tailrace.conf"
    yield Finding(
        check=OPEN_FILES,
        severity=Severity.ADVICE,
        what=f"{short}.",
        why="Connections are refused before their limit is reached, and followed files are closed and"
        " opened again more often.",
        commands=[
            f"echo '* - nofile {wanted}' | sudo tee {file}  # then log in again",
            f"# or LimitNOFILE={wanted} in its systemd unit",
        ],
        figures=figures,
    )


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
