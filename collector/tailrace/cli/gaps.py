"""`tailrace gaps`: what is missing, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import config_option, load_config, store_option
from tailrace.config.load import store_path

if TYPE_CHECKING:
    from tailrace.query.answer import Page

COLUMNS = (
    "source", "session", "stream", "reason", "detail", "first", "last", "count", "remaining", "id",
)  # fmt: skip
REASON, REMAINING = COLUMNS.index("reason"), COLUMNS.index("remaining")


@click.command()
@config_option
@store_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a gap, all columns.")
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option("--session", metavar="ID", help="Only sessions whose id begins so.")
@click.option("--all", "everything", is_flag=True, help="Also what came after all.")
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    source: str | None,
    session: str | None,
    everything: bool,
) -> None:
    """What is missing: one line a gap, net of what came after all.

    `detail` is how it is known; `first` and `last` are the producer's own numbers, where it has any. A
    dash as `count` means that nobody knows how much is missing.
    """
    loaded = load_config(config, store)

    from tailrace.query.console import Console
    from tailrace.query.engine import Engine
    from tailrace.query.filters import chosen
    from tailrace.query.views import GAPS

    view = "all_gaps" if everything else "gaps"
    condition = chosen(source=source, session=session)
    selection = f"FROM {view} WHERE {condition.sql} ORDER BY {GAPS.order}"
    console = Console(Engine(store_path(loaded.config), loaded.config.store.options))
    if as_json:
        console.json(f"SELECT * {selection}", condition.values)
        return
    columns = (*COLUMNS, "healed") if everything else COLUMNS
    answer, pages = console.ask(f"SELECT {', '.join(columns)} {selection}", condition.values)
    totals = Totals()
    lines = totals.adding(pages)
    if (first := next(lines, None)) is None:
        console.line("no gaps: nothing is known to be missing")
        return
    console.table(answer.columns, chain([first], lines))
    console.line(totals.text())


class Totals:
    """Sums over the lines of the table, as they go by."""

    def __init__(self) -> None:
        self.gaps = self.unknown = 0
        self.missing: Counter[str] = Counter()

    def adding(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            for row in page:
                self.gaps += 1
                self.unknown += row[REMAINING] is None
                self.missing[row[REASON]] += row[REMAINING] or 0
            yield page

    def text(self) -> str:
        from tailrace.query.completeness import Completeness

        return f"{self.gaps} gaps: {Completeness(self.missing, self.unknown).text}"
