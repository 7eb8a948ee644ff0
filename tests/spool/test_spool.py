from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable
from itertools import count, pairwise

import pytest

from tailrace.errors import FullError, LockedError, LostError, StoreError, SyncError
from tailrace.spool import spool as spool_module
from tailrace.spool.entry import PAYLOAD_MAX, Entry, EntryKind
from tailrace.spool.segment import HEAD_SIZE, HEADER_SIZE, SegmentWriter
from tailrace.spool.spool import RELEASED_MAX, RELEASED_MIN, ROOM_MIN, SYNC_EARLY, Spool
from tests.spool.conftest import kill

DATA = EntryKind.DATA


def everything(spool: Spool, position: int | None = None) -> list[Entry]:
    """All durable entries from a position on."""
    entries: list[Entry] = []
    position = spool.begin if position is None else position
    while found := spool.read(position, 2000):
        entries += found
        position = found[-1].end
    assert position == spool.durable
    return entries


def payloads(spool: Spool) -> list[bytes]:
    return [entry.payload for entry in everything(spool)]


def reopened(spool: Spool, open_spool: Callable[..., Spool], **config: int) -> Spool:
    spool.close()
    return open_spool(**config)


def test_entries_come_back_as_they_were_appended(open_spool, clock):
    spool = open_spool()
    positions = [
        spool.append(EntryKind.START, 0, b"daemon"),
        spool.append(DATA, 2**64 - 1, b"bytes"),
        spool.append(EntryKind.TICK, 0),
    ]
    assert spool.sync() == spool.end
    expected = [
        Entry(0, HEAD_SIZE + 6, EntryKind.START, 0, clock.now_ns, b"daemon"),
        Entry(positions[1], positions[2], DATA, 2**64 - 1, clock.now_ns, b"bytes"),
        Entry(positions[2], positions[2] + HEAD_SIZE, EntryKind.TICK, 0, clock.now_ns, b""),
    ]
    assert everything(spool) == expected
    assert everything(reopened(spool, open_spool)) == expected


