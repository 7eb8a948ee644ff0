from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.errors import StoreError, UnreadableError
from tailrace.spool.entry import PAYLOAD_MAX, Entry, EntryKind
from tailrace.spool.segment import HEAD_SIZE, HEADER_SIZE, SPARE_NAME, released_name
from tailrace.spool.spool import Spool
from tailrace.units import Size
from tests.forms import examples
from tests.spool.conftest import kill

DATA = EntryKind.DATA
ONE_SEGMENT = SpoolConfig(segment_size=Size(2**15))


class Dying(BaseException):
    """The process is gone in the middle of a call."""


def readable(spool: Spool) -> list[Entry]:
    """All entries that can be read, passing over those that cannot."""
    entries: list[Entry] = []
    position = spool.begin
    while position < spool.durable:
        try:
            entries += spool.read(position, 1000)
            position = entries[-1].end
        except UnreadableError as error:
            position = error.until
    return entries


def newest_segment(spool: Spool) -> Path:
    return max(spool.directory.glob("0*.segment"))


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


batches = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), min_size=1, max_size=5)


@st.composite
def damages(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, int, int]]]:
    """Sizes of the payloads of each sync, and places to damage: (start, length, zeros or noise)."""
    sizes = draw(batches)
    total = sum(HEAD_SIZE + size for batch in sizes for size in batch)
    place = st.tuples(st.integers(0, total - 1), st.integers(1, 200), st.integers(0, 255))
    return sizes, draw(st.lists(place, min_size=1, max_size=3))


@examples(150)
@given(damages())
def test_what_was_synced_is_never_cut_and_nothing_unreadable_is_ever_an_entry(case):
    """The oracle knows which entries were damaged and which of the others vouch for them."""
    sizes, places = case
    with tempfile.TemporaryDirectory() as directory:
        spool = Spool.open(Path(directory), ONE_SEGMENT, SystemClock())
        synced: dict[int, int] = {}
        for batch in sizes:
            start = spool.end
            for size in batch:
                payload = os.urandom(size) if size % 2 else bytes(size)
                synced[spool.append(DATA, 1, payload)] = start
            spool.sync()
        written = readable(spool)
        kill(spool)
        path = newest_segment(spool)
        before = path.read_bytes()
        for start, length, value in places:
            bad = bytes([value]) * min(length, written[-1].end - start)
            damage(path, HEADER_SIZE + start, bad)
        after = path.read_bytes()
        spans = {
            entry: slice(HEADER_SIZE + entry.position, HEADER_SIZE + entry.end) for entry in written
        }
        intact = [entry for entry in written if before[spans[entry]] == after[spans[entry]]]
        proven = max((synced[entry.position] for entry in intact), default=0)
        lost = [entry for entry in written if entry not in intact and entry.end > proven]
        end = lost[0].position if lost else written[-1].end

        spool = Spool.open(Path(directory), ONE_SEGMENT, SystemClock())
        kept = [entry for entry in intact if entry.end <= end]
        assert spool.recovery.entries == len(kept)
        assert spool.end == spool.durable == max(end, proven)
        assert sum(bad.end - bad.position for bad in spool.recovery.damage) == spool.end - sum(
            entry.end - entry.position for entry in kept
        )
        assert readable(spool) == kept
        spool.append(DATA, 2, b"written after recovery")
        spool.sync()
        kill(spool)
        again = Spool.open(Path(directory), ONE_SEGMENT, SystemClock())
        assert [entry.payload for entry in readable(again)] == [
            *(entry.payload for entry in kept),
            b"written after recovery",
        ]
        assert not again.recovery.leftovers
        again.close()


def test_an_entry_of_an_earlier_life_behind_a_torn_one_never_comes_back(open_spool):
    """A, B and C are written, B is torn, and the new B is as long as the old one."""
    spool = open_spool()
    spool.append(DATA, 1, b"A" * 100)
    torn = spool.append(DATA, 1, b"B" * 100)
    spool.append(DATA, 1, b"C" * 100)
    spool.sync()
    kill(spool)
    damage(newest_segment(spool), HEADER_SIZE + torn + 90, bytes(50))
    spool = open_spool()
    assert [entry.payload for entry in readable(spool)] == [b"A" * 100]
    assert spool.append(DATA, 1, b"D" * 100) == torn
    spool.sync()
    kill(spool)
    spool = open_spool()
    assert [entry.payload[:1] for entry in readable(spool)] == [b"A", b"D"]
    assert not spool.recovery.leftovers


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda frame: bytes(40) + frame[40:], id="its head was never written"),
        pytest.param(
            lambda frame: frame[:70] + bytes(len(frame) - 70), id="its rest was never written"
        ),
        pytest.param(lambda frame: frame[:-1] + b"?", id="a byte is wrong"),
    ],
)
def test_a_torn_entry_is_cleared(open_spool, data: Callable[[bytes], bytes]):
    spool = open_spool()
    spool.append(DATA, 1, b"kept")
    end = spool.sync()
    spool.append(DATA, 1, b"x" * 100)
    spool.sync()
    kill(spool)
    path = newest_segment(spool)
    frame = path.read_bytes()[HEADER_SIZE + end :].rstrip(b"\0")
    damaged = data(frame)
    damage(path, HEADER_SIZE + end, damaged)
    spool = open_spool()
    assert (spool.recovery.entries, spool.recovery.end) == (1, end)
    assert spool.recovery.leftovers
    assert path.read_bytes()[HEADER_SIZE + end :].strip(b"\0") == b""


