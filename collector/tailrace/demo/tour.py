"""Run `tailrace demo` step by step.

The tour compares the losses in the table with the events that it left out on purpose, and succeeds only if both
agree for every event. It starts and queries the collector and the page of `tailrace view` as a user would. With
`verbose`, it also shows the commands that a user would type, with their output.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain
from math import ceil
from pathlib import Path
from typing import IO, Any
from urllib.request import ProxyHandler, build_opener

import trio

from tailrace.clock import Clock
from tailrace.demo.binary import epoch, heph_events
from tailrace.demo.producers import PRODUCERS, Producer
from tailrace.demo.traffic import EVENTS, MISSING, NUMBERS, SENDERS, differences, send_tcp
from tailrace.errors import TailraceError
from tailrace.interpreter import command
from tailrace.query.engine import Engine
from tailrace.rollups.snapshot import TimelineSnapshot


def environment() -> dict[str, str]:
    """Return the environment of this process without settings of the user for Tailrace."""
    others = {n: value for n, value in os.environ.items() if not n.startswith("TAILRACE_")}
    return others | {"TAILRACE_CONFIG": os.devnull}


def as_typed(*words: str) -> str:
    """Return a command line as a user would type it in a shell."""
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)
        for word in words
    )


async def tailrace(*arguments: str) -> str:
    """Run `tailrace`, and return its output. If it fails, raise TailraceError with its error output."""
    done = await trio.run_process(
        command("tailrace", *arguments),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").rstrip()
        raise TailraceError(f"{as_typed('tailrace', *arguments)} failed:\n{complaint}")
    return str(done.stdout.decode())


async def begin(
    arguments: Sequence[str], output: int | IO[bytes], errors: IO[bytes]
) -> trio.Process:
    """Start `tailrace` in the background. Keep Ctrl-C from the started process: this process stops the started one by a
    signal, and a second signal would interrupt its orderly end."""
    return await trio.lowlevel.open_process(
        command("tailrace", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=environment(),
        process_group=0,
    )


async def ended(process: trio.Process, seconds: float) -> int | None:
    """Send SIGTERM to a process, and SIGKILL if it has not ended after `seconds`. Return its exit code."""
    with trio.CancelScope(shield=True):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds) as patience:
            await process.wait()
        if patience.cancelled_caught:
            process.kill()
            await process.wait()
    return process.returncode


START_SECONDS = 20.0
STOP_SECONDS = 20.0
START_POLL_SECONDS = 0.1
HTTP_SECONDS = 5.0


class DemoDaemon:
    """A process of `tailrace serve`. Its configuration, its traces and its output are in `directory`."""

    def __init__(self, directory: Path, store: Path, producers: Iterable[Producer]) -> None:
        self.store = store
        self.config = directory / "demo.toml"
        self._traces = directory / "traces"
        self.config.write_text(configuration(producers, self._traces))
        self.command = ["serve", "--config", str(self.config), "--store", str(store)]
        self._output = directory / "serve.log"
        self._process: trio.Process | None = None
        self._ports: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        assert self._process is not None  # noqa: S101 - asked between start and stop only
        return self._process.pid

    @property
    def admin(self) -> str:
        return str(self._ports["admin"])

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def address(self, source: str) -> tuple[str, int]:
        host, _, port = self._ports["sources"][source].rpartition(":")
        return host, int(port)

    def directory(self, source: str) -> Path:
        """Return the directory in which a source of files looks for files."""
        return self._traces / source

    async def start(self) -> None:
        """Start the collector, and wait until it is ready. Raise TailraceError with its output if it is not."""
        with self._output.open("wb") as output:
            self._process = await begin(self.command, output, output)
        ports = self.store / "ports.json"
        with trio.move_on_after(START_SECONDS):
            while self._process.poll() is None:
                if ports.exists():
                    self._ports = json.loads(ports.read_text())
                    with suppress(OSError):
                        await trio.to_thread.run_sync(self._fetch, "/readyz")
                        return
                await trio.sleep(START_POLL_SECONDS)
        raise TailraceError(f"the collector did not become ready:\n{self.output}")

    async def get(self, path: str) -> str:
        """Return a page of the admin endpoint. Raise TailraceError if there is no answer, or an error."""
        try:
            return await trio.to_thread.run_sync(self._fetch, path)
        except OSError as error:
            raise TailraceError(f"the collector does not answer: {error}\n{self.output}") from error

    async def status(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(await self.get("/status"))

    async def stop(self) -> int | None:
        """Stop the process, if it was started, and return its exit code. Kill it if it does not stop in time."""
        return None if self._process is None else await ended(self._process, STOP_SECONDS)

    def _fetch(self, path: str) -> str:
        # Ignore proxies that environment variables set, because the daemon is on this host.
        direct = build_opener(ProxyHandler({}))
        with direct.open(f"http://{self.admin}{path}", timeout=HTTP_SECONDS) as answer:
            return str(answer.read().decode())


def configuration(producers: Iterable[Producer], traces: Path) -> str:
    """Return a configuration of the daemon with one source for each producer, which listens on a free port, or
    follows the files of its directory in `traces`."""
    parts = ['[admin]\nlisten = "127.0.0.1:0"\n']
    for producer in producers:
        place = 'listen = "127.0.0.1:0"'
        if producer.transport == "tail":
            place = f"paths = [{json.dumps(str(traces / producer.source))}]"
        parts.append(
            f"[sources.{producer.source}]\n"
            f'type = "{producer.transport}"\nformat = "{producer.format}"\n{place}\n'
        )
    return "\n".join(parts)


PAGE_START_SECONDS = 60.0
PAGE_STOP_SECONDS = 5.0


def page_command(store: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the command that serves the page of a store, and opens a browser if the host has a display. Without a
    display, Python would open a text browser in this terminal."""
    shows = sys.platform == "darwin" or not environ.keys().isdisjoint(
        {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}
    )
    return ["view", "--store", str(store), *(["--open"] if shows else [])]