def test_an_entry_wakes_the_sync_which_hurries_when_much_waits(open_spool):
    spool = open_spool()
    assert not spool.dirty.is_set
    for _ in range(SYNC_EARLY // PAYLOAD_MAX):
        spool.append(DATA, 1, bytes(PAYLOAD_MAX - HEAD_SIZE))
    assert spool.buffered == SYNC_EARLY
    assert (spool.dirty.is_set, spool.urgent.is_set) == (True, False)
    spool.append(EntryKind.TICK, 0)
    assert spool.urgent.is_set


def test_nothing_is_read_before_it_is_durable(open_spool):
    spool = open_spool()
    spool.append(DATA, 1, b"first")
    spool.sync()
    durable = spool.durable
    spool.append(DATA, 1, b"second")
    assert spool.durable == durable
    assert spool.buffered == spool.end - durable == HEAD_SIZE + 6
    assert payloads(spool) == [b"first"]
    spool.sync()
    assert spool.buffered == 0
    assert payloads(spool) == [b"first", b"second"]


def test_what_was_not_synced_is_gone_after_close_and_its_positions_are_given_again(open_spool):
    spool = open_spool()
    spool.append(DATA, 1, b"kept")
    end = spool.sync()
    spool.append(DATA, 1, b"dropped")
    spool = reopened(spool, open_spool)
    assert payloads(spool) == [b"kept"]
    assert spool.end == end


def test_the_identity_is_drawn_once(open_spool):
    spool = open_spool()
    identity = spool.identity
    assert len(bytes.fromhex(identity)) == 16
    assert reopened(spool, open_spool).identity == identity


def test_time_never_decreases_not_even_over_a_restart(open_spool, clock):
    spool = open_spool()
    latest = clock.now_ns
    spool.append(DATA, 1)
    clock.now_ns -= 10**9
    spool.append(DATA, 1)
    spool.sync()
    spool = reopened(spool, open_spool)
    spool.append(DATA, 1)
    clock.passes(5)
    spool.append(DATA, 1)
    spool.sync()
    assert [entry.time_ns for entry in everything(spool)] == [latest, latest, latest, latest + 5]


def test_time_never_decreases_when_the_newest_segment_is_still_empty(open_spool, clock, disk):
    """A stop right after a new segment got its name, and all before it was released."""
    spool = open_spool()
    latest = clock.now_ns
    spool.append(DATA, 1, bytes(4000))
    spool.sync()
    spool.append(DATA, 1, bytes(4000))
    with (
        disk.failing(("fdatasync",), KeyboardInterrupt(), after=0),
        pytest.raises(KeyboardInterrupt),
    ):
        spool.sync()
    spool.release(spool.durable)
    spool.close()
    newest = max(spool.directory.glob("0*.segment"))
    os.truncate(newest, 64)
    clock.now_ns -= 10**9
    spool = open_spool()
    assert spool.begin == spool.end > 0
    spool.append(DATA, 1)
    spool.sync()
    assert [entry.time_ns for entry in everything(spool)] == [latest]


def test_segments_follow_one_another_without_a_hole(open_spool):
    spool = open_spool()
    sizes = [(37 * index) % 3000 for index in range(60)]
    for index, size in enumerate(sizes):
        spool.append(DATA, index, bytes([index]) * size)
        if index % 7 == 0:
            spool.sync()
    spool.sync()
    assert len(list(spool.directory.glob("0*.segment"))) > 10
    followed = everything(spool)
    assert [(entry.session, len(entry.payload)) for entry in followed] == list(enumerate(sizes))
    assert all(one.end == other.position for one, other in pairwise(followed))
    assert everything(reopened(spool, open_spool)) == followed


def test_an_entry_larger_than_a_segment_has_one_of_its_own(open_spool):
    spool = open_spool()
    large = os.urandom(PAYLOAD_MAX)
    for payload in (b"before", large, b"after", large, large):
        spool.append(DATA, 1, payload)
    spool.sync()
    assert payloads(reopened(spool, open_spool)) == [b"before", large, b"after", large, large]


def test_an_entry_that_cannot_be_written_is_refused_at_once(open_spool):
    spool = open_spool()
    with pytest.raises(ValueError, match="1048577 bytes"):
        spool.append(DATA, 1, bytes(PAYLOAD_MAX + 1))
    for session in (-1, 2**64):
        with pytest.raises(ValueError, match="session"):
            spool.append(DATA, session)
    assert spool.end == 0


def test_a_read_returns_about_as_much_as_was_asked_for(open_spool):
    spool = open_spool(segment_size=2**16)
    for index in range(100):
        spool.append(DATA, index, bytes(60))
    spool.sync()
    for _ in range(2):  # from memory, then from the file
        assert [entry.session for entry in spool.read(0, 1000)] == list(range(10))
        assert [entry.session for entry in spool.read(500, 0)] == [5]
        assert [entry.session for entry in spool.read(500, 10**6)] == list(range(5, 100))
        assert spool.read(spool.durable, 1000) == []
        spool = reopened(spool, open_spool, segment_size=2**16)


def test_reading_back_from_the_start_gives_the_same_as_following(open_spool):
    spool = open_spool()
    followed: list[Entry] = []
    for index in range(200):
        spool.append(DATA, index, b"x" * (index % 50))
        if index % 3 == 0:
            spool.sync()
            followed += spool.read(followed[-1].end if followed else 0, 10**6)
    spool.sync()
    followed += everything(spool, followed[-1].end)
    assert everything(spool, 0) == followed


def test_a_position_outside_the_log_is_refused(open_spool):
    spool = open_spool()
    for _ in range(5):
        spool.append(DATA, 1, bytes(3000))
    spool.sync()
    spool.release(spool.durable)
    assert spool.begin > 0
    for position in (0, spool.begin - 1, spool.durable + 1):
        with pytest.raises(ValueError, match="is not in"):
            spool.read(position, 1000)


def test_release_deletes_whole_segments_below_and_never_the_newest(open_spool):
    spool = open_spool()
    ends = []
    for _ in range(8):
        spool.append(DATA, 1, bytes(3000))
        ends.append(spool.sync())
    size = spool.size
    spool.release(ends[2] - 1)
    assert spool.begin == ends[1]
    spool.release(ends[-1])
    assert spool.begin == ends[-2]
    assert spool.size < size
    assert len(payloads(spool)) == 1
    spool = reopened(spool, open_spool)
    assert (spool.begin, spool.end) == (ends[-2], ends[-1])


def test_files_of_released_segments_become_the_next_ones(open_spool):
    """As many as a checkpoint under load frees; further ones go."""
    spool = open_spool()
    inodes = set()
    for _ in range(60):
        spool.append(DATA, 1, bytes(3000))
        spool.release(spool.sync() - 9000)
        inodes |= {path.stat().st_ino for path in spool.directory.glob("*.segment")}
        assert len(list(spool.directory.glob("released-*"))) <= RELEASED_MIN
    assert len(inodes) < 12
    spool.release(spool.durable)
    assert len(list(spool.directory.glob("*.segment"))) <= 2 + RELEASED_MIN


@pytest.mark.parametrize("after", range(4))
def test_a_disk_without_room_for_a_name_leaves_no_released_file_behind(open_spool, disk, after):
    """A rename needs room in the directory, and even a removal may need some."""
    spool = open_spool()

    def fill(segments):
        for _ in range(segments):
            spool.append(DATA, 1, bytes(3000))
            spool.sync()

    fill(8)
    spool.release(spool.durable)
    fill(5)
    full = disk.failing(("rename", "replace", "unlink"), OSError(errno.ENOSPC, ""), after=after)
    with full, pytest.raises(FullError):
        spool.release(spool.durable)
    spool.release(spool.durable)
    on_disk = sum(path.stat().st_size for path in spool.directory.glob("*.segment"))
    assert on_disk <= spool.size + 4096  # and the file of the next segment
    fill(1)
    spool.release(spool.durable)
    assert len(list(spool.directory.glob("*.segment"))) <= 2 + RELEASED_MIN


def test_a_check_beside_a_release_finds_nothing_lost(open_spool, monkeypatch):
    """Another thread may look for the files of the log as soon as one of them has another name or is gone."""
    spool = open_spool()
    for _ in range(RELEASED_MAX + 5):
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
    checked = []

    def checking(call):
        def called(*args):
            call(*args)
            spool.check()
            checked.append(call)

        return called

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, checking(getattr(os, name)))
        spool.release(spool.durable)
    assert len(checked) == RELEASED_MAX + 4
    assert len(set(checked)) == 2
    assert len(everything(spool)) == 1


