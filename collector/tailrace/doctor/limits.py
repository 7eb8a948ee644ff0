"""Open files: what the configuration may come to need against what this process may have."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from tailrace.config.schema import SourceConfig, TailConfig, TcpConfig, UdpConfig
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

CHECK = "open files"

OWN = 128
"""Descriptors for everything but connections and followed files: the spool, the table, the admin
endpoint's clients, a process for upkeep."""


def check(host: Host) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sources = host.config.sources.values()
    sockets = sum(map(_sockets, sources))
    followed = [source.descriptors_max for source in sources if isinstance(source, TailConfig)]
    needed = OWN + sockets + sum(followed)
    figures = {"needed": needed, "soft": soft, "hard": hard}
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield good(CHECK, f"Of the {_count(soft)} allowed at most {needed:,} are used.", **figures)
        return
    # A tail source keeps to half of what there is, whatever is configured.
    exhausted = OWN + sockets + sum(min(most, soft // 2) for most in followed) > soft
    yield Finding(
        check=CHECK,
        severity=Severity.PROBLEM if exhausted else Severity.ADVICE,
        what=f"{soft:,} may be open at a time; connections_max and descriptors_max together with"
        f" what the collector needs itself come to {needed:,}.",
        why="A collector that can open no file any more cannot write the table, and ends; peers"
        " that connect often enough bring it there."
        if exhausted
        else "Followed files are closed and opened again more often.",
        commands=_raise(needed, hard),
        figures=figures,
    )


def _raise(needed: int, hard: int) -> list[str]:
    if hard == resource.RLIM_INFINITY or hard >= needed:
        first = f"ulimit -n {needed}  # in the shell that starts the collector"
    else:
        file = "/etc/security/limits.d/60-tailrace.conf"
        first = f"echo '* - nofile {needed}' | sudo tee {file}  # then log in again"
    return [first, f"# or LimitNOFILE={needed} in its systemd unit"]


def _sockets(source: SourceConfig) -> int:
    """Sockets a source may hold; all UDP peers share one."""
    match source:
        case TcpConfig():
            return 1 + source.connections_max
        case UdpConfig():
            return 1
        case TailConfig():
            return 0


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
