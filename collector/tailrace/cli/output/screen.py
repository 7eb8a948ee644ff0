"""Show overviews of collectors: on the whole screen of a terminal, as consecutive pages, or as JSON."""

from __future__ import annotations

import math
import shutil
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from tailrace.cli.output import console
from tailrace.cli.output.console import spell_bytes, spell_seconds
from tailrace.config.schema import MAIN
from tailrace.overview import Overview, SourceOverview
from tailrace.query.output import layout, wrap
from tailrace.terminal import in_colour, printable, unguarded
from tailrace.units import counted

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Control sequences of a terminal: switch to the second screen and hide the cursor, and reverse this."""

HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

TEXTS = ("source", "format")
NUMBERS = (
    "open", "streams", "rows", "rows/s", "received/s", "missing", "awaited", "malformed", "behind",
)  # fmt: skip
"""Names of the columns that contain numbers, in the table of a collector's sources."""

SPARE = ("trend", "format", "streams", "received/s", "open", "awaited", "malformed")
"""Names of columns that a narrow terminal leaves out, in this order."""

TREND_CELLS = 20
"""Number of past rates of a source that the whole screen shows as bars."""

BARS = " ▁▂▃▄▅▆▇█"


Trends = dict[str, deque[float]]
"""By source of one collector, the last `TREND_CELLS` rates (rows per second)."""


class Answered(NamedTuple):
    """The latest overview of a collector. If the collector has not answered since, `problem` is the reason, and the
    overview contains no rates."""

    overview: Overview
    problem: str = ""


Show = Callable[[Sequence[Answered]], None]
"""Function that prints the overviews of all collectors of a store."""


def print_objects(seen: Sequence[Answered]) -> None:
    for each in seen:
        sys.stdout.buffer.write(msgspec.json.encode(each.overview) + b"\n")
    sys.stdout.buffer.flush()


def print_pages(seen: Sequence[Answered]) -> None:
    """Print the overview of each collector and an empty line after it. On a terminal, no line is wider than the
    terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for each in seen:
        lines = [*page(each, width=width, bold=False), ""]
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
    sys.stdout.buffer.flush()


@contextmanager
def whole_screen() -> Iterator[Show]:
    """Switch to the terminal's second screen until the end of the `with` block. Yield a function that draws overviews
    there, each over the previous one."""
    terminal = unguarded(sys.stdout)
    trends: defaultdict[str, Trends] = defaultdict(
        lambda: defaultdict(lambda: deque(maxlen=TREND_CELLS))
    )

    def show(seen: Sequence[Answered]) -> None:
        width, height = shutil.get_terminal_size()
        lines: list[str] = []
        for each in seen:
            trend = trends[each.overview.collector]
            for source in each.overview.sources:
                trend[source.source].append(source.rows_per_second or 0.0)
            more = page(each, trend, width=width, bold=in_colour(sys.stdout))
            lines += ["", *more] if lines else more
        if len(lines) > height:
            hidden = counted(len(lines) - height + 1, "more line")
            lines = [*lines[: height - 1], f"{hidden}: enlarge the terminal"]
        text = "\n".join(line + REST_OF_LINE for line in lines)
        terminal.write(f"{HOME}{text}{REST_OF_SCREEN}")
        terminal.flush()

    terminal.write(ENTER)
    try:
        yield show
    finally:
        terminal.write(LEAVE)
        terminal.flush()


def page(
    seen: Answered, trends: Trends | None = None, *, width: int | None, bold: bool
) -> list[str]:
    """Return the lines of one collector's overview: its state, its problems, and a table of its sources. Lines have at
    most `width` terminal cells; None means no limit."""
    strong = console.bold if bold else str
    lines = [part for line in _heading(seen.overview) for part in _wrapped(line, width)]
    lines += [strong(part) for line in _problems(seen) for part in _wrapped(line, width)]
    names = [*TEXTS, *NUMBERS, *(["trend"] if trends is not None else [])]
    columns = console.columns(names, NUMBERS)
    rows = [_cells(source, trends) for source in seen.overview.sources]
    return [*lines, "", *layout(columns, [rows], width=width, heading=strong, spare=SPARE)]


def _heading(seen: Overview) -> Iterator[str]:
    up = spell_seconds(seen.uptime_seconds)
    name = "" if seen.collector == MAIN else f"collector {seen.collector}, "
    yield f"{seen.state}: {name}process {seen.pid}, up {up}, version {seen.version}, kernels {seen.kernels}, {seen.store}"
    commit = "no commit since the last answer"
    if seen.commit_seconds is not None:
        commit = f"a commit takes {spell_seconds(seen.commit_seconds)}"
    rate = "" if (rows := seen.rows_committed_per_second) is None else f" ({rows:,.0f}/s)"
    yield (
        f"{counted(seen.rows_committed, 'row', grouped=True)} committed{rate}; {commit}; {spell_bytes(seen.uncommitted_bytes)}"
        f" not committed; {spell_bytes(seen.state_bytes)} of state"
    )


def _problems(seen: Answered) -> Iterator[str]:
    if seen.problem:
        yield f"no answer, so these figures are old: {seen.problem}"
    if seen.overview.failure:
        yield f"failed: {seen.overview.failure}"
    for name, text in seen.overview.conditions.items():
        yield f"{name}: {text}"


def _cells(source: SourceOverview, trends: Trends | None) -> tuple[str | None, ...]:
    missing = f"{source.missing_events:,}"
    if not source.missing_is_known:
        missing += " or more"
    rows, received = source.rows_per_second, source.received_bytes_per_second
    cells = (
        source.source, source.format, f"{source.open:,}", f"{source.streams:,}", f"{source.rows:,}",
        None if rows is None else f"{rows:,.0f}",
        None if received is None else spell_bytes(received),
        missing, f"{source.awaited_events:,}", f"{source.malformed_records:,}",
        spell_bytes(source.behind_bytes),
    )  # fmt: skip
    return cells if trends is None else (*cells, _trend(trends[source.source]))


def _trend(rates: Sequence[float]) -> str:
    """Return a bar for each rate, whose height is the rate's share of the greatest rate. A rate above zero has a
    visible bar."""
    greatest = max(rates, default=0.0) or 1.0
    return "".join(BARS[math.ceil(rate / greatest * (len(BARS) - 1))] for rate in rates)


def _wrapped(line: str, width: int | None) -> list[str]:
    return wrap(printable(line).split(" "), width)
