"""The processes of the demonstration: a collector, started and queried as any user would, and the page of `tailrace view`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import trio

from tailrace.demo.producers import Producer
from tailrace.demo.traffic import Address
from tailrace.errors import TailraceError
from tailrace.interpreter import command


def command_line(*arguments: str) -> list[str]:
    """Return the command that runs `tailrace` with this interpreter."""
    return command("tailrace", *arguments)


def environment() -> dict[str, str]:
    """Return this process's environment without Tailrace's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}


def as_typed(*words: str) -> str:
    """Return a command as typed in a shell. SQL with single quotes stands in double quotes."""
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)
        for word in words
    )


async def tailrace(*arguments: str) -> str:
    """Return the output of a command. Raise TailraceError, with its error output, if it fails."""
    done = await trio.run_process(
        command_line(*arguments),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").rstrip()
        raise TailraceError(f"{as_typed('tailrace', *arguments)} failed:\n{complaint}")
    return str(done.stdout.decode())


async def ended(process: trio.Process, seconds: float) -> int | None:
    """Ask a process to end, wait, and return its exit code. Kill it if it has not ended after `seconds`."""
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
POLL_SECONDS = 0.1
HTTP_SECONDS = 5.0


class DemoDaemon:
    """A `tailrace serve` process. Its configuration and its output are files in `directory`."""

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
        """Return host:port of its HTTP endpoint."""
        return str(self._ports["admin"])

    @property
    def final_ledger(self) -> str:
        """Return the last part of its output: for each source, what arrived and what is missing."""
        _, heading, rest = self.output.rpartition("final ledger")
        return (heading + rest).rstrip()

    @property
    def output(self) -> str:
        """Return everything that it has printed so far."""
        return self._output.read_text(errors="replace")

    def address(self, source: str) -> Address:
        host, _, port = self._ports["sources"][source].rpartition(":")
        return host, int(port)

    def directory(self, source: str) -> Path:
        """Return the directory in which a source looks for the files that it follows."""
        return self._traces / source

    async def start(self) -> None:
        """Return once the collector is ready. Raise TailraceError, with its output, if it never is."""
        with self._output.open("wb") as output:
            self._process = await trio.lowlevel.open_process(
                command_line(*self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                process_group=0,  # we pass Ctrl-C on; a second signal would cut its stop short
            )
        with trio.move_on_after(START_SECONDS):
            while self._process.poll() is None:
                if await self._ready():
                    return
                await trio.sleep(POLL_SECONDS)
        raise TailraceError(f"the collector did not become ready:\n{self.output}")

    async def get(self, path: str) -> str:
        """Return a page of its HTTP endpoint. Raise TailraceError if the answer is an error."""
        try:
            return await trio.to_thread.run_sync(self._fetch, path)
        except OSError as error:
            raise TailraceError(f"the collector does not answer: {error}\n{self.output}") from error

    async def status(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(await self.get("/status"))

    async def stop(self) -> int | None:
        """Ask the process to stop, wait, and return its exit code. Kill it if it does not stop in time."""
        return None if self._process is None else await ended(self._process, STOP_SECONDS)

    async def _ready(self) -> bool:
        ports = self.store / "ports.json"
        if not ports.exists():
            return False
        self._ports = json.loads(ports.read_text())
        try:
            await trio.to_thread.run_sync(self._fetch, "/readyz")
        except OSError:
            return False
        return True

    def _fetch(self, path: str) -> str:
        direct = build_opener(
            ProxyHandler({})
        )  # a proxy of the environment is for the outside world
        with direct.open(f"http://{self.admin}{path}", timeout=HTTP_SECONDS) as answer:
            return str(answer.read().decode())


@asynccontextmanager
async def running(daemon: DemoDaemon) -> AsyncIterator[DemoDaemon]:
    """Start the daemon and yield it when it is ready. Stop it when the block is left in any way."""
    try:
        await daemon.start()
        yield daemon
    finally:
        await daemon.stop()


def configuration(producers: Iterable[Producer], traces: Path) -> str:
    """Return a configuration with one source for each producer: on a port that the system chooses, or of
    a directory in `traces`."""
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
    """Return the command that serves a store's page. It opens a browser where a window can be shown.

    Without a display Python would start a text browser in this terminal."""
    shows = sys.platform == "darwin" or not environ.keys().isdisjoint(
        {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}
    )
    return ["view", "--store", str(store), *(["--open"] if shows else [])]


@asynccontextmanager
async def page(command: list[str], log: Path) -> AsyncIterator[str]:
    """Start the command and yield the address of the page. End it when the block is left in any way.

    Its error output goes to the file `log`. Raise TailraceError with that output if no address is printed in time."""
    with log.open("wb") as errors:
        process = await trio.lowlevel.open_process(
            command_line(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            process_group=0,  # Ctrl-C is for the demonstration, which ends this process
        )
    try:
        address = ""
        with trio.move_on_after(PAGE_START_SECONDS):
            address = await _first_line(process)
        if not address:
            said = await trio.Path(log).read_text(errors="replace")
            raise TailraceError(f"the page was not served:\n{said}")
        yield address
    finally:
        await ended(process, PAGE_STOP_SECONDS)


async def _first_line(process: trio.Process) -> str:
    """Return the first line of a process's output, or an empty text if it ends without a line."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    text = b""
    while b"\n" not in text:
        more = await process.stdout.receive_some()
        if not more:
            return ""
        text += more
    return text.decode().partition("\n")[0]
