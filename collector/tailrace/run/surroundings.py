"""Set up listeners, directories and variables, so that a program's events reach the collector.

Variables that are set already stay unchanged. If one of them names a tracer's output, the collector
follows that path instead of our own.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from msgspec import structs

from tailrace.config.load import store_path
from tailrace.config.schema import Config, SourceConfig, TailConfig, TcpConfig, UdpConfig
from tailrace.decoding.formats import FORMATS
from tailrace.errors import ConfigError
from tailrace.sources.listening import names_users

ANY_PORT = "127.0.0.1:0"

DFTRACER_LIVE = {
    "DFTRACER_ENABLE": "1",
    "DFTRACER_INC_METADATA": "1",
    "DFTRACER_TRACE_COMPRESSION": "0",
    "DFTRACER_WRITE_BUFFER_SIZE": "1",
}
"""The settings that PRODUCERS.md recommends."""


class RunToken(NamedTuple):
    """The token of a run's own programs. `file` is its path in this process, which nobody else can open."""

    text: str
    file: str

    @classmethod
    def drawn(cls) -> Self:
        """Draw a token, and keep it in memory until this process ends: a file would remain after a kill."""
        text = secrets.token_hex(16)
        memory = os.memfd_create("tailrace-token")
        os.fchmod(memory, 0o600)
        os.write(memory, text.encode())
        return cls(text, f"/proc/{os.getpid()}/fd/{memory}")


def listeners(token: RunToken) -> dict[str, SourceConfig]:
    """Return listeners of every kind. Other users of the host can connect to them, and are refused where the host names
    the users of sockets."""
    own = names_users()
    file = token.file if own else ""
    return {
        "heph_udp": UdpConfig(format="heph", listen=ANY_PORT, same_user=own),
        "heph_tcp": TcpConfig(format="heph", listen=ANY_PORT, same_user=own, tokens=file),
        "jets_tcp": TcpConfig(format="jets", listen=ANY_PORT, same_user=own, tokens=file),
    }


def unguarded(found: Mapping[str, SourceConfig]) -> list[str]:
    """Return a sentence for people if listeners take the events of other users of the host."""
    guarded = all(s.same_user for s in found.values() if isinstance(s, UdpConfig | TcpConfig))
    return (
        []
        if guarded
        else [
            "this host does not name the users of sockets: another user could add events to this run"
        ]
    )


def sources(
    directory: Path, environ: Mapping[str, str], files: Iterable[str], token: RunToken
) -> dict[str, SourceConfig]:
    """Return listeners of every kind, the places where tracers write, and files given as FORMAT=PATH.

    Raise ConfigError for invalid files (see `followed`)."""
    found = listeners(token)
    log_file = Path(environ.get("DFTRACER_LOG_FILE", directory / "dftracer/trace"))
    found["dftracer"] = _tail("dftracer", log_file.absolute().parent)
    found["ovni"] = _tail("ovni", Path(environ.get("OVNI_TRACEDIR", directory / "ovni")))
    for number, (format_, path) in enumerate(followed(files), 1):
        found[f"files_{number}_{format_}"] = _tail(format_, Path(path))
    return found


CONNECTIONS_MAX = 65_536
"""Connections at a time to the collector of a node, whose ranks all come from one address. Descriptors bound them, too."""


def of_node(directory: Path, token: RunToken) -> dict[str, SourceConfig]:
    """Return the sources of a node's collector: listeners, and the directories in which its ranks' tracers write."""
    found: dict[str, SourceConfig] = {}
    for name, source in listeners(token).items():
        if isinstance(source, TcpConfig):
            many = {"connections_max": CONNECTIONS_MAX, "connections_per_peer_max": CONNECTIONS_MAX}
            found[name] = structs.replace(source, **many)
        else:
            found[name] = source
    return found | tails_of_node(directory)


