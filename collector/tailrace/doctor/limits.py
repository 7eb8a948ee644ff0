"""Check open files: what the configuration may need against what this process may have."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from tailrace.config.check import needed, too_few
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

CHECK = "open files"


def check(host: Host) -> Iterator[Finding]:
    """Compare with the hard limit, to which the daemon raises its own soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(host.config)
    figures = {"needed": wanted, "hard": hard}
    short = too_few(host.config, hard)
    if short is None:
        yield good(
            CHECK, f"At most {wanted:,} descriptors are used of {_count(hard)} allowed.", **figures
        )
        return
    file = "/etc/security/limits.d/60-tailrace.conf"
    yield Finding(
        check=CHECK,
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
