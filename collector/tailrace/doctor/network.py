"""Check the network: listening addresses, receive buffers, dropped datagrams, and the rate at which small datagrams
can be received.

To measure the rate, a child process sends datagrams over loopback to the collector's own receive loop, at a growing
rate until a datagram is lost. The result estimates the bursts that this host receives without loss. A real collector
also decodes from the spool, but only while no datagram waits.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from msgspec import structs

from tailrace.clock import Clock
from tailrace.config.schema import TcpConfig, UdpConfig, UnixConfig
from tailrace.doctor import sender
from tailrace.doctor.finding import (
    HostFinding,
    advice,
    good,
    plural,
    problem,
    setting,
    size,
    sysctl,
)
from tailrace.doctor.machine import Host
from tailrace.sources.connection import REST_MAX
from tailrace.sources.listeners import in_use
from tailrace.sources.listening import bound, cause, size_buffer, split
from tailrace.sources.udp import SMALL_BUFFER, UdpSource
from tailrace.spool.entry import EntryKind, measure_datagrams
from tailrace.spool.payloads import FileLoss, OpenInfo
from tailrace.units import Size

ADDRESSES = "addresses"

PRIVILEGED = 1024
"""The first port that Linux by default lets unprivileged users bind (net.ipv4.ip_unprivileged_port_start)."""


class ListeningSocket(NamedTuple):
    name: str
    listen: str
    kind: socket.SocketKind
    shared: bool = False


def check_addresses(host: Host) -> Iterator[HostFinding]:
    held = {}
    if daemon := host.daemon:
        held = daemon.addresses
        places = ", ".join(f"{name} {address}" for name, address in held.items() if address)
        where = f" ({places})" if places else ""
        yield good(
            ADDRESSES,
            f"A collector runs on this store, process {daemon.pid}{where}. The checks do not disturb it.",
            pid=daemon.pid,
        )
    free = []
    for listener in _listeners(host):
        if listener.name in held:
            continue
        try:
            bound(listener.listen, listener.kind, shared=listener.shared).close()
        except OSError as error:
            yield _refused(listener, error)
        else:
            free.append(listener.listen)
    for name, config in host.sources(UnixConfig).items():
        if name not in held:
            obstacle = _socket_file(name, Path(config.listen))
            if obstacle is None:
                free.append(config.listen)
            else:
                yield obstacle
    if free:
        yield good(ADDRESSES, f"Free to listen on: {', '.join(dict.fromkeys(free))}.")


def _listeners(host: Host) -> Iterator[ListeningSocket]:
    for name, config in host.config.sources.items():
        if isinstance(config, UdpConfig):
            yield ListeningSocket(name, config.listen, socket.SOCK_DGRAM, config.reuse_port)
        elif isinstance(config, TcpConfig):
            yield ListeningSocket(name, config.listen, socket.SOCK_STREAM, config.reuse_port)
    yield ListeningSocket("admin", host.config.admin.listen, socket.SOCK_STREAM)


def _refused(listener: ListeningSocket, error: OSError) -> HostFinding:
    host, port = split(listener.listen)
    why = cause(error)
    move = partial(setting, listener.name, "listen", source=listener.name != "admin")
    other = move(f"127.0.0.1:{port}")
    # Let the system choose a free port, by requesting port 0.
    free = move(f"{listener.listen.rpartition(':')[0]}:0")
    match error:
        case OSError(errno=errno.EADDRINUSE):
            flag = "u" if listener.kind == socket.SOCK_DGRAM else "t"
            commands = [f"sudo ss -ln{flag}p 'sport = :{port}'  # which one", free]
        case OSError(errno=errno.EACCES) if port < PRIVILEGED:
            why = f"this user may not use ports below {PRIVILEGED}"
            commands = [f"sudo sysctl -w net.ipv4.ip_unprivileged_port_start={port}", free]
        case OSError(errno=errno.EADDRNOTAVAIL):
            commands = ["ip -brief address  # those it has", other]
        case socket.gaierror():
            commands = [f"getent ahosts {host}", other]
        case _:
            commands = [free]
    return _cannot_listen(listener.name, listener.listen, why, *commands)


def _cannot_listen(name: str, listen: str, why: str, *commands: str) -> HostFinding:
    what = f"{name} cannot listen on {listen}: {why}."
    return problem(ADDRESSES, what, "The collector does not start.", *commands, listen=listen)


def _socket_file(name: str, path: Path) -> HostFinding | None:
    """Return a finding if the unix socket of the source `name` cannot be created at `path`, else None."""
    shown, above = shlex.quote(str(path)), shlex.quote(str(path.parent))
    other = setting(name, "listen", f"$XDG_RUNTIME_DIR/{path.name}", source=True).replace("'", '"')
    try:
        if in_use(path):
            why, command = "another process does", f"sudo ss -lxp src {shown}  # which one"
        elif not path.parent.is_dir():
            why = f"{path.parent} does not exist"
            command = f'sudo install -d -o "$(id -un)" {above}'
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            why = f"this user may not write to {path.parent}"
            command = f"ls -ld {above}"
        else:
            return None
    except OSError as error:
        why, command = error.strerror or str(error), f"ls -ld {shown}"
    return _cannot_listen(name, str(path), why, command, other)


BUFFER = "receive buffer"

RMEM_MAX = "net.core.rmem_max"
RMEM_DEFAULT = "net.core.rmem_default"
MAX_BACKLOG = "net.core.netdev_max_backlog"

USUAL_BACKLOG = 1000
"""Linux's default (packets) for net.core.netdev_max_backlog, the queue between a network card and the sockets."""

