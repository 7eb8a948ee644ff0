"""Examine the environment of the collector's process and of its producers.

The kernel drops packets of networks in the systemd unit's IPAddressDeny= without an error on either side. The check
reads the unit's files instead of asking systemd, so that it also works within the unit's sandbox. Some environment
variables of producers delay or hide events (PRODUCERS.md); the check examines those of its own process. To find the
files of tail sources, it uses the daemon's own search, and opens no file.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import resource
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address, ip_network
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from tailrace.config.check import needed, too_few
from tailrace.config.listen import Network, is_loopback, parse, parse_network
from tailrace.config.load import store_path
from tailrace.config.schema import MAIN, AdminConfig, Config, TailConfig, TcpConfig, UdpConfig
from tailrace.doctor.finding import HostFigures, HostFinding, advice, good, plural, problem, setting
from tailrace.doctor.machine import Host, exists, text_of
from tailrace.sources.tail.location import Roots, followed
from tailrace.sources.tail.search import Found, Outside, Search, parse as parse_pattern

UNIT_CHECK = "unit"
UNIT = "tailrace.service"
"""Name of the systemd unit of the collector `main`."""

DIRECTORIES = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
"""Directories with systemd units, in order of precedence. In the first two, the subdirectory `system.control` holds
settings that an administrator has made by command."""

ALL = (ip_network("0.0.0.0/0"), ip_network("::/0"))
NAMES = {
    "any": ALL,
    "localhost": (ip_network("127.0.0.0/8"), ip_network("::1/128")),
    "link-local": (ip_network("169.254.0.0/16"), ip_network("fe80::/64")),
    "multicast": (ip_network("224.0.0.0/4"), ip_network("ff00::/8")),
}


class Filter(NamedTuple):
    """The network filter of a systemd unit. `allowed` overrides `denied`. A network in neither list is admitted."""

    allowed: list[Network]
    denied: list[Network]

    def blocks(self, network: Network) -> bool:
        """Return whether this filter blocks a whole network, without regard to exceptions for loopback addresses."""
        return any(
            network.version == denied.version and network.subnet_of(denied)  # type: ignore[arg-type] # same family
            for denied in self.denied
        ) and not any(
            network.overlaps(allowed) for allowed in self.allowed if not allowed.is_loopback
        )


class Blocked(NamedTuple):
    unit: str
    key: str
    address: str
    networks: tuple[Network, ...]

    def __str__(self) -> str:
        networks = "every network but loopback"
        if not set(self.networks) & set(ALL):
            networks = ", ".join(map(str, self.networks))
        return f"{self.unit} blocks {networks}, which {self.key} ({self.address}) must reach"


def check_unit(host: Host) -> Iterator[HostFinding]:
    found, unit = blocked(host.config, host.root), name_of(host.config)
    for one in found:
        yield problem(
            UNIT_CHECK,
            f"{one}.",
            "If the unit runs this configuration, IPAddressDeny= drops these packets without an error on either side.",
            f"sudo systemctl edit {unit}  # [Service] IPAddressAllow=NETWORK, as in deploy/systemd/networks.conf",
            f"sudo systemctl restart {unit}",
            address=one.address,
        )
    if not found and read(host.root, unit) is not None:
        yield good(UNIT_CHECK, f"{unit} blocks no network that the configuration is for.")


def name_of(config: Config) -> str:
    """Return the name of the collector's systemd unit: an instance of a template unit, except for `main`."""
    name = config.collector.name
    return UNIT if name == MAIN else f"tailrace@{name}.service"


def blocked(config: Config, root: Path = Path("/")) -> list[Blocked]:
    """Return the listeners and stores whose peers the network filter of the collector's systemd unit blocks."""
    name = name_of(config)
    unit = read(root, name)
    found: list[Blocked] = []
    if unit is None:
        return found
    for key, address, networks in _meant(config):
        cut = tuple(network for network in networks if unit.blocks(network))
        # If peers may be in any network, report a problem only if both address families are blocked.
        if cut and (cut == networks or not set(networks) & set(ALL)):
            found.append(Blocked(name, key, address, cut))
    return found


