"""The command `tailrace`: one module a subcommand, imported when it is asked for and not before.

A command is `tailrace/cli/NAME.py` (NAME_ where that is a word of Python) with a click command called `command`, and its line in
`COMMANDS`; so `tailrace --help` imports nothing but click. Errors end here: a TailraceError is its
text on standard error and an exit code, never a traceback; anything else that is raised is a
mistake of ours, and its traceback is what we need.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from enum import IntEnum
from importlib import import_module
from keyword import iskeyword

import click

from tailrace import __version__
from tailrace.errors import (
    AddressError,
    ConfigError,
    IncompleteError,
    TailraceError,
    UnknownError,
    causes,
)
from tailrace.terminal import guard, lines

COMMANDS = {
    "serve": "The daemon: collect traces until told to stop.",
    "check": "Find every mistake in a configuration file.",
    "run": "A collector around one program, ending in a certificate.",
    "verify": "Check all files of a store, or a run certificate.",
    "import": "Take in finished files and directories.",
    "query": "Run SQL over what was collected.",
    "streams": "What is there: one line a stream.",
    "gaps": "What is missing, and why.",
    "follow": "Rows as they arrive.",
    "upkeep": "Merge small files and delete old days.",
    "doctor": "What to change on this host before anything is lost.",
    "bundle": "Facts for support, without data and secrets.",
    "demo": "Everything at once, on generated traffic.",
}
"""Every subcommand and what its line in `tailrace --help` says."""


class ExitCode(IntEnum):
    GOOD = 0
    FAILED = 1
    USAGE = 2
    """Wrong usage or configuration."""
    INCOMPLETE = 3
    """Completeness was demanded and is not there."""
    LOSS = 4
    """More was lost than the budget allows, or there was nothing to lose."""
    ADDRESS_UNAVAILABLE = 5
    """An address to listen on is taken or not up yet; a later start may have it."""
    INTERRUPTED = 130
    """Ctrl-C; what a shell says of a program that SIGINT ended."""
    BROKEN_PIPE = 141
    """Nobody reads what we write; what a shell says of a program that SIGPIPE ended."""


EXPECTED = (TailraceError, BrokenPipeError, KeyboardInterrupt)
"""What ends a command without being a mistake in it."""


def load(name: str) -> click.Command:
    """The command of this name; its module is imported now."""
    module = f"{name}_" if iskeyword(name) else name
    command: click.Command = import_module(f"tailrace.cli.{module}").command
    return command


class Commands(click.Group):
    """The group of all subcommands; knows their names without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], COMMANDS, n=1)
        if near and near[0] != args[0]:
            ctx.fail(f"there is no command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a broken pipe is noticed here, not when the interpreter ends
        except (BaseExceptionGroup, *EXPECTED) as error:
            found = list(causes(error))
            if not all(isinstance(cause, EXPECTED) for cause in found):
                raise
            ctx.exit(max(report(cause) for cause in found))
        return result


def report(error: BaseException) -> ExitCode:
    """Say on standard error what a person can do something about; how the program is to end."""
    match error:
        case ConfigError():
            for problem in error.problems:
                click.echo(lines(problem), err=True)
            return (
                ExitCode.ADDRESS_UNAVAILABLE if isinstance(error, AddressError) else ExitCode.USAGE
            )
        case UnknownError():
            click.echo(f"tailrace: {lines(str(error))}", err=True)
            return ExitCode.USAGE
        case IncompleteError():
            click.echo(f"tailrace: {lines(str(error))}", err=True)
            return ExitCode.INCOMPLETE
        case TailraceError():
            click.echo(f"tailrace: {lines(str(error))}", err=True)
            return ExitCode.FAILED
        case BrokenPipeError():
            # What is still buffered has no reader; the interpreter must not try again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.BROKEN_PIPE
        case _:
            return ExitCode.INTERRUPTED


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="tailrace %(version)s")
def tailrace() -> None:
    """Take in execution traces and know exactly which events are missing, and why."""


def main() -> None:
    """The entry point of the command and of `python -m tailrace`."""
    guard()
    tailrace(prog_name="tailrace")
