"""Run the user's program: start it with the environment variables of the run, forward signals, and wait for its end."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from tailrace.errors import ConfigError, NoProgramError
from tailrace.interpreter import UMASK_OF_USER, environment_of_user
from tailrace.standard import last_words

if TYPE_CHECKING:
    from tailrace.run.certificate import Certificate


NOT_TRACED = "the program is not traced"
CUT_OFF = "tracing failed, so that there is no certificate"

Warn = Callable[[str, Exception], None]
"""Function that reports a problem with tracing to the user: a description, and the exception that caused it."""


class RunDone(NamedTuple):
    """The result of a run: the program's exit status and, if tracing succeeded, the certificate. `others` states
    whether other ranks of the node still run. `refused` is the number of connections and datagrams from other users
    that the collector refused, by cause; the certificate does not cover their events."""

    status: int
    certificate: Certificate | None = None
    others: bool = False
    refused: Mapping[str, int] = {}


FORWARDED = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip

LATE_SIGNAL = 0.05
"""Time (seconds) for which a signal that arrives after the program's end still counts as sent to the program: Ctrl-C
may end the program before this process receives the signal."""


TRIES, RETRY_SECONDS = 20, 0.1
"""Number of attempts to start the program, and the pause (seconds) between them, if the system cannot create a
process."""


def find(arguments: Sequence[str]) -> None:
    """Raise NoProgramError if the program does not exist."""
    path = environment_of_user().get("PATH", os.defpath)
    if shutil.which(arguments[0], os.F_OK, path) is None:
        raise NoProgramError([f"{arguments[0]}: {os.strerror(errno.ENOENT)}"])


def untraced(arguments: Sequence[str]) -> RunDone:
    return RunDone(trio.run(run, arguments, {}))


async def run(arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the program to its end. Return its exit status as a shell does: 128 + N if signal N ended it. A signal
    that is sent only to this process is forwarded; a terminal sends its signals to the program, too. Raise
    ConfigError if the program does not exist."""
    # Do not forward signals that this process ignores, as under nohup: the program inherits this setting.
    forwarded = [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
    with trio.open_signal_receiver(*forwarded) as signals:
        # Unblock the signals, so that those sent before this point arrive now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
        try:
            process = await _start(arguments, {**environment_of_user(), **variables})
        except OSError as error:
            kind = NoProgramError if error.errno == errno.ENOENT else ConfigError
            raise kind([f"{arguments[0]}: {error.strerror}"]) from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward, signals, process)
            status = await _end(process)
            nursery.cancel_scope.cancel()
        with trio.move_on_after(LATE_SIGNAL):
            async for _ in signals:
                # Discard the signal: it would end this process before the run certificate is written.
                pass
    return status if status >= 0 else 128 - status


async def _start(arguments: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the program as a child process. If the system cannot create a process after `TRIES` attempts, replace
    this process by the program, which then runs untraced. Raise OSError if it cannot be started for another reason."""
    tries = 0
    while True:
        try:
            # Start the program from this thread and not from a worker thread: the program inherits the signal mask of
            # the thread, and the system may allow no further thread.
            return subprocess.Popen(arguments, env=environ, umask=UMASK_OF_USER)  # noqa: ASYNC220, S603 - takes milliseconds; what the user asked for
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.ENOMEM}:
                raise
            tries += 1
            if tries == TRIES:
                last_words(
                    f"tailrace: the program is not traced: no second process can be started: {error.strerror}\n"
                )
                # Undo Python's setting to ignore SIGPIPE, because the program inherits it
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.umask(UMASK_OF_USER)
                os.execvpe(arguments[0], [*arguments], environment_of_user())  # noqa: S606 - what the user asked for
        await trio.sleep(RETRY_SECONDS)


async def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process without starting a thread. Return the process's exit code."""
    try:
        ended = os.pidfd_open(process.pid)
    except OSError:
        # Ask again and again whether the process has ended: the kernel is too old for pidfd_open, or no descriptor is
        # free.
        while process.poll() is None:  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(LATE_SIGNAL)
    else:
        try:
            await trio.lowlevel.wait_readable(ended)
        finally:
            os.close(ended)
    return process.wait()


async def _forward(signals: object, process: subprocess.Popen[bytes]) -> None:
    async for number in signals:  # type: ignore[attr-defined] # trio has no public type for it
        if not (number in {signal.SIGINT, signal.SIGQUIT} and _from_the_terminal()):
            process.send_signal(number)


def _from_the_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
