"""Real tables in temporary directories, and what tests ask them."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store.data_files import to_arrow, with_day
from tailrace.store.durable import NO_HOOKS
from tailrace.store.schema import VERSION_PROPERTY
from tailrace.store.table import Table


def _load(name):
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = _load("writer")
S3_SERVER = _load("s3_server")


@pytest.fixture
def numbered():
    """`numbered(stream, first, rows)`: a batch of rows with consecutive seq."""
    return WRITER.numbered


@pytest.fixture
def arrow():
    """`arrow(batch)`: its rows as another writer of the table would give them to the library."""
    return lambda batch: pa.concat_tables(map(with_day, to_arrow(batch)))


@pytest.fixture
def store(tmp_path):
    """The path of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def root(store):
    """The directory of the table in it."""
    return store / "events"


def _open(
    path, collector="one", *, options=None, config=None, clock=None, refills=lambda _: True, **more
):
    return Table.open(
        str(path),
        options=options or {},
        collector=collector,
        config=config or StoreConfig(),
        clock=clock or SystemClock(),
        refills=refills,
        **more,
    )


@pytest.fixture
def open_table(store):
    """Open the table in `store` as a collector."""

    def open_(collector="one", *, path=store, **options):
        return _open(path, collector, **options)

    return open_


@pytest.fixture(scope="session")
def _written_stores(tmp_path_factory):
    """Stores by what was written to them, each made once."""

    @cache
    def make(commits, rows):
        path = tmp_path_factory.mktemp("written") / "store"
        table = _open(path)
        for number in range(commits):
            WRITER.commit(table, WRITER.numbered("s", number * rows, rows), number + 1)
        return path

    return make


@pytest.fixture
def write_table(_written_stores, store, open_table):
    """A function that opens a table of commits (version and position number n), of so many rows each."""

    def write(commits, rows):
        shutil.copytree(_written_stores(commits, rows), store)
        return open_table()

    return write


@pytest.fixture
def say_schema(root):
    """Let the table say that it is of this version of the schema."""

    def say(version):
        DeltaTable(str(root)).alter.set_table_properties(
            {VERSION_PROPERTY: str(version)},
            raise_if_not_exists=False,
            post_commithook_properties=NO_HOOKS,
        )

    return say


@pytest.fixture
def seqs(root):
    """The seq of every row in the table (of one stream), in no order that means anything."""

    def read(stream=None, *, at=root, options=None):
        predicate = None if stream is None else f"stream = '{stream}'"
        table = DeltaTable(str(at), storage_options=options)
        batches = table.scan(columns=["seq"], predicate=predicate)
        found = (seq for batch in batches for seq in batch.column("seq").to_pylist())
        return sorted(seq for seq in found if seq is not None)  # of no gap

    return read


@pytest.fixture
def s3():
    """An object store at `options`, which can be told to `misbehave`."""
    with S3_SERVER.RunningS3() as server:
        yield server


class SettableClock(SystemClock):
    """Wall time stands where it is put."""

    def __init__(self):
        self.now = 1_800_000_000 * 10**9

    def wall_ns(self):
        return self.now


@pytest.fixture
def clock():
    return SettableClock()