SMALL_DATAGRAM_CHARGE = 832
"""Space (bytes) that a datagram of up to about 150 bytes takes in a receive buffer, measured on Linux 6."""


def check_buffers(host: Host) -> Iterator[HostFinding]:
    sources = host.sources(UdpConfig)
    most = max((int(config.receive_buffer) for config in sources.values()), default=0)
    for name, config in sources.items():
        yield _buffer(host, name, int(config.receive_buffer), most)
    if sources:
        yield from _backlog(host)


def _buffer(host: Host, name: str, asked: int, most: int) -> HostFinding:
    """Return the finding about the receive buffer of the source `name`, which requests `asked` bytes. Its command
    raises the kernel's limit to `most`, the largest size that any source requests."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        granted = size_buffer(sock, asked)
        # This process may have the privilege CAP_NET_ADMIN, which the daemon may lack. Therefore also request the
        # buffer size without the privilege.
        plain = size_buffer(sock, asked, force=False)
    figures = {"asked_bytes": asked, "granted_bytes": granted, "unprivileged_bytes": plain}
    holds = f"{plain // SMALL_DATAGRAM_CHARGE:,} small datagrams"
    if plain >= asked:
        text = f"{name} gets the {size(asked)} it requests: room for {holds}."
        return good(BUFFER, text, **figures)
    few = plain < min(asked, SMALL_BUFFER)
    who = "" if granted == plain else " without the privilege that this process has (CAP_NET_ADMIN)"
    limit, usual = host.number(_file(RMEM_MAX)), host.number(_file(RMEM_DEFAULT))
    if limit is None or usual is None:
        limits = f"{RMEM_MAX} cannot be read here: only a container's host shows it."
    else:
        limits = f"{RMEM_MAX} is {limit:,}; the kernel grants twice that, and {usual:,} without a request."
    return (problem if few and granted == plain else advice)(
        BUFFER,
        f"{name} requests {size(asked)} and gets {size(plain)}{who}.",
        f"Datagrams that arrive while the collector is busy wait there, {holds};"
        f" the kernel drops the rest. ({limits})",
        *sysctl(RMEM_MAX, most // 2),
        **figures,
    )


def _backlog(host: Host) -> Iterator[HostFinding]:
    """Check the queues between a network card and the sockets. Each CPU has one such queue."""
    backlog = host.number(_file(MAX_BACKLOG))
    if backlog is None:
        return
    # /proc/net/softnet_stat has one line of hexadecimal counters for each CPU. The second counter is the number
    # of dropped packets.
    lines = (host.text("proc/net/softnet_stat") or "").splitlines()
    dropped = sum(int(fields[1], 16) for line in lines if len(fields := line.split()) > 1)
    figures = {"backlog": backlog, "dropped": dropped}
    if dropped == 0 and backlog >= USUAL_BACKLOG:
        yield good(BUFFER, f"{MAX_BACKLOG} is {backlog:,}; nothing was dropped there.", **figures)
        return
    yield advice(
        BUFFER,
        f"{MAX_BACKLOG} is {backlog:,}, and {dropped:,} packets were dropped there since boot.",
        "Packets wait there before they reach a socket. No socket counts packets that are dropped"
        " there, and the ledger gives their loss the reason `network`.",
        *sysctl(MAX_BACKLOG, max(4 * backlog, 4 * USUAL_BACKLOG)),
        **figures,
    )


def _file(key: str) -> str:
    return "proc/sys/" + key.replace(".", "/")


DROPS = "drops"

LARGEST_BUFFER = 2**30
"""Largest receive buffer (bytes) that a finding advises. If it does not suffice, the collector reads too slowly."""


def check_drops(host: Host) -> Iterator[HostFinding]:
    udp = host.sources(UdpConfig)
    for name, config in udp.items():
        listen = host.daemon.addresses.get(name, "") if host.daemon else ""
        if listen:
            yield _dropped_by_socket(host, name, config, split(listen)[1])
    if udp:
        yield _dropped_by_host(host)


def _dropped_by_socket(host: Host, name: str, config: UdpConfig, port: int) -> HostFinding:
    """Return the finding about the datagrams that the kernel has dropped at sockets of a port."""
    dropped = 0
    for path in ("proc/net/udp", "proc/net/udp6"):
        for line in (host.text(path) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 2 and int(fields[1].rpartition(":")[2], 16) == port:
                dropped += int(fields[-1])
    if dropped == 0:
        return good(DROPS, f"{name}'s socket has dropped nothing.", dropped=0)
    buffer = min(4 * int(config.receive_buffer), LARGEST_BUFFER)
    return problem(
        DROPS,
        f"{name}'s socket has dropped {plural(dropped, 'datagram')} since the daemon started.",
        f"They arrived faster than they were read, until {size(config.receive_buffer)} were full:"
        " send less, pack more events into a datagram, or set a larger buffer.",
        setting(name, "receive_buffer", str(Size(buffer)), source=True),
        dropped=dropped,
    )


def _dropped_by_host(host: Host) -> HostFinding:
    # /proc/net/snmp has the lines `Udp: NAME …` and `Udp: NUMBER …`, snmp6 one line `Udp6NAME NUMBER` for each counter
    lines = (host.text("proc/net/snmp") or "").splitlines()
    udp = [line.split()[1:] for line in lines if line.startswith("Udp: ")]
    counters: list[tuple[str, str]] = list(zip(*udp, strict=False)) if len(udp) == 2 else []
    pairs = (line.split() for line in (host.text("proc/net/snmp6") or "").splitlines())
    counters += [(pair[0].removeprefix("Udp6"), pair[1]) for pair in pairs if len(pair) == 2]
    if not counters:
        return good(DROPS, "The kernel does not report how many datagrams this host has dropped.")
    received = sum(int(count) for name, count in counters if name == "InDatagrams")
    dropped = sum(int(count) for name, count in counters if name == "RcvbufErrors")
    figures = {"received": received, "dropped": dropped}
    if dropped == 0:
        text = "No socket of this host has dropped a datagram since boot."
        return good(DROPS, text, **figures)
    return advice(
        DROPS,
        f"The sockets of this host have dropped {plural(dropped, 'datagram')} since boot,"
        f" and delivered {received:,}.",
        "Their buffers were full. The kernel does not report which sockets they were. The rate"
        " measurement below adds the datagrams that its own last step loses.",
        "nstat -asz UdpRcvbufErrors Udp6RcvbufErrors",
        "ss -lunm  # of each socket, the last number in skmem",
        **figures,
    )


RATE = "udp rate"

RATES = (25_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000, 1_000_000)
STEP_SECONDS = 0.15
PROBE_SECONDS = 3.0
QUEUE_SECONDS = 0.005
"""Interval (seconds) at which the measurement of rates checks whether the receive queue is empty."""

RESTED_SECONDS = 5 * REST_MAX
"""Maximum time (seconds) for which the measurement of rates waits until the source has counted all datagrams."""

REACHED = 0.9
"""Fraction of the requested rate below which the sending process is the bottleneck, and the measurement ends."""

LOW = 50_000
"""Rate (datagrams a second) below which the check gives advice."""


class RateStep(NamedTuple):
    sent: int
    received: int
    per_second: float
    """The rate (datagrams a second) that the sender achieved, which may be less than the requested rate."""


def check_rate(host: Host) -> Iterator[HostFinding]:
    if sources := host.sources(UdpConfig):
        name, config = min(sources.items(), key=lambda item: item[1].receive_buffer)
        yield judge_rate(name, trio.run(measure, config, host.clock))


def judge_rate(name: str, steps: list[RateStep]) -> HostFinding:
    if not steps:
        return good(RATE, "The rate could not be measured here.")
    best = max((round(step.per_second) for step in steps if step.received == step.sent), default=0)
    lost = sum(step.sent - step.received for step in steps)
    figures = {"datagrams_per_second": best, "lost": lost}
    rest = f"; at {steps[-1].per_second:,.0f}, {lost:,} were lost." if lost else ", or more."
    what = f"An estimate: {round(best, -3):,} datagrams of {sender.SIZE} bytes a second arrive without loss{rest}"
    if best >= LOW or not lost:
        return good(RATE, what, **figures)
    return advice(
        RATE,
        what,
        "A simulator sends more than that in its bursts: put more events into a datagram, send"
        " over TCP, or leave the collector a core.",
        "nproc; uptime  # is the host busy?",
        setting(name, "receive_buffer", "64 MiB", source=True),
        **figures,
    )


async def measure(config: UdpConfig, clock: Clock) -> list[RateStep]:
    """Send datagrams in steps of growing rate until a step loses some or is too slow, or the time is over. Return
    all steps; an empty list if no datagram can be sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = min(size_buffer(sock, config.receive_buffer), config.receive_buffer)
    # Request only the buffer size that the kernel will grant. Otherwise the source would log a warning.
    config = structs.replace(config, listen="127.0.0.1:0", receive_buffer=Size(buffer))
    steps: list[RateStep] = []
    try:
        with trio.move_on_after(PROBE_SECONDS):
            async with trio.open_nursery() as nursery:
                source, intake = UdpSource("probe", config, clock), _Counting(clock)
                # Use `partial`, with which mypy checks the arguments of `run`.
                await nursery.start(partial(source.run, intake))
                async with _sender(split(source.address)[1]) as process:
                    for rate in RATES:
                        step = await _step(process, source, intake, rate)
                        steps.append(step)
                        if step.received < step.sent or step.per_second < REACHED * rate:
                            break
                nursery.cancel_scope.cancel()
    except* (OSError, trio.BrokenResourceError):
        # Return the steps measured so far: without loopback or a child process, no further rate can be measured.
        pass
    return steps


