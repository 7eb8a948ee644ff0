"""Damage to a table that was written and synced: what is restored, what is set aside and named, and what
is only refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.config.schema import StoreConfig
from tailrace.errors import StoreError
from tailrace.store import damage, durable
from tailrace.store.damage import DIRECTORY
from tailrace.store.log import DeltaLog, Journal
from tailrace.store.upkeep import run
from tailrace.store.verify import verify
from tests.forms import in_turn
from tests.store.writer import commit

COMMITS, ROWS = 20, 30


def _never(_position):
    return False


@pytest.fixture
def written(write_table):
    return write_table(COMMITS, ROWS)


def _data(root, version):
    log = DeltaLog(root)
    [path] = [log.data_path(action.add) for action in log.read(version) if action.add]
    return path


def _flip(path, at=None, chance=random):
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data)) if at is None else at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _gaps(root):
    rows = DeltaTable(str(root)).to_pyarrow_table().to_pylist()
    found = [row for row in rows if row["kind"] == "gap"]
    return [
        (g["name"], g["session"], g["stream"], json.loads(g["attributes"])["count"]) for g in found
    ]


def _listing(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _all_but(*versions):
    gone = {(v - 1) * ROWS + n for v in versions for n in range(ROWS)}
    return [n for n in range(COMMITS * ROWS) if n not in gone]


@pytest.mark.parametrize("version", [2, COMMITS - 8, COMMITS])
def test_a_damaged_file_that_the_spool_cannot_refill_costs_no_other_row(
    written, open_table, root, seqs, version
):
    path = _data(root, version)
    path.write_bytes(path.read_bytes()[:-7])
    table = open_table(refills=_never)
    assert (table.recovery.versions, table.position()) == ([], COMMITS)
    assert table.recovery.aside == [str(path.relative_to(root))]
    assert seqs() == _all_but(version)
    [(reason, session, stream, count)] = _gaps(root)
    assert (reason, session, stream, count) == ("damaged", "session", "s", ROWS)
    assert (root.parent / DIRECTORY / path.name).exists()
    before = _listing(root)
    assert open_table(refills=_never).recovery.reasons == []
    assert {p: d for p, d in _listing(root).items() if p in before} == before


def test_what_the_spool_has_comes_from_it_and_the_rest_is_named(written, open_table, root, seqs):
    old, new = _data(root, COMMITS - 9), _data(root, COMMITS - 2)
    old.unlink()
    new.unlink()
    table = open_table(refills=lambda position: (position or 0) >= COMMITS - 5)
    assert table.recovery.versions == [COMMITS, COMMITS - 1, COMMITS - 2]
    assert table.recovery.aside == [str(old.relative_to(root))]
    assert table.position() == COMMITS - 3
    assert [gap[3] for gap in _gaps(root)] == [ROWS]


@pytest.fixture
def written_by_two(written, open_table, numbered):
    """The same table, with two versions of another collector and one of the first at its end."""
    commit(open_table("two"), numbered("t", 0, ROWS), 1)
    commit(open_table("two"), numbered("t", ROWS, ROWS), 2)
    commit(open_table(), numbered("s", COMMITS * ROWS, ROWS), COMMITS + 1)


def test_rows_of_which_another_collectors_spool_is_not_known_are_never_taken_out(
    written_by_two, open_table, root, seqs
):
    _data(root, COMMITS).unlink()
    table = open_table()
    assert table.recovery.versions == []
    assert seqs("s") == [n for n in range((COMMITS + 1) * ROWS) if n // ROWS != COMMITS - 1]
    assert seqs("t") == list(range(2 * ROWS))


@pytest.mark.parametrize("has", [True, False])
def test_rows_of_another_collector_come_again_from_its_spool_if_it_has_them(
    written_by_two, open_table, root, seqs, has
):
    """Its newest version is damaged; the versions below it stay, and so do the positions there."""
    asked = []
    _data(root, COMMITS + 2).unlink()
    table = open_table(others={"two": lambda position: asked.append(position) or has})
    assert asked == [1]
    if has:
        assert table.recovery.versions == [COMMITS + 3, COMMITS + 2]
        assert (table.position(), open_table("two").position()) == (COMMITS, 1)
        assert (seqs("s"), seqs("t")) == (_all_but(), list(range(ROWS)))
    else:
        assert table.recovery.versions == []
        assert (table.position(), open_table("two").position()) == (COMMITS + 1, 2)
        assert (seqs("t"), len(_gaps(root))) == (list(range(ROWS)), 1)


def test_an_entry_that_nobody_can_read_may_be_any_collectors(
    written_by_two, open_table, root, seqs
):
    """The journal lacks it, as after a power cut."""
    Journal(root).path.unlink()
    DeltaLog(root).path(COMMITS + 3).write_bytes(b"")
    before = _listing(root)
    with pytest.raises(StoreError, match="the journal has no copy"):
        open_table(others={"two": _never})
    assert _listing(root) == before
    table = open_table(others={"two": lambda position: position == 2})
    assert table.recovery.versions == [COMMITS + 3]
    assert (seqs("s"), seqs("t")) == (_all_but(), list(range(2 * ROWS)))


def test_whoever_is_not_alone_repairs_nothing(written, open_table, root):
    _flip(_data(root, COMMITS))
    before = _listing(root)
    table = open_table(alone=False)
    assert (table.recovery.reasons, table.position()) == ([], COMMITS)
    assert _listing(root) == before


def test_a_file_of_which_nothing_can_be_read_is_named_by_the_log(written, open_table, root):
    _data(root, 3).write_bytes(b"")
    open_table(refills=_never)
    [(reason, session, _, count)] = _gaps(root)
    assert (reason, session, count) == ("damaged", "session", ROWS)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        _flip,
        lambda path: path.write_bytes(b""),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["gone", "flipped", "empty", "directory"],
)
@pytest.mark.parametrize("version", [0, 7, COMMITS])
def test_a_log_entry_comes_back_from_the_journal(written, open_table, root, seqs, version, damage):
    path = DeltaLog(root).path(version)
    whole = path.read_bytes()
    damage(path)
    table = open_table(refills=_never)
    assert (table.recovery.restored, table.recovery.versions) == ([version], [])
    assert path.read_bytes() == whole
    assert (table.position(), seqs()) == (COMMITS, _all_but())


def test_without_journal_and_spool_nothing_is_changed_and_the_refusal_says_what_to_do(
    written, open_table, root
):
    Journal(root).path.unlink()
    DeltaLog(root).path(COMMITS - 3).write_bytes(b"")
    before = _listing(root)
    with pytest.raises(StoreError, match=r"restore the file from a copy, or move .* away"):
        open_table(refills=_never)
    assert _listing(root) == before


def test_no_flipped_bit_of_a_new_file_goes_unseen(written, open_table, root, store):
    """Without a checksum some flips are other values and no error."""
    chance = random.Random(1)
    path = _data(root, 5)
    whole = path.read_bytes()
    for _ in range(120):
        _flip(path, chance=chance)
        assert [each.path for each in verify(str(store), {}).damage] == [str(path)]
        path.write_bytes(whole)
    assert verify(str(store), {}).damage == []


def test_a_damaged_file_is_never_merged_into_a_good_one(written, root, store, clock, seqs):
    path = _data(root, 4)
    _flip(path, at=len(path.read_bytes()) // 2)
    report = run(str(store), StoreConfig(), clock=clock, everything=True)
    assert report.merged_files > 0
    [sentence] = report.damaged
    assert path.name in sentence
    assert "checksum" in sentence
    assert seqs() == _all_but(4)
    assert [(gap[0], gap[3]) for gap in _gaps(root)] == [("damaged", ROWS)]
    found = verify(str(store), {})
    assert (found.damage, found.unverifiable) == ([], 0)
    assert found.verified == found.files > 0


def test_merged_files_have_checksums_too(written, root, store, clock):
    run(str(store), StoreConfig(), clock=clock, everything=True)
    [path] = [Path(uri) for uri in DeltaTable(str(root)).file_uris()]
    _flip(path, at=len(path.read_bytes()) // 3)
    [found] = verify(str(store), {}).damage
    assert (found.path, found.lost) == (str(path), f"{COMMITS * ROWS} rows")


def test_files_without_checksum_are_unverifiable_and_not_good(written, root, store):
    Journal(root).path.unlink()
    found = verify(str(store), {})
    assert (found.files, found.verified, found.unverifiable) == (COMMITS, 0, COMMITS)
    _data(root, 2).write_bytes(b"PAR1")
    assert len(verify(str(store), {}).damage) == 1


def test_verify_names_log_entries_checkpoints_and_quarantine(written, root, store):
    written.checkpoint()
    [[part]] = DeltaLog(root).checkpoints().values()
    _flip(part, at=100)
    entry = DeltaLog(root).path(COMMITS)
    _flip(entry, at=50)
    (store / "quarantine").mkdir()
    frames = store / "quarantine" / "x.frames"
    frames.write_bytes(b"no frame")
    before = _listing(store)
    assert {each.path for each in verify(str(store), {}).damage} == {
        str(part), str(entry), str(frames), str(entry.parent)
    }  # fmt: skip
    assert {p: d for p, d in _listing(store).items() if p in before} == before


def test_a_checkpoint_with_a_flipped_bit_gives_way(written, open_table, root, seqs):
    written.checkpoint()
    [[part]] = DeltaLog(root).checkpoints().values()
    _flip(part, at=200)
    table = open_table(refills=_never)
    assert (table.recovery.checkpoints, seqs()) == ([COMMITS], _all_but())


class Killed(BaseException):
    """In place of kill -9."""


@pytest.mark.parametrize(
    ("step", "after"), in_turn(["fsync", "sync", "_put", "_moved", "write_rows"], [False, True])
)
def test_setting_aside_can_be_cut_off_anywhere(
    written, open_table, root, seqs, monkeypatch, step, after
):
    _data(root, 3).write_bytes(b"")
    _data(root, COMMITS).unlink()
    module = durable if hasattr(durable, step) else damage
    real = getattr(module, step)

    def killed(*given, **named):
        if after:
            real(*given, **named)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(module, step, killed)
        with pytest.raises(Killed):
            open_table(refills=_never)
    table = open_table(refills=_never)
    assert table.position() == COMMITS
    assert seqs() == _all_but(3, COMMITS)
    assert sorted(gap[3] for gap in _gaps(root)) == [ROWS, ROWS]


def test_the_journal_forgets_what_is_gone_and_keeps_what_verifies(written, root, store):
    for _ in range(2):
        assert written.checkpoint(keep=0)
    notes = Journal(root).read()
    assert min(notes.entries) == min(DeltaLog(root).versions())
    assert len([path for path in notes.files if path.startswith("day=")]) == COMMITS
    assert verify(str(store), {}).unverifiable == 0


def test_a_damaged_journal_costs_only_checksums(written, open_table, numbered, root, seqs, store):
    chance = random.Random(3)
    path = Journal(root).path
    whole = path.read_bytes()
    for cut in range(8):
        data = bytearray(whole)
        at = chance.randrange(len(data))
        data[at : at + 50] = chance.randbytes(50) if cut % 2 else b""
        path.write_bytes(data[: chance.randrange(at, len(data) + 1)])
        assert open_table(refills=_never).recovery.reasons == []
    table = open_table()
    commit(table, numbered("s", COMMITS * ROWS, ROWS), COMMITS + 1)
    assert seqs() == list(range((COMMITS + 1) * ROWS))
    path.unlink()
    path.mkdir()
    assert open_table(refills=_never).position() == COMMITS + 1


def test_of_a_merged_file_that_cannot_be_read_the_journal_says_what_is_lost(
    written, open_table, numbered, root, store, clock
):
    commit(written, numbered("t", 0, ROWS + 5), COMMITS + 1)
    run(str(store), StoreConfig(), clock=clock, everything=True)
    [path] = [Path(uri) for uri in DeltaTable(str(root)).file_uris()]
    path.write_bytes(b"")
    open_table(refills=_never)
    assert sorted((gap[2], gap[3]) for gap in _gaps(root)) == [
        ("s", COMMITS * ROWS),
        ("t", ROWS + 5),
    ]
