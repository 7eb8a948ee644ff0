"""The stores of a job's nodes: found below directories, at rest, and with all that was received in their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import structs

from tailrace.chosen import choose
from tailrace.clock import Clock
from tailrace.config.load import own_part
from tailrace.config.schema import MAIN, HeartbeatConfig, JobConfig
from tailrace.errors import StoreError
from tailrace.run.ranks import NAME as RANKS, NodeBegan, read
from tailrace.run.service import read_rest
from tailrace.run.surroundings import tails_of_node
from tailrace.store import presence
from tailrace.store.layout import TABLE_NAME


def found(directories: Iterable[Path]) -> list[Path]:
    """Return the stores that these directories are, or have right below them. Raise StoreError for one without any."""
    stores: dict[Path, None] = {}
    for directory in directories:
        below = (
            [directory] if _is_store(directory) else sorted(filter(_is_store, _below(directory)))
        )
        if not below:
            raise StoreError(f"{directory}: there is no store in it")
        stores |= dict.fromkeys(path.resolve() for path in below)
    return list(stores)


def finish(store: Path, config: Path | None, clock: Clock) -> bool:
    """Bring all that killed collectors had received into the table. Return whether that was to do.

    Raise StoreError while a collector runs on the store."""
    try:
        directories = presence.directories(store)
    except OSError as error:
        raise StoreError(f"{store}: {error.strerror}") from error
    for name, directory in directories.items():
        if presence.is_held(directory):
            which = "a collector" if name == MAIN else f"collector {name}"
            raise StoreError(f"{store}: {which} still runs on it")
    left = [name for name, directory in directories.items() if not presence.is_finished(directory)]
    for name in left:
        _finish(store, name, config, clock)
    return bool(left)


def _finish(store: Path, name: str, config: Path | None, clock: Clock) -> None:
    """Run a collector once more. The files of a job's node belong to `main`; where there are none, it ends all the same."""
    loaded = choose(config, str(store))
    began = [line for line in read(store) if isinstance(line, NodeBegan)]
    job = JobConfig(id=began[-1].job, node=began[-1].node) if began else loaded.config.job
    config_ = structs.replace(
        loaded.config, collector=structs.replace(loaded.config.collector, name=name),
        sources=tails_of_node(own_part(store, name) / "traces"), job=job,
        heartbeat=HeartbeatConfig(interval=None),
    )  # fmt: skip
    read_rest(loaded, config_, clock, last=True)


def _is_store(path: Path) -> bool:
    """Return whether a directory has a table, or a collector that was killed before it made one."""
    return (path / TABLE_NAME / "_delta_log").is_dir() or (path / RANKS).exists()


def _below(directory: Path) -> Iterator[Path]:
    try:
        yield from (path for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror}") from error