async def _step(sender: trio.Process, source: UdpSource, intake: _Counting, rate: int) -> RateStep:
    assert sender.stdin is not None  # noqa: S101 - both are pipes
    assert sender.stdout is not None  # noqa: S101
    before = intake.received
    await sender.stdin.send_all(f"{round(rate * STEP_SECONDS)} {rate}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        piece = await sender.stdout.receive_some()
        if not piece:
            raise OSError("the sending process has ended")
        answer += piece
    sent, seconds = int(answer.split()[0]), float(answer.split()[1])
    # Wait until the receive queue is empty. Then each datagram was either taken from it or dropped, because loopback
    # delays none.
    while source.figures().queue_bytes:  # noqa: ASYNC110 - only the kernel knows
        await trio.sleep(QUEUE_SECONDS)
    # Wait until the source has counted the datagrams. It pauses between reads, so it counts the last ones only after a
    # pause.
    with trio.move_on_after(RESTED_SECONDS):
        while intake.received - before < sent:  # noqa: ASYNC110 - the source does not say
            await trio.sleep(QUEUE_SECONDS)
    return RateStep(sent, intake.received - before, sent / seconds)


@asynccontextmanager
async def _sender(port: int) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", str(Path(sender.__file__)), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


class _Counting:
    """Takes the place of the daemon's intake for the measurement: counts the received datagrams and keeps nothing."""

    def __init__(self, clock: Clock) -> None:
        self.received = 0
        self._clock = clock

    def now(self) -> int:
        return self._clock.wall_ns()

    def at(self, wall: int) -> int:
        return wall

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def append(self, kind: EntryKind, number: int, payload: bytes) -> int:  # noqa: ARG002 - the protocol's
        count, _ = measure_datagrams(payload)
        self.received += count
        return 0

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Do nothing, because the source itself counts dropped datagrams in its figures."""

    def drops_before(self, socket: int) -> tuple[int, int]:  # noqa: ARG002 - the protocol's
        return 0, 0

    def loss(self, number: int, loss: FileLoss) -> None:
        """Do nothing: no bytes get lost, because no other program sends to the socket of this measurement."""

    def close(self, number: int, reason: str) -> None:
        """Do nothing, because the measurement has only one session and keeps no data of it."""

    def sessions(self) -> dict[int, OpenInfo]:
        return {}

    async def room(self) -> None:
        """Return at once, because the measurement keeps no data and so never has to wait for room."""
