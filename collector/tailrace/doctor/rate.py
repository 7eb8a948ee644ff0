"""Measure how many small datagrams a second arrive on loopback: a child sends, our own receive loop
reads.

The rate rises step by step until a datagram is lost. The result estimates what this host receives in
bursts. A real collector also decodes from the spool when no datagram waits.
"""

from __future__ import annotations

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
from tailrace.config.schema import UdpConfig
from tailrace.doctor import sending
from tailrace.doctor.finding import Finding, Severity, good, setting
from tailrace.doctor.host import Host
from tailrace.ingest.payloads import FileLoss, OpenInfo
from tailrace.sources.address import split
from tailrace.sources.listening import size_buffer
from tailrace.sources.rest import REST_MAX
from tailrace.sources.udp import UdpSource
from tailrace.spool.entry import Datagrams
from tailrace.units import Size

CHECK = "udp rate"

RATES = (25_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000, 1_000_000)
STEP_SECONDS = 0.15
PROBE_SECONDS = 3.0
QUEUE_SECONDS = 0.005
"""Seconds between two looks at a queue that is emptying."""

RESTED_SECONDS = 5 * REST_MAX
"""Seconds to wait for datagrams that have left the queue and that the source has not counted yet."""

REACHED = 0.9
"""A sender that reaches less than this share of a rate is the bottleneck."""

LOW = 50_000
"""Datagrams a second: less than a tenth of what the loop reads on a core of its own."""


class RateStep(NamedTuple):
    sent: int
    received: int
    per_second: float
    """The rate that was reached, which can be less than requested."""


def check(host: Host) -> Iterator[Finding]:
    sources = {name: c for name, c in host.config.sources.items() if isinstance(c, UdpConfig)}
    if not sources:
        return
    name, config = min(sources.items(), key=lambda item: item[1].receive_buffer)
    yield judged(name, trio.run(measure, config, host.clock))


def judged(name: str, steps: list[RateStep]) -> Finding:
    if not steps:
        return good(CHECK, "The rate could not be measured here.")
    best = max((round(step.per_second) for step in steps if step.received == step.sent), default=0)
    lost = sum(step.sent - step.received for step in steps)
    figures = {"datagrams_per_second": best, "lost": lost}
    what = f"An estimate: {round(best, -3):,} datagrams of {sending.SIZE} bytes a second arrive"
    what += " without loss"
    what += f"; at {steps[-1].per_second:,.0f}, {lost:,} were lost." if lost else ", or more."
    if best >= LOW or not lost:
        return good(CHECK, what, **figures)
    return Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=what,
        why="A simulator sends more than that in its bursts: put more events into a datagram, send"
        " over TCP, or leave the collector a core.",
        commands=[
            "nproc; uptime  # is the host busy?",
            setting(name, "receive_buffer", "64 MiB", source=True),
        ],
        figures=figures,
    )


async def measure(config: UdpConfig, clock: Clock) -> list[RateStep]:
    """Return the steps up to the first with a loss, or none if nothing can be sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = min(size_buffer(sock, config.receive_buffer), config.receive_buffer)
    # Request what the kernel grants, so that the source does not warn.
    config = structs.replace(config, listen="127.0.0.1:0", receive_buffer=Size(buffer))
    steps: list[RateStep] = []
    try:
        with trio.move_on_after(PROBE_SECONDS):
            async with trio.open_nursery() as nursery:
                source, intake = UdpSource("probe", config, clock), _Counting(clock)
                await nursery.start(partial(source.run, intake))  # `partial` keeps the type check
                await _climb(source, intake, steps)
                nursery.cancel_scope.cancel()
    except* (OSError, trio.BrokenResourceError):
        pass  # no loopback or no process: keep the steps measured so far
    return steps


async def _climb(source: UdpSource, intake: _Counting, steps: list[RateStep]) -> None:
    async with _sender(split(source.address)[1]) as sender:
        for rate in RATES:
            step = await _step(sender, source, intake, rate)
            steps.append(step)
            if step.received < step.sent or step.per_second < REACHED * rate:
                return


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
    # On loopback, a datagram is in the queue or dropped when `send` returns.
    while source.figures().queue_bytes:  # noqa: ASYNC110 - only the kernel knows
        await trio.sleep(QUEUE_SECONDS)
    # Datagrams that left the queue last are counted once the source has rested.
    with trio.move_on_after(RESTED_SECONDS):
        while intake.received - before < sent:  # noqa: ASYNC110 - the source does not say
            await trio.sleep(QUEUE_SECONDS)
    return RateStep(sent, intake.received - before, sent / seconds)


@asynccontextmanager
async def _sender(port: int) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", str(Path(sending.__file__)), str(port)],
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
    """An intake that only counts."""

    def __init__(self, clock: Clock) -> None:
        self.received = 0
        self._clock = clock

    def now(self) -> int:
        return self._clock.wall_ns()

    def at(self, wall: int) -> int:
        return wall

    def open(self, transport: str, peer: str, *, record_max: int, garbage_max: int = 0) -> int:  # noqa: ARG002 - the protocol's
        return 1

    def data(self, number: int, data: bytes) -> None:
        """Do nothing: only connections call this."""

    def datagrams(self, number: int, datagrams: Datagrams) -> None:  # noqa: ARG002 - the protocol's
        self.received += len(datagrams)

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()

    def drops(self, count: int, since: int, socket: int, total: int) -> None:
        """Do nothing: the source's figures count drops."""

    def drops_before(self, socket: int) -> tuple[int, int]:  # noqa: ARG002 - the protocol's
        return 0, 0

    def loss(self, number: int, loss: FileLoss) -> None:
        """Do nothing: there are no strangers."""

    def close(self, number: int, reason: str) -> None:
        """Do nothing: there is one session, and nothing of it is kept."""

    def sessions(self) -> dict[int, OpenInfo]:
        return {}

    async def room(self) -> None:
        """Return at once: there is always room."""
