"""Check receive buffers: what each UDP source requests, and what the kernel grants."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from tailrace.config.schema import UdpConfig
from tailrace.doctor.finding import Finding, Severity, good, size, sysctl
from tailrace.doctor.host import Host
from tailrace.sources.listening import size_buffer
from tailrace.sources.udp import SMALL_BUFFER

CHECK = "receive buffer"

RMEM_MAX = "net.core.rmem_max"
RMEM_DEFAULT = "net.core.rmem_default"
MAX_BACKLOG = "net.core.netdev_max_backlog"

USUAL_BACKLOG = 1000
"""Linux's default."""

SMALL_DATAGRAM_CHARGE = 832
"""Bytes of the buffer that a datagram of up to about 150 bytes takes, including the kernel's bookkeeping
(measured on Linux 6)."""


def check(host: Host) -> Iterator[Finding]:
    sources = {name: c for name, c in host.config.sources.items() if isinstance(c, UdpConfig)}
    most = max((int(config.receive_buffer) for config in sources.values()), default=0)
    for name, config in sources.items():
        yield _buffer(host, name, int(config.receive_buffer), most)
    if sources:
        yield from _backlog(host)


def _buffer(host: Host, name: str, asked: int, most: int) -> Finding:
    """Return the finding for one source. `most` is the largest request of all sources, since one limit
    applies to all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        granted = size_buffer(sock, asked)
        # This process may have a privilege that the daemon lacks.
        plain = size_buffer(sock, asked, force=False)
    figures = {"asked_bytes": asked, "granted_bytes": granted, "unprivileged_bytes": plain}
    holds = f"{plain // SMALL_DATAGRAM_CHARGE:,} small datagrams"
    if plain >= asked:
        return good(
            CHECK,
            f"{name} gets the {size(asked)} it requests: room for {holds}.",
            **figures,
        )
    few = plain < min(asked, SMALL_BUFFER)
    who = "" if granted == plain else " without the privilege that this process has (CAP_NET_ADMIN)"
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM if few and granted == plain else Severity.ADVICE,
        what=f"{name} requests {size(asked)} and gets {size(plain)}{who}.",
        why=f"Datagrams that arrive while the collector is busy wait there, {holds};"
        f" the kernel drops the rest. {_limits(host)}",
        commands=sysctl(RMEM_MAX, most // 2),
        figures=figures,
    )


def _limits(host: Host) -> str:
    """Return the kernel's parameters in words. Its default has no effect on our sources."""
    most, usual = host.number(_file(RMEM_MAX)), host.number(_file(RMEM_DEFAULT))
    if most is None or usual is None:
        return f"({RMEM_MAX} cannot be read here: only a container's host shows it.)"
    return (
        f"({RMEM_MAX} is {most:,}; the kernel grants twice that, and {usual:,} without a request.)"
    )


def _backlog(host: Host) -> Iterator[Finding]:
    """Check the queue between a network card and the sockets. Each CPU has one."""
    backlog = host.number(_file(MAX_BACKLOG))
    if backlog is None:
        return
    # softnet_stat has a line of hexadecimal counters for each CPU. The second counts dropped packets.
    lines = (host.text("proc/net/softnet_stat") or "").splitlines()
    dropped = sum(int(fields[1], 16) for line in lines if len(fields := line.split()) > 1)
    figures = {"backlog": backlog, "dropped": dropped}
    if dropped == 0 and backlog >= USUAL_BACKLOG:
        yield good(CHECK, f"{MAX_BACKLOG} is {backlog:,}; nothing was dropped there.", **figures)
        return
    yield Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=f"{MAX_BACKLOG} is {backlog:,}, and {dropped:,} packets were dropped there since boot.",
        why="Packets wait there before they reach a socket. No socket counts packets that are dropped"
        " there, and the ledger gives their loss the reason `network`.",
        commands=sysctl(MAX_BACKLOG, max(4 * backlog, 4 * USUAL_BACKLOG)),
        figures=figures,
    )


def _file(key: str) -> str:
    return "proc/sys/" + key.replace(".", "/")
