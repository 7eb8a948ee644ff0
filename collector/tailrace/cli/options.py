"""Define the options that several commands share, and open the store that these options select."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce, wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from tailrace.cli.commands import report
from tailrace.config.load import Loaded
from tailrace.configuration import choose
from tailrace.errors import ConfigError, QueryError
from tailrace.query.filters import JobFilter, RunLabel, Selection
from tailrace.units import Duration, Size

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tailrace.query.completeness import Completeness
    from tailrace.query.engine import Engine
    from tailrace.query.limits import Limits
    from tailrace.query.live import Live
    from tailrace.reading.question import Filters


F = TypeVar("F", bound=Callable[..., Any])


def together(*parts: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator that applies all given decorators. `--help` lists the options that they add in the given
    order."""
    return lambda command: reduce(lambda decorated, part: part(decorated), reversed(parts), command)


def _complete(type_: str) -> Callable[..., list[CompletionItem]]:
    """Let the shell complete the names of directories (`dir`), or of files and directories (`file`)."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=type_)]

    return complete


complete_directories, complete_files = _complete("dir"), _complete("file")

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file; by default $TAILRACE_CONFIG, or else ~/.config/tailrace/tailrace.toml, or else /etc/tailrace/tailrace.toml, or else built-in defaults.",
)
store_option = click.option(
    "--store",
    metavar="DIR",
    shell_complete=complete_directories,
    help="Directory or URL of the table; by default the configuration's.",
)


sign_option = click.option(
    "--sign",
    "key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Sign the certificate with this Ed25519 private key (PEM); needs the package cryptography.",
)


def received_as(name: str, make: Callable[..., object], options: Sequence[str]) -> Callable[[F], F]:
    """Return a decorator that turns the values of several options of a command into one argument of its function. The
    argument is named `name`. Its value is the result of `make`, called with the values of the options in the given
    order."""

    def decorate(command: F) -> F:
        @wraps(command)
        def called(*arguments: object, **given: Any) -> object:  # noqa: ANN401 - whatever a command takes
            value = make(*(given.pop(option) for option in options))
            return command(*arguments, **given, **{name: value})

        return cast("F", called)

    return decorate


def load_config(config: Path | None, store: str | None, listen: str | None = None) -> Loaded:
    """Return the configuration that `--config`, `--store` and `--listen` select. If the configuration is invalid, print
    its problems on standard error, one a line, and exit with code 2."""
    try:
        return choose(config, store, listen)
    except ConfigError as error:
        raise SystemExit(report(error)) from None


table_options = together(
    config_option, store_option, received_as("loaded", load_config, ("config", "store"))
)
"""The options --config and --store. The command's function gets the configuration that they select as `loaded`."""


def _given_once(option: str | None, argument: str | None) -> str | None:
    """Return the store that was given with `--store` or as the argument STORE, or None. Raise UsageError if both were
    given."""
    if option is not None and argument is not None:
        raise click.UsageError("give the store either as STORE or with --store")
    return argument if option is None else option


store_argument = together(
    click.argument(
        "argument", metavar="[STORE]", required=False, shell_complete=complete_directories
    ),
    received_as("store", _given_once, ("store", "argument")),
)
"""The argument STORE, which may be given instead of the option --store. The command's function gets either of them as
`store`."""

reading_options = together(
    config_option, store_option, store_argument,
    received_as("loaded", load_config, ("config", "store")),
)  # fmt: skip
"""The options --config and --store, and the argument STORE. The command's function gets the configuration that they
select as `loaded`."""


