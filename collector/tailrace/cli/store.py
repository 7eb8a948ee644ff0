"""What commands that read a store have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.options import GAPS
from tailrace.config.load import Loaded, store_path

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness
    from tailrace.query.engine import Engine
    from tailrace.query.filters import Selection
    from tailrace.query.live import Live


def open_store(loaded: Loaded, selection: Selection) -> tuple[Engine, Live]:
    """Ask the collector that runs on the store, if one does, and take a snapshot.

    Raise StoreError where there is no table, UnknownError for a selection that nothing can be in."""
    from tailrace.query.engine import Engine
    from tailrace.query.known import check
    from tailrace.query.live import look

    live = look(loaded.config)
    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    check(engine, selection, live)
    return engine, live


def say_incomplete(whole: Completeness) -> None:
    """Say on standard error what an answer lacks, if anything."""
    if not whole.complete:
        click.echo(f"tailrace: {whole.text}; {GAPS} says which", err=True)
