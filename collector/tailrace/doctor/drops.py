"""Report datagrams that the kernel has dropped so far, for this collector and for the whole host."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.config.schema import UdpConfig
from tailrace.doctor.finding import Finding, Severity, good, plural, setting, size
from tailrace.doctor.host import Host
from tailrace.sources.address import split
from tailrace.units import Size

CHECK = "drops"

LARGEST_BUFFER = 2**30
"""The largest buffer to advise. Beyond it, the reader is too slow."""


def check(host: Host) -> Iterator[Finding]:
    udp = {name: c for name, c in host.config.sources.items() if isinstance(c, UdpConfig)}
    if not udp:
        return
    for name, config in udp.items():
        listen = host.daemon.addresses.get(name, "") if host.daemon else ""
        if listen:
            yield _socket(name, config, _drops(host, split(listen)[1]))
    yield from _host(host)


def _socket(name: str, config: UdpConfig, dropped: int) -> Finding:
    if dropped == 0:
        return good(CHECK, f"{name}'s socket has dropped nothing.", dropped=0)
    buffer = min(4 * int(config.receive_buffer), LARGEST_BUFFER)
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{name}'s socket has dropped {plural(dropped, 'datagram')} since the daemon started.",
        why=f"They arrived faster than they were read, until {size(config.receive_buffer)} were full:"
        " send less, pack more events into a datagram, or set a larger buffer.",
        commands=[setting(name, "receive_buffer", str(Size(buffer)), source=True)],
        figures={"dropped": dropped},
    )


def _host(host: Host) -> Iterator[Finding]:
    received, dropped, known = 0, 0, False
    for table in (_snmp(host), _snmp6(host)):
        if table:
            known = True
            received += table.get("InDatagrams", 0)
            dropped += table.get("RcvbufErrors", 0)
    figures = {"received": received, "dropped": dropped}
    if not known:
        yield good(CHECK, "The kernel does not report how many datagrams this host has dropped.")
    elif dropped == 0:
        yield good(CHECK, "No socket of this host has dropped a datagram since boot.", **figures)
    else:
        yield Finding(
            check=CHECK,
            severity=Severity.ADVICE,
            what=f"The sockets of this host have dropped {plural(dropped, 'datagram')} since boot,"
            f" and delivered {received:,}.",
            why="Their buffers were full. The kernel does not report which sockets they were. The rate"
            " measurement below adds the datagrams that its own last step loses.",
            commands=[
                "nstat -asz UdpRcvbufErrors Udp6RcvbufErrors",
                "ss -lunm  # of each socket, the last number in skmem",
            ],
            figures=figures,
        )


def _drops(host: Host, port: int) -> int:
    """Return how many datagrams the sockets bound to a port have dropped.

    A line has the fields `sl local_address …`, with the address as hexadecimal HOST:PORT; the last field
    is `drops`."""
    dropped = 0
    for path in ("proc/net/udp", "proc/net/udp6"):
        for line in (host.text(path) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 2 and int(fields[1].rpartition(":")[2], 16) == port:
                dropped += int(fields[-1])
    return dropped


def _snmp(host: Host) -> dict[str, int]:
    """Parse the two lines `Udp: NAME …` and `Udp: NUMBER …`."""
    lines = (host.text("proc/net/snmp") or "").splitlines()
    udp = [line.split()[1:] for line in lines if line.startswith("Udp: ")]
    return dict(zip(udp[0], map(int, udp[1]), strict=False)) if len(udp) == 2 else {}


def _snmp6(host: Host) -> dict[str, int]:
    pairs = (line.split() for line in (host.text("proc/net/snmp6") or "").splitlines())
    return {pair[0].removeprefix("Udp6"): int(pair[1]) for pair in pairs if len(pair) == 2}