def test_a_clean_stop_leaves_nothing_behind_the_end(open_spool):
    spool = open_spool()
    for index in range(20):
        spool.append(DATA, index, bytes(index))
    end = spool.sync()
    kill(spool)
    spool = open_spool()
    recovery = spool.recovery
    assert (recovery.entries, recovery.end, recovery.leftovers) == (20, end, False)
    assert recovery.damage == []


def test_damage_in_an_older_segment_says_what_and_where_and_what_can_still_be_read(open_spool):
    spool = open_spool()
    for index in range(12):
        spool.append(DATA, index, bytes([65 + index]) * 1000)
        spool.sync()
    written = readable(spool)
    kill(spool)
    first, *_ = sorted(spool.directory.glob("0*.segment"))
    bad = written[1]
    damage(first, HEADER_SIZE + bad.position + 500, b"rot")
    spool = open_spool()
    assert spool.recovery.damage == []
    assert spool.read(0, 10**6) == written[:1]
    with pytest.raises(UnreadableError) as raised:
        spool.read(bad.position, 1000)
    assert str(raised.value) == (
        f"{first}, byte {HEADER_SIZE + bad.position}: the entry is corrupt, although it was synced: "
        f"positions {bad.position} to {bad.end} of the spool cannot be read"
    )
    assert raised.value.until == bad.end
    assert readable(spool) == [entry for entry in written if entry != bad]


def test_entries_are_found_behind_damage_of_any_length(open_spool):
    """Here of four of the largest, so that the fifth begins where a search window ends."""
    spool = open_spool(segment_size=2**23, max_size=2**26)
    for index in range(6):
        spool.append(DATA, index, os.urandom(PAYLOAD_MAX))
        spool.sync()
    written = readable(spool)
    kill(spool)
    for bad in written[:4]:
        damage(newest_segment(spool), HEADER_SIZE + bad.position, os.urandom(HEAD_SIZE))
    spool = open_spool(segment_size=2**23, max_size=2**26)
    assert [(bad.position, bad.end) for bad in spool.recovery.damage] == [(0, written[4].position)]
    assert not spool.recovery.leftovers
    assert readable(spool) == written[4:]


def test_damage_at_the_end_of_an_older_segment_reaches_to_the_next_one(open_spool):
    spool = open_spool()
    for index in range(6):
        spool.append(DATA, index, bytes(1500))
        spool.sync()
    written = readable(spool)
    kill(spool)
    first, second, *_ = sorted(spool.directory.glob("0*.segment"))
    os.truncate(first, first.stat().st_size - 1)
    spool = open_spool()
    start = int(second.stem)
    assert readable(spool) == [entry for entry in written if entry.end != start]


def test_a_segment_that_is_gone_is_damage_as_well(open_spool):
    spool = open_spool()
    for index in range(12):
        spool.append(DATA, index, bytes(1500))
        spool.sync()
    written = readable(spool)
    kill(spool)
    first, second, third, *_ = sorted(spool.directory.glob("0*.segment"))
    second.unlink()
    spool = open_spool()
    with pytest.raises(
        StoreError,
        match=f"{first.name}.*missing.*positions {int(second.stem)} to {int(third.stem)} ",
    ):
        spool.read(int(second.stem), 1000)
    gone = range(int(second.stem), int(third.stem))
    assert readable(spool) == [entry for entry in written if entry.position not in gone]


def test_a_segment_removed_under_a_running_daemon_is_damage(open_spool):
    spool = open_spool()
    for index in range(6):
        spool.append(DATA, index, bytes(1500))
    spool.sync()
    written = readable(spool)
    kill(spool)
    spool = open_spool()
    first, second, *_ = sorted(spool.directory.glob("0*.segment"))
    first.unlink()
    with pytest.raises(StoreError, match="No such file"):
        spool.read(0, 1000)
    assert readable(spool) == [entry for entry in written if entry.position >= int(second.stem)]