def labels(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[RunLabel, ...]:
    """Return the values of the option --label as labels. Each value is a text KEY=VALUE."""
    for text in given:
        key, equals, _ = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not a label, as in revision=4a5b6c")
    return tuple(RunLabel(*text.split("=", 1)) for text in given)


label_option = click.option(
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=labels,
    help="Take only sessions of runs with this label; repeatable: a session must have all.",
)


def job_options(side: str = "") -> Callable[[F], F]:
    """Return a decorator that adds the options --rank, --node and --job or, for one side `a` of a comparison, --rank-a,
    --node-a and --job-a. The command's function gets them as a `JobFilter`, in the argument "job" or "job_a".
    """
    option, name, of = (f"-{side}", f"_{side}", f" of {side.upper()}") if side else ("", "", "")
    ranks, nodes, jobs = f"ranks{name}", f"nodes{name}", f"jobs{name}"
    which = f"Take only sessions{of}"

    def job_filter(*given: tuple[Any, ...]) -> JobFilter:
        return JobFilter(*(each or None for each in given))

    return together(
        click.option(
            f"--rank{option}", ranks, metavar="N", type=click.IntRange(min=0), multiple=True,
            help=f"{which} of this rank of a job; repeatable.",
        ),
        click.option(
            f"--node{option}", nodes, metavar="NAME", multiple=True,
            help=f"{which} of jobs that ran on this node; repeatable.",
        ),
        click.option(
            f"--job{option}", jobs, metavar="ID", multiple=True,
            help=f"{which} of this job; an id without a step takes all steps; repeatable.",
        ),
        received_as(f"job{name}", job_filter, (ranks, nodes, jobs)),
    )  # fmt: skip


DIGITS_OF_A_DATE = 8
"""Number of digits of a date in ISO 8601 without dashes. A number with more digits is a time in Unix nanoseconds."""


class Quantity(click.ParamType[Size | Duration]):
    """Parameter type of an option that takes a `Size` or a `Duration`, written as in the configuration."""

    def __init__(self, kind: type[Size | Duration]) -> None:
        self._kind = kind
        self.name = kind.__name__

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Size | Duration:
        if isinstance(value, self._kind):
            return value
        try:
            quantity = self._kind.parse(str(value))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        if not quantity:
            self.fail("must be greater than 0", param, ctx)
        return quantity


def percentage(text: str) -> float:
    """Return a percentage of 0 or more, written as "10%" or "10", as a fraction. Raise BadParameter for another text."""
    number = text.strip().removesuffix("%")
    if not re.fullmatch(r"\d{1,15}(\.\d{1,15})?", number, re.ASCII):
        raise click.BadParameter(f"{text!r} is not a percentage of 0 or more, as in 10%")
    return float(number) / 100


class Moment(click.ParamType[int]):
    """Parameter type of an option that takes a time: Unix nanoseconds, or a text that `reading.question.unix_ns`
    accepts. Its value is in Unix nanoseconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from tailrace.reading.question import unix_ns

        text = str(value)
        if text.isdecimal() and len(text) > DIGITS_OF_A_DATE:
            return int(text)
        try:
            return unix_ns(text, "time")
        except QueryError as error:
            self.fail(str(error), param, ctx)


def filters_of(
    sources: tuple[str, ...],
    sessions: tuple[str, ...],
    streams: tuple[str, ...],
    since: int | None,
    until: int | None,
    labels: tuple[RunLabel, ...],
    job: JobFilter,
) -> Filters:
    """Return filters for the values of the filter options. An option that the user did not give selects everything."""
    from tailrace.reading.question import Filters

    return Filters(
        sources or None, sessions or None, streams or None, since, until,
        labels=labels or None, job=job,
    )  # fmt: skip


window_options = together(
    click.option(
        "--source", "sources", metavar="NAME", multiple=True,
        help="Take only this source; repeatable.",
    ),
    click.option(
        "--session", "sessions", metavar="ID", multiple=True,
        help="Take only sessions whose id begins with this; repeatable.",
    ),
    click.option(
        "--stream", "streams", metavar="NAME", multiple=True,
        help="Take only this stream; repeatable.",
    ),
    click.option(
        "--since", type=Moment(),
        help="Take only what begins at this time or later: '2026-11-21 08:30:00Z' (UTC unless it names"
        " a zone), or Unix nanoseconds.",
    ),
    click.option("--until", type=Moment(), help="Take only what begins before this time."),
    label_option,
    job_options(),
    received_as(
        "filters", filters_of, ("sources", "sessions", "streams", "since", "until", "labels", "job")
    ),
)  # fmt: skip
"""The options that select rows. The command's function gets them as `filters`."""


selection_options = together(
    click.option("--source", metavar="NAME", help="Show only this source."),
    click.option("--session", metavar="ID", help="Show only sessions whose id begins with this."),
    label_option,
    job_options(),
    received_as("selection", Selection.of_options, ("source", "session", "labels", "job")),
)
"""The options that select sessions. The command's function gets them as `selection`."""


GAPS = "`tailrace gaps`"
"""The command that lists missing events, as it is spelled in messages to the user."""

complete_option = click.option(
    "--complete-only", is_flag=True, help="If events are missing, print no rows and exit with 3."
)


def json_option(text: str) -> Callable[[F], F]:
    """Return a decorator that adds the option --json, with the help text `text`. The command's function gets it as
    `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def signatures() -> ModuleType:
    """Import `run.signature`, which needs the optional package cryptography."""
    try:
        return import_module("tailrace.run.signature")
    except ModuleNotFoundError as error:
        needs = "signatures need the package cryptography: pip install cryptography"
        raise ConfigError([needs]) from error


class NamedRun(NamedTuple):
    """A store and the sessions of one run in the store. If `store` is None, the configured store is used. If the
    sessions are empty, all sessions of the store are used."""

    store: str | None
    sessions: tuple[str, ...]


def named_run(path: str) -> NamedRun:
    """Return the store and the sessions that a user means by a path. A directory or URL is a store, and selects all its
    sessions. The file of a loss certificate selects the sessions of the certified run or job. Raise StoreError if a
    certificate cannot be read."""
    if "://" in path or not Path(path).is_file():
        return NamedRun(path, ())
    from tailrace.job import certificate as jobs
    from tailrace.run import certificate as certificates

    file = Path(path)
    certificate = jobs.read(file) if jobs.is_job(file) else certificates.read(file)
    sessions = {stream.session for stream in certificate.streams}
    return NamedRun(certificate.store, tuple(sorted(sessions)))


def open_store(
    loaded: Loaded, selection: Selection, *, limits: Limits | None = None, room: str | None = None
) -> tuple[Engine, Live]:
    """Open a snapshot of the store. Query the running collectors for events that may still arrive. `limits` and `room`
    are passed to `Engine`. Raise StoreError if there is no table, and UnknownError if the selection names a source,
    session or stream that does not exist."""
    from tailrace.query.engine import Engine
    from tailrace.query.live import beside, look
    from tailrace.query.unknown_names import check

    engine = Engine(*loaded.store, limits, room=room)
    live = beside(engine, lambda: look(loaded.config))
    check(engine, selection, live)
    return engine, live


def warn_incomplete(whole: Completeness) -> None:
    if not whole.complete:
        click.echo(f"tailrace: {whole.text}; {GAPS} says which", err=True)
