"""Define `tailrace verdict`, which reads trace files and prints which events are missing from them.

The files are imported into a temporary store, with the built-in configuration, so that no environment variable and no
configuration file of the user changes the result.
"""

from __future__ import annotations

import posixpath
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import click
import msgspec

from tailrace import heaps, log
from tailrace.cli.commands import ExitCode, examples
from tailrace.cli.options import json_option
from tailrace.cli.output.ledger import progress_bar
from tailrace.config.load import Loaded, load
from tailrace.configuration import transports
from tailrace.model.gap import BECAUSE, Reason
from tailrace.query.completeness import MISSING, Window, completeness
from tailrace.terminal import printable
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.analysis.statistics import SpanStatistics
    from tailrace.cli.output.console import Console
    from tailrace.importing.discover import LeftOut, Why
    from tailrace.importing.summary import SessionSummary, Summary
    from tailrace.query.engine import Engine

NAMES = 10
"""Number of names of spans whose figures are printed. The most frequent names are chosen."""

SHOWN = ("count", "p50", "p95", "max")

BLIND = {
    "heph": "the end of a stream may be missing, which Heph does not show",
    "et3": "the end may be missing, which ET3 does not show",
    "ovni": "ovni does not count events, so only unreadable bytes and a missing end show",
    "dftracer": "numbers show no loss in files of releases up to 2.0.2, of aggregated calls, or in a part of a run",
    "jets": "a loss of lines of which no footer has the total may not show",
}
"""For each format, a sentence about the losses that its traces cannot show. A trace is called complete only if the SQL
`PROVED` selects its session, because the trace would then show every loss."""

REPEATED = "numbers come twice or out of order, so holes in them prove nothing"
"""Reason, in words, of a gap of unknown size for event numbers of DFTracer (`TracedRun`)."""

PROVED = """
SELECT source, session
FROM (
  SELECT source, session, format, name, kind = 'session' AS is_fact, attributes,
    try_cast(attributes ->> '$.id' AS BIGINT) AS number
  FROM events
  WHERE format IN ('dftracer', 'jets')
) LEFT JOIN (
  SELECT source, session, bool_or(open) AS has_open FROM spans GROUP BY ALL
) USING (source, session)
GROUP BY source, session, format, has_open
HAVING CASE format
  WHEN 'dftracer' THEN count(number) = count(DISTINCT number) AND count(number) = max(number) - min(number) + 1
    AND count(number) FILTER (is_fact AND name = 'start') = 1 AND count(number) FILTER (is_fact AND name = 'end') = 1
  WHEN 'jets' THEN bool_or(is_fact AND name = 'footer' AND json_exists(attributes, '$.totals.total_records')
    AND json_exists(attributes, '$.totals.total_events') AND json_exists(attributes, '$.totals.total_annotations')
    AND (has_open IS NOT TRUE OR json_exists(attributes, '$.totals.total_record_ends')))
END
"""
"""SQL that selects the sessions whose traces would show every loss of an event.

In a session of DFTracer, each event number from the begin of the run to its end must occur once. In a session of JETS,
a footer must have the totals of all kinds of lines. It need not count the ends if each record has one."""


class Verdict(NamedTuple):
    """The result of checking one trace file, or all trace files of one ovni run, for missing events."""

    path: str
    format: str
    events: int
    missing: dict[str, int]
    """Number of events that are missing from the trace, by reason."""
    missing_names: int
    """Number of names that are missing from the trace: events refer to them, and no file contains them."""
    unknown: tuple[str, ...]
    """Reasons, in words, why an unknown number of events is missing, or why it is unknown whether any are missing."""
    same_as: str = ""
    """If this file is a copy, the path of the file with the same content; otherwise empty."""
    shows_each_loss: bool = False
    """Whether the trace would show each loss of an event, so that it is complete if nothing is known to be missing."""

    @property
    def word(self) -> Literal["complete", "incomplete", "unknown", "no_known_loss"]:
        if self.missing or self.missing_names:
            return "incomplete"
        if self.unknown:
            return "unknown"
        return "complete" if self.shows_each_loss else "no_known_loss"

    @property
    def text(self) -> str:
        reasons = "; ".join(
            f"{BECAUSE[Reason(reason)]} ({count})" for reason, count in sorted(self.missing.items())
        )
        unknown = "; ".join(self.unknown)
        are = "is" if self.missing_names == 1 else "are"
        names = f"{counted(self.missing_names, 'name')} {are} missing" if self.missing_names else ""
        if self.missing or names:
            events = f"{sum(self.missing.values())} missing here, because {reasons}"
            further = "further " if self.missing else ""
            more = f"An unknown number of {further}events is missing, because {unknown}"
            parts = (self.missing and events, names, unknown and more)
            return ". ".join(part for part in parts if part)
        if unknown:
            return f"cannot be told, because {unknown}"
        if self.shows_each_loss:
            return f"complete, {counted(self.events, 'event')}"
        blind = BLIND.get(self.format, "its format may not show each loss")
        return f"nothing known to be missing, {counted(self.events, 'event')} ({blind})"

    @property
    def members(self) -> dict[str, object]:
        return {**self._asdict(), "verdict": self.word, "text": self.text}