def test_entries_written_before_a_kill_but_not_synced_are_synced_by_the_next_start(
    open_spool, disk
):
    """Bytes and names that a start reads may still be in memory of the kernel only."""
    spool = open_spool()
    spool.append(DATA, 1, b"written")
    with disk.failing(("fdatasync",), Dying(), after=0), pytest.raises(Dying):
        spool.sync()
    kill(spool)
    synced: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        real = os.fsync
        patch.setattr(
            os,
            "fsync",
            lambda fd: (synced.append(Path(f"/proc/self/fd/{fd}").readlink()), real(fd)),
        )
        spool = open_spool()
    assert [entry.payload for entry in readable(spool)] == [b"written"]
    assert {newest_segment(spool), spool.directory} <= set(synced)


def reused(open_spool) -> tuple[Spool, int]:
    """Return a spool whose newest segment has the file of an earlier one, full of entries, and where it begins."""
    spool = open_spool()
    for number in range(100):
        before = newest_segment(spool)
        spool.append(DATA, number, bytes([number]) * 300)
        spool.sync()
        spool.release(spool.durable - 5000)
        newest = newest_segment(spool)
        if newest != before and newest.read_bytes()[1500:].strip(b"\0"):
            return spool, int(newest.stem)
    raise AssertionError("no file was used again")


def test_old_entries_in_a_file_that_is_used_again_never_come_back(open_spool):
    """All entries have one size, so the old ones lie exactly where new ones would be."""
    spool, begin = reused(open_spool)
    spool.append(DATA, 100, b"y" * 300)
    end = spool.sync()
    kill(spool)
    spool = open_spool()
    assert spool.recovery.damage == []
    assert (spool.recovery.end, spool.recovery.leftovers) == (end, True)
    assert [entry.session for entry in spool.read(begin, 10**6)][1:] == [100]
    assert not newest_segment(spool).read_bytes()[HEADER_SIZE + end - begin :].strip(b"\0")


@pytest.mark.parametrize("kept", [0, 20, 40, 70, 339])
def test_an_entry_half_written_over_an_old_one_is_no_entry(open_spool, kept):
    spool, begin = reused(open_spool)
    end = spool.durable
    place = HEADER_SIZE + end - begin
    path = newest_segment(spool)
    old = path.read_bytes()[place : place + 340]
    assert old.strip(b"\0")
    spool.append(DATA, 100, b"y" * 300)
    spool.append(DATA, 101, b"z" * 300)
    spool.sync()
    kill(spool)
    # The first of two entries of the last sync came to the disk in part, the second whole.
    damage(path, place + kept, old[kept:])
    spool = open_spool()
    assert (spool.recovery.end, spool.recovery.damage) == (end, [])
    assert 101 not in [entry.session for entry in readable(spool)]


def test_damage_in_a_file_that_is_used_again_is_told_from_its_old_entries(open_spool):
    spool, begin = reused(open_spool)
    place = HEADER_SIZE + spool.durable - begin
    path = newest_segment(spool)
    bad, old = spool.durable, path.read_bytes()[place : place + 340]
    for number in (100, 101):
        spool.append(DATA, number, b"y" * 300)
        spool.sync()
    kill(spool)
    damage(path, place, old)
    spool = open_spool()
    assert [(found.position, found.end) for found in spool.recovery.damage] == [(bad, bad + 340)]
    assert readable(spool)[-1].session == 101


@pytest.mark.parametrize("name", [SPARE_NAME, released_name(0)])
def test_what_stands_in_the_place_of_a_file_without_entries_is_moved_away(open_spool, name):
    spool = open_spool()
    spool.append(DATA, 1, b"kept")
    spool.sync()
    kill(spool)
    (spool.directory / name).unlink(missing_ok=True)
    (spool.directory / name).mkdir()
    again = open_spool()
    assert [entry.payload for entry in again.read(again.begin, 100)] == [b"kept"]
    assert not (spool.directory / name).is_dir()


def test_files_of_released_segments_that_a_dead_process_left_are_removed(open_spool):
    spool, _ = reused(open_spool)
    spool.release(spool.durable)
    assert list(spool.directory.glob("released-*"))
    kill(spool)
    spool = open_spool()
    assert list(spool.directory.glob("released-*")) == []


