"""Open a store, as all commands that read it do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tailrace.cli.options import GAPS
from tailrace.config.load import Loaded, store_path

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness
    from tailrace.query.engine import Engine
    from tailrace.query.filters import Selection
    from tailrace.query.limits import Limits
    from tailrace.query.live import Live


class NamedRun(NamedTuple):
    """A store, None for that of the configuration, and the sessions of a run in it, none for all."""

    store: str | None
    sessions: tuple[str, ...]


def named_run(path: str) -> NamedRun:
    """Return what a path names: a store (directory or URL), or the run of a certificate. Raise StoreError."""
    if "://" in path or not Path(path).is_file():
        return NamedRun(path, ())
    from tailrace.job import certificate as jobs
    from tailrace.run import certificate as certificates

    certificate = (
        jobs.read(Path(path)) if jobs.is_job(Path(path)) else certificates.read(Path(path))
    )
    return NamedRun(
        certificate.store, tuple(sorted({each.session for each in certificate.streams}))
    )


def open_store(
    loaded: Loaded, selection: Selection, *, limits: Limits | None = None, room: str | None = None
) -> tuple[Engine, Live]:
    """Take a snapshot, and ask a running collector which events of it are still awaited.

    `limits` and `room` are passed to the Engine. Raise StoreError without a table, UnknownError for a
    selection that matches nothing."""
    from tailrace.query.engine import Engine
    from tailrace.query.live import beside, look
    from tailrace.query.unknown_names import check

    store = store_path(loaded.config)
    engine = Engine(store, loaded.config.store.options, limits, room=room)
    live = beside(engine, lambda: look(loaded.config))
    check(engine, selection, live)
    return engine, live


def say_incomplete(whole: Completeness) -> None:
    """Print on standard error what an answer lacks, if anything."""
    if not whole.complete:
        click.echo(f"tailrace: {whole.text}; {GAPS} says which", err=True)
