"""The page of `tailrace view`, served by a process of its own while the demonstration keeps running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tailrace.demo.daemon import command_line, ended, environment
from tailrace.errors import TailraceError

START_SECONDS = 60.0
STOP_SECONDS = 5.0


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
        with trio.move_on_after(START_SECONDS):
            address = await _first_line(process)
        if not address:
            said = await trio.Path(log).read_text(errors="replace")
            raise TailraceError(f"the page was not served:\n{said}")
        yield address
    finally:
        await ended(process, STOP_SECONDS)


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
