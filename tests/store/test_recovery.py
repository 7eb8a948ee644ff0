"""Damaged ends of the table, of every kind that a power cut leaves, made by hand."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings, strategies as st

from tailrace.clock import SystemClock
from tailrace.errors import StoreError
from tailrace.rows.schema import ROW
from tailrace.store import durable
from tailrace.store.log import DeltaLog, Journal
from tailrace.store.recovery import recover
from tailrace.store.schema import SCHEMA_VERSION
from tests.store.writer import commit

COMMITS = 6
ROWS = 40


@pytest.fixture
def written(write_table):
    """A table without a journal: what a power cut takes was not noted in it."""
    table = write_table(COMMITS, ROWS)
    Journal(Path(table.root)).path.unlink()
    return table


def _recover(root):
    return recover(
        root, collector="one", refills=lambda position: True, others={}, clock=SystemClock()
    )


def _data(root, version):
    log = DeltaLog(root)
    [path] = [log.data_path(action.add) for action in log.read(version) if action.add]
    return path


def _listing(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


EMPTY = ("is empty", lambda data: b"")
HALF = ("is cut off", lambda data: data[: len(data) // 2])
ZEROS = ("is zeros", lambda data: bytes(len(data)))
HALF_ZEROS = ("ends in zeros", lambda data: data[: len(data) // 2] + bytes(-(-len(data) // 2)))


@pytest.mark.parametrize(("_name", "damage"), [EMPTY, HALF, ZEROS, HALF_ZEROS])
@pytest.mark.parametrize("part", ["log", "data"])
def test_a_damaged_newest_version_is_taken_out_with_its_position(
    written, open_table, numbered, root, seqs, part, _name, damage
):
    path = DeltaLog(root).path(COMMITS) if part == "log" else _data(root, COMMITS)
    path.write_bytes(damage(path.read_bytes()))
    table = open_table()
    assert table.recovery.versions == [COMMITS]
    assert str(COMMITS) in table.recovery.reasons[0]
    assert table.position() == COMMITS - 1
    assert DeltaLog(root).path(COMMITS).with_name(f"{COMMITS:020}.json.bad").exists()
    commit(table, numbered("s", (COMMITS - 1) * ROWS, ROWS), COMMITS)
    assert seqs() == list(range(COMMITS * ROWS))
    assert open_table().recovery.versions == []


def test_a_log_file_cut_between_two_lines_is_not_taken_for_whole(written, open_table, root):
    path = DeltaLog(root).path(COMMITS)
    lines = path.read_bytes().split(b"\n")
    for kept in range(1, len(lines)):
        whole = path.read_bytes() if path.exists() else b"\n".join(lines)
        path.write_bytes(b"\n".join(lines[:kept]) + b"\n")
        assert open_table().recovery.versions == [COMMITS], whole


def test_a_missing_data_file_takes_its_version_out(written, open_table, root, seqs):
    _data(root, COMMITS).unlink()
    table = open_table()
    assert (table.recovery.versions, table.position()) == ([COMMITS], COMMITS - 1)
    assert seqs() == list(range((COMMITS - 1) * ROWS))


def test_a_data_file_of_another_size_is_not_taken_for_whole(written, open_table, root):
    path = _data(root, COMMITS)
    path.write_bytes(path.read_bytes() * 2)  # it ends in a footer, and decodes
    assert open_table().recovery.versions == [COMMITS]


def test_a_hole_of_zeros_that_decodes_all_the_same_is_found(open_table, numbered, root):
    """Plain numbers are read from zeros as well as from anything."""
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    batch = numbered("s", 5, 60_000)
    chance = random.Random(1)
    batch.parts[0].rows[ROW.index("substream")] = [chance.getrandbits(63) for _ in range(60_000)]
    commit(table, batch, 2)
    path = _data(root, 2)
    Journal(root).path.unlink()
    data = bytearray(path.read_bytes())
    found = 0
    for at in range(65_536, 262_144, 32_768):
        damaged = data[:at] + bytes(4096) + data[at + 4096 :]
        path.write_bytes(damaged)
        copy = root.parent / f"copy-{at}"
        shutil.copytree(root, copy / "events")
        found += _recover(copy / "events").versions == [2]
    assert found == 6


def test_damage_that_only_decoding_shows_takes_the_version_out(written, open_table, root):
    path = _data(root, COMMITS)
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(255 - byte for byte in data[4:40])  # the first page's header
    path.write_bytes(data)
    table = open_table()
    assert table.recovery.versions == [COMMITS]
    assert "does not decode" in table.recovery.reasons[0]


def test_of_several_damaged_versions_all_are_taken_out_with_the_whole_ones_above(
    written, open_table, root, seqs
):
    """A version may be whole and the one below it not: neither was acknowledged."""
    _data(root, COMMITS - 2).write_bytes(b"PAR1")
    table = open_table()
    assert table.recovery.versions == [COMMITS, COMMITS - 1, COMMITS - 2]
    assert table.position() == COMMITS - 3
    assert seqs() == list(range((COMMITS - 3) * ROWS))


def test_a_hole_in_the_log_takes_out_what_is_above_it(written, open_table, root):
    DeltaLog(root).path(COMMITS - 1).unlink()
    assert open_table().position() == COMMITS - 2


def test_a_whole_table_is_left_as_it_is(written, root):
    before = _listing(root)
    assert _recover(root).reasons == []
    assert _listing(root) == before


def test_where_there_is_no_table_there_is_nothing_to_repair(root):
    assert _recover(root).reasons == []
    assert not root.exists()


def test_a_table_whose_making_was_cut_off_is_made_again(open_table, root, numbered, seqs):
    open_table()
    Journal(root).path.unlink()
    DeltaLog(root).path(0).write_bytes(b"")
    table = open_table()
    assert (table.recovery.versions, table.position()) == ([0], None)
    commit(table, numbered("s", 0, 5), 1)
    assert seqs() == list(range(5))


def test_nothing_is_left_of_a_table_that_has_no_beginning(written, open_table, root):
    DeltaLog(root).path(0).write_bytes(b"")
    table = open_table()
    assert table.recovery.versions == list(range(COMMITS, -1, -1))
    assert table.position() is None


def test_files_that_a_later_version_merged_away_and_vacuum_removed_are_not_missed(
    written, open_table, root, seqs
):
    table = DeltaTable(str(root))
    table.optimize.compact(post_commithook_properties=durable.NO_HOOKS)
    for version in range(1, COMMITS + 1):
        _data(root, version).unlink()
    assert open_table().recovery.reasons == []
    assert seqs() == list(range(COMMITS * ROWS))


def test_a_damaged_merge_gives_way_to_the_files_that_it_merged(written, open_table, root, seqs):
    DeltaTable(str(root)).optimize.compact(post_commithook_properties=durable.NO_HOOKS)
    _data(root, COMMITS + 1).write_bytes(b"")
    table = open_table()
    assert table.recovery.versions == [COMMITS + 1]
    assert (table.position(), seqs()) == (COMMITS, list(range(COMMITS * ROWS)))


def test_what_a_version_removed_counts_again_once_that_version_is_taken_out(
    written, open_table, root, seqs
):
    """The merge goes because of what is below it; so must a commit whose file it had replaced."""
    DeltaTable(str(root)).optimize.compact(post_commithook_properties=durable.NO_HOOKS)
    _data(root, 3).unlink()
    DeltaLog(root).path(5).write_bytes(b"")
    table = open_table()
    assert table.recovery.versions == [7, 6, 5, 4, 3]
    assert (table.position(), seqs()) == (2, list(range(2 * ROWS)))


def test_versions_that_a_synced_checkpoint_sums_up_are_not_doubted(written, open_table, root):
    """Their rows were acknowledged, so what is gone of them is named and not taken out."""
    written.checkpoint()
    [gone] = [
        Path(path)
        for path in DeltaTable(str(root)).file_uris()
        if Path(path) == _data(root, COMMITS)
    ]
    gone.write_bytes(b"")
    table = open_table()
    assert (table.recovery.versions, table.recovery.aside) == ([], [str(gone.relative_to(root))])
    assert (table.position(), table.version()) == (COMMITS, COMMITS + 1)


@pytest.mark.parametrize(("_name", "damage"), [EMPTY, HALF, ZEROS, HALF_ZEROS])
def test_a_damaged_checkpoint_is_removed_while_its_log_files_are_there(
    written, open_table, root, seqs, _name, damage
):
    written.checkpoint()
    log = DeltaLog(root)
    [[part]] = log.checkpoints().values()
    part.write_bytes(damage(part.read_bytes()))
    table = open_table()
    assert table.recovery.checkpoints == [COMMITS]
    assert not part.exists()
    assert not log.last_checkpoint_path.exists()
    assert (table.position(), seqs()) == (COMMITS, list(range(COMMITS * ROWS)))


def test_a_checkpoint_that_looks_whole_and_cannot_be_read_is_removed(written, open_table, root):
    written.checkpoint()
    [[part]] = DeltaLog(root).checkpoints().values()
    data = bytearray(part.read_bytes())
    length = struct.unpack("<I", data[-8:-4])[0]
    data[4 : len(data) - 8 - length] = bytes(len(data) - 12 - length)
    part.write_bytes(data)
    table = open_table()
    assert (table.recovery.checkpoints, table.position()) == ([COMMITS], COMMITS)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(
    written, open_table, numbered, root, seqs
):
    written.checkpoint(keep=0)
    for number in range(COMMITS, COMMITS + 3):
        commit(written, numbered("s", number * ROWS, ROWS), number + 1)
    written.checkpoint(keep=20)
    newest = DeltaLog(root).checkpoints()[COMMITS + 3]
    newest[0].write_bytes(b"")
    table = open_table()
    assert (table.recovery.checkpoints, table.position()) == ([COMMITS + 3], COMMITS + 3)
    assert seqs() == list(range((COMMITS + 3) * ROWS))


def test_a_damaged_checkpoint_that_nothing_can_replace_is_an_error_and_stays(
    written, open_table, root
):
    written.checkpoint(keep=0)
    [[part]] = DeltaLog(root).checkpoints().values()
    part.write_bytes(part.read_bytes()[:100])
    before = _listing(root)
    with pytest.raises(StoreError, match="restore the directory from a copy"):
        open_table()
    assert _listing(root) == before


@pytest.mark.parametrize("text", [b"", b'{"version":99}', b"\0" * 60])
def test_a_last_checkpoint_that_names_none_is_removed(written, open_table, root, text):
    written.checkpoint()
    DeltaLog(root).last_checkpoint_path.write_bytes(text)
    table = open_table()
    assert table.position() == COMMITS
    assert not DeltaLog(root).last_checkpoint_path.exists()


def test_the_end_of_a_table_of_a_newer_version_is_not_touched(
    written, open_table, root, say_schema
):
    say_schema(SCHEMA_VERSION + 1)
    _data(root, COMMITS).unlink()
    before = _listing(root)
    with pytest.raises(StoreError, match="newer Tailrace"):
        open_table()
    assert _listing(root) == before


def test_only_versions_that_may_be_unsynced_are_read(open_table, numbered, root):
    """An old file that vanished is damage that no replay can repair: it is named."""
    table = open_table()
    for number in range(durable.UNSYNCED_MAX + 2):
        commit(table, numbered("s", number, 1), number + 1)
    _data(root, 1).unlink()
    table = open_table()
    assert (table.recovery.versions, len(table.recovery.aside)) == ([], 1)
    _data(root, 4).unlink()
    assert open_table().position() == 3


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_cut_off_the_newest_version_the_ones_below_stay_whole(
    written, open_table, root, seqs, tmp_path, data
):
    whole = tmp_path / "whole"
    if not whole.exists():
        shutil.copytree(root, whole)
    shutil.rmtree(root)
    shutil.copytree(whole, root)
    path = data.draw(st.sampled_from([DeltaLog(root).path(COMMITS), _data(root, COMMITS)]))
    size = path.stat().st_size
    keep = data.draw(st.integers(0, size - 1))
    zeros = data.draw(st.booleans())
    path.write_bytes(path.read_bytes()[:keep] + bytes(size - keep if zeros else 0))
    table = open_table()
    assert table.position() == COMMITS - 1
    assert seqs() == list(range((COMMITS - 1) * ROWS))