@pytest.mark.parametrize(
    ("freed", "kept"), [(2, 2), (6, 6), (RELEASED_MAX, RELEASED_MAX), (20, RELEASED_MAX)]
)
def test_as_many_files_are_kept_as_a_release_freed(open_spool, freed, kept):
    """The log grows by as much until the next checkpoint. After a small one, fewer are kept."""
    spool = open_spool()

    def grow_and_release(segments):
        """Return how many files are kept, besides those of the newest segment and of the next."""
        for _ in range(segments):
            spool.append(DATA, 1, bytes(3000))
            spool.sync()
        spool.release(spool.durable)
        return len(list(spool.directory.glob("*.segment"))) - 2

    grow_and_release(freed + 1)
    assert [grow_and_release(freed) for _ in range(5)] == [kept] * 5
    assert grow_and_release(1) == min(kept, RELEASED_MIN)
    assert spool.size == sum(path.stat().st_size for path in spool.directory.glob("*.segment"))
    assert len(everything(spool)) == 1


def test_a_file_that_was_to_be_used_again_may_be_gone(open_spool):
    spool = open_spool()
    for _ in range(8):
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
    spool.release(spool.durable)
    for path in spool.directory.glob("released-*"):
        path.unlink()
    for number in range(20):
        spool.append(DATA, number, bytes(3000))
        spool.sync()
    assert [entry.session for entry in everything(spool)][-20:] == list(range(20))