def read(root: Path, name: str) -> Filter | None:
    """Return the network filter of an installed systemd unit (or of its template) with its drop-ins, or None."""
    places = [root / place / "system" for place in DIRECTORIES]
    base, at, _ = name.partition("@")
    names = [name, f"{base}@.service"] if at else [name]
    texts_there = (text_of(place / each) for each in names for place in places)
    unit = next((text for text in texts_there if text is not None), None)
    if unit is None:
        return None
    by_hand = [root / place / "system.control" for place in DIRECTORIES[:2]]
    drop_ins: dict[str, Path] = {}
    for each in reversed(names):
        for place in reversed([*by_hand, *places]):
            drop_ins |= {path.name: path for path in place.glob(f"{each}.d/*.conf")}
    texts = [unit, *(text_of(drop_ins[name]) or "" for name in sorted(drop_ins))]
    found: dict[str, list[Network]] = {"IPAddressAllow": [], "IPAddressDeny": []}
    for key, value in chain.from_iterable(map(_settings, texts)):
        if key in found:
            found[key] = [*found[key], *_networks(value)] if value else []
    return Filter(found["IPAddressAllow"], found["IPAddressDeny"])


def _settings(text: str) -> Iterator[tuple[str, str]]:
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
                continue  # Ignore an invalid value, as systemd does after logging it.


def _meant(config: Config) -> Iterator[tuple[str, str, tuple[Network, ...]]]:
    """Yield key, address and peers' networks of each setting that connects the collector with other machines."""
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
    """Return the networks from which peers can reach a listen address. `::` and host names may belong to IPv4 and
    IPv6."""
    try:
        address = ip_address(host)
    except ValueError:
        return ALL
    return ALL if address.is_unspecified and address.version == 6 else (ALL[address.version == 6],)


OPEN_FILES = "open files"


def check_limits(host: Host) -> Iterator[HostFinding]:
    """Check whether the process may open enough files. The daemon raises its soft limit to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(host.config)
    figures = {"needed": wanted, "hard": hard}
    short = too_few(host.config, hard)
    if short is None:
        limit = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        what = f"At most {wanted:,} descriptors are used of {limit} allowed."
        yield good(OPEN_FILES, what, **figures)
        return
    file = "/etc/security/limits.d/60-tailrace.conf"
    yield advice(
        OPEN_FILES,
        f"{short}.",
        "Connections are refused before their limit is reached, and followed files are closed and"
        " opened again more often.",
        f"echo '* - nofile {wanted}' | sudo tee {file}  # then log in again",
        f"# or LimitNOFILE={wanted} in its systemd unit",
        **figures,
    )


PRODUCERS = "producers"

DFTRACER_BUFFER = 16 * 2**20
"""Size (bytes) of DFTracer's memory buffer if DFTRACER_WRITE_BUFFER_SIZE is not set."""
LIVE_BUFFER = 64 * 2**10
"""Largest buffer of DFTracer (bytes) about which the check gives no advice. It delays at most about 300 events."""

_ON = {"1", "true", "on", "yes"}

_advice = partial(advice, PRODUCERS)


def check_producers(host: Host) -> Iterator[HostFinding]:
    environ = host.environ
    found: list[HostFinding] = []
    if any(name.startswith("DFTRACER_") for name in environ):
        found += _dftracer(host)
    if any(name.startswith("OVNI_") for name in environ):
        places = {"OVNI_TRACEDIR": environ.get("OVNI_TRACEDIR") or "ovni"}
        if temporary := environ.get("OVNI_TMPDIR"):
            places["OVNI_TMPDIR"] = temporary
        found += _unwatched(host, "ovni", places)
    yield from found or [good(PRODUCERS, "No producer's setting in this environment hides events.")]


