"""Write a command's results to standard output, and all other messages to standard error.

Results are UTF-8 in every locale. On a terminal, a table is fitted to the terminal's width.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from tailrace.query import output
from tailrace.query.answer import AnswerColumn, Page, RowAnswer, Shape
from tailrace.query.engine import Engine
from tailrace.query.patience import Patience
from tailrace.query.statement import Parameters
from tailrace.terminal import in_colour, unguarded
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.analysis.statistics import SpanStatistics


class Console:
    """Runs queries and prints their results on standard output. Its methods raise the exceptions of `Engine`. They also
    raise BrokenPipeError if nobody reads the output any more, and KeyboardInterrupt on Ctrl-C."""

    def __init__(self, engine: Engine) -> None:
        self.out: BinaryIO = sys.stdout.buffer
        self.terminal = sys.stdout.isatty()
        self._engine = engine
        self._patience = Patience(engine, unguarded(sys.stderr) if sys.stderr.isatty() else None)

    def ask(self, sql: str, parameters: Parameters = ()) -> tuple[RowAnswer, Iterator[Page]]:
        """Run a query. Return an answer that has the columns of the result, and an iterator over its pages of rows. The
        method `table` prints columns and pages."""
        answer = self._patience.make(lambda: self._engine.ask(sql, parameters=parameters))
        return answer, self._patience.pages(answer)

    def table(
        self, shown: Sequence[AnswerColumn], pages: Iterable[Page], *, spare: Sequence[str] = ()
    ) -> None:
        """Print rows as a table with the columns `shown`. If the terminal is too narrow, leave out some of the columns
        in `spare`, in the order in which `spare` names them."""
        width = shutil.get_terminal_size().columns if self.terminal else None
        heading = bold if in_colour(sys.stdout) else str
        for line in output.layout(shown, pages, width=width, heading=heading, spare=spare):
            self.line(line)
        self.out.flush()

    def rows(self, shown: Sequence[AnswerColumn], pages: Iterable[Page]) -> None:
        """Print rows as a table. If there are none, also print "0 rows": a heading alone could be mistaken for an
        error."""
        rest = iter(pages)
        first = next(rest, [])
        self.table(shown, chain([first], rest))
        if not first:
            self.line(counted(0, "row"))
            self.out.flush()

    def line(self, text: str) -> None:
        self.out.write(f"{text}\n".encode())

    def json(self, sql: str, parameters: Parameters = (), more: Page | None = None) -> None:
        """Run a query and print its rows as JSON objects. Then print the rows `more`, which have the same columns."""
        answer = self._patience.make(
            lambda: self._engine.ask(sql, Shape.JSON, parameters=parameters)
        )
        pages = chain(self._patience.pages(answer), [more or []])
        output.write_json(answer.columns, pages, self.out)

    def figures(self, texts: Sequence[str], numbers: Sequence[str], rows: Page) -> None:
        """Print rows that do not come from a query as a table: first the columns with texts, then those with numbers."""
        self.rows(columns([*texts, *numbers], numbers), [rows])

    def objects(
        self, texts: Sequence[str], numbers: Sequence[str], rows: Page, nested: Sequence[str] = ()
    ) -> None:
        """Print rows that do not come from a query as JSON objects: first the members that contain texts, then numbers,
        then nested JSON."""
        names = [*texts, *numbers, *nested]
        output.write_json(columns(names, numbers, nested), [rows], self.out)

    def csv(self, sql: str, *, safe: bool = False) -> None:
        answer, pages = self.ask(sql)
        output.write_csv(answer.columns, pages, self.out, safe=safe)

    def arrow(self, sql: str) -> None:
        answer = self._patience.make(lambda: self._engine.ask_arrow(sql))
        output.write_arrow(answer.schema, self._patience.batches(answer), self.out)


def columns(
    names: Sequence[str], numbers: Collection[str], nested: Collection[str] = ()
) -> list[AnswerColumn]:
    """Return the columns of a table that does not come from a query. All columns but those in `numbers` and `nested`
    (JSON) contain texts."""
    types = dict.fromkeys(numbers, "BIGINT") | dict.fromkeys(nested, "JSON")
    shape = Shape.JSON if nested else Shape.TEXT
    return [AnswerColumn(i, n, types.get(n, "VARCHAR"), shape) for i, n in enumerate(names)]


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def spell(duration: int, unit: str) -> str:
    """Return a duration in nanoseconds as text, such as "1.234 ms". If `unit` is not "ns", the duration is in ticks:
    return the number alone."""
    if unit != "ns":
        return str(duration)
    for word, worth in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        value = duration / worth
        if abs(value) >= 1:
            # The format `.4g` would print a large number with an exponent.
            return f"{value:.0f} {word}" if abs(value) >= 1000 else f"{value:.4g} {word}"
    return f"{duration} ns"


def interval_words(each: SpanStatistics) -> dict[str, str | None]:
    """Return each figure of a group of spans as text: the interval in which its true value lies, which is a single
    value if no span is missing."""
    return {
        figure: interval
        and interval.words(partial(spell, unit=each.unit if figure != "count" else ""))
        for figure, interval in each.bounds.items()
    }


def spell_bytes(amount: float) -> str:
    """Return a number of bytes as text, such as "1.23 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(amount) < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{_digits(amount)} {unit}"
        amount /= 1000
    return f"{_digits(amount)} TB"


def spell_seconds(amount: float) -> str:
    """Return a duration (seconds) as text, such as "1.23 s". The smallest unit is a microsecond."""
    for unit, worth in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if amount >= worth:
            return f"{_digits(amount / worth)} {unit}"
    return f"{amount * 1e6:.0f} us"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