def tails_of_node(directory: Path) -> dict[str, SourceConfig]:
    """Return the directories in which a node's tracers write, as sources, or those of a run without a launcher."""
    here = glob.escape(str(directory))
    formats = ("dftracer", "ovni")
    return {
        name: TailConfig(format=name, paths=[f"{here}/rank-*/{name}", f"{here}/{name}"])
        for name in formats
    }


def rank_directory(directory: Path, rank: int) -> Path:
    """Return the directory of a rank's tracers; `daemon.intake` reads the rank from it."""
    return directory / f"rank-{rank}"


def own_directories(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the directories, by format, that variables of the user name for tracers."""
    found = {}
    if log_file := environ.get("DFTRACER_LOG_FILE"):
        found["dftracer"] = str(Path(log_file).absolute().parent)
    if directory := environ.get("OVNI_TRACEDIR"):
        found["ovni"] = str(Path(directory).absolute())
    return found


def of_rank(files: Iterable[str], own: Mapping[str, str]) -> dict[str, SourceConfig]:
    """Return the sources that one rank asks for beside those of its node. Their names tell their paths apart.

    Raise ConfigError for invalid files (see `followed`)."""
    wanted = [*followed(files), *own.items()]
    return {
        f"files_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}_{format_}": _tail(
            format_, Path(path)
        )
        for format_, path in wanted
    }


def followed(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return the format and path of each FORMAT=PATH.

    Raise ConfigError if a text has another form or names an unknown format."""
    found = []
    for given in files:
        format_, equals, path = given.partition("=")
        if not (format_ and equals and path):
            raise ConfigError([f"--source {given}: must be FORMAT=PATH, such as et3=./trace"])
        if format_ not in FORMATS:
            known = ", ".join(FORMATS)
            raise ConfigError([f"--source {given}: the format must be one of {known}"])
        found.append((format_, path))
    return found


def made(directory: Path) -> tuple[Path, ...]:
    """Return the directories that tracers are told to write to. DFTracer does not make its own."""
    return (directory / "dftracer", directory / "ovni")


def located(config: Config) -> str:
    """Return the absolute path or the URL of the table."""
    store = store_path(config)
    return store if "://" in store else str(Path(store).absolute())


def variables(
    directory: Path,
    environ: Mapping[str, str],
    addresses: Mapping[str, str],
    token: str,
    store: str,
) -> dict[str, str]:
    """Return the variables to set for the program, without those that are set already. `addresses` are
    host:port by source. A program with a token for another collector keeps it, since it needs none here. A program
    that sends its events here finds them in `store`, whichever store it was given before."""
    ours = {
        "TAILRACE_ADDRESS": f"tcp://{addresses['heph_tcp']}",
        "TAILRACE_HEPH_UDP": addresses["heph_udp"],
        "TAILRACE_HEPH_TCP": addresses["heph_tcp"],
        "TAILRACE_JETS_TCP": addresses["jets_tcp"],
        "OVNI_TRACEDIR": str(directory / "ovni"),
        "DFTRACER_LOG_FILE": str(directory / "dftracer/trace"),
        **DFTRACER_LIVE,
    }
    if environ.keys().isdisjoint({"TAILRACE_ADDRESS", "TAILRACE_TOKEN", "TAILRACE_TOKEN_FILE"}):
        # A client need not wait whether this collector takes the token: many programs are gone by then.
        ours |= {"TAILRACE_TOKEN": token, "TAILRACE_TOKEN_ADDRESS": ours["TAILRACE_ADDRESS"]}
    found = {name: value for name, value in ours.items() if name not in environ}
    # Both variables of the store together would be an error of configuration.
    if environ.keys().isdisjoint({"TAILRACE_ADDRESS", "TAILRACE_STORE_PATH_FILE"}):
        found["TAILRACE_STORE_PATH"] = store
    return found


def _tail(format_: str, path: Path) -> TailConfig:
    return TailConfig(format=format_, paths=[glob.escape(str(path.absolute()))])