@pytest.mark.parametrize("after", range(58))
def test_dying_at_any_change_of_the_disk_loses_nothing_acknowledged(open_spool, disk, after):
    """A new spool, several segments, a release, an orderly end; the process ends before each call in turn."""
    acknowledged: list[int] = []
    released = 0
    appended = 0
    spools: list[Spool] = []
    with disk.failing(disk.WRITES + disk.SYNCS, Dying(), after=after):
        try:
            spools.append(open_spool())
            for appended in range(1, 11):
                spools[0].append(DATA, appended, bytes(1500))
                if appended % 2 == 0:
                    released = spools[0].durable if appended == 6 else released
                    durable = spools[0].sync()
                    acknowledged = list(range(1, appended + 1))
                    assert durable == spools[0].end
                    if appended == 8:
                        spools[0].release(released)
            spools[0].close()
        except Dying:
            pass
    assert disk.calls > after, "the call to die at was reached"
    for spool in spools:
        kill(spool)
    spool = open_spool()
    sessions = [entry.session for entry in readable(spool)]
    first = sessions[0] if sessions else 1
    assert spool.begin <= released
    assert sessions == list(range(first, first + len(sessions)))
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    assert first + len(sessions) - 1 in range(len(acknowledged), appended + 1)
    assert spool.begin == 0 or first > 1
    spool.append(DATA, 99, b"goes on")
    spool.sync()
    assert [entry.session for entry in readable(spool)] == [*sessions, 99]


def test_a_spool_without_its_segments_is_not_taken_for_a_new_one(open_spool):
    spool = open_spool()
    spool.append(DATA, 1, b"was here")
    spool.sync()
    kill(spool)
    newest_segment(spool).unlink()
    with pytest.raises(StoreError, match="all segments of this spool are gone"):
        open_spool()


def test_the_identity_is_restored_from_the_segments(open_spool):
    spool = open_spool()
    kill(spool)
    (spool.directory / "identity").unlink()
    assert open_spool().identity == spool.identity
    assert (spool.directory / "identity").read_text() == spool.identity


def test_a_segment_of_another_spool_is_refused(open_spool, tmp_path, clock):
    spool = open_spool()
    kill(spool)
    other = Spool.open(tmp_path / "other", SpoolConfig(), clock)
    other.close()
    shutil.copy(newest_segment(other), newest_segment(spool))
    with pytest.raises(
        StoreError,
        match=f"belongs to the spool {other.identity}, and .* says {spool.identity}: put",
    ):
        open_spool()


def test_a_segment_under_another_name_is_refused(open_spool):
    spool = open_spool()
    kill(spool)
    path = newest_segment(spool)
    path.rename(path.with_name(f"{7:020}.segment"))
    with pytest.raises(StoreError, match=f"was written as {path.name}"):
        open_spool()


def _with_entries(open_spool):
    """A spool that holds three entries, closed, and their payloads."""
    spool = open_spool()
    for number in range(3):
        spool.append(EntryKind.TICK, 0, b"%d" % number)
    spool.sync()
    kill(spool)
    return spool


def _payloads(spool):
    return [entry.payload for entry in spool.read(spool.begin, 1 << 20)]


@pytest.mark.parametrize("offset", [0, 5, 8, 15, 24, 31, 32, 41, 43])
def test_a_damaged_header_costs_no_entry(open_spool, offset):
    """All that a header says is known from elsewhere."""
    spool = _with_entries(open_spool)
    path = newest_segment(spool)
    damage(path, offset, bytes([path.read_bytes()[offset] ^ 1]))
    again = open_spool()
    assert again.identity == spool.identity
    assert _payloads(again) == [b"0", b"1", b"2"]


def test_another_version_of_the_format_is_refused(open_spool):
    path = newest_segment(_with_entries(open_spool))
    damage(path, 7, b"9")
    with pytest.raises(StoreError, match="use the Tailrace that wrote it"):
        open_spool()


@pytest.mark.parametrize("text", [b"", b"\xff" * 32, b"0" * 31, None, "directory"])
def test_a_damaged_identity_is_written_anew(open_spool, text):
    spool = _with_entries(open_spool)
    mark = spool.directory / "identity"
    before = mark.read_bytes()
    mark.unlink()
    if text == "directory":
        mark.mkdir()
    elif text is not None:
        mark.write_bytes(text)
    again = open_spool()
    assert (mark.read_bytes(), again.identity) == (before, spool.identity)
    assert _payloads(again) == [b"0", b"1", b"2"]


def test_the_newest_segment_must_be_a_file(open_spool):
    path = newest_segment(_with_entries(open_spool))
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="restore it from a copy, or move"):
        open_spool()
    assert path.is_dir()


def test_a_segment_cut_within_its_header_is_an_empty_one(open_spool):
    path = newest_segment(_with_entries(open_spool))
    for size in (40, 0):
        os.truncate(path, size)
        again = open_spool()
        assert (again.begin, again.end) == (0, 0)
        again.close()
