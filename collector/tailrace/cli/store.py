"""Open a store, as all commands that read it do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.options import GAPS
from tailrace.config.load import Loaded, store_path

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness
    from tailrace.query.engine import Engine
    from tailrace.query.filters import Selection
    from tailrace.query.limits import Limits
    from tailrace.query.live import Live


def open_store(
    loaded: Loaded, selection: Selection, *, limits: Limits | None = None, room: str | None = None
) -> tuple[Engine, Live]:
    """Take a snapshot, and ask a running collector which events of it are still awaited.

    `limits` and `room` are passed to the Engine. Raise StoreError without a table, UnknownError for a
    selection that matches nothing."""
    from tailrace.query.engine import Engine
    from tailrace.query.known import check
    from tailrace.query.live import beside, look

    store = store_path(loaded.config)
    engine = Engine(store, loaded.config.store.options, limits, room=room)
    live = beside(engine, lambda: look(loaded.config))
    check(engine, selection, live)
    return engine, live


def say_incomplete(whole: Completeness) -> None:
    """Print on standard error what an answer lacks, if anything."""
    if not whole.complete:
        click.echo(f"tailrace: {whole.text}; {GAPS} says which", err=True)
