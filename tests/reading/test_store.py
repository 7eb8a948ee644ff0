"""Opening a store, and one snapshot of it whatever happens to the table meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import tailrace
from tailrace.errors import BrokenOffError, ConfigError, QueryError, StoreError
from tests.query import writer
from tests.query.tables import commit, commit_many, compact, gap, make, row, vacuum
from tests.store.s3_server import RunningS3
from tests.system.collector import until

WRITER = Path(writer.__file__)

FILES = 48
ROWS = 30_000
"""So many rows that an answer is not buffered as a whole."""


def seqs(result):
    return sorted(each["seq"] for each in result)


def test_the_store_of_the_configuration_is_the_default(tmp_path, monkeypatch):
    for name in ("one", "two", "data/tailrace"):
        make(tmp_path / name, [row(name=name)])
    names = []
    monkeypatch.delenv("TAILRACE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    names += list(tailrace.open().spans(columns="name"))
    config = tmp_path / "c.toml"
    config.write_text(f"[store]\npath = {json.dumps(str(tmp_path / 'one'))}\n")
    names += list(tailrace.open(config=config).spans(columns="name"))
    monkeypatch.setenv("TAILRACE_CONFIG", str(config))
    names += list(tailrace.open().spans(columns="name"))
    names += list(tailrace.open(tmp_path / "two").spans(columns="name"))
    monkeypatch.setenv("TAILRACE_STORE_PATH", str(tmp_path / "two"))
    names += list(tailrace.open().spans(columns="name"))
    assert [each["name"] for each in names] == ["data/tailrace", "one", "one", "two", "two"]


def test_what_is_wrong_with_the_configuration_or_the_store_is_said(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("[store]\nretention = 3\n")
    with pytest.raises(ConfigError, match=r"c.toml:2.*retention"):
        tailrace.open(config=config)
    with pytest.raises(tailrace.StoreError, match="not a Tailrace store"):
        tailrace.open(tmp_path / "nowhere")


def test_an_empty_store_has_empty_answers_with_all_columns(tmp_path):
    with tailrace.open(make(tmp_path)) as store:
        for result in (
            store.spans(),
            store.events(),
            store.gaps(),
            store.sessions(),
            store.streams(),
        ):
            assert list(result) == []
            assert result.count() == 0
            with pytest.raises(TypeError, match=r"use \.count\(\)"):
                bool(result)
            table = result.arrow()
            assert table.num_rows == 0
            assert len(table.column_names) > 10
            assert list(result.batches()) == []
            assert result.df().shape == result.pl().shape == (0, table.num_columns)
            assert "0 rows; no event matches" in str(result)
            assert not result.completeness.complete
        commit(tmp_path, [row(seq=1)])
        assert store.spans().count() == 0
        assert store.refresh()
        assert store.spans().count() == 1


def test_a_snapshot_stays_until_it_is_refreshed(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)])) as store:
        result, version = store.spans(), store.version
        commit(tmp_path, [row(seq=1), gap(1, 2)])
        assert seqs(result) == seqs(store.spans()) == [0]
        assert result.completeness.complete
        assert store.version == version
        assert store.refresh()
        assert seqs(result) == [0, 1]
        assert not result.completeness.complete
        assert store.version == version + 1
        assert not store.refresh()


def test_a_refresh_leaves_alone_what_is_being_read(tmp_path):
    store = tailrace.open(make(tmp_path, [row(seq=seq) for seq in range(5000)]))
    rows, reader = iter(store.spans()), store.spans().batches()
    assert next(rows)["seq"] == 0
    commit(tmp_path, [row(seq=9999)])
    store.refresh()
    assert store.spans().count() == 5001
    store.close()
    assert sum(1 for _ in rows) == 4999
    assert reader.read_all().num_rows == 5000


def test_a_closed_store_says_so(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)])) as store:
        result = store.spans()
    for ask in (list, tailrace.Result.count, str, lambda r: r.arrow(), lambda r: r.completeness):
        with pytest.raises(StoreError, match="is closed"):
            ask(result)
    with pytest.raises(StoreError, match="is closed"):
        store.refresh()
    store.close()


def test_files_that_upkeep_deletes_are_replaced_by_the_newest_snapshot(tmp_path):
    """Rows and what is missing are of one snapshot then, too."""
    with tailrace.open(make(tmp_path, [row(seq=0)], [row(seq=1)])) as store:
        result = store.spans()
        assert result.completeness.complete
        version = store.version
        commit(tmp_path, [row(seq=2), gap(7, 3)])
        compact(tmp_path)
        vacuum(tmp_path)
        table = result.arrow()
        words = json.loads(table.schema.metadata[b"tailrace.completeness"])
        assert (table.num_rows, words["missing"]) == (3, {"network": 7})
        assert store.version > version
        assert seqs(result) == [0, 1, 2]


def test_completeness_that_is_demanded_is_of_the_snapshot_that_is_given(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)]), complete_only=True) as store:
        assert store.spans().count() == 1
        commit(tmp_path, [row(seq=2), gap(1, 1)])
        compact(tmp_path)
        vacuum(tmp_path)
        with pytest.raises(tailrace.IncompleteError):
            store.spans().arrow()


def test_beside_a_writer_whose_upkeep_deletes_at_once_every_answer_is_of_one_version(tmp_path):
    """Or it is refused: rows and what is missing are two questions, each of which takes its time."""
    store = tailrace.open(make(tmp_path))
    process = subprocess.Popen([sys.executable, WRITER, tmp_path, "400"])
    counts = [0]
    try:
        while len(set(counts)) < 12:
            assert process.poll() is None
            store.refresh()
            try:
                rows = store.events(columns="seq").pl()["seq"].sort().to_list()
            except StoreError as error:
                if "deleted faster than they can be read" in str(error):
                    continue
                raise
            assert rows == list(range(len(rows)))
            assert len(rows) % writer.ROWS == 0
            counts.append(len(rows))
            assert counts[-1] >= counts[-2]
    finally:
        process.kill()
        process.wait()


def deleting_once(snapshot, store):
    """Replace the files of a snapshot's answer once, when its first rows are there."""
    begin = snapshot.begin

    def once(*arguments, **named):
        snapshot.begin = begin
        started = begin(*arguments, **named)
        compact(store)
        vacuum(store)
        return started

    snapshot.begin = once


