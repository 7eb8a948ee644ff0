"""Write the reference from the code: `python -m tests.docs.reference > collector/REFERENCE.md`."""

from __future__ import annotations

import inspect
import textwrap
import typing
from inspect import cleandoc

import click

import tailrace
from tailrace.cli.commands import COMMANDS, ExitCode, load, tailrace as command_line
from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.formats import FORMATS
from tailrace.decoding.guard import DECODER_FAILED
from tailrace.ingest.limits import TOO_MANY_SESSIONS
from tailrace.log import FIELDS, LINES_A_MINUTE
from tailrace.metrics.contract import DAEMON, LAWS, SESSION, SOURCE, Restart, Type, bound
from tailrace.metrics.observed import COLLECTORS, READ, SUBJECT
from tailrace.model.gap import Reason
from tailrace.query.views import VIEWS
from tailrace.rows.fields import FLAWS
from tailrace.rows.schema import COLUMNS
from tests.docs.configuration import describe

REASONS = {
    Reason.NETWORK: "a hole in the producer's counters or totals that nothing else explains",
    Reason.KERNEL: "the socket's receive buffer overflowed; the kernel counted it",
    Reason.SENDER: "the client says that it discarded them",
    Reason.ELSEWHERE: "the client says that another collector has acknowledged them; they count where the table lacks them",
    Reason.SHED: "we chose to, under a configured limit",
    Reason.MALFORMED: "the bytes are here but cannot be read; they are in the quarantine",
    Reason.TRUNCATED: "the tail is missing: of a record, or of a file",
    Reason.UNRESOLVED: "a record refers to one that was never seen",
    Reason.LATE_JOIN: "the producer's counter stood above zero when the stream was first seen, or a file has no beginning: it may be a piece of another",
    Reason.UNCOUNTED: "a limit was reached, so the collector did not follow the stream's numbers: how many events are missing is not known",
    Reason.DAMAGED: "they were stored, and the file that they were in is damaged",
}


def render() -> str:
    parts = [
        "# Reference",
        "",
        "Written from the code by `make reference`; a test compares the two.",
        *_commands(),
        *_reading(),
        *_configuration(),
        *_columns(),
        *_views(),
        *_reasons(),
        *_metrics(),
        *_log(),
    ]
    return "\n".join(parts) + "\n"


def _table(title, *rows):
    yield from ("", f"| {' | '.join(title)} |", f"|{'---|' * len(title)}")
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def examples_of(name: str) -> list[str]:
    """Return the command lines that end the `--help` of a command."""
    _, _, *commands = load(name).epilog.splitlines()
    return [line.strip() for line in commands]


def above() -> click.Context:
    """Return the context of `tailrace` itself, in which its commands run."""
    return click.Context(command_line, info_name="tailrace", **command_line.context_settings)


def _commands():
    yield from ("", "## Commands")
    for name in COMMANDS:
        command = load(name)
        context = click.Context(command, info_name=name, parent=above())
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield from ("", f"### `{usage}`", "", cleandoc(command.help or ""))
        options = [p.get_help_record(context) for p in command.get_params(context)]
        yield from _table(("option", ""), *((f"`{o[0]}`", o[1]) for o in options if o))
        yield from ("", "```sh", *examples_of(name), "```")
    yield from ("", "### Exit codes")
    yield from _table(
        ("code", "meaning"),
        *((code.value, code.name.lower().replace("_", " ")) for code in ExitCode),
    )


def _reading():
    yield from ("", "## Reading from Python", "", f"`tailrace.{_call(tailrace.open)}`", "")
    yield cleandoc(tailrace.open.__doc__)
    for class_ in (tailrace.Store, tailrace.Result, tailrace.Completeness):
        yield from ("", f"### `{class_.__name__}`", "", cleandoc(class_.__doc__), "")
        for name, member in vars(class_).items():
            shown = _call(member) if inspect.isfunction(member) else name
            if not name.startswith("_") and (
                inspect.isfunction(member) or type(member) is property
            ):
                yield f"- `.{shown}`: {textwrap.indent(inspect.getdoc(member), '  ').lstrip()}"


