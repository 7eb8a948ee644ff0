"""Start the command `tailrace`. This module needs only the standard library.

Before it imports the other modules, it decides what signals do, and isolates the command from its surroundings: from
the user's environment variables and Python modules (`interpreter`), from the duties of process 1 (`reaper`), and from
closed standard streams (`standard`). If an import fails because a package is missing or broken, the command prints one
line about it. `tailrace run` then runs the user's program untraced.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` may be the user's, and takes longer
import os
import sys

from tailrace import interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

LOSS = 4
NO_PROGRAM = 127
NOT_EXECUTABLE = 126

VALUED = frozenset({"--config", "--store", "--max-loss", "--source", "--certificate", "--sign"})
"""Options of `tailrace run` that take a value, which may be the next argument."""
FLAGS = frozenset({"--require-trace", "--json"})
"""Options of `tailrace run` without a value."""

HELD = {"serve": [signal.SIGHUP], "run": [signal.SIGUSR1, signal.SIGUSR2]}
"""For each command, the signals that stay blocked until the command has set its handlers. Without the block, an early
signal would end the command: SIGHUP, on which `serve` reloads its configuration, or a signal that `run` passes on to
its program."""
IGNORED = {"serve": [signal.SIGUSR1, signal.SIGUSR2]}
"""For each command, the signals that the command ignores. Their default action would end the process."""


def main() -> None:
    """Run `tailrace`, also as `python -m tailrace`."""
    _expect_signals(sys.argv[1] if len(sys.argv) > 1 else "")
    interpreter.isolate()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    from tailrace import reaper, standard

    reaper.leave_process_1()
    standard.begin()
    running = sys.argv[1:2] == ["run"]
    try:
        from tailrace.cli import commands

        if running:
            from importlib import import_module

            commands.load("run")
            import_module("tailrace.run.program")
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything
        options, program = _parsed(sys.argv[2:]) if running else ([], [])
        if not program or "--require-trace" in options:
            _leave(error)
        _warn(f"the program is not traced: {_text(error)}")
        sys.exit(run_untraced(program, exact="--max-loss" in options))
    try:
        commands.run()
    except ImportError as error:
        if (error.name or "").startswith("tailrace"):
            raise
        _leave(error)


def _expect_signals(command: str) -> None:
    """Set what signals do until the command `command` has set its handlers. No signal ends this process with a
    traceback. A signal in `HELD` or `IGNORED` does not end it at all."""
    # Undo what the parent process may have set: it may have blocked SIGTERM and SIGHUP, or ignored SIGCHLD, without
    # which this process cannot wait for child processes. Block SIGINT, too: a new interpreter (`isolate`) would set its
    # own handler.
    held = {signal.SIGINT, *HELD.get(command, ())}
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD} - held
    )
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    for number in IGNORED.get(command, ()):
        signal.signal(number, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(error: Exception) -> NoReturn:
    _warn(f"a package is missing or broken, install Tailrace again: {_text(error)}")
    sys.exit(1)


def run_untraced(program: list[str], *, exact: bool) -> int:
    """Run the user's program without tracing, in place of this process. With `exact`, run it as a child process
    instead, and return its exit status. Return the exit code LOSS instead of the status 0, because none of the
    program's events are stored."""
    from tailrace import reaper

    if exact:
        try:
            child = reaper.fork()
        except OSError as error:
            why = f"no second process can be had: {error.strerror}"
            _warn(f"{why}; the exit status is the program's")
            child = 0
        if child:
            return reaper.attend(child) or LOSS
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD["run"])
    # Undo Python's setting to ignore SIGPIPE, because the user's program would inherit the setting.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.umask(interpreter.UMASK_OF_USER)
    try:
        os.execvpe(program[0], program, interpreter.environment_of_user())  # noqa: S606 - what the user asked for
    except OSError as error:
        _warn(f"{program[0]}: {error.strerror}")
        status = NO_PROGRAM if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    except ValueError as error:
        # the name of the program contains a zero byte, so no such program exists
        _warn(f"{program[0]!r}: {error}")
        status = NO_PROGRAM
    os._exit(status)


def _parsed(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of the options of `tailrace run` in these arguments, and the program with its own arguments. The
    result must equal that of click, the library that parses command lines."""
    options: list[str] = []
    program: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if argument == "--":
            program += rest
        elif name in VALUED:
            options.append(name)
            if not equals:
                next(rest, None)
        elif argument in FLAGS:
            options.append(name)
        else:
            program.append(argument)
    return options, program


def _text(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _warn(text: str) -> None:
    try:  # noqa: SIM105 - contextlib may be the user's
        os.write(2, f"tailrace: {text}\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # Ignore that nobody reads standard error, because the program must run nevertheless.
