"""Open files: what the configuration may come to need against what this process may have."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from tailrace.config.schema import SourceConfig, TailConfig, TcpConfig, UdpConfig, UnixConfig
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

CHECK = "open files"

OWN = 128
"""Descriptors for everything but connections and followed files: the spool, the table, the admin
endpoint's clients, a process for upkeep."""


def check(host: Host) -> Iterator[Finding]:
    """The hard limit is what counts: the daemon raises its own soft one to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sources = host.config.sources.values()
    followed = sum(s.descriptors_max for s in sources if isinstance(s, TailConfig))
    needed = OWN + sum(map(_sockets, sources)) + followed
    figures = {"needed": needed, "hard": hard}
    if hard == resource.RLIM_INFINITY or hard >= needed:
        yield good(CHECK, f"Of the {_count(hard)} allowed at most {needed:,} are used.", **figures)
        return
    file = "/etc/security/limits.d/60-tailrace.conf"
    yield Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=f"{hard:,} may be open at a time; connections_max and descriptors_max together with"
        f" what the collector needs itself come to {needed:,}.",
        why="Connections are refused before their limit is reached, and followed files are closed and"
        " opened again more often.",
        commands=[
            f"echo '* - nofile {needed}' | sudo tee {file}  # then log in again",
            f"# or LimitNOFILE={needed} in its systemd unit",
        ],
        figures=figures,
    )


def _sockets(source: SourceConfig) -> int:
    """Sockets a source may hold; all UDP peers share one."""
    match source:
        case TcpConfig() | UnixConfig():
            return 1 + source.connections_max
        case UdpConfig():
            return 1
        case TailConfig():
            return 0


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
