"""Open files: what the configuration may come to need against what this process may have."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from tailrace.config.schema import TailConfig, TcpConfig
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

CHECK = "open files"

OWN = 128
"""Descriptors for everything but connections and followed files: the spool, the table, the admin
endpoint's clients, a process for upkeep."""


def check(host: Host) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN + sum(map(_most, host.config.sources.values()))
    figures = {"needed": needed, "soft": soft, "hard": hard}
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield good(CHECK, f"Of the {_count(soft)} allowed at most {needed:,} are used.", **figures)
        return
    commands = [f"ulimit -n {needed}  # in the shell that starts the collector"]
    if hard != resource.RLIM_INFINITY and hard < needed:
        commands = [
            f"echo '* - nofile {needed}' | sudo tee /etc/security/limits.d/60-tailrace.conf"
            "  # then log in again",
        ]
    commands.append(f"# or LimitNOFILE={needed} in its systemd unit")
    yield Finding(
        check=CHECK,
        severity=Severity.PROBLEM if soft < OWN else Severity.ADVICE,
        what=f"{soft:,} may be open at a time; connections_max and descriptors_max together with"
        f" what the collector needs itself come to {needed:,}.",
        why="Connections beyond that are refused before connections_max is reached, and followed"
        " files are closed and opened more often.",
        commands=commands,
        figures=figures,
    )


def _most(source: object) -> int:
    """Descriptors a source may hold; all UDP peers share one."""
    match source:
        case TcpConfig():
            return 1 + source.connections_max
        case TailConfig():
            return source.descriptors_max
        case _:
            return 1


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