@click.command(epilog=examples("tailrace verdict ./traces"))
@json_option("Print one JSON object with the same facts.")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def verdict_command(paths: tuple[Path, ...], *, as_json: bool) -> None:
    """Print for each trace file whether events are missing, and why.

    Reads files, and all files below directories, through the same pipeline as `import`, into a temporary store that is
    removed at the end (in $TMPDIR; it needs about as much room as the files). It needs no store and reads no
    configuration. Formats are recognised by the first bytes.

    Prints one line for each file or ovni run. If nothing is missing, the line is `complete`, or `nothing known to be
    missing` if the file would not show every loss. If anything is missing, it has the numbers of missing events and of
    missing names, with the reasons. Otherwise it is `cannot be told`, with the reason. For a copy, it names the file
    with the same content. A table of the ten most frequent span names follows. It has for each figure the interval in
    which the true value lies, whatever the missing spans were (see `stats`).

    Exits with 0 if nothing is known to be missing, with 3 if anything is missing or cannot be told, and with 1 if a
    file could not be read. With --json: `traces` are the lines, `names` the figures with their `bounds`."""
    heaps.load_arrow()

    from tailrace.importing.importing import Wanted, take

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            # Let a signal end the command by an exception, so that the temporary store is removed
            signal.signal(number, _exit)
    with TemporaryDirectory(prefix="tailrace-verdict-") as place:
        store = str(Path(place) / "store")
        loaded = load(None, environ={}, flags={"store": store, "listen": None}, formats=transports)
        log.configure(loaded.config.log, quiet=True)
        summary, done = take(loaded, Wanted(paths, unreadable=True), progress_bar)
        if done and done.signal:
            raise SystemExit(128 + done.signal)
        found, names, console = _judge(loaded, summary)
    if as_json:
        figures = [
            {"name": each.group[0], "unit": each.unit, "seen": each.ended, "bounds": each.bounds}
            for each in names
        ]
        document = {"traces": [each.members for each in found], "names": figures}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        _print(found, names, console)
    for name, count in summary.errors.items():
        click.echo(f"tailrace: a file could not be read: {name} ({count})", err=True)
    if summary.errors or any(each.why == "unreadable" for each in summary.left_out):
        raise SystemExit(ExitCode.FAILED)
    if not found or any(each.word in {"incomplete", "unknown"} for each in found):
        raise SystemExit(ExitCode.INCOMPLETE)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _judge(
    loaded: Loaded, summary: Summary
) -> tuple[list[Verdict], list[SpanStatistics], Console | None]:
    """Return the verdicts on all files, the figures of the most frequent names of spans, and the console that prints
    these figures. If no file was imported, the figures and the console are None."""
    from tailrace.analysis.statistics import statistics
    from tailrace.cli.output.console import Console
    from tailrace.query.engine import Engine

    left = [_left_out(each) for each in summary.left_out if each.trace and each.why != "copy"]
    if not summary.files:
        return left, [], None
    with closing(Engine(*loaded.store)) as engine:
        of = _of_sessions(engine, summary.files)
        copies = [_copy(each.path, each.of, of) for each in summary.left_out if each.why == "copy"]
        found = [*{each.path: each for each in of.values()}.values(), *copies, *left]
        window = Window()
        figures = statistics(engine, window, completeness(engine, window.scope), self_time=False)
    return found, sorted(figures, key=lambda each: -each.ended)[:NAMES], Console(engine)


