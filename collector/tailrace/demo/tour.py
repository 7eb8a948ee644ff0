"""Show `tailrace demo` step by step, with the commands that a person would type.

The tour compares what the table says with what it left out on purpose, and succeeds only if both agree
for every event.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from tailrace.clock import Clock
from tailrace.demo.daemon import DemoDaemon, as_typed, page, page_command, running, tailrace
from tailrace.demo.producers import PRODUCERS, Producer
from tailrace.demo.traffic import EVENTS, MISSING, NUMBERS, SENDERS, Address, differences, trickle
from tailrace.errors import TailraceError

SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.25
GENTLE_RATE = 20.0

LONGEST = """SELECT format, count(*) AS spans, count(DISTINCT name) AS names, \
arg_max(name, ticks) AS longest, max(duration) // 1000 AS longest_us FROM spans \
GROUP BY format ORDER BY format"""

METRICS = tuple(f"tailrace_ledger_{name}_events" for name in ("seen", "missing", "imbalance"))


class Tour:
    """One tour. `say` prints lines. `directory` is for the configuration and the daemon's output."""

    def __init__(
        self,
        directory: Path,
        store: Path,
        say: Callable[[str], None],
        clock: Clock,
        *,
        producers: Sequence[Producer] = PRODUCERS,
        seed: int = 1,
    ) -> None:
        epoch = clock.wall_ns()
        self._parts = [(producer, producer.traffic(seed, epoch)) for producer in producers]
        self._daemon = DemoDaemon(directory, store, producers)
        self._directory = directory
        self._say = say
        self._clock = clock
        self._step = 0

    async def run(self, *, keep: bool = False) -> bool:
        """Return whether the table says what happened. With `keep`, wait for Ctrl-C at the end.

        Raise TailraceError when that cannot be determined."""
        with _ending_signals():
            self._title("Start a collector")
            self._command(*self._daemon.command)
            async with running(self._daemon):
                self._say(f"ready; its status is at http://{self._daemon.admin}/status")
                await self._send()
                await self._settle()
                await self._look()
                good = await self._compare()
                await self._measure()
                if keep:
                    await self._stay()
                self._title("Stop it")
                self._shell(f"kill {self._daemon.pid}")
                code = await self._daemon.stop()
            if code:
                raise TailraceError(f"the collector ended with {code}:\n{self._daemon.output}")
            self._say(self._daemon.final_ledger)
        self._next()
        return good

    async def _send(self) -> None:
        self._title("Send it traces")
        async with trio.open_nursery() as nursery:
            for producer, traffic in self._parts:
                where, shown = self._place(producer)
                self._say(f"{producer.source}: {producer.format} to {shown}: {traffic.about}")
                send = SENDERS[producer.transport]
                nursery.start_soon(send, where, traffic.chunks, producer.rate)

    def _place(self, producer: Producer) -> tuple[Address | Path, str]:
        """Return the destination of a producer's traffic, and its description."""
        if producer.transport == "tail":
            directory = self._daemon.directory(producer.source)
            return directory, str(directory)
        address = self._daemon.address(producer.source)
        return address, f"{producer.transport}://{address[0]}:{address[1]}"

    async def _settle(self) -> None:
        """Wait until everything that was sent, and every gap, is in the table."""
        self._title("Wait until everything is in the table")
        begun = self._clock.monotonic()
        with trio.move_on_after(SETTLE_SECONDS):
            while not self._settled(await self._daemon.status()):  # noqa: ASYNC110 - another process
                await trio.sleep(POLL_SECONDS)
        self._say(f"waited {self._clock.monotonic() - begun:.1f} s")

    def _settled(self, status: Any) -> bool:  # noqa: ANN401 - JSON
        spool, sources = status["spool"], status["sources"]
        return bool(spool["end"] == spool["committed"]) and all(
            sources[producer.source]["seen_events"] >= traffic.events
            and sum(sources[producer.source]["gap_events"].values()) >= sum(traffic.lost.values())
            for producer, traffic in self._parts
        )

    async def _look(self) -> None:
        self._title("Look at the streams and the longest spans")
        await self._show("streams")
        await self._show("query", LONGEST)

    async def _compare(self) -> bool:
        self._title("Compare what is missing with what was left out on purpose")
        await self._show("query", MISSING)
        answers = await self._query(EVENTS, MISSING, NUMBERS)
        good = True
        for producer, traffic in self._parts:
            lines = differences(producer.source, traffic, *answers)
            lost = sum(traffic.lost.values())
            self._say(
                f"{producer.source}: {lost} left out; " + ("DIFFERENT" if lines else "all found")
            )
            for line in lines:
                self._say(f"  {line}")
            good = good and not lines
        if not good:
            sources = (await self._daemon.status())["sources"].values()
            dropped = sum(source["kernel_drops"] for source in sources)
            self._say(f"Datagrams that the kernel dropped itself: {dropped}")
        return good

    async def _measure(self) -> None:
        self._title("See it as Prometheus sees it")
        self._shell(
            f"curl -s --noproxy '*' http://{self._daemon.admin}/metrics | grep -E '^({'|'.join(METRICS)})'"
        )
        for line in (await self._daemon.get("/metrics")).splitlines():
            if line.startswith(METRICS):
                self._say(line)

    async def _stay(self) -> None:
        """Keep running, with little traffic, until Ctrl-C."""
        self._title("Keep running until Ctrl-C")
        for producer, _ in self._parts:
            self._say(f"{producer.format} at {self._place(producer)[1]}")
        self._say(f"/status and /metrics at http://{self._daemon.admin}")
        command = page_command(self._daemon.store, os.environ)
        async with page(command, self._directory / "view.log") as address:
            self._say(f"the page is at {address}")
            await self._trickle()

    async def _trickle(self) -> None:
        """Send a few events a second until Ctrl-C."""
        try:
            self._say(f"{GENTLE_RATE:.0f} events a second go to heph_tcp")
            await trickle(self._daemon.address("heph_tcp"), self._clock.wall_ns(), GENTLE_RATE)
        except KeyboardInterrupt:
            return

    def _next(self) -> None:
        self._title("Try it yourself")
        self._say("See it in a browser, at the address that this command prints:")
        self._command("view", "--store", str(self._daemon.store))
        self._command("gaps", "--store", str(self._daemon.store))
        self._command("query", "--store", str(self._daemon.store), "SELECT * FROM sessions")
        self._command("serve", "--store", str(self._daemon.store))
        self._command("demo", "--keep")

    def _title(self, text: str) -> None:
        self._step += 1
        self._say(f"\n{self._step}. {text}")

    def _shell(self, line: str) -> None:
        self._say(f"$ {line}")

    def _command(self, *arguments: str) -> None:
        self._shell(as_typed("tailrace", *arguments))

    async def _show(self, name: str, *arguments: str) -> None:
        """Show a command about the store, and its output."""
        line = (name, "--store", str(self._daemon.store), *arguments)
        self._command(*line)
        self._say((await tailrace(*line)).rstrip())

    async def _query(self, *statements: str) -> list[list[dict[str, Any]]]:
        """Run all statements at once, and return the rows of each."""
        answers: list[list[dict[str, Any]]] = [[] for _ in statements]

        async def ask(sql: str, rows: list[dict[str, Any]]) -> None:
            lines = await tailrace("query", "--store", str(self._daemon.store), "--json", sql)
            rows += [json.loads(line) for line in lines.splitlines()]

        async with trio.open_nursery() as nursery:
            for sql, rows in zip(statements, answers, strict=True):
                nursery.start_soon(ask, sql, rows)
        return answers


@contextmanager
def _ending_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that they also end the collector, and interrupt a write that waits for
    a reader."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
