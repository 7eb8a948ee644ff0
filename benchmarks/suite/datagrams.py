"""Measure datagrams that are sent at a rate which the receiver cannot slow down: how many arrive, and what they cost."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.contest import Contender, beside, contest, ours, reference, scratch
from benchmarks.inputs.heph import packets
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.peers import rsyslog
from benchmarks.processes import apart, sending
from benchmarks.processes.daemon import daemon
from benchmarks.processes.usage import Usage, Watch
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import configuration, lost

ESCAPED_MAGIC = b"\xc1\xfc#037\xb7"
"""The magic number at the beginning of each event, as rsyslog writes it.

It does not occur in the generator's numbers and texts.
"""
PACKED = 16
"""Approximate number of events in a full datagram."""
DIVISOR = 2
"""Divisor of the usual time (seconds) of sending at a rate.

All datagrams are in memory before, so the time must be short.
"""
RECEIVE_BUFFER = 8 * 2**20
_SO_RCVBUFFORCE = 33
_CONFIGURATION = "rsyslog-datagrams.conf"
_UNTIL_ENDED = "while True: pass"


class Burst(NamedTuple):
    """Datagrams to send at a rate, and the number of all events in them."""

    datagrams: Sequence[bytes]
    events: int
    rate: int


@contextmanager
def busy() -> Iterator[None]:
    """Keep one core busy with another process."""
    process = subprocess.Popen([sys.executable, "-c", _UNTIL_ENDED])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def alone(options: Options) -> list[Case]:
    """Measure datagrams with one event each."""
    return [_case(_burst(rate, options, packed=False), options) for rate in options.rates]


def beside_busy(options: Options) -> list[Case]:
    """Measure datagrams with one event each, while another process takes as much CPU time as it can get."""
    with busy():
        return alone(options)


def packed(options: Options) -> list[Case]:
    """Measure full datagrams."""
    return [_case(_burst(rate, options, packed=True), options) for rate in options.packed_rates]


def _burst(rate: int, options: Options, *, packed: bool) -> Burst:
    per = PACKED if packed else 1
    made = trace("heph", max(round(rate * options.seconds / DIVISOR) * per, 1))
    single = packets(made.path.read_bytes())
    return Burst(sending.packed(single) if packed else list(single), made.events, rate)


def _case(burst: Burst, options: Options) -> Case:
    with scratch() as home:
        does = "datagrams to a file, escaped, unsynced"
        sides: list[Contender] = [
            beside(rsyslog.peer(_CONFIGURATION, does), lambda: _by_rsyslog(home / "rsyslog", burst)),
            ours("datagrams to committed, durable rows", lambda: _by_us(home / "ours", burst, options)),
            reference("socket drained", "datagrams into nothing, one loop in Python", lambda: _drained(burst)),
        ]  # fmt: skip
        return contest(f"{burst.rate} datagrams a second", sides, options.runs, at=burst.rate)


def _by_us(home: Path, burst: Burst, options: Options) -> Run:
    shutil.rmtree(home, ignore_errors=True)
    with daemon(home, more=configuration(options)) as running:
        with Watch(running.process) as watch:
            seconds = sending.datagrams(running.address("udp"), burst.datagrams, burst.rate)
            running.await_quiet("udp")
        return _figures(burst, seconds, watch.usage, lost(running, "udp", burst.events))


def _by_rsyslog(home: Path, burst: Burst) -> Run:
    (home / "output").unlink(missing_ok=True)
    with rsyslog.rsyslog(home, _CONFIGURATION) as running, Watch(running.process) as watch:
        seconds = sending.datagrams(running.address, burst.datagrams, burst.rate)
        arrived, _ = running.await_written(ESCAPED_MAGIC, burst.events)
    return _figures(burst, seconds, watch.usage, 1 - arrived / burst.events)


def _drained(burst: Burst) -> Run:
    seconds = 0.0

    def send() -> None:
        nonlocal seconds
        seconds = sending.datagrams(address, burst.datagrams, burst.rate)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        _enlarge(sock)
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        done = apart.run(
            "benchmarks.references.drain:datagrams", sock.fileno(), len(burst.datagrams), descriptors=(sock.fileno(),),
            beside=send,
        )  # fmt: skip
    return _figures(burst, seconds, done.usage, 1 - done.value / len(burst.datagrams))


def _enlarge(sock: socket.socket) -> None:
    """Request a large receive buffer for a socket, if allowed even beyond the host's limit."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


def _figures(burst: Burst, seconds: float, usage: Usage, gone: float) -> Run:
    return {
        "sent": len(burst.datagrams) / seconds, "lost": gone, "cpu": usage.cpu / burst.events,
        "resident": usage.resident, "private": usage.private,
    }  # fmt: skip


def _benchmark(title: str, about: str, cases: Callable[[Options], list[Case]]) -> Benchmark:
    return Benchmark(title, about, cases, axis="datagrams a second", plotted=("lost", "cpu"))


BENCHMARKS = {
    "heph-udp": _benchmark(
        "Heph over UDP, one event a datagram",
        "Datagrams at a rate, whether anybody takes them or not. A sender in Python cannot keep up with every rate; how much it sent is shown. Events that the kernel had to drop are lost. The ledger names every such event but the last of a stream.",
        alone,
    ),
    "heph-udp-busy": _benchmark(
        "Heph over UDP beside a busy process",
        "The same beside a process that never waits, so that sender, receiver and it share the cores.",
        beside_busy,
    ),
    "heph-udp-packed": _benchmark(
        "Heph over UDP, full datagrams",
        "The same with some sixteen events a datagram, as the clients send.",
        packed,
    ),
}
