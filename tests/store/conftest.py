"""Make real tables in temporary directories, and read what tests need from them."""

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
    """Return a function: `numbered(stream, first, rows)` is a batch of rows with consecutive seq."""
    return WRITER.numbered


@pytest.fixture
def arrow():
    """Return a function:

    `arrow(batch)` has the batch's rows as another writer of the table would pass them to the library.
    """
    return lambda batch: pa.concat_tables(map(with_day, to_arrow(batch)))


@pytest.fixture
def store(tmp_path):
    """Return the path of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def root(store):
    """Return the directory of the table in this store."""
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
    """Stores that were written before, by their content. Each is made once."""

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
    """Return a function that opens a table of commits, with the given number of rows each.

    Commit n has the version and the position n.
    """

    def write(commits, rows):
        shutil.copytree(_written_stores(commits, rows), store)
        return open_table()

    return write


@pytest.fixture
def say_schema(root):
    """Set the version of the schema that the table states."""

    def say(version):
        DeltaTable(str(root)).alter.set_table_properties(
            {VERSION_PROPERTY: str(version)},
            raise_if_not_exists=False,
            post_commithook_properties=NO_HOOKS,
        )

    return say


@pytest.fixture
def seqs(root):
    """Return the seq of every row in the table (or of one stream), in no particular order."""

    def read(stream=None, *, at=root, options=None):
        predicate = None if stream is None else f"stream = '{stream}'"
        table = DeltaTable(str(at), storage_options=options)
        batches = table.scan(columns=["seq"], predicate=predicate)
        found = (seq for batch in batches for seq in batch.column("seq").to_pylist())
        return sorted(seq for seq in found if seq is not None)  # Rows of gaps have no seq.

    return read


@pytest.fixture
def s3():
    """Return an object store at `options`. It can be told to `misbehave`."""
    with S3_SERVER.RunningS3() as server:
        yield server


class SettableClock(SystemClock):
    """A clock whose wall time is what it was set to."""

    def __init__(self):
        self.now = 1_800_000_000 * 10**9

    def wall_ns(self):
        return self.now


@pytest.fixture
def clock():
    return SettableClock()