def test_files_to_be_used_again_keep_no_source_waiting(open_spool):
    spool = open_spool(max_size=64 * 2**10)
    while not spool.full:
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
    spool.release(spool.durable)
    assert list(spool.directory.glob("released-*"))
    assert not spool.full


def test_the_size_is_what_the_files_take(open_spool):
    spool = open_spool(segment_size=2**14)
    for _ in range(10):
        spool.append(DATA, 1, bytes(5000))
        spool.sync()
        files = spool.directory.glob("*.segment")
        assert spool.size == sum(file.stat().st_size for file in files)


def test_a_closed_spool_takes_no_more_than_its_entries(open_spool):
    spool = open_spool()
    for _ in range(12):
        spool.append(DATA, 1, bytes(1500))
        spool.sync()
    spool.release(spool.durable)
    assert list(spool.directory.glob("released-*"))
    held = spool.durable - spool.begin
    spool.close()
    [segment] = spool.directory.glob("*.segment")
    assert segment.stat().st_size == HEADER_SIZE + held
    assert payloads(open_spool()) == [bytes(1500)] * 2


def test_what_a_killed_process_preallocated_is_given_back_by_the_next_close(open_spool):
    spool = open_spool()
    spool.append(DATA, 1, b"acknowledged")
    spool.sync()
    kill(spool)
    assert len(list(spool.directory.glob("*.segment"))) == 2
    spool = reopened(open_spool(), open_spool)
    spool.close()
    [segment] = spool.directory.glob("*.segment")
    assert segment.stat().st_size == HEADER_SIZE + spool.durable


def test_a_close_leaves_a_disk_alone_that_has_failed(open_spool, disk):
    """The kernel may have dropped what it called written, and only recovery knows what to do."""
    spool = open_spool()
    spool.append(DATA, 1, b"x")
    with disk.failing(disk.SYNCS, OSError(errno.EIO, "Input/output error"), after=0):
        with pytest.raises(SyncError):
            spool.sync()
        left = sorted((path, path.stat().st_size) for path in spool.directory.iterdir())
        spool.close()
    assert sorted((path, path.stat().st_size) for path in spool.directory.iterdir()) == left


def test_room_is_preallocated_as_the_log_grows(open_spool):
    """Twice what is used, up to a whole segment; then the next one, too."""
    whole = 4 * ROOM_MIN
    spool = open_spool(segment_size=whole, max_size=16 * whole)
    assert spool.size == ROOM_MIN
    sizes = {}
    while spool.end < whole + ROOM_MIN:
        spool.append(DATA, 1, bytes(2**19))
        spool.sync()
        files = [path.stat().st_size for path in sorted(spool.directory.glob("*.segment"))]
        assert spool.size == sum(files)
        sizes.setdefault(tuple(files), spool.end)
    one, other = sorted(spool.directory.glob("0*.segment"))
    sealed = one.stat().st_size
    assert list(sizes) == [(ROOM_MIN,), (2 * ROOM_MIN,), (whole, whole), (sealed, whole, whole)]
    for (room, *_), end in list(sizes.items())[1:3]:
        assert end <= room // 2 + 2**20
    assert other.stat().st_size == whole


def test_it_is_full_until_enough_is_released(open_spool):
    spool = open_spool(max_size=64 * 2**10)
    while not spool.full:
        assert spool.size < 64 * 2**10
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
    assert spool.shortage is None
    spool.append(DATA, 1, b"what was on its way still finds room")
    spool.sync()
    assert payloads(spool)[-1].startswith(b"what was on its way")
    spool.release(spool.durable)
    assert not spool.full


def test_its_files_stay_within_the_limit_however_much_is_written_at_once(open_spool):
    """Sources look before each chunk, and seldom syncs bring many chunks to disk at once."""
    limit = 8 * 2**20
    for chunk in (700, 30_000, 2**19, PAYLOAD_MAX):
        spool = open_spool(segment_size=2**20, max_size=limit)
        for _ in range(3):
            while spool.held <= spool.held_max:
                spool.append(DATA, 1, bytes(chunk))
            spool.sync()
            assert spool.full
            assert limit // 2 < spool.size <= limit
            spool.release(spool.durable)
            assert not spool.full
        spool.close()