def _copy(path: str, of: str, verdicts: dict[str, Verdict]) -> Verdict:
    """Return the verdict on a file that is a copy of another file."""
    if of not in verdicts:
        return Verdict(path, "", 0, {}, 0, (f"its content is in {of}, which has no verdict",))
    return verdicts[of]._replace(path=path, same_as=of)


def _of_sessions(engine: Engine, sessions: Iterable[SessionSummary]) -> dict[str, Verdict]:
    """Return the verdict on each file, by its path, in the order of the sessions. All files of an ovni run have the
    same verdict."""
    rows = engine.rows("SELECT source, session, run FROM part.runs")
    runs = {(source, session): run for source, session, run in rows}
    unknown: dict[tuple[str, str], set[str]] = {}
    missing_of: dict[tuple[str, str], Counter[str]] = {}
    names: Counter[tuple[str, str]] = Counter()
    gaps = f"SELECT source, session, reason, coalesce(detail = 'ids', false), coalesce(\"of\" = 'name', false), {MISSING}, bool_or(remaining IS NULL) FROM gaps GROUP BY ALL"  # noqa: S608 - our own words
    for source, session, reason, is_ids, is_name, count, uncounted in engine.rows(gaps):
        if uncounted:
            why = REPEATED if is_ids else BECAUSE[Reason(reason)]
            unknown.setdefault((source, session), set()).add(why)
        if is_name:
            names[source, session] += count
        else:
            missing_of.setdefault((source, session), Counter())[reason] += count
    proved = set(engine.rows(PROVED))
    whole: dict[str, list[SessionSummary]] = {}
    for each in sessions:
        run = runs.get((each.source, each.session)) if each.format == "ovni" else None
        # A file outside of the directories of a run is a run of its own.
        run = None if run == posixpath.dirname(each.path) else run
        whole.setdefault(run or each.path, []).append(each)
    found: dict[str, Verdict] = {}
    for path, parts in whole.items():
        missing: Counter[str] = Counter()
        for part in parts:
            missing.update(missing_of.get((part.source, part.session), {}))
        lost_names = sum(names[part.source, part.session] for part in parts)
        reasons = {why for part in parts for why in unknown.get((part.source, part.session), ())}
        events = sum(part.events for part in parts)
        if not events and not (reasons or +missing or lost_names):
            reasons.add("it has no event")
        verdict = Verdict(
            path, parts[0].format, events, dict(+missing), lost_names, tuple(sorted(reasons)),
            shows_each_loss=all((part.source, part.session) in proved for part in parts),
        )  # fmt: skip
        found |= dict.fromkeys((part.path for part in parts), verdict)
    return found


def _left_out(file: LeftOut) -> Verdict:
    words: dict[Why | str, str] = {
        "outside": "it is a link out of the directory",
        "empty": f"it is {file.content}" if file.content else "it is empty",
        "absent": "it does not exist, although a link or a document names it",
        "unreadable": "the operating system refuses to read it",
        "special": "it is a pipe, a socket or a device",
        "gone": "it was gone before it could be read",
        "changed": "it was emptied or replaced before it could be read; repeat the command",
        "other_format": f"its content is of {file.content}",
        "foreign": f"it is {file.content}" if file.content else "its content is of another type",
    }
    why = words.get(file.why, "it is not a trace of any known format")
    return Verdict(file.path, file.format, 0, {}, 0, (why,))


def _print(
    found: Sequence[Verdict], names: Sequence[SpanStatistics], console: Console | None
) -> None:
    from tailrace.cli.output.console import interval_words

    for each in found:
        of = f"its content is in {each.same_as}: " if each.same_as else ""
        click.echo(printable(f"{each.path}: {of}{each.text}"))
    if not found:
        click.echo("cannot be told, because there is no trace")
    if console and names:
        texts = ["name"] if all(each.unit == "ns" for each in names) else ["name", "unit"]
        words = [((*each.group, each.unit), interval_words(each)) for each in names]
        rows = [(*of[: len(texts)], *(its[figure] for figure in SHOWN)) for of, its in words]
        sys.stdout.flush()
        console.figures(texts, SHOWN, rows)
