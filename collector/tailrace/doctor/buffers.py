"""Receive buffers: what each UDP source asks for and what the kernel grants it here."""

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
"""Linux's own default."""

SMALL_DATAGRAM_CHARGE = 832
"""Bytes of the buffer that a datagram of up to some 150 bytes takes: the kernel counts its own
bookkeeping too (measured on Linux 6)."""


def check(host: Host) -> Iterator[Finding]:
    sources = {name: c for name, c in host.config.sources.items() if isinstance(c, UdpConfig)}
    most = max((int(config.receive_buffer) for config in sources.values()), default=0)
    for name, config in sources.items():
        yield _buffer(host, name, int(config.receive_buffer), most)
    if sources:
        yield from _backlog(host)


def _buffer(host: Host, name: str, asked: int, most: int) -> Finding:
    """`most` is what the source that asks for most asks for: the limit is one for all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        granted = size_buffer(sock, asked)
        # This process may be privileged and the daemon not.
        plain = size_buffer(sock, asked, force=False)
    figures = {"asked_bytes": asked, "granted_bytes": granted, "unprivileged_bytes": plain}
    holds = f"{plain // SMALL_DATAGRAM_CHARGE:,} small datagrams"
    if plain >= asked:
        return good(
            CHECK,
            f"{name} gets the {size(asked)} it asks for: room for {holds}.",
            **figures,
        )
    few = plain < min(asked, SMALL_BUFFER)
    who = "" if granted == plain else " without the privilege that this process has (CAP_NET_ADMIN)"
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM if few and granted == plain else Severity.ADVICE,
        what=f"{name} asks for {size(asked)} and gets {size(plain)}{who}.",
        why=f"What arrives while the collector is busy waits there, {holds};"
        f" the kernel drops the rest. {_limits(host)}",
        commands=sysctl(RMEM_MAX, most // 2),
        figures=figures,
    )


def _limits(host: Host) -> str:
    """The kernel's parameters in words. The default does not matter: every source asks."""
    most, usual = host.number(_file(RMEM_MAX)), host.number(_file(RMEM_DEFAULT))
    if most is None or usual is None:
        return f"({RMEM_MAX} cannot be read here: a container shows it on its host only.)"
    return f"({RMEM_MAX} is {most:,}, of which the kernel grants the double; {usual:,} without asking.)"


def _backlog(host: Host) -> Iterator[Finding]:
    """The queue between a network card and the sockets, one for each CPU."""
    backlog = host.number(_file(MAX_BACKLOG))
    if backlog is None:
        return
    # softnet_stat: a line for each CPU of hexadecimal counters; the second is what was dropped.
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
        why="Packets wait there before they reach a socket, and what is dropped there no socket"
        " counts: the ledger calls it `network`.",
        commands=sysctl(MAX_BACKLOG, max(4 * backlog, 4 * USUAL_BACKLOG)),
        figures=figures,
    )


def _file(key: str) -> str:
    return "proc/sys/" + key.replace(".", "/")