def test_segments_are_never_so_large_that_they_fill_the_spool_alone(open_spool):
    spool = open_spool(segment_size=2**20, max_size=2**16)
    for _ in range(100):
        spool.append(DATA, 1, bytes(1000))
        spool.sync()
        spool.release(spool.durable)
        assert not spool.full
        assert spool.size < 2**16


def test_it_is_never_full_of_what_cannot_be_released(open_spool):
    """Or no source would ever be let in again."""
    spool = open_spool(max_size=2**19)
    spool.append(DATA, 1, bytes(PAYLOAD_MAX))
    spool.sync()
    spool.release(spool.durable)
    assert spool.size > 2**19
    assert not spool.full


def test_appending_goes_on_while_another_thread_syncs(open_spool):
    spool = open_spool(segment_size=2**16, max_size=2**24)
    count = 20_000
    done = threading.Event()

    def sync_all_the_time() -> None:
        while not done.is_set():
            spool.sync()

    worker = threading.Thread(target=sync_all_the_time)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # a thread may lose its turn anywhere
    try:
        worker.start()
        followed = 0
        position = 0
        for index in range(count):
            spool.append(DATA, index, b"payload")
            for entry in spool.read(position, 1000):
                assert entry.session == followed
                followed, position = followed + 1, entry.end
    finally:
        done.set()
        worker.join()
        sys.setswitchinterval(interval)
    spool.sync()
    assert [entry.session for entry in everything(spool, 0)] == list(range(count))


def test_nothing_is_read_that_is_not_called_durable_yet(open_spool, monkeypatch):
    """By another thread, between the sync of a segment and the word that it is durable."""
    spool = open_spool()
    spool.append(DATA, 1, b"first")
    spool.sync()
    read = []
    real = SegmentWriter.append

    def append(writer: SegmentWriter, entries: list[Entry]) -> None:
        real(writer, entries)
        read.append((spool.durable, spool.read(0, 2000), spool.read(spool.durable, 2000)))

    monkeypatch.setattr(SegmentWriter, "append", append)
    monkeypatch.setattr(spool_module, "RECENT_MAX", 0)
    spool._recent.clear()  # as for a reader who has fallen behind
    spool.append(DATA, 2, b"second")
    spool.sync()
    [(durable, entries, after)] = read
    assert [entry.payload for entry in entries] == [b"first"]
    assert (entries[-1].end, after) == (durable, [])
    assert payloads(spool) == [b"first", b"second"]


def test_a_directory_in_use_is_refused_with_the_pid(open_spool):
    open_spool()
    with pytest.raises(LockedError, match=f"pid {os.getpid()}$"):
        open_spool()


def test_a_directory_that_cannot_be_made_is_refused(open_spool, tmp_path):
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(StoreError, match=r"spool: "):
        open_spool()


def test_a_closed_spool_refuses_everything(open_spool):
    spool = open_spool()
    spool.close()
    for call in (
        spool.sync,
        lambda: spool.append(DATA, 1),
        lambda: spool.read(0, 1),
        lambda: spool.release(0),
    ):
        with pytest.raises(StoreError, match="is closed"):
            call()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("after", range(12))
def test_no_room_at_any_write_loses_nothing(open_spool, disk, number, after):
    """Three syncs over several segments; each write in turn finds no room, twice."""
    spool = open_spool()
    expected = []
    with disk.failing(disk.WRITES, OSError(number, os.strerror(number)), after=after, times=2):
        for index in range(9):
            expected.append(bytes([index]) * 1500)
            spool.append(DATA, index, expected[-1])
            if index % 3 == 2:
                durable, refused = spool.durable, ""
                try:
                    spool.sync()
                except FullError as error:
                    refused = str(error)
                assert (not refused) == (spool.buffered == 0)
                assert spool.full or not refused
                assert refused in {"", spool.shortage}
                assert os.strerror(number) in refused or not refused
                assert spool.durable >= durable
                assert payloads(spool) == expected[: len(payloads(spool))]
    spool.sync()
    assert disk.calls > after, "the failing call was reached"
    assert payloads(spool) == expected
    assert not spool.full
    assert payloads(reopened(spool, open_spool)) == expected


