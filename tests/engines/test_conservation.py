"""The statement of `docs/howto/conservation.sql` returns no row for a table as Tailrace writes it, and a row once the table was changed.
Two engines that are not ours agree on each answer."""

from __future__ import annotations

import json
import socket

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.decoding.test_conformance import VECTORS
from tests.docs.pages import ROOT
from tests.ingest.log import heph_event, heph_goodbye, heph_session
from tests.program import COMMAND, run
from tests.system.collector import Collector

STATEMENT = (ROOT / "docs/howto/conservation.sql").read_text()


def violations(table):
    """Return the statement's answer for a Delta table, on which both engines must agree."""
    delta = DeltaTable(table)
    with duckdb.connect() as connection:
        files = connection.read_parquet(delta.file_uris(), hive_partitioning=True)
        files.create_view("events")
        found = connection.sql(STATEMENT).fetchall()
    theirs = QueryBuilder().register("events", delta).execute(STATEMENT).read_all()
    assert [tuple(row.values()) for row in pa.table(theirs).to_pylist()] == found
    return found


def accounts(rows):
    return [
        json.loads(row["attributes"])["account"]
        for row in rows.to_pylist()
        if row["kind"] == "session" and '"account":{' in (row["attributes"] or "")
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of the vectors of all formats, with their damage, losses and copies."""
    store = tmp_path_factory.mktemp("files") / "store"
    done = run([*COMMAND, "import", "--store", str(store), str(VECTORS)], capture_output=True)
    assert done.returncode == 1  # some vectors are no traces
    return str(store / "events")


@pytest.fixture(scope="module")
def connections(tmp_path_factory):
    """A table of connections with lost, late, doubled and unreadable events, of a collector that was killed."""
    root = tmp_path_factory.mktemp("connections")
    collector = Collector(root)
    numbers = [n for n in range(400) if n % 9] + [7, 7, 8, *range(18, 360, 18)]
    try:
        collector.start()
        for part in (numbers[:250], numbers[250:]):
            with socket.create_connection(collector.address("tcp")) as sock:
                sock.sendall(b"".join(heph_event(1, number) for number in part) + b"\0" * 100)
                collector.settle()
                collector.kill()
                collector.start()
        for part in ([0, 1, 3], [2, 3, 5]):  # of a client that takes leave twice
            with socket.create_connection(collector.address("tcp")) as sock:
                events = b"".join(heph_event(1, number) for number in part)
                sock.sendall(heph_session(1) + events + heph_goodbye({1: 4}))
                collector.settle()
        collector.stop()
    finally:
        collector.end()
    return str(root / "store/events")


def test_the_table_of_files_conserves(files):
    rows = DeltaTable(files).to_pyarrow_table()
    found = accounts(rows)
    assert len(found) > 300
    assert sum(each["missing"] for each in found) > 300
    assert sum(each["duplicates"] for each in found) > 3
    assert violations(files) == []


def test_the_table_of_connections_conserves(connections):
    rows = DeltaTable(connections).to_pyarrow_table()
    assert {"gap", "span"} <= set(rows["kind"].to_pylist())
    assert len(accounts(rows)) >= 4
    assert violations(connections) == []


def first(rows, condition, number=0):
    """Return the place of a row for which an SQL-like condition on two columns holds."""
    return pc.indices_nonzero(condition)[number].as_py()


def without(rows, place):
    return pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])


def changed(rows, place, **columns):
    (row,) = rows.slice(place, 1).to_pylist()
    return pa.concat_tables(
        [without(rows, place), pa.Table.from_pylist([row | columns], schema=rows.schema)]
    )


def twice(rows, place):
    return pa.concat_tables([rows, rows.slice(place, 1)])


def spans(rows):
    return pc.equal(rows["kind"], "span")


def gaps(rows):
    return pc.and_kleene(pc.equal(rows["kind"], "gap"), pc.greater(rows["missing"], 0))


def heals(rows):
    return pc.and_kleene(
        pc.equal(rows["kind"], "heal"),
        pc.invert(pc.match_substring(rows["attributes"], '"found_by"')),
    )


def closes(rows):
    return pc.and_(pc.equal(rows["kind"], "session"), pc.equal(rows["name"], "close"))


def tail(rows):
    """Leave out the span of a stream that has the highest number: no other row shows that there was one."""
    numbered = rows.filter(pc.and_(spans(rows), pc.is_valid(rows["seq"])))
    session = numbered["session"][0]
    ours = pc.and_(pc.equal(rows["session"], session), spans(rows))
    last = pc.max(rows.filter(ours)["seq"])
    return rows.filter(
        pc.invert(pc.and_(ours, pc.fill_null(pc.equal(rows["seq"], last), fill_value=False)))
    )


def moved(rows):
    """Move a span to another session that has an account."""
    place = first(rows, spans(rows))
    other = rows.filter(closes(rows))["session"].to_pylist()
    mine = rows["session"][place].as_py()
    return changed(rows, place, session=next(name for name in other if name != mine))


def emptied(rows):
    """Leave out all rows of a session but its account."""
    mine = rows["session"][first(rows, spans(rows))]
    return rows.filter(pc.or_(closes(rows), pc.not_equal(rows["session"], mine)))


def of_account(rows, key):
    """Count one more in the account of a session."""
    place = first(
        rows, pc.fill_null(pc.match_substring(rows["attributes"], '"account":{'), fill_value=False)
    )
    about = json.loads(rows["attributes"][place].as_py())
    about["account"][key] += 1
    return changed(rows, place, attributes=json.dumps(about, separators=(",", ":")))


BREAKS = {
    "a span is gone": lambda rows: without(rows, first(rows, spans(rows), 5)),
    "the newest event of a stream is gone": tail,
    "a span is there twice": lambda rows: twice(rows, first(rows, spans(rows), 5)),
    "a span is in another session": moved,
    "a gap is gone": lambda rows: without(rows, first(rows, gaps(rows))),
    "a gap is there twice": lambda rows: twice(rows, first(rows, gaps(rows))),
    "a gap is larger": lambda rows: changed(rows, first(rows, gaps(rows)), missing=1000),
    "a gap is of unknown size": lambda rows: changed(rows, first(rows, gaps(rows)), missing=None),
    "a heal is gone": lambda rows: without(rows, first(rows, heals(rows))),
    "a heal is there twice": lambda rows: twice(rows, first(rows, heals(rows))),
    "only the account of a session is left": emptied,
    **{
        f"an account has another number as {key}": lambda rows, key=key: of_account(rows, key)
        for key in ("rows", "expected", "seen", "missing", "duplicates")
    },
}


@pytest.mark.parametrize("change", BREAKS)
def test_a_table_that_was_changed_does_not(files, change, tmp_path):
    rows = DeltaTable(files).to_pyarrow_table()
    write_deltalake(tmp_path, BREAKS[change](rows))
    assert violations(tmp_path)
