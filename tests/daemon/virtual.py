"""Run a real daemon on real disks in trio's virtual time. Blocking calls are made at once, in the event loop.

Use it with pytest-trio's `autojump_clock`, which each test must name itself. A blocking call then takes no time, unless
`Calls` lets it hang.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import Mode, collecting
from tests import toml
from tests.query.tables import rows_in

CONFIG = (
    toml.section("admin", listen="127.0.0.1:0")
    + toml.source("udp", "udp")
    + toml.source("tcp", "tcp")
)


class VirtualClock:
    """A clock whose two times both follow trio's clock."""

    def wall_ns(self):
        return 1_800_000_000 * 10**9 + round(self.monotonic() * 1e9)

    def monotonic(self):
        return trio.current_time()


class Calls:
    """The calls that would run in worker threads.

    `hanging` is a function that decides for a call whether it hangs: forever, or until an event that it returns.
    """

    def __init__(self, monkeypatch):
        self.hanging = lambda call: False
        monkeypatch.setattr(trio.to_thread, "run_sync", self._run)
        monkeypatch.setattr(trio.from_thread, "run_sync", lambda call, *arguments: call(*arguments))

    def hold(self, function):
        """Let the calls of a function hang until the returned event is set."""
        go_on = trio.Event()
        self.hanging = lambda call: getattr(call, "func", None) == function and go_on
        return go_on

    async def _run(self, call, *arguments, limiter=None, **_):
        async with limiter or trio.to_thread.current_default_thread_limiter():
            hangs = self.hanging(call)
            if isinstance(hangs, trio.Event):
                await hangs.wait()
            elif hangs:
                await trio.sleep_forever()
            return call(*arguments)


class Failing:
    """Replaces a method, and raises `error` while there is one. `times` has the time of each call."""

    def __init__(self, monkeypatch, owner, name):
        self.error = None
        self.times = []
        self._real = getattr(owner, name)
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *arguments, **named):
        self.times.append(trio.current_time())
        if self.error is not None:
            raise self.error
        return self._real(*arguments, **named)


class Life:
    """One life of a running daemon."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.stop = trio.Event()
        self.receiving = None
        """The arguments of reloads."""

    @property
    def conditions(self):
        return self.daemon.health.conditions

    def address(self, source):
        host, _, port = self.daemon.sources[source].address.rpartition(":")
        return host, int(port)

    async def until(self, condition, seconds=600.0):
        """Wait for a condition in virtual time."""
        with trio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110 - of anything
                await trio.sleep(0.01)

    async def send(self, *packets):
        """Send datagrams. Return once they are in the spool, or wait for room in it."""
        with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
            for packet in packets:
                await sock.sendto(packet, self.address("udp"))
        await trio.sleep(0.001)

    async def committed(self):
        """Return once everything in the spool is in the table."""
        spool, committing = self.daemon.spool, self.daemon.loops.committing
        await self.until(lambda: spool.end == spool.durable == committing.committed)


def configuration(tmp_path, text=CONFIG):
    """Write a configuration with its store below `tmp_path`, and load it."""
    path = tmp_path / "tailrace.toml"
    path.write_text(text)
    flags = {"store": str(tmp_path / "store")}
    return load(path, environ={}, flags=flags, formats=transports)


def seqs(tmp_path):
    """Return the numbers of the spans in the table of `configuration`, in order."""
    return sorted(row["seq"] for row in rows_in(tmp_path / "store", ["seq"], kind="span"))


@contextmanager
def opened(loaded, **mode):
    with collecting(loaded, VirtualClock(), Mode(**mode)) as daemon:
        yield Life(daemon)


@asynccontextmanager
async def running(life):
    """Run a daemon during the `with` block, and stop it in order at the end. Its errors are raised."""
    assert isinstance(trio.lowlevel.current_clock(), MockClock), "the test names no autojump_clock"
    started = trio.Event()

    async def beside(receiving):
        life.receiving = receiving
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: life.daemon.run(life.stop, started=started.set, beside=beside))
        await started.wait()
        await wait_all_tasks_blocked()
        yield life
        life.stop.set()