def again(call: Callable[[], object]) -> object:
    while True:
        with contextlib.suppress(FullError):
            return call()


@pytest.mark.parametrize("after", range(10))
def test_no_free_descriptor_at_any_call_loses_nothing(open_spool, disk, after):
    """Three syncs over several segments, each read back, and a release; each `open` in turn fails, twice."""
    spool = open_spool()
    expected = []
    with disk.failing(
        ("open",), OSError(errno.EMFILE, os.strerror(errno.EMFILE)), after=after, times=2
    ):
        for index in range(9):
            expected.append(bytes([index]) * 1500)
            spool.append(DATA, index, expected[-1])
            if index % 3 == 2:
                again(spool.sync)
                assert again(lambda: payloads(spool)) == expected
        again(lambda: spool.release(spool.durable))
    assert disk.calls > after, "the failing call was reached"
    kept = payloads(spool)
    assert kept == expected[-len(kept) :]
    assert payloads(reopened(spool, open_spool)) == kept


def test_without_a_free_descriptor_no_file_is_left_that_the_size_leaves_out(open_spool, disk):
    spool = open_spool()
    for index in range(9):
        spool.append(DATA, index, bytes([index]) * 1500)
        spool.sync()
    spool.release(spool.durable)
    assert spool._released
    # The spare becomes a segment first.
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with disk.failing(("open",), error, after=1, times=99):
        for index in range(9):
            spool.append(DATA, index, bytes([index]) * 1500)
            with contextlib.suppress(FullError):
                spool.sync()
        assert spool.shortage
    assert sum(path.stat().st_size for path in spool.directory.glob("*segment")) == spool.size


def test_a_start_without_a_free_descriptor_can_be_repeated(open_spool, disk):
    """Each `open` of a start in turn fails. The start says that no descriptor was free, and changes nothing."""
    spool = open_spool()
    for index in range(9):
        spool.append(DATA, index, bytes([index]) * 1500)
        spool.sync()
    expected = payloads(spool)
    for after in count():
        spool.close()
        error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        with disk.failing(("open",), error, after=after), contextlib.suppress(FullError):
            spool = open_spool()
        if disk.calls <= after:
            break
        spool.close()
        spool = open_spool()
        assert payloads(spool) == expected
    assert after > 5


def test_a_disk_nearly_full_is_noticed_while_there_is_still_room(open_spool, disk):
    no_room = OSError(errno.ENOSPC, "No space left on device")
    spool = open_spool()
    with disk.failing(("posix_fallocate",), no_room, after=0, times=99):
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
        assert not spool.full
        spool.append(DATA, 1, bytes(3000))
        spool.sync()
        assert spool.full
        assert "next.segment: No space left on device" in spool.shortage
        spool.append(DATA, 1, b"what was on its way")
        spool.sync()
        assert payloads(spool)[-1] == b"what was on its way"
    spool.sync()
    assert not spool.full


def test_it_opens_on_a_full_disk(open_spool, disk):
    """Or the table could not take what the spool holds, and nothing could ever be released."""
    spool = open_spool()
    spool.append(DATA, 1, b"kept")
    spool.sync()
    spool.close()
    with disk.failing(("posix_fallocate",), OSError(errno.ENOSPC, "full"), after=0, times=99):
        spool = open_spool(segment_size=2**16)
        assert payloads(spool) == [b"kept"]
        assert spool.full
    spool.sync()
    assert not spool.full


def test_a_start_needs_no_room_for_its_pid(open_spool, disk):
    """After a power cut on a full disk the lock may be empty, and nobody has room for the pid."""
    with disk.failing(disk.WRITES, OSError(errno.ENOSPC, "full"), after=0):
        spool = open_spool()
    with pytest.raises(LockedError, match="unknown"):
        open_spool()
    spool.close()


def test_a_spool_that_cannot_be_made_leaves_nothing_that_is_taken_for_one(open_spool, disk):
    for after in range(1, 4):  # the first write is the lock's
        with (
            disk.failing(disk.WRITES, OSError(errno.ENOSPC, "full"), after=after),
            pytest.raises(FullError),
        ):
            open_spool()
    spool = open_spool()
    assert (spool.begin, spool.end) == (0, 0)