@asynccontextmanager
async def page(arguments: Sequence[str], log: Path) -> AsyncIterator[str]:
    """Run the command that serves the page, yield the page's address, and end the command with the `with` block. If
    it prints no address in time, raise TailraceError with its error output, which goes to the file `log`."""
    with log.open("wb") as errors:
        process = await begin(arguments, subprocess.PIPE, errors)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        text = b""
        with trio.move_on_after(PAGE_START_SECONDS):
            while b"\n" not in text and (more := await process.stdout.receive_some()):
                text += more
        address = text.decode().partition("\n")[0] if b"\n" in text else ""
        if not address:
            output = await trio.Path(log).read_text(errors="replace")
            raise TailraceError(f"the page was not served:\n{output}")
        yield address
    finally:
        await ended(process, PAGE_STOP_SECONDS)


SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.25
GENTLE_RATE = 20.0

PICTURE_WIDTH = 30
BARS = " ▁▂▃▄▅▆▇█"

LONGEST = """SELECT format, count(*) AS spans, count(DISTINCT name) AS names, \
arg_max(name, ticks) AS longest, max(duration) // 1000 AS longest_us FROM spans \
GROUP BY format ORDER BY format"""

METRICS = tuple(f"tailrace_ledger_{name}_events" for name in ("seen", "missing", "imbalance"))


