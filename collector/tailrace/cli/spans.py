"""Define `tailrace stats` and `tailrace diff`, which count and measure spans.

`stats` counts and measures spans by group. `diff` compares the spans of two runs, or of repeated runs; its exit code
reports whether a group grew by more than a threshold.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

import click

from tailrace.analysis.comparison import ANY_GROWTH, FAILURES, ChangeVerdict, FigureChange, summary
from tailrace.analysis.statistics import FIGURES, GroupKey, SpanStatistics, parse, statistics
from tailrace.cli import options
from tailrace.cli.commands import ExitCode, examples
from tailrace.config.load import Loaded
from tailrace.errors import QueryError, UnknownError
from tailrace.query.completeness import completeness
from tailrace.terminal import printable
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.analysis.blocks import MeasuredRun
    from tailrace.cli.output.console import Console
    from tailrace.reading.question import Filters


by_option = click.option(
    "--by",
    "words",
    metavar="KEY",
    multiple=True,
    default=["name"],
    show_default=True,
    help="Group by a column of `spans`, or by `attributes.KEY`; repeatable.",
)

NUMBERS = ("count", "open", "total", "self", "min", "p50", "p90", "p95", "p99", "max")


@click.command(
    epilog=examples(
        "tailrace stats --store ./store", "tailrace stats --store ./store --by source --by name"
    )
)
@options.reading_options
@options.json_option("Print one JSON object for each group.")
@options.window_options
@by_option
@click.option(
    "--no-self-time",
    "without",
    is_flag=True,
    help="Do not compute self time, which reads every span in order.",
)
@options.complete_option
def stats_command(
    words: tuple[str, ...],
    *,
    loaded: Loaded,
    filters: Filters,
    as_json: bool,
    without: bool,
    complete_only: bool,
) -> None:
    """Count and measure spans by name, or by other keys: the longest total first.

    Only spans that have ended have a duration; `open` counts the spans that have not. `self` is the time during which a
    span of the group is the innermost open span of its stream and substream. Percentiles are durations of actual spans,
    not interpolated.

    Where spans are missing, a figure is an interval: `4.1–4.3 ms`, `at least 4.1 ms`, or `cannot be told`. The true
    figure lies in the interval, whatever the missing spans were and to whichever group they belong. A name of which no
    event arrived has no line. A figure with one value is exact as far as losses are known, up to the printed digits.
    With --json, the numbers are those of the stored spans, and `bounds` has the least and the greatest value of each
    figure, as a list of two; null is unbounded.

    If the clock has no tick rate, durations are in ticks, and `unit` is `ticks`; with --json they are whole numbers of
    the unit. --since and --until select spans by their begin; they exclude spans without a wall time. The last line
    states whether events are missing; with --json, this is printed on standard error."""  # noqa: RUF002 - a range
    from tailrace.cli.output.console import Console

    by = parse(words)
    window = filters.window
    engine, live = options.open_store(loaded, window.selection)
    whole = completeness(engine, window.scope, live)
    if complete_only:
        whole.demand(options.GAPS)
    found = statistics(engine, window, whole, by, self_time=not without)
    console = Console(engine)
    texts = [*(key.word for key in by), "unit"]
    if as_json:
        rows = [
            (*each.group, each.unit, *each.seen, json.dumps(each.bounds, separators=(",", ":")))
            for each in found
        ]
        console.objects(texts, NUMBERS, rows, nested=["bounds"])
        options.warn_incomplete(whole)
        return
    console.figures(texts, NUMBERS, [_shown(each) for each in found])
    console.line(f"{counted(len(found), 'group')}; {whole.text}")


def _shown(each: SpanStatistics) -> tuple[str | int | None, ...]:
    from tailrace.cli.output.console import interval_words

    count, *durations = interval_words(each).values()
    return (*each.group, each.unit, count, each.open, *durations)


class Run(NamedTuple):
    word: str
    """The store or certificate of the run, as the user spelled it on the command line."""
    measured: MeasuredRun
    console: Console


def _sides(sources: tuple[str, ...], *given: Any) -> tuple[Filters, Filters]:  # noqa: ANN401 - as the options give them
    """Return the filters of the two sides A and B. `given` contains the values of five options for A, followed by those
    for B."""
    a, b = (
        options.filters_of(sources, sessions, (), *rest)
        for sessions, *rest in (given[:5], given[5:])
    )
    return a, b


sides_options = options.together(
    click.option(
        "--source", "sources", metavar="NAME", multiple=True, help="Take only this source."
    ),
    *(
        click.option(
            f"--session-{side}", metavar="ID", multiple=True,
            help=f"Take only these sessions of {side.upper()}.",
        )
        for side in "ab"
    ),
    *(
        click.option(
            f"--{limit}-{side}", type=options.Moment(),
            help=f"Take only spans of {side.upper()} that begin {when}.",
        )
        for side in "ab"
        for limit, when in (("since", "then or later"), ("until", "before this time"))
    ),
    *(
        click.option(
            f"--label-{side}", metavar="KEY=VALUE", multiple=True, callback=options.labels,
            help=f"Take only sessions of {side.upper()} with this label.",
        )
        for side in "ab"
    ),
    *map(options.job_options, "ab"),
    options.received_as(
        "sides", _sides,
        ("sources", *(f"{name}_{side}" for side in "ab" for name in ("session", "since", "until", "label", "job"))),
    ),
)  # fmt: skip
"""The options that select spans of the two sides A and B. The command's function gets the filters of both sides as
`sides`."""


class SidesCommand(click.Command):
    """A command whose operands are runs: those of A, `--`, and those of B. Without `--`, they are one run of A and one
    of B."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_OF_B] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


