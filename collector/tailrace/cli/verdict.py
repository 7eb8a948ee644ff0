"""Define `tailrace verdict`, which reads trace files and prints which events are missing from them.

The files are imported into a temporary store, with the built-in configuration, so that no environment variable and no
configuration file of the user changes the result.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from tailrace.cli.commands import ExitCode
from tailrace.cli.options import json_option
from tailrace.model.gap import Reason
from tailrace.terminal import printable
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailrace.analysis.statistics import SpanStatistics
    from tailrace.cli.output.console import Console
    from tailrace.config.load import Loaded
    from tailrace.importing.discover import LeftOut, Why
    from tailrace.importing.summary import SessionSummary, Summary
    from tailrace.query.engine import Engine

NAMES = 10
"""Number of the most frequent names of spans whose figures are printed."""

SHOWN = ("count", "p50", "p95", "max")

BECAUSE = {
    Reason.NETWORK: "numbers or totals have holes",
    Reason.KERNEL: "the kernel dropped datagrams",
    Reason.SENDER: "the client discarded events",
    Reason.ELSEWHERE: "another collector has the events",
    Reason.SHED: "a limit was exceeded",
    Reason.MALFORMED: "bytes cannot be read",
    Reason.TRUNCATED: "the end is missing",
    Reason.UNRESOLVED: "records refer to records that are not there",
    Reason.LATE_JOIN: "the first numbers are not there",
    Reason.UNCOUNTED: "there are too many streams to follow",
    Reason.DAMAGED: "the store is damaged",
}

BLIND = {
    "heph": "the end of a stream may be missing, which Heph does not show",
    "et3": "the end may be missing, which ET3 does not show",
    "ovni": "ovni does not count events, so only unreadable bytes and a missing end show",
}
"""By format, the losses that a trace does not show, so that it may lack events although it seems complete."""


class Verdict(NamedTuple):
    """The result for one file, or for one ovni run of several files."""

    path: str
    format: str
    events: int
    missing: dict[str, int]
    """Number of missing events by reason."""
    unknown: tuple[str, ...]
    """Reasons, in words, why an unknown number of events is missing, or why it is unknown whether events are missing."""

    @property
    def word(self) -> Literal["complete", "incomplete", "unknown"]:
        if self.missing:
            return "incomplete"
        return "unknown" if self.unknown else "complete"

    @property
    def text(self) -> str:
        reasons = "; ".join(
            f"{BECAUSE[Reason(reason)]} ({count})" for reason, count in sorted(self.missing.items())
        )
        unknown = "; ".join(self.unknown)
        if self.missing:
            more = f"; and an unknown number more, because {unknown}" if unknown else ""
            return f"{sum(self.missing.values())} missing here, because {reasons}{more}"
        if unknown:
            return f"cannot be told, because {unknown}"
        blind = BLIND.get(self.format)
        return f"complete, {counted(self.events, 'event')}" + (f" ({blind})" if blind else "")

    @property
    def members(self) -> dict[str, object]:
        return {**self._asdict(), "verdict": self.word, "text": self.text}


@click.command()
@json_option("Print one JSON object with the same facts.")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def verdict_command(paths: tuple[Path, ...], *, as_json: bool) -> None:
    """Print for each trace file whether events are missing, and why.

    Reads files, and all files below directories, through the same pipeline as `import`, into a temporary store that is
    removed at the end (in $TMPDIR; it needs about as much room as the files). It needs no store and reads no
    configuration. Formats are recognised by the first bytes.

    Prints one line for each file or ovni run: `complete`, the number of events that are missing and why, or `cannot be
    told` and why. A table after the lines has the ten most frequent names of spans, with the interval in which each
    figure lies, whatever the missing spans were (see `stats`).

    Exits with 0 if everything is complete, with 3 if anything is missing or cannot be told, and with 1 if a file could
    not be read. With --json: `traces` are the lines, `names` the figures with their `bounds`."""
    from tailrace import heaps, log
    from tailrace.cli.output.ledger import progress_bar
    from tailrace.config.load import load
    from tailrace.configuration import transports
    from tailrace.importing.importing import Wanted, take

    heaps.load_arrow()
    with TemporaryDirectory(prefix="tailrace-verdict-") as place:
        store = str(Path(place) / "store")
        loaded = load(None, environ={}, flags={"store": store, "listen": None}, formats=transports)
        log.configure(loaded.config.log, quiet=True)
        summary, done = take(loaded, Wanted(paths), progress_bar)
        if done and done.signal:
            raise SystemExit(128 + done.signal)
        found, names, console = _judge(loaded, summary)
    if as_json:
        click.echo(_json(found, names))
    else:
        _print(found, names, console)
    for name, count in summary.errors.items():
        click.echo(f"tailrace: a file could not be read: {name} ({count})", err=True)
    if summary.errors:
        raise SystemExit(ExitCode.FAILED)
    if not found or any(each.word != "complete" for each in found):
        raise SystemExit(ExitCode.INCOMPLETE)


def _judge(
    loaded: Loaded, summary: Summary
) -> tuple[list[Verdict], list[SpanStatistics], Console | None]:
    """Return the verdicts on all files, the figures of the most frequent names of spans, and the console that can print
    them; None without an imported file."""
    from tailrace.analysis.statistics import statistics
    from tailrace.cli.output.console import Console
    from tailrace.config.load import store_path
    from tailrace.query.completeness import Window, completeness
    from tailrace.query.engine import Engine

    left = [_left_out(each) for each in summary.left_out if each.trace and each.why != "copy"]
    if not summary.files:
        return left, [], None
    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    try:
        found = [*_of_sessions(engine, summary.files), *left]
        window = Window()
        figures = statistics(engine, window, completeness(engine, window.scope), self_time=False)
    finally:
        engine.close()
    return found, sorted(figures, key=lambda each: -each.ended)[:NAMES], Console(engine)


def _of_sessions(engine: Engine, sessions: Iterable[SessionSummary]) -> Iterator[Verdict]:
    """Yield the verdict on each file or ovni run, in the order in which the sessions are given."""
    runs = {
        (source, session): run
        for source, session, run in engine.rows("SELECT source, session, run FROM part.runs")
    }
    unknown: dict[tuple[str, str], set[str]] = {}
    gaps = "SELECT DISTINCT source, session, reason FROM gaps WHERE remaining IS NULL"
    for source, session, reason in engine.rows(gaps):
        unknown.setdefault((source, session), set()).add(BECAUSE[Reason(reason)])
    whole: dict[str, list[SessionSummary]] = {}
    for each in sessions:
        run = runs.get((each.source, each.session)) if each.format == "ovni" else None
        whole.setdefault(run or each.path, []).append(each)
    for path, parts in whole.items():
        missing: Counter[str] = Counter()
        for part in parts:
            missing.update(part.missing)
        reasons = {why for part in parts for why in unknown.get((part.source, part.session), ())}
        events = sum(part.events for part in parts)
        if not events:
            reasons.add("it has no event")
        yield Verdict(path, parts[0].format, events, dict(+missing), tuple(sorted(reasons)))


def _left_out(file: LeftOut) -> Verdict:
    words: dict[Why | str, str] = {
        "outside": "it is a link out of the directory",
        "empty": "it is empty",
        "gone": "it was gone before it could be read",
        "foreign": file.content or "its content is of another type",
    }
    why = words.get(file.why, "it is not a trace of any known format")
    return Verdict(file.path, file.format, 0, {}, (why,))


def _print(
    found: Sequence[Verdict], names: Sequence[SpanStatistics], console: Console | None
) -> None:
    from tailrace.cli.output.console import interval_words

    for each in found:
        click.echo(printable(f"{each.path}: {each.text}"))
    if not found:
        click.echo("cannot be told, because there is no trace")
    if console and names:
        words = [(each, interval_words(each)) for each in names]
        rows = [(*each.group, *(its[figure] for figure in SHOWN)) for each, its in words]
        sys.stdout.flush()
        console.figures(["name"], SHOWN, rows)


def _json(found: Sequence[Verdict], names: Sequence[SpanStatistics]) -> str:
    import msgspec

    traces = [each.members for each in found]
    figures = [
        {"name": each.group[0], "unit": each.unit, "seen": each.ended, "bounds": each.bounds}
        for each in names
    ]
    content = msgspec.json.encode({"traces": traces, "names": figures})
    return msgspec.json.format(content, indent=2).decode()