class Tour:
    """One run of the demonstration (`tailrace demo`). `directory` is for the configuration and the daemon's output.
    With `verbose`, print all commands and their output."""

    def __init__(
        self,
        directory: Path,
        store: Path,
        print_line: Callable[[str], None],
        clock: Clock,
        *,
        producers: Sequence[Producer] = PRODUCERS,
        seed: int = 1,
        verbose: bool = False,
    ) -> None:
        epoch = clock.wall_ns()
        self._parts = [(producer, producer.traffic(seed, epoch)) for producer in producers]
        self._daemon = DemoDaemon(directory, store, producers)
        self._directory = directory
        self._print = print_line
        self._clock = clock
        self._verbose = verbose
        self._step = 0

    async def run(self, *, keep: bool = False) -> bool:
        """Run the demonstration. Return whether the table agrees with the sent traffic. With `keep`, wait for Ctrl-C
        before the collector stops. Raise TailraceError if the collector or a command fails."""
        daemon = self._daemon
        with _ending_signals():
            self._title("Start a collector")
            self._shell(as_typed("tailrace", *daemon.command))
            try:
                await daemon.start()
                self._detail(f"ready; its status is at http://{daemon.admin}/status")
                await self._send()
                await self._settle()
                if self._verbose:
                    self._title("Look at the streams and the longest spans")
                    await self._show("streams")
                    await self._show("query", LONGEST)
                good = await self._compare()
                if self._verbose:
                    await self._measure()
                if keep:
                    await self._stay()
                if self._verbose:
                    self._title("Stop the collector")
                self._shell(f"kill {daemon.pid}")
                code = await daemon.stop()
            finally:
                # A second Ctrl-C may have interrupted the stop: wait for it, or the collector would outlive its directory.
                await daemon.stop()
            if code:
                raise TailraceError(f"the collector ended with {code}:\n{daemon.output}")
            # Show the end of the output: the numbers of received and missing events of each source.
            _, heading, rest = daemon.output.rpartition("final ledger")
            self._detail((heading + rest).rstrip())
        self._next(good=good)
        return good

    async def _send(self) -> None:
        lost = sum(sum(traffic.lost.values()) for _, traffic in self._parts)
        self._title(
            f"Send the traces of {len(self._parts)} sources, and leave out {lost} events on purpose"
        )
        async with trio.open_nursery() as nursery:
            for producer, traffic in self._parts:
                where, shown = self._place(producer)
                self._detail(f"{producer.source}: {producer.format} to {shown}: {traffic.about}")
                send = SENDERS[producer.transport]
                nursery.start_soon(send, where, traffic.chunks, producer.rate)

    def _place(self, producer: Producer) -> tuple[tuple[str, int] | Path, str]:
        """Return the address or directory to which a producer sends, and a text that shows it to the user."""
        if producer.transport == "tail":
            directory = self._daemon.directory(producer.source)
            return directory, str(directory)
        address = self._daemon.address(producer.source)
        return address, f"{producer.transport}://{address[0]}:{address[1]}"

    async def _settle(self) -> None:
        """Wait, at most `SETTLE_SECONDS`, until the table has all sent events, and a gap for each event that was left
        out."""
        self._title(f"Wait until every event is in the table, at most {SETTLE_SECONDS:.0f} s")
        begun = self._clock.monotonic()
        with trio.move_on_after(SETTLE_SECONDS):
            while True:
                status = await self._daemon.status()
                spool, sources = status["spool"], status["sources"]
                if spool["end"] == spool["committed"] and all(
                    sources[producer.source]["seen_events"] >= traffic.events
                    and sum(sources[producer.source]["gap_events"].values())
                    >= sum(traffic.lost.values())
                    for producer, traffic in self._parts
                ):
                    break
                await trio.sleep(POLL_SECONDS)
        self._detail(f"waited {self._clock.monotonic() - begun:.1f} s")

    async def _compare(self) -> bool:
        self._title("Compare the missing events in the table with the events that were left out")
        if self._verbose:
            await self._show("query", MISSING)
        answers = await self._query(EVENTS, MISSING, NUMBERS)
        pictures = await trio.to_thread.run_sync(loss_pictures, str(self._daemon.store))
        self._print("")
        self._print(
            f"{'source':13}{'stored':>8}{'left out':>10}{'named':>7}  {'reason':9}{'when, first to last event':{PICTURE_WIDTH}}"
        )
        good = True
        for producer, traffic in self._parts:
            source = producer.source
            lines = differences(source, traffic, *answers)
            events, missing = (
                [row for row in rows if row["source"] == source] for rows in answers[:2]
            )
            stored, named = (sum(row["events"] for row in rows) for rows in (events, missing))
            reasons = ", ".join(sorted({row["reason"] for row in missing})) or "-"
            picture = pictures.get(source, "").rstrip()
            self._print(
                f"{source:13}{stored:8,}{sum(traffic.lost.values()):10}{named:7}  {reasons:9}{picture}".rstrip()
            )
            for line in lines:
                self._print(f"  DIFFERENT: {line}")
            good = good and not lines
        if not good:
            sources = (await self._daemon.status())["sources"].values()
            dropped = sum(source["kernel_drops"] for source in sources)
            self._print(f"Datagrams that the kernel dropped itself: {dropped}")
        return good

    async def _measure(self) -> None:
        self._title("See it as Prometheus sees it")
        self._shell(
            f"curl -s --noproxy '*' http://{self._daemon.admin}/metrics | grep -E '^({'|'.join(METRICS)})'"
        )
        for line in (await self._daemon.get("/metrics")).splitlines():
            if line.startswith(METRICS):
                self._print(line)

    async def _stay(self) -> None:
        """Keep the collector and its web page running until Ctrl-C. Meanwhile, send a few events a second."""
        self._title("Keep running until Ctrl-C")
        for producer, _ in self._parts:
            self._print(f"{producer.format} at {self._place(producer)[1]}")
        self._print(f"/status and /metrics at http://{self._daemon.admin}")
        arguments = page_command(self._daemon.store, os.environ)
        events = heph_events(1, sys.maxsize, (1,))
        packets = chain([epoch(self._clock.wall_ns())], (packet.data for packet in events))
        async with page(arguments, self._directory / "view.log") as address:
            self._print(f"the page is at {address}")
            self._print(f"{GENTLE_RATE:.0f} events a second go to heph_tcp")
            with suppress(KeyboardInterrupt, OSError, trio.BrokenResourceError):
                await send_tcp(self._daemon.address("heph_tcp"), packets, GENTLE_RATE)

    def _next(self, *, good: bool) -> None:
        """Print the result of the demonstration, and commands that a user may try next."""
        store = str(self._daemon.store)
        self._print("")
        self._print(
            "The collector named as missing exactly the events that were left out."
            if good
            else "The table DIFFERS from the traffic: see the lines above."
        )
        for purpose, arguments in (
            ("look at the traces in a browser", ("view", "--store", store)),
            ("list the missing events", ("gaps", "--store", store)),
            ("query the table", ("query", "--store", store, "SELECT * FROM sessions")),
            ("see each step of this demo", ("demo", "--verbose")),
            ("keep the collector and the page running", ("demo", "--keep")),
        ):
            self._print(f"{purpose}:\n  {as_typed('tailrace', *arguments)}")

    def _title(self, text: str) -> None:
        self._step += 1
        self._print(f"\n{self._step}. {text}" if self._verbose else f"{text} ...")

    def _detail(self, line: str) -> None:
        if self._verbose:
            self._print(line)

    def _shell(self, line: str) -> None:
        self._detail(f"$ {line}")

    async def _show(self, name: str, *arguments: str) -> None:
        """Print a `tailrace` command about the store, then run it and print its output."""
        line = (name, "--store", str(self._daemon.store), *arguments)
        self._shell(as_typed("tailrace", *line))
        self._print((await tailrace(*line)).rstrip())

    async def _query(self, *statements: str) -> list[list[dict[str, Any]]]:
        """Run several SQL statements at the same time by `tailrace query`, and return the rows of each."""
        answers: list[list[dict[str, Any]]] = [[] for _ in statements]

        async def ask(sql: str, rows: list[dict[str, Any]]) -> None:
            lines = await tailrace("query", "--store", str(self._daemon.store), "--json", sql)
            rows += [json.loads(line) for line in lines.splitlines()]

        async with trio.open_nursery() as nursery:
            for sql, rows in zip(statements, answers, strict=True):
                nursery.start_soon(ask, sql, rows)
        return answers