def _dftracer(host: Host) -> Iterator[HostFinding]:
    environ = host.environ
    if not _on(environ, "DFTRACER_ENABLE"):
        yield _advice(
            "DFTracer is configured in this environment, but not enabled.",
            "Programs started from here are not traced.",
            "export DFTRACER_ENABLE=1",
        )
        return
    compressed = _on(environ, "DFTRACER_TRACE_COMPRESSION", default=True)
    given = environ.get("DFTRACER_WRITE_BUFFER_SIZE", "").strip()
    buffer = int(given) if given.isdecimal() else DFTRACER_BUFFER
    no_compression = "export DFTRACER_TRACE_COMPRESSION=0"
    if buffer > LIVE_BUFFER:
        commands = ["export DFTRACER_WRITE_BUFFER_SIZE=4096"]
        if "DFTRACER_TRACE_COMPRESSION" not in environ or not compressed:
            commands = [no_compression, "export DFTRACER_WRITE_BUFFER_SIZE=1"]
        yield _advice(
            f"DFTracer keeps up to {buffer:,} bytes of events in the traced program.",
            "They become visible when the buffer is full or the program ends, and are lost if it is killed.",
            *commands,
        )
    elif compressed and buffer < 4096:
        yield _advice(
            f"DFTracer compresses every {buffer:,} bytes separately.",
            "Such pieces take more room than no compression, and slow the traced program.",
            no_compression,
        )
    if not _on(environ, "DFTRACER_INC_METADATA"):
        yield _advice(
            "DFTracer omits the arguments of events.",
            "The trace has no file names, sizes or offsets.",
            "export DFTRACER_INC_METADATA=1",
        )
    if _on(environ, "DFTRACER_ENABLE_AGGREGATION"):
        yield _advice(
            "DFTracer aggregates events before it writes them.",
            "Their ids are then no counter, so nobody can tell what is missing.",
            "export DFTRACER_ENABLE_AGGREGATION=0",
        )
    # Watch the directory that contains the files, because the value of DFTRACER_LOG_FILE is only a prefix of their
    # names
    if log := environ.get("DFTRACER_LOG_FILE"):
        yield from _unwatched(host, "dftracer", {"DFTRACER_LOG_FILE": str(Path(log).parent)})


def _unwatched(host: Host, format_: str, places: Mapping[str, str]) -> Iterator[HostFinding]:
    """Yield a finding for each directory to which tracers write a format, and which no source of this format
    watches. `places` has the directory for each environment variable that sets one."""
    sources = {n: c for n, c in host.sources(TailConfig).items() if c.format == format_}
    patterns = [pattern for config in sources.values() for pattern in config.paths]
    absolute = {variable: str(Path(place).absolute()) for variable, place in places.items()}
    missed = {
        variable: path
        for variable, path in absolute.items()
        if not any(reaches(pattern, path) for pattern in patterns)
    }
    name, config = next(iter(sources.items()), (format_, TailConfig(format=format_, paths=[])))
    prefix = f"TAILRACE_SOURCES_{name.upper()}"
    made = "" if sources else f"{prefix}_TYPE=tail {prefix}_FORMAT={format_} "
    value = shlex.quote(",".join([*config.paths, *map(glob.escape, missed.values())]))
    for variable, path in missed.items():
        yield _advice(
            f"{variable} leads to {path}, which no source of the format {format_} watches.",
            "A thread's events stay there until it ends, and for good if it is killed."
            if variable == "OVNI_TMPDIR"
            else "Traces of programs started from here are not collected.",
            f"export {made}{prefix}_PATHS={value}",
        )