_OF_B = "tailrace.runs_of_b"


def _runs(
    context: click.Context, _argument: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the runs of A and those of B. Raise UsageError if they cannot be compared."""
    a, b = given, context.meta.get(_OF_B)
    if b is None:
        if len(a) > 2:
            raise click.UsageError("write `--` between the runs of A and those of B")
        a, b = a[:1], a[1:]
    if not a or not b:
        raise click.UsageError("name at least one run for A and one for B")
    if (len(a) == 1) != (len(b) == 1):
        raise click.UsageError("give one run on each side, or at least two on each side")
    option = next((word for word in b if word.startswith("-")), None)
    if option is not None:
        raise click.UsageError(f"write the option {option} before the runs, not behind `--`")
    return a, b


@click.command(
    cls=SidesCommand, epilog=examples("tailrace diff --figure p95 --threshold 10% ./before ./after")
)
@options.config_option
@options.json_option("Print one JSON object for each group.")
@sides_options
@by_option
@click.option(
    "--figure",
    type=click.Choice(list(FIGURES)),
    default="p95",
    show_default=True,
    help="The figure to compare.",
)
@click.option(
    "--name", "names", metavar="NAME", multiple=True, help="Compare only this group; repeatable."
)
@click.option(
    "--threshold",
    type=options.percentage,
    metavar="PERCENT",
    help="Exit with 1 if the figure of a group grew by more than this, as in 10%, or if a group is new, gone or unknown; "
    "exit with 3 if a group is undecided.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --threshold: write a JUnit report with one test case for each group, for CI systems.",
)
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option(
    "--exact",
    is_flag=True,
    help="Compare one run on each side as they are, as if nothing varied: for counts, and for simulated time.",
)
@options.complete_option
@click.argument(
    "paths",
    metavar="A... [--] B...",
    nargs=-1,
    callback=_runs,
    shell_complete=options.complete_files,
)
def diff_command(
    config: Path | None,
    paths: tuple[tuple[str, ...], tuple[str, ...]],
    words: tuple[str, ...],
    figure: str,
    names: tuple[str, ...],
    threshold: float | None,
    junit: Path | None,
    *,
    sides: tuple[Filters, Filters],
    as_json: bool,
    markdown: bool,
    exact: bool,
    complete_only: bool,
) -> None:
    """Compare the spans of two sides by name, or by other keys: those that grew most first.

    Give one run on each side (`diff A B`), or repeat the runs (`diff A1 A2 A3 -- B1 B2 B3`). A run is a store (directory
    or URL) or the certificate of a run. Both sides may be the same store with different sessions, ranks or times. The
    options that select spans of A apply to each run of A. The figure of repeated runs is their geometric mean. A group
    has the spans with the same name or keys.

    The change of a group is an interval that allows for noise and for missing events. Noise is by how much the repeated
    runs of each side differ among themselves. For one run on each side, it is estimated from the eighths of the run's
    time, except for `count`, which is compared as it is. `self`, `min` and `max` need repeated runs. The intervals of
    all groups together hold with a probability of 99 %.

    A verdict holds for the whole interval: the figure `grew` or `shrank` by more than the threshold (0 without
    --threshold), or it is the `same`: it changed by at most the threshold. Otherwise the group is `undecided`, with the
    reason. `noise`: the runs vary too much; more runs may decide. `loss`: missing events hide the answer. `few spans`:
    one run on each side needs 30 spans of the group, and 5 on either side of a percentile (100 for p95), spread over
    its time. `some runs`: only some of the repeated runs have the group. A group that only B has is `new`, and a group
    that only A has is `gone`, if nothing is missing from the other side; else it is `undecided`. A group whose spans
    are all still open in one run is `unknown`.

    With --threshold, the command fails if a group has the verdict `grew`, `new`, `gone` or `unknown`. Standard error
    names each of these groups, and each undecided group. If there is no group to compare, this is an error. The last
    lines state which events are missing from each run. With --json, `because` is the reason why a group is undecided,
    and `growth` has the ends of the interval: 0.1 is 10 percent more, and null is unbounded."""
    if junit is not None and threshold is None:
        raise click.UsageError("--junit needs --threshold, because a test case passes or fails")
    if markdown and as_json:
        raise click.UsageError("use --markdown or --json, not both")
    if junit is not None:
        # Remove the report of an earlier comparison. If this comparison fails, a reader could take the old report for
        # the new one.
        junit.unlink(missing_ok=True)
    if exact and len(paths[0]) > 1:
        raise click.UsageError("--exact needs one run on each side")
    by = parse(words)
    a, b = (
        [_read(config, path, by, filters, figure, demand=complete_only) for path in side]
        for side, filters in zip(paths, sides, strict=True)
    )
    found = _compared(a, b, figure, names, exact=exact)
    if threshold is not None and not any(each.growth is not None for each in found):
        given = " and ".join(" ".join(side) for side in paths)
        raise QueryError(f"no group has a {figure} in both {given}, so nothing was compared")
    report = DiffReport((a, b), found, [key.word for key in by], figure, threshold or 0.0)
    if junit is not None:
        junit.write_bytes(report.junit())
    report.print("json" if as_json else "markdown" if markdown else "table")
    if threshold is not None:
        raise SystemExit(report.judge())


def _read(
    config: Path | None,
    path: str,
    by: Sequence[GroupKey],
    chosen: Filters,
    figure: str,
    *,
    demand: bool,
) -> Run:
    """Read the spans of a store that `chosen` selects. If the user gave a certificate, use only the sessions of the
    certified run. With `demand`, raise an error if events are missing."""
    from tailrace.analysis.blocks import MeasuredRun
    from tailrace.cli.output.console import Console

    store, of_run = options.named_run(path)
    window = chosen._replace(session=chosen.session or of_run or None).window
    engine, live = options.open_store(options.load_config(config, store), window.selection)
    whole = completeness(engine, window.scope, live)
    if demand:
        whole.demand(f"{options.GAPS} --store {store}")
    return Run(path, MeasuredRun.read(engine, window, by, figure, whole), Console(engine))


def _compared(
    a: Sequence[Run], b: Sequence[Run], figure: str, names: Sequence[str], *, exact: bool
) -> list[FigureChange]:
    """Return the changes of the groups of spans with the given names or, without names, of all groups. Allow for noise,
    unless `exact` is set."""
    from tailrace.analysis.noise import RepeatedRuns, judged, judged_by_runs, repeated_changes

    sides = ([run.measured for run in side] for side in (a, b))
    before, after = (
        RepeatedRuns([run.statistics for run in side], [run.lacks for run in side])
        for side in sides
    )
    found = _named(repeated_changes(before, after, figure), names)
    if exact:
        return found
    if len(a) == 1:
        return judged(found, a[0].measured.evidence(), b[0].measured.evidence())
    return judged_by_runs(found, before, after, figure)


def _named(found: list[FigureChange], names: Sequence[str]) -> list[FigureChange]:
    """Return the changes of the groups of spans with the given names or, without names, of all groups. Raise
    UnknownError for a name that no group has."""
    known = {_of(each) for each in found}
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known)[:20]) or "none"
            raise UnknownError(f"there is no group {name!r} in either run; known: {listed}")
    return [each for each in found if not names or _of(each) in names]


def _of(change: FigureChange) -> str:
    return ", ".join("-" if value is None else value for value in change.group)


class DiffReport(NamedTuple):
    """The comparison of two sides, which `tailrace diff` prints as tables, JSON, Markdown or a JUnit report."""

    sides: tuple[Sequence[Run], Sequence[Run]]
    changes: Sequence[FigureChange]
    keys: Sequence[str]
    """The names of the keys by which spans are grouped, as users write them."""
    figure: str
    threshold: float

    def verdict(self, change: FigureChange) -> str:
        return change.verdict(self.threshold)

    def sentence(self, change: FigureChange) -> str:
        """Return a sentence with the verdict about a compared group of spans."""
        figure, group = self.figure, _of(change)
        run = "A" if change.before is None else "B"
        doubt = change.doubt(self.threshold)
        match self.verdict(change):
            case "new" | "gone" as verdict:
                text = f"{group} is {verdict}: {run} has no span of it"
            case "unknown" if change.elsewhere:
                text = f"{group} was not compared: its durations are in ns in one run, in ticks in the other"
            case "unknown":
                why = "in one run, none of its spans has ended"
                text = f"{figure} of {group} was not compared: {why}"
            case "undecided" if doubt == "some runs":
                text = f"{group} is undecided: only some runs of one side have spans of it"
            case "undecided" if change.absent:
                text = f"{group} is undecided: only some runs of one side have spans of it, and events of the others are missing"
            case "undecided" if change.before is None or change.after is None:
                text = f"{group} is undecided: {run} has no span of it, and events of {run} are missing"
            case "undecided" if doubt == "few spans":
                text = f"{figure} of {group} is undecided: too few spans to estimate noise; repeat the runs, or use --exact"
            case "undecided" if change.noise is not None and change.noise.doubt == "noise":
                text = f"{figure} of {group} is undecided: noise cannot be estimated from these runs; repeat the runs"
            case "undecided" if doubt is not None:
                text = f"{figure} of {group} is undecided {doubt.words}; change: {change.word}"
            case verdict:
                text = f"{figure} of {group} {verdict} by {change.word}"
        return text

    def judge(self) -> ExitCode:
        """Name on standard error each group of spans whose verdict is a failure or `undecided`. Return the exit
        code."""
        for each in self.changes:
            if self.verdict(each) in (*FAILURES, ChangeVerdict.UNDECIDED):
                click.echo(printable(f"tailrace: {self.sentence(each)}"), err=True)
        verdicts = {self.verdict(each) for each in self.changes}
        if not verdicts.isdisjoint(FAILURES):
            return ExitCode.FAILED
        return ExitCode.INCOMPLETE if ChangeVerdict.UNDECIDED in verdicts else ExitCode.GOOD

    def print(self, form: Literal["table", "markdown", "json"]) -> None:
        """Print the compared groups of spans, the number of groups with each verdict, and what is missing from each
        run."""
        if form == "json":
            self._print_json()
            return
        total = counted(len(self.changes), "group")
        counts = summary(self.changes, self.threshold)
        lines = [f"{total}: {counts}" if counts else total, *self._missing()]
        if len(self.sides[0]) == 1 and any(each.noise for each in self.changes):
            lines.append(
                "one run on each side cannot show noise that lasts as long as a run; repeat the runs to be sure"
            )
        console = self.sides[0][0].console
        if form == "table":
            console.figures([*self.keys, "unit", "verdict"], self._numbers, self._rows)
        else:
            self._print_markdown()
        for line in lines:
            console.line(line if form == "table" else f"\n{_escaped(line)}")

    def _print_json(self) -> None:
        names = ["count_a", "count_b", f"{self.figure}_a", f"{self.figure}_b"]
        rows = []
        for each in self.changes:
            bounds = json.dumps(dict(zip("ab", each.bounds, strict=True)), separators=(",", ":"))
            head = (
                *each.group,
                each.unit,
                self.verdict(each),
                each.doubt(self.threshold),
                each.word,
            )
            # JSON has no infinity.
            ends = [
                None if end is None or math.isinf(end) else end
                for end in each.growths or ANY_GROWTH
            ]
            growth = json.dumps(ends)
            rows.append((*head, *_counts(each), each.from_, each.to, bounds, growth))
        texts = [*self.keys, "unit", "verdict", "because", "change"]
        console = self.sides[0][0].console
        console.objects(texts, names, rows, nested=["bounds", "growth"])
        for line in self._missing():
            click.echo(f"tailrace: {line}", err=True)

    def _print_markdown(self) -> None:
        console = self.sides[0][0].console
        headings = [*self.keys, "unit", "verdict", *self._numbers]
        for row in (headings, *self._rows):
            cells = ("-" if cell is None else _escaped(printable(str(cell))) for cell in row)
            console.line("| " + " | ".join(cells) + " |")
            if row is headings:
                console.line("|" + " --- |" * len(headings))

    def junit(self) -> bytes:
        """Return a JUnit report with a test for each group of spans: the test fails if the group's verdict is a
        failure, and is skipped if the verdict is undecided."""
        suite = ElementTree.Element("testsuite", name=f"tailrace diff {self.figure}")
        counts = {"failure": 0, "skipped": 0}
        for each in self.changes:
            case = ElementTree.SubElement(suite, "testcase", classname=self.figure)
            unit = "" if each.unit == "ns" else f" ({each.unit})"
            case.set("name", printable(_of(each) + unit))
            verdict, kind = self.verdict(each), ""
            if verdict in FAILURES or verdict == "undecided":
                kind = "skipped" if verdict == "undecided" else "failure"
                counts[kind] += 1
                ElementTree.SubElement(case, kind, message=printable(self.sentence(each)))
        suite.set("tests", str(len(self.changes)))
        suite.set("failures", str(counts["failure"]))
        suite.set("skipped", str(counts["skipped"]))
        report: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
        return report

    @property
    def _numbers(self) -> list[str]:
        counts = [] if self.figure == "count" else ["count a", "count b"]
        return [*counts, f"{self.figure} a", f"{self.figure} b", "change"]

    @property
    def _rows(self) -> list[tuple[str | int | None, ...]]:
        from tailrace.cli.output.console import interval_words

        rows = []
        for each in self.changes:
            doubt = each.doubt(self.threshold)
            verdict = self.verdict(each) if doubt is None else f"{self.verdict(each)}: {doubt}"
            sides = (each.before, each.after)
            figures = (side and interval_words(side)[self.figure] for side in sides)
            counts = () if self.figure == "count" else _counts(each)
            rows.append((*each.group, each.unit, verdict, *counts, *figures, each.word))
        return rows

    def _missing(self) -> list[str]:
        """Return a phrase for each run that states what is missing from it."""
        return [
            printable(f"{letter} {run.word}: {run.measured.whole.text}")
            for letter, side in zip("AB", self.sides, strict=True)
            for run in side
        ]


def _counts(change: FigureChange) -> tuple[int | None, int | None]:
    """Return how many ended spans of the compared group each of the two runs has."""
    before, after = (side and side.ended for side in (change.before, change.after))
    return before, after


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", text)


_MARKDOWN = re.compile(r"[\\`*_<>\[\]|]")
