"""Versions on a local disk, of several collectors: all are noted, each once, and the log is shortened by one of them."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store import durable
from tailrace.store.durable import CHECKPOINT_DUE, LocalVersions
from tailrace.store.log import DeltaLog, Journal
from tailrace.store.upkeep import run

ROWS = 5


@pytest.fixture
def tables(open_table):
    return [open_table(name) for name in ("one", "two", "three")]


@pytest.fixture
def commit(numbered):
    """Commit once to each of these tables, in this order."""

    def do(tables, number):
        for stream, table in enumerate(tables):
            table.land(table.prepare(numbered(str(stream), number * ROWS, ROWS)), number + 1)

    return do


def _noted(root):
    """How often each version is in the journal with its entry."""
    lines = [msgspec.json.decode(line[9:]) for line in Journal(root).path.read_bytes().splitlines()]
    return Counter(line["version"] for line in lines if line["entry"] is not None)


def test_each_version_is_in_the_journal_once_whoever_wrote_it(tables, commit, root):
    before = _noted(root)
    for number in range(4):
        commit(tables, number)
    noted = _noted(root) - before
    assert noted == Counter(range(1, 13))
    notes = Journal(root).read()
    assert all(notes.entries[v] == DeltaLog(root).path(v).read_bytes() for v in range(1, 13))
    assert {file for file in notes.files if file.startswith("day=")} == {
        action.add.path for v in range(1, 13) for action in DeltaLog(root).read(v) if action.add
    }


def test_what_another_one_has_not_noted_is_noted_by_the_next(tables, commit, root, monkeypatch):
    """As if the first collector were killed between its commit and its line."""
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note_rest", lambda *_: None)
        commit(tables[:1], 0)
    assert 1 not in _noted(root)
    commit(tables[1:], 0)
    assert _noted(root)[1] == _noted(root)[2] == 1


def test_a_journal_that_is_rewritten_meanwhile_is_read_anew(tables, commit, root):
    commit(tables, 0)
    Journal(root).prune()
    commit(tables, 1)
    assert max(_noted(root).values()) == 1


def test_all_versions_up_to_a_commit_are_on_disk(tables, commit, monkeypatch, root):
    """Others may not have synced theirs."""
    synced = []
    with monkeypatch.context() as patch:
        patch.setattr(durable, "fsync", lambda path: None)
        commit(tables[:2], 0)
    real = durable.fsync
    monkeypatch.setattr(durable, "fsync", lambda path: (synced.append(path), real(path)))
    commit(tables[2:], 0)
    assert {DeltaLog(root).path(version) for version in (1, 2, 3)} <= set(synced)


def test_one_of_them_makes_the_checkpoint(tables, commit):
    for number in range(3):
        commit(tables, number)
    assert tables[0].checkpoint()
    commit(tables, 3)
    assert not tables[1].checkpoint()
    assert tables[0].checkpoint()


def test_when_the_last_one_is_long_ago_another_makes_it(tables, commit):
    assert tables[0].checkpoint()
    for number in range(-(-CHECKPOINT_DUE // 3) + 1):
        commit(tables, number)
    assert tables[1].checkpoint()
    assert not tables[2].checkpoint()


def test_as_many_versions_are_doubted_as_collectors_may_write(store, root):
    assert durable.unsynced_max(root) == durable.UNSYNCED_MAX
    for number in range(40):
        (store / "collectors" / str(number)).mkdir(parents=True)
    assert durable.unsynced_max(root) == 43


def test_a_merge_between_two_commits_is_noted_with_its_files(tables, commit, root, store):
    """The collectors leave the files of a merge to the upkeep that made it."""

    for number in range(2):
        commit(tables, number)
    assert run(str(store), StoreConfig(), clock=SystemClock(), everything=True).merged_files == 6
    commit(tables, 2)
    live = {uri.removeprefix(f"{root}/") for uri in DeltaTable(str(root)).file_uris()}
    assert live <= Journal(root).read().files.keys()
    assert LocalVersions(root).since_checkpoint() == DeltaTable(str(root)).version() + 1