def _call(function):
    """Return a call as a user writes it, without keywords that mean the same everywhere."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    if parameters and str(parameters[-1].annotation).startswith("Unpack["):
        (of,) = typing.get_args(typing.get_type_hints(function)[parameters[-1].name])
        return f"{function.__name__}(*, {', '.join(of.__annotations__)})"
    words = [
        p.name if p.default is p.empty or p.kind is p.KEYWORD_ONLY else f"{p.name}={p.default!r}"
        for p in parameters
    ]
    keywords = next((i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    if keywords is not None:
        words[keywords:keywords] = ["*"]
    return f"{function.__name__}({', '.join(words)})"


PLACES = (
    "Commands read one configuration file, from the first of these places that names one:",
    "",
    "1. the option `--config FILE` (`/dev/null` means built-in defaults)",
    "2. the environment variable `TAILRACE_CONFIG`",
    "3. `$XDG_CONFIG_HOME/tailrace/tailrace.toml`; without this variable `~/.config/tailrace/tailrace.toml`",
    "4. `/etc/tailrace/tailrace.toml`",
    "",
    "A file of 3 or 4 that this user may not read counts as absent; a file of 1 or 2 is an error then. `/status` of a daemon has the path of its file.",
)


def _configuration():
    yield from (
        "",
        "## Configuration",
        "",
        *PLACES,
        "",
        "An environment variable can set each key: `TAILRACE_STORE_PATH` sets `store.path`, and `TAILRACE_SOURCES_NAME_LISTEN` sets `listen` of the source `name`.",
        "",
        "`kill -HUP` makes the daemon reload the file. If anything is wrong, the former configuration stays, and the log, /status and",
        "`tailrace_config_reload_success` say so. The column `reload` says when a changed key takes effect: at once, for new sessions, or",
        "when the source starts anew (it closes its connections once it has received what they sent; datagram peers and files continue).",
        "The reload fails if the key needs a restart.",
    )
    section = None
    rows = []
    for entry in describe():
        if entry.section != section:
            if rows:
                yield from _table(("key", "type", "default", "reload", "meaning"), *rows)
            section, rows = entry.section, []
            yield from ("", f"### [{section}]")
        rows.append((f"`{entry.key}`", entry.type, entry.default, entry.takes, entry.meaning))
    yield from _table(("key", "type", "default", "reload", "meaning"), *rows)


def _columns():
    yield from ("", "## The table `events`")
    yield from _table(
        ("column", "type", "meaning"),
        *((f"`{c.name}`", c.type + ("?" if c.nullable else ""), c.meaning) for c in COLUMNS),
    )


OBJECTS = (
    "`attributes`, `labels`, `producer` and `totals` are JSON objects: text in SQL (`attributes ->> '$.cell'`), CSV and Arrow; objects in JSON",
    "output (`query --json`, `follow --json`, `export --to jsonl`, ...) and in the dicts of `tailrace.open`. A column is known by its name: one",
    "that a statement calls otherwise stays text. Values that JSON lacks are spelled as an object:",
    "",
    "| spelling | meaning |",
    "|---|---|",
    '| `{"$f64":"7ff8000000000000"}` | a NaN or an infinity, by its bits |',
    '| `{"$bytes":"c328"}` | a text that is not UTF-8, by its bytes |',
    '| `"$types":{"x":"i64"}` | types that the values of members do not show: an i64 without a sign, an empty array |',
)


def _views():
    yield from ("", "## The views", "", *OBJECTS)
    for view in VIEWS:
        yield from ("", f"### `{view.name}`: {view.meaning}")
        rows = ((f"`{column.name}`", column.type, column.meaning) for column in view.columns)
        yield from _table(("column", "type", "meaning"), *rows)


def _reasons():
    yield from ("", "## Why events are missing")
    yield from _table(
        ("reason", "meaning"), *((f"`{reason.value}`", REASONS[reason]) for reason in Reason)
    )
    yield from ("", "## Flaws and what makes bytes malformed")
    rows = [
        (format_.name, ", ".join(sorted(format_.flaws)), ", ".join(sorted(format_.malformed)))
        for format_ in FORMATS.values()
    ]
    yield from _table(
        (
            "format",
            "flaws (the record is kept, and says so)",
            "malformed (the bytes are quarantined)",
        ),
        *rows,
    )
    yield from ("", f"All formats whose records have ids: {', '.join(sorted(FLAWS))}.")
    yield from (
        "",
        f"Sources that are not files: `{TOO_MANY_SESSIONS}`, for bytes beyond `ledger.new_sessions_rate`.",
        "",
        f"Formats outside Tailrace: `{DECODER_FAILED}`, for bytes that the decoder should have read when it failed"
        " ([plug-ins](../docs/ADD_A_FORMAT.md#faulty-plug-ins)).",
        "",
        "All sources, by the first bytes of a file, a connection or a datagram; `tailrace import` leaves out such files. None of"
        " it is read, and it is one gap of unknown size:",
    )
    yield from _table(
        ("cause", "what it is"), *((f"`{what}`", words) for what, words in FOREIGN.items())
    )


METRICS = """
The daemon exports its figures at `/metrics`. The bound is the largest number of samples of a metric, where
`sources` stands for the number of configured sources. A label without a fixed set of values has at most
`metrics.series_max` values: further values are summed under `other`. All values of the other labels exist
from the start. A checkpoint holds each counter that goes on after a restart.
"""

SESSIONS_TEXT = """
These metrics compare the clock of a session's producer with wall time. The label `session` is the column of the
table. At most `metrics.series_max` sessions are followed. A session that is silent for a minute gives up its place
to another. A restart of the daemon begins every measurement anew.
"""

OBSERVED_TEXT = """
`tailrace collectors --listen` serves these, and `--metrics` prints them: they are what the table says of all collectors that write to it. A
collector has one sample of each; the labels are its name, its host and the identity of its spool.
"""

LAWS_TEXT = """
At every scrape, for each source; a metric with further labels stands for the sum over them:
"""


def _metrics():
    yield from ("", "## Metrics for Prometheus", METRICS.rstrip())
    yield from ("", "### The daemon")
    yield from _definitions(DAEMON, ())
    yield from ("", "### Each source")
    yield from _definitions(SOURCE, ("source",))
    yield from ("", "### Each session", SESSIONS_TEXT.rstrip())
    yield from _definitions(SESSION, ("source", "session"))
    yield from ("", "### The collectors of a table", OBSERVED_TEXT.rstrip())
    rows = [
        (f"`{m.name}`", m.type.exposed, m.unit, ", ".join(f"`{label}`" for label in labels), m.help)
        for metrics, subject in (((READ,), ()), (COLLECTORS, SUBJECT))
        for m in metrics
        for labels in [_labels(m, subject)]
    ]
    yield from _table(("metric", "type", "unit", "labels", "meaning"), *rows)
    yield from ("", "### Sums that agree", LAWS_TEXT.rstrip(), "")
    yield from (f"{number}. `{law.text}`" for number, law in enumerate(LAWS, 1))


def _definitions(metrics, subject):
    rows = [
        (
            ", ".join(f"`{name}`" for name in m.samples),
            m.type.exposed,
            m.unit,
            ", ".join(f"`{label}`" for label in _labels(m, subject)),
            bound(m),
            m.restart.value if m.type is not Type.GAUGE or m.restart is Restart.KEPT else "",
            m.help + _sums(m),
        )
        for m in metrics
    ]
    title = ("metric", "type", "unit", "labels", "bound", "after a restart it", "meaning")
    yield from _table(title, *rows)


def _labels(metric, subject):
    if metric.type is Type.INFO:
        return ("kernels", "version")
    if metric.type is Type.HISTOGRAM:
        return (*subject, "le")
    return (*subject, metric.label.name) if metric.label else subject


def _sums(metric):
    numbers = [str(number) for number, law in enumerate(LAWS, 1) if metric.name in law.names]
    return f" (sums: {', '.join(numbers)})" if numbers else ""


def _log():
    yield from (
        "",
        "## Log lines",
        "",
        f'On standard error; of each place in the code at most {LINES_A_MINUTE} a minute. With `log.format = "json"` each is an object:',
    )
    yield from _table(("field", "meaning"), *((f"`{name}`", text) for name, text in FIELDS.items()))


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201 - its purpose
