"""Run Tailrace's own commands as a person would.

Settings in environment variables (TAILRACE_…) are left out, so that the demonstration is the same
everywhere.
"""

from __future__ import annotations

import os
import shlex
import signal

import trio

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