@pytest.mark.parametrize("limits", [None, tailrace.Limits()])
def test_an_answer_whose_files_are_deleted_meanwhile_is_asked_again(tmp_path, limits):
    store = tailrace.open(make(tmp_path), limits=limits)
    for _ in range(FILES):
        commit_many(tmp_path, ROWS)
    store.refresh()
    result = store.events()
    deleting_once(result._snapshot, tmp_path)
    with pytest.raises(BrokenOffError, match="the answer is incomplete, ask again"):
        result.batches().read_all()
    commit_many(tmp_path, ROWS)
    store.refresh()
    deleting_once(result._snapshot, tmp_path)
    assert result.arrow().num_rows == (FILES + 1) * ROWS


def test_threads_ask_one_store_while_it_goes_on(tmp_path):
    store = tailrace.open(make(tmp_path, [row(seq=seq) for seq in range(3000)]))
    wrong = []

    def ask(number):
        for _ in range(4):
            rows = seqs(store.spans(order="seq" if number % 2 else None))
            table = store.spans(columns="seq").arrow()
            if rows != list(range(len(rows))) or table.num_rows < len(rows):
                wrong.append(rows)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(3000, 3010):
        commit(tmp_path, [row(seq=number)])
        store.refresh()
    compact(tmp_path)
    vacuum(tmp_path)
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.spans().count() == 3010


def test_a_store_behind_a_url_is_read_alike(tmp_path):
    with RunningS3() as s3:
        url = "s3://bucket/prefix"
        make(url, [row(seq=0), gap(2, 1)], [row(seq=3)], options=s3.options)
        with tailrace.open(url, options=s3.options) as store:
            first, second = iter(store.spans()), store.spans(stream=1).batches()
            assert store.gaps().arrow()["remaining"].to_pylist() == [2]
            assert seqs(first) == [0, 3]
            assert second.read_all().num_rows == 2
            assert store.completeness.missing == {"network": 2}
            commit(url, [row(seq=4)], options=s3.options)
            compact(url, options=s3.options)
            assert store.spans().count() == 2
            assert store.refresh()
            assert seqs(store.spans()) == [0, 3, 4]


ENDLESS = """
import sys, tailrace
store = tailrace.open(sys.argv[1])
print("asking", flush=True)
try:
    store.sql("SELECT i FROM range(10000000000000) AS a(i), range(9) WHERE i % 7 = 3").count()
except KeyboardInterrupt:
    print(store.spans().count(), flush=True)
"""


def test_ctrl_c_ends_a_long_question_and_the_store_can_be_asked_another(tmp_path):
    make(tmp_path, [row(seq=0)])
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, tmp_path], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"asking\n"
        work = psutil.Process(process.pid)
        begun = work.cpu_times().user
        until(lambda: work.cpu_times().user > begun + 0.3, "the question to be under way")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[0] == b"1\n"
    finally:
        process.kill()
        process.wait()


def test_an_error_leaves_the_store_as_it_was(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)])) as store:
        for _ in range(3):
            with pytest.raises(QueryError):
                store.sql("SELECT error('x')").arrow()
            with pytest.raises(QueryError):
                list(store.sql("SELECT 1 +"))
        assert store.spans().count() == 1
        assert repr(store) == f"<Store {tmp_path}/events>"