def _on(environ: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    value = environ.get(name, "").strip().lower()
    return value in _ON if value else default


TAILS = "tail paths"

SEARCH_SECONDS = 2.0
"""Maximum duration (seconds) of the search for the files of all patterns together."""


class Searched(msgspec.Struct):
    """The result of the search for the files of one pattern of a tail source. `whole` is false if it was cut short."""

    files: int = 0
    unreadable: list[str] = []
    outside: list[str] = []
    unlisted: list[str] = []
    whole: bool = True


def check_tails(host: Host) -> Iterator[HostFinding]:
    end = host.clock.monotonic() + SEARCH_SECONDS
    for name, config in host.sources(TailConfig).items():
        seen = {pattern: _search(host, pattern, config.format, end) for pattern in config.paths}
        links = [link for one in seen.values() for link in one.outside]
        targets = dict.fromkeys(glob.escape(real) for link in links if (real := followed(link)))
        following = setting(name, "paths", ",".join([*config.paths, *targets]), source=True)
        for pattern, one in seen.items():
            yield from _judge_tail(name, pattern, one, following)


def reaches(pattern: str, directory: str) -> bool:
    """Return whether a path pattern of a tail source can match files in or below a directory."""
    root, parts = parse_pattern(pattern)
    place = os.path.abspath(directory)  # noqa: PTH100 - like the pattern, without following links
    if place == root or root.startswith(place.rstrip("/") + "/"):
        return True
    if not place.startswith(root.rstrip("/") + "/"):
        return False
    rest = place[len(root.rstrip("/")) + 1 :].split("/")
    for part, name in zip(parts, rest, strict=False):
        if part == "**":
            return True
        if not fnmatch.fnmatchcase(name, part):
            return False
    return True


def _search(host: Host, pattern: str, format_: str, end: float) -> Searched:
    """Search for the files of a pattern until the time `end`. Count all files of an unknown format."""
    from tailrace.decoding.formats import FORMATS  # noqa: PLC0415 - imports all formats, which only tails need

    known = FORMATS.get(format_)
    seen = Searched()
    errors: list[str] = []
    search = Search([pattern], Roots(lambda _: ()), host.clock, errors.append)
    for found in search.run():
        if isinstance(found, Outside):
            seen.outside.append(found.path)
        elif isinstance(found, Found) and (
            found.named or found.spelled or known is None or known.files.stream(found.path)
        ):
            seen.files += 1
            if not os.access(found.path, os.R_OK):
                seen.unreadable.append(found.path)
        if host.clock.monotonic() > end:
            seen.whole = False
            return seen
    if errors:
        root = parse_pattern(pattern).root
        unlisted = [path for path in _unlisted(root, host, end) if not search.covers(path)]
        # Report the root of the search if the search failed behind a link, because it is then unknown which directory
        # cannot be listed
        seen.unlisted = unlisted or [root]
    return seen


def _unlisted(root: str, host: Host, end: float) -> list[str]:
    """Return the directories in or below `root` that cannot be listed or reached. Stop searching at the time `end`."""
    failed: list[OSError] = []
    for _ in os.walk(root, onerror=failed.append):
        if host.clock.monotonic() > end:
            break
    return [str(error.filename) for error in failed if not isinstance(error, FileNotFoundError)]


def _judge_tail(name: str, pattern: str, seen: Searched, following: str) -> Iterator[HostFinding]:
    """Yield the findings about one pattern. `following` is a command that lets the source follow links."""
    figures: HostFigures = {"pattern": pattern, "files": seen.files}
    root = parse_pattern(pattern).root
    if seen.unlisted:
        yield problem(
            TAILS,
            f"{name}: {_names(seen.unlisted)} cannot be searched by this user.",
            "Files in there are not found, and the collector can only report that the search failed.",
            f'sudo setfacl -R -m u:"$(id -un)":rX {_words(seen.unlisted)}',
            **figures,
        )
    if seen.unreadable:
        yield problem(
            TAILS,
            f"{name}: {_names(seen.unreadable)} cannot be read by this user.",
            "The collector keeps trying, and these files wait until it can read them.",
            f'sudo setfacl -m u:"$(id -un)":r {_words(seen.unreadable)}',
            **figures,
        )
    if seen.outside:
        yield advice(
            TAILS,
            f"{name}: {_names(seen.outside)} leads out of {root} and is not followed.",
            "A link must not make a collector read files that nobody named.",
            following,
            **figures,
        )
    if seen.files:
        least = "" if seen.whole else "at least "
        text = f"{name}: {pattern} leads to {least}{plural(seen.files, 'file')}."
        yield good(TAILS, text, **figures)
    elif not seen.whole:
        yield good(TAILS, f"{name}: {pattern} was not searched to its end, {SEARCH_SECONDS:.0f} s.")
    elif not seen.unlisted:
        there = exists(Path(root))
        state = " now." if there else f": {root} does not exist."
        place = shlex.quote(root)
        yield advice(
            TAILS,
            f"{name}: {pattern} leads to no file of its format{state}",
            "Files that appear later are found, but a misspelt pattern never finds any.",
            f"ls -lR {place} | head  # list what exists" if there else f"mkdir -p {place}",
            **figures,
        )


def _names(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"


def _words(paths: list[str]) -> str:
    return " ".join(map(shlex.quote, paths[:10]))