def loss_pictures(store: str) -> dict[str, str]:
    """Return a bar chart of the losses of each source in a store. Its `PICTURE_WIDTH` characters span the time of
    each session, and the missing events of a gap are spread over the gap's time. Raise TailraceError if the store
    cannot be read."""
    engine = Engine(store)
    try:
        snapshot = TimelineSnapshot(engine)
        lost: dict[str, list[float]] = {}
        for each in snapshot.gaps:
            bars = lost.setdefault(each.gap.source, [0.0] * PICTURE_WIDTH)
            session = snapshot.sessions.get((each.gap.source, each.gap.session))
            if session is None or each.begin is None or each.end is None or each.gap.first is None:
                continue
            first, last = session.first or 0, session.last or 0
            scale = PICTURE_WIDTH / max(1, last + 1 - first)
            columns = range(int((each.begin - first) * scale), int((each.end - first) * scale) + 1)
            for column in columns:
                bars[min(column, PICTURE_WIDTH - 1)] += (each.gap.remaining or 1) / len(columns)
    finally:
        engine.close()
    most = max(chain.from_iterable(lost.values()), default=0)
    return {
        source: "".join(BARS[ceil(bar / most * (len(BARS) - 1))] for bar in bars)
        if any(bars)
        else "(at an unknown time)"
        for source, bars in lost.items()
    }


@contextmanager
def _ending_signals() -> Iterator[None]:
    """During the `with` block, handle SIGTERM and SIGHUP like Ctrl-C, so that these signals also stop the collector."""

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