def test_a_file_system_without_preallocation_serves_as_well(open_spool, disk):
    error = OSError(errno.EOPNOTSUPP, "Operation not supported")
    with disk.failing(("posix_fallocate",), error, after=0, times=99):
        spool = open_spool()
        for _ in range(5):
            spool.append(DATA, 1, bytes(3000))
        spool.sync()
    assert payloads(reopened(spool, open_spool)) == [bytes(3000)] * 5


@pytest.mark.parametrize("after", range(8))
def test_after_a_failed_sync_of_any_kind_everything_is_refused(open_spool, disk, after):
    spool = open_spool()
    acknowledged = []
    failed_at = None
    with disk.failing(disk.SYNCS, OSError(errno.EIO, "Input/output error"), after=after):
        for index in range(9):
            spool.append(DATA, index, bytes(3000))
            durable = spool.durable
            try:
                spool.sync()
            except SyncError:
                failed_at = index
                assert spool.durable == durable
                break
            acknowledged.append(index)
    assert failed_at is not None
    calls = (
        spool.sync,
        lambda: spool.append(DATA, 1),
        lambda: spool.read(0, 1),
        lambda: spool.release(0),
    )
    for call in calls:
        with pytest.raises(SyncError, match="Input/output error"):
            call()
    entries = everything(reopened(spool, open_spool))
    assert [entry.session for entry in entries][: len(acknowledged)] == acknowledged


def test_an_error_of_a_write_that_is_not_about_room_stops_as_well(open_spool, disk):
    spool = open_spool()
    spool.append(DATA, 1, b"x")
    with (
        disk.failing(("pwritev",), OSError(errno.EIO, "Input/output error"), after=0),
        pytest.raises(SyncError),
    ):
        spool.sync()
    with pytest.raises(SyncError):
        spool.append(DATA, 1, b"x")


def test_a_next_segment_that_somebody_removed_ends_nothing(open_spool):
    spool = open_spool(segment_size=2**16)
    for _ in range(2):
        spool.append(DATA, 1, bytes(2**15 - 1024))
        spool.sync()
    (spool.directory / "next.segment").unlink()
    spool.append(DATA, 1, bytes(2**15))
    spool.sync()
    assert spool.durable == spool.end
    assert len(payloads(reopened(spool, open_spool, segment_size=2**16))) == 3


def replace(path):
    """Put another file with the same bytes in a file's place."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def test_a_spare_that_is_replaced_just_before_its_turn_is_made_again(open_spool):
    spool = open_spool(segment_size=2**16)
    spool.append(DATA, 1, bytes(60_000))
    spool.sync()
    replace(spool.directory / "next.segment")
    spool.append(DATA, 1, b"in the next segment" * 1000)
    assert spool.sync() == spool.end
    assert len(everything(reopened(spool, open_spool, segment_size=2**16))) == 2


def test_a_full_segment_that_is_replaced_is_lost(open_spool):
    """Whoever copied it may not have synced the copy."""
    spool = open_spool(segment_size=2**16)
    for _ in range(2):
        spool.append(DATA, 1, bytes(60_000))
        spool.sync()
    full, _ = sorted(spool.directory.glob("[0-9]*.segment"))
    data = full.read_bytes()
    full.rename(spool.directory / "aside")  # so that the copy is another inode
    full.write_bytes(data)
    with pytest.raises(LostError, match="leads to something else"):
        spool.check()


def test_a_segment_that_is_replaced_just_before_it_is_full_is_lost(open_spool):
    spool = open_spool(segment_size=2**16)
    spool.append(DATA, 1, bytes(60_000))
    durable = spool.sync()
    replace(next(spool.directory.glob("[0-9]*.segment")))
    spool.append(DATA, 1, b"in the next segment" * 1000)
    for _ in range(2):
        with pytest.raises(LostError, match="leads to something else"):
            spool.sync()
    assert spool.durable == durable
