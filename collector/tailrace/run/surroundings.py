"""Choose listeners, directories and environment variables so that a program's events reach the collector of its run.

Environment variables that the user has set stay unchanged. If such a variable names the output of a tracer, the
collector follows this output.
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
"""Environment variables with the settings that PRODUCERS.md recommends for DFTracer."""


class RunToken(NamedTuple):
    """The token that clients of one run send to the collector. `file` is the path from which the listeners read it;
    only this process can open it."""

    text: str
    file: str

    @classmethod
    def drawn(cls) -> Self:
        """Draw a random token, and keep it in a file in memory, which does not survive a kill of this process."""
        text = secrets.token_hex(16)
        memory = os.memfd_create("tailrace-token")
        os.fchmod(memory, 0o600)
        os.write(memory, text.encode())
        return cls(text, f"/proc/{os.getpid()}/fd/{memory}")


def listeners(token: RunToken) -> dict[str, SourceConfig]:
    """Return one listener of each kind: Heph by UDP, Heph by TCP, and JETS by TCP. They refuse other users of the
    host if the host can identify the users of sockets."""
    own = names_users()
    file = token.file if own else ""
    return {
        "heph_udp": UdpConfig(format="heph", listen=ANY_PORT, same_user=own),
        "heph_tcp": TcpConfig(format="heph", listen=ANY_PORT, same_user=own, tokens=file),
        "jets_tcp": TcpConfig(format="jets", listen=ANY_PORT, same_user=own, tokens=file),
    }


def unguarded(found: Mapping[str, SourceConfig]) -> list[str]:
    """Return a list with one warning if the listeners accept events of other users of the host; otherwise an empty
    list."""
    if all(s.same_user for s in found.values() if isinstance(s, UdpConfig | TcpConfig)):
        return []
    return [
        "this host does not name the users of sockets: another user could add events to this run"
    ]


def sources(
    directory: Path, environ: Mapping[str, str], files: Iterable[str], token: RunToken
) -> dict[str, SourceConfig]:
    """Return all sources of a run: listeners of every kind, the directories of tracers, and the files given as
    FORMAT=PATH. Raise ConfigError for invalid `files`."""
    found = listeners(token)
    log_file = Path(environ.get("DFTRACER_LOG_FILE", directory / "dftracer/trace"))
    found["dftracer"] = _tail("dftracer", log_file.absolute().parent)
    found["ovni"] = _tail("ovni", Path(environ.get("OVNI_TRACEDIR", directory / "ovni")))
    for number, (format_, path) in enumerate(followed(files), 1):
        found[f"files_{number}_{format_}"] = _tail(format_, Path(path))
    return found


CONNECTIONS_MAX = 65_536
"""Maximum number of concurrent connections to a node's collector. It is also the maximum for one address, because all
ranks of a node have the same address."""


def of_node(directory: Path, token: RunToken) -> dict[str, SourceConfig]:
    """Return the sources of a node's collector: listeners, and the directories into which its ranks' tracers write."""
    many = {"connections_max": CONNECTIONS_MAX, "connections_per_peer_max": CONNECTIONS_MAX}
    found = listeners(token)
    for name, source in found.items():
        if isinstance(source, TcpConfig):
            found[name] = structs.replace(source, **many)
    return found | tails_of_node(directory)


def tails_of_node(directory: Path) -> dict[str, SourceConfig]:
    """Return one file source for each format of a node's tracers. It follows the format's directories below `directory`
    and below each `rank-N` in it, because not every run has directories of ranks."""
    here = glob.escape(str(directory))
    return {
        name: TailConfig(format=name, paths=[f"{here}/rank-*/{name}", f"{here}/{name}"])
        for name in ("dftracer", "ovni")
    }


def rank_directory(directory: Path, rank: int) -> Path:
    """Return the directory of a rank's traces. `daemon.intake` reads the rank from the name of this directory."""
    return directory / f"rank-{rank}"


def own_directories(environ: Mapping[str, str]) -> dict[str, str]:
    """Return, by format, the output directories that the user has set for tracers by environment variables."""
    found = {}
    if log_file := environ.get("DFTRACER_LOG_FILE"):
        found["dftracer"] = str(Path(log_file).absolute().parent)
    if directory := environ.get("OVNI_TRACEDIR"):
        found["ovni"] = str(Path(directory).absolute())
    return found


def of_rank(files: Iterable[str], own: Mapping[str, str]) -> dict[str, SourceConfig]:
    """Return the file sources that one rank needs in addition to the sources of its node. `files` are the
    FORMAT=PATH texts of the rank's files. `own` has, by format, the output directories that the user has set for
    tracers. Raise ConfigError for invalid `files`."""
    found: dict[str, SourceConfig] = {}
    for format_, path in (*followed(files), *own.items()):
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
        found[f"files_{digest}_{format_}"] = _tail(format_, Path(path))
    return found


def followed(files: Iterable[str]) -> list[tuple[str, str]]:
    """Split each FORMAT=PATH into format and path. Raise ConfigError for another form or an unknown format."""
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
    """Return the default output directories of the tracers. The caller must make them, because DFTracer does not."""
    return (directory / "dftracer", directory / "ovni")


def located(config: Config) -> str:
    """Return the absolute path of the configuration's store, or its URL."""
    store = store_path(config)
    return store if "://" in store else str(Path(store).absolute())


def variables(
    directory: Path,
    environ: Mapping[str, str],
    addresses: Mapping[str, str],
    token: str,
    store: str,
) -> dict[str, str]:
    """Return the environment variables to set for the program, except those that `environ` already has.

    `addresses` holds host:port by source. Set `token` only if `environ` names neither a collector nor a token. Set
    `store`, the path of the store, even if `environ` already has such a path; but do not set it if `environ` names a
    collector, or a file that contains the path.
    """
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
        # Set TAILRACE_TOKEN_ADDRESS, too. Clients then do not wait until the collector has accepted the token. Many
        # short programs would end before that.
        ours |= {"TAILRACE_TOKEN": token, "TAILRACE_TOKEN_ADDRESS": ours["TAILRACE_ADDRESS"]}
    found = {name: value for name, value in ours.items() if name not in environ}
    # Do not set TAILRACE_STORE_PATH beside TAILRACE_STORE_PATH_FILE: both together are a configuration error.
    if environ.keys().isdisjoint({"TAILRACE_ADDRESS", "TAILRACE_STORE_PATH_FILE"}):
        found["TAILRACE_STORE_PATH"] = store
    return found


def _tail(format_: str, path: Path) -> TailConfig:
    return TailConfig(format=format_, paths=[glob.escape(str(path.absolute()))])
