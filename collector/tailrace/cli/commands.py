"""Define the group of all subcommands. A subcommand's module is imported only when the subcommand is used.

A subcommand has an entry in `COMMANDS`, and is a click command in a module of `tailrace/cli` (see `MODULES`). The name
of its function is the command's name with the suffix `_command`. So `tailrace --help` imports only click.

This module handles all errors. It prints a TailraceError, or an OSError with a file name, as text on standard error,
without a traceback, and turns it into an exit code. Any other exception is a bug in Tailrace, so its traceback is
shown.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from enum import IntEnum
from importlib import import_module
from typing import Any

import click

from tailrace import __version__
from tailrace.errors import (
    AddressError,
    ConfigError,
    IncompleteError,
    NoProgramError,
    StreamError,
    TailraceError,
    UnknownError,
    causes,
)
from tailrace.terminal import guard, lines

GROUPS = {
    "Collect": {
        "serve": "Run the daemon: collect traces until a signal stops it.",
        "run": "Run a program with a collector, and certify what it traced.",
        "import": "Import finished files and directories.",
        "merge": "Merge the stores of a job's nodes, and certify the job.",
        "demo": "Demonstrate Tailrace on generated traffic.",
    },
    "Look": {
        "verdict": "Report for each trace file whether events are missing, and why.",
        "query": "Run SQL over the collected events.",
        "streams": "List the streams, and how complete each one is.",
        "gaps": "List the missing events, and why they are missing.",
        "stats": "Count and measure spans by name.",
        "ranks": "Show when each rank of a job has events, and which are missing.",
        "diff": "Compare the spans of two runs.",
        "follow": "Show rows as they arrive.",
        "view": "Look at a store in a browser.",
    },
    "Take elsewhere": {
        "export": "Write events in the formats of other tools.",
        "verify": "Verify all files of a store, or a run certificate.",
    },
    "Operate": {
        "check": "Find every mistake in a configuration file.",
        "top": "Watch the running collectors.",
        "collectors": "List the collectors of a store, and the health of each.",
        "upkeep": "Merge small files and delete old days.",
        "doctor": "Examine this host, and print what to change.",
        "bundle": "Collect facts for support, without data and secrets.",
        "completion": "Print what completes commands and options in a shell.",
    },
}
"""For each group of subcommands in `tailrace --help`, the description of each subcommand."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

MODULES = {
    "stats": "spans", "diff": "spans",
    "gaps": "losses", "streams": "losses",
    "query": "rows", "follow": "rows",
    "merge": "jobs", "ranks": "jobs", "verify": "jobs",
    "doctor": "support", "bundle": "support", "demo": "support", "completion": "support",
    "top": "collectors", "import": "import_",
}  # fmt: skip
"""For some commands, the module that defines the command. All other commands are in a module of the same name."""


class ExitCode(IntEnum):
    GOOD = 0
    FAILED = 1
    USAGE = 2
    """Exit code if the command line or the configuration is wrong."""
    INCOMPLETE = 3
    """Exit code if the caller required complete data and events are missing, or if `tailrace diff` leaves the verdict
    about a group of spans undecided."""
    LOSS = 4
    """Exit code of `tailrace run` and `tailrace import` if more events are missing than --max-loss allows, or if the
    program was not traced."""
    ADDRESS_UNAVAILABLE = 5
    """Exit code if a configured address is in use or does not exist on this host yet. A later start may succeed."""
    NO_PROGRAM = 127
    """Exit code of `tailrace run` if the program does not exist, as in a shell."""
    INTERRUPTED = 130
    """Exit code if Ctrl-C ended the command. A shell returns it for a program that SIGINT has ended."""
    BROKEN_PIPE = 141
    """Exit code if nobody reads the output any more. A shell returns it for a program that SIGPIPE has ended."""


EXPECTED = (TailraceError, BrokenPipeError, KeyboardInterrupt)
"""Classes of exceptions that may end a command although Tailrace has no bug."""


def examples(*commands: str) -> str:
    """Return the text that ends the `--help` of a command: command lines, each of which a user can copy."""
    return "\n".join(("\b", "Examples:", *(f"  {command}" for command in commands)))


def load(name: str) -> click.Command:
    module = import_module(f"tailrace.cli.{MODULES.get(name, name)}")
    command: click.Command = getattr(module, f"{name}_command")
    return command


class Commands(click.Group):
    """The group of all subcommands. It lists the names of commands without importing the modules of the commands."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], COMMANDS, n=1):
                ctx.fail(f"there is no command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def main(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run a command, and exit with its exit code. If an error prevented its output from being written, exit with
        the code of this error."""
        code: Any = ExitCode.GOOD
        try:
            try:
                super().main(*arguments, **options)
            except SystemExit as end:
                code = end.code or ExitCode.GOOD
            sys.stdout.flush()
        except StreamError as error:
            code = max(code, report(error))
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> object:
        # So far, while modules were imported, Ctrl-C ended the process at once. From here on, it raises
        # KeyboardInterrupt.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = super().invoke(ctx)
        except (BaseExceptionGroup, OSError, *EXPECTED) as error:
            found = list(causes(error))
            if not all(map(_is_expected, found)):
                raise
            ctx.exit(max(report(cause) for cause in found))
        return result


def _is_expected(error: BaseException) -> bool:
    """Return whether a user can act on an error, so that the error is not a bug of Tailrace: a TailraceError, or an
    error of the operating system about a named file."""
    refused = isinstance(error, OSError) and error.filename is not None
    return refused or isinstance(error, EXPECTED)


def report(error: BaseException) -> ExitCode:
    match error:
        case ConfigError():
            for problem in error.problems:
                click.echo(lines(problem), err=True)
            if isinstance(error, NoProgramError):
                return ExitCode.NO_PROGRAM
            unavailable = isinstance(error, AddressError)
            return ExitCode.ADDRESS_UNAVAILABLE if unavailable else ExitCode.USAGE
        case BrokenPipeError() | StreamError(unread=True):
            return ExitCode.BROKEN_PIPE
        case TailraceError() | OSError():
            text = str(error)
            if isinstance(error, OSError) and not isinstance(error, TailraceError):
                from tailrace.filesystem import refusal_text

                name = error.filename
                name = os.fsdecode(name) if isinstance(name, bytes) else str(name)
                text = f"{name}: {refusal_text(error.errno, name)}"
            click.echo(f"tailrace: {lines(text)}", err=True)
            if isinstance(error, UnknownError):
                return ExitCode.USAGE
            return ExitCode.INCOMPLETE if isinstance(error, IncompleteError) else ExitCode.FAILED
        case _:
            return ExitCode.INTERRUPTED


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from tailrace import kernels

        try:
            click.echo(f"tailrace {__version__}, kernels: {kernels.word()}")
        except ConfigError as error:
            ctx.exit(report(error))
        ctx.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`tailrace COMMAND --help` describes a command, and ends with examples.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and whether compiled kernels run; then exit.",
)
def tailrace() -> None:
    """Collect execution traces, and record exactly which events are missing, and why."""


def run() -> None:
    """Run the command that the command-line arguments of this process name."""
    guard()
    try:
        tailrace(prog_name="tailrace")
    except SystemExit as end:
        _leave(end)
        raise


def _leave(end: SystemExit) -> None:
    """Exit the process without the shutdown of the Python interpreter. The shutdown would take a tenth of the time of a
    short command, and it could crash: a thread that still reads a table at a URL cannot be stopped, and the shutdown
    would destroy objects that the thread uses."""
    if isinstance(end.code, int | None):
        atexit._run_exitfuncs()  # noqa: SLF001 - it has no other name
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)
