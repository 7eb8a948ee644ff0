"""The file system in memory does what a real one does, and forgets what a power cut may take."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.errors import FullError, SyncError
from tailrace.spool.disk import Disk as SpoolDisk, FileSystem
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool
from tailrace.units import Size
from tests.simulation.disk import Crash, Disk

ROOT = Path("/spool")
CALLS = 300


def outcome(call):
    try:
        return call()
    except OSError as error:
        return error.errno


@pytest.mark.parametrize("seed", range(10))
def test_the_same_calls_give_the_same_answers_as_on_a_real_disk(seed, tmp_path):
    random = Random(seed)
    real, simulated = FileSystem(), Disk(Random(seed))
    simulated.make_directory(ROOT)
    names = ["a", "b", "c"]
    files = [(real, tmp_path, {}), (simulated, ROOT, {})]
    for _ in range(CALLS):
        call, name, other = random.choice(range(9)), random.choice(names), random.choice(names)
        offset, data = random.randrange(2000), random.randbytes(random.randrange(1500))
        truncate = random.random() < 0.2
        answers = []
        for each, directory, fds in files:
            path = directory / name
            match call:
                case 0 if name not in fds:
                    fds[name] = each.open(path, write=True, create=True, truncate=truncate)
                    answers.append(each.size(fds[name]))
                case 1 if name in fds:
                    view = memoryview(data)
                    at = offset
                    while view:
                        written = each.write(fds[name], [view], at)
                        at, view = at + written, view[written:]
                case 2 if name in fds:
                    answers.append(each.read(fds[name], len(data), offset))
                case 3 if name in fds:
                    each.truncate(fds[name], offset)
                case 4 if name in fds:
                    each.allocate(fds[name], offset or 1)
                case 5:
                    answers.append(outcome(lambda: each.rename(path, directory / other)))  # noqa: B023
                case 6:
                    answers.append(outcome(lambda: each.unlink(path)))  # noqa: B023
                case 7 if name in fds:
                    each.sync(fds[name])
                    each.close(fds.pop(name))
                case 8:
                    answers.append(each.exists(path))
                    answers.append(each.is_file(path))
            answers += [sorted(each.names(directory)), {n: each.size(fd) for n, fd in fds.items()}]
        half = len(answers) // 2
        assert answers[:half] == answers[half:]


@pytest.mark.parametrize("change", ["truncated", "written", "synced"])
def test_what_has_rotten_is_rotten_also_after_a_power_cut(change):
    """It was on the disk, and nobody wrote it since."""
    disk = Disk(Random(0))
    disk.make_directory(ROOT)
    fd = disk.open(ROOT / "a", create=True)
    disk.write(fd, [bytes(1000)], 0)
    disk.sync(fd)
    disk.sync(disk.open_directory(ROOT))
    if change == "truncated":
        disk.truncate(fd, 700)
    elif change == "written":
        disk.write(fd, [bytes(10)], 650)
    disk.rot(ROOT / "a", 0.85)
    assert disk.keeps(ROOT / "a", 700)
    begin = 595 if change == "truncated" else 850
    disk.cut_power()
    assert disk.read(disk.open(ROOT / "a"), 16, begin) == 16 * b"\x55"


def test_a_power_cut_takes_only_what_was_not_synced():
    taken = kept = 0
    for seed in range(100):
        disk = Disk(Random(seed))
        disk.make_directory(ROOT)
        fd = disk.open(ROOT / "a", write=True, create=True)
        disk.write(fd, [b"1"], 0)
        disk.sync(fd)
        disk.sync(disk.open_directory(ROOT))
        disk.write(fd, [b"2"], 0)
        disk.open(ROOT / "b", create=True)
        disk.cut_power()
        found = disk.read(disk.open(ROOT / "a"), 10, 0)
        assert found in {b"1", b"2"}
        taken += found == b"1" or not disk.exists(ROOT / "b")
        kept += found == b"2" or disk.exists(ROOT / "b")
    assert taken > 20
    assert kept > 20


CONFIG = SpoolConfig(segment_size=Size(4096), max_size=Size(2**20))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("changes", range(0, 60, 3))
def test_a_spool_keeps_what_was_synced_wherever_it_crashes(changes, power):
    disk = Disk(Random(f"{changes}/{power}"))
    durable: list[tuple[int, bytes]] = []
    number = 0
    for _ in range(6):
        disk.crash_in = changes
        waiting: list[tuple[int, bytes]] = []
        try:
            spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
            while True:
                for _ in range(3):
                    number += 1
                    payload = b"%d" % number * 100
                    waiting.append((spool.append(EntryKind.DATA, 1, payload), payload))
                spool.sync()
                durable += waiting
                waiting = []
                spool.release(durable[-1][0] - 8192)
        except Crash:
            disk.cut_power() if power else disk.kill()
        spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
        found, position = [], spool.begin
        while entries := spool.read(position, 2**16):
            found += [(entry.position, entry.payload) for entry in entries]
            position = entries[-1].end
        assert [entry for entry in durable if entry[0] >= spool.begin] == [
            entry for entry in found if entry in durable
        ]
        after = [entry for entry in found if entry not in durable]
        assert after == waiting[: len(after)]
        durable += after
        spool.close()
    assert changes < 9 or durable


def test_a_full_disk_refuses_and_goes_on_once_there_is_room():
    disk = Disk(Random(1))
    spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
    disk.full = True
    spool.append(EntryKind.DATA, 1, bytes(3000))
    spool.sync()  # there is a segment, and another in waiting
    spool.append(EntryKind.DATA, 1, bytes(3000))
    spool.sync()
    assert spool.full
    spool.append(EntryKind.DATA, 1, bytes(3000))
    with pytest.raises(FullError):
        spool.sync()
    disk.empty()
    assert spool.sync() == spool.end
    assert not spool.full


def test_a_sync_that_fails_ends_the_spool():
    disk = Disk(Random(1))
    spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
    spool.append(EntryKind.DATA, 1, b"1")
    disk.broken = "sync"
    for _ in range(2):
        with pytest.raises(SyncError):
            spool.sync()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_found_behind_a_failed_sync_outlives_a_power_cut(seed):
    """The kernel reads out what it failed to write, and says of the next sync that all is well."""
    disk = Disk(Random(seed))
    spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
    spool.append(EntryKind.DATA, 1, bytes(700))
    spool.sync()
    disk.broken = "sync"
    spool.append(EntryKind.DATA, 1, bytes(1500))
    with pytest.raises(SyncError):
        spool.sync()
    disk.kill()
    spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
    spool.append(EntryKind.DATA, 1, b"next")
    durable = spool.sync()
    disk.cut_power()
    spool = Spool.open(ROOT, CONFIG, SystemClock(), SpoolDisk(disk))
    assert spool.durable == durable
    assert not spool.recovery.damage
