"""The program itself: started with our variables, its signals passed on, its end awaited."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

import trio

from tailrace.errors import ConfigError

FORWARDED = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip

LATE_SIGNAL = 0.05
"""Seconds after the program's end in which a signal is still one that was for it: Ctrl-C ends a
program sooner than we have heard of it."""


async def run(arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run to the end; the exit status as a shell gives it: 128 + N when signal N ended it.

    What a terminal sends goes to the program's whole process group and so to it already; a signal
    sent to us alone is passed on. Raise ConfigError when there is no such program."""
    with trio.open_signal_receiver(*FORWARDED) as signals:
        try:
            process = await trio.lowlevel.open_process(arguments, env=os.environ | variables)
        except OSError as error:
            raise ConfigError([f"{arguments[0]}: {error.strerror}"]) from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward, signals, process)
            status = await process.wait()
            nursery.cancel_scope.cancel()
        with trio.move_on_after(LATE_SIGNAL):
            async for _ in signals:
                pass  # else it would be raised here, and there would be no certificate
    return status if status >= 0 else 128 - status


async def _forward(signals: object, process: trio.Process) -> None:
    async for number in signals:  # type: ignore[attr-defined] # trio gives it no public type
        if not (number in {signal.SIGINT, signal.SIGQUIT} and _from_the_terminal()):
            process.send_signal(number)


def _from_the_terminal() -> bool:
    """Whether we are in a terminal's foreground, where Ctrl-C reaches the program without us."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
