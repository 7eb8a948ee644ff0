"""More compressed files with unfinished members than inflaters: what is read is the same, and costs a bounded share."""

from __future__ import annotations

import gc
import random
import weakref
import zlib

import pytest
import trio
from msgspec import structs

from tailrace.sources.tail import turns
from tailrace.sources.tail.content import Compressed
from tailrace.sources.tail.inflate import INFLATER_BYTES, Inflater

MAGIC = b"\x1f\x8b\x08"


class Writer:
    """The writer of a file with one member that never ends."""

    def __init__(self, files, name):
        self.content = b""
        self._files, self._name = files, name
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        self._random = random.Random(name)

    def write(self, size, *, flush=zlib.Z_SYNC_FLUSH):
        """Write content that is packed into about its half."""
        packed = 2 * MAGIC
        while MAGIC in packed[3:]:  # what may be another member is waited for
            deflate = self._deflate.copy()
            data = self._random.randbytes(size // 2).hex().encode()[:-1] + b"\n"
            packed = deflate.compress(data) + deflate.flush(flush)
        self._deflate = deflate
        self.content += data
        self._files.append(self._name, packed)


@pytest.fixture
def members(monkeypatch):
    """The number of bytes that inflaters were fed with, and the readers that there are."""

    class Members:
        def __init__(self):
            self.fed = 0
            self.readers = []

        @property
        def memory(self):
            return sum(reader.memory for reader in self.readers)

    found = Members()
    feed, init = Inflater.feed, Compressed.__init__

    def fed(inflater, data):
        found.fed += len(data)
        feed(inflater, data)

    def made(reader, *given, **keys):
        init(reader, *given, **keys)
        found.readers.append(reader)

    monkeypatch.setattr(Inflater, "feed", fed)
    monkeypatch.setattr(Compressed, "__init__", made)
    return found


def check(intake, writers):
    assert len(intake.sessions) == len(writers), [s.closed for s in intake.sessions if s.closed]
    ended = sorted(writer.content for writer in writers)
    for found, content in zip(sorted(intake.contents), ended, strict=True):
        assert len(found) == len(content)
        assert found == content


@pytest.mark.parametrize("flush", [zlib.Z_SYNC_FLUSH, zlib.Z_NO_FLUSH])
async def test_files_that_grow_in_turns_are_read_within_the_memory(
    autojump_clock, follow, files, intake, members, settle, flush
):
    limit = turns.ACTIVE_BYTES + 5 * INFLATER_BYTES
    writers = [Writer(files, f"{n}.gz") for n in range(40)]
    for writer in writers:
        writer.write(100_000)
    follow(inflating_max=limit)
    await settle()
    for _ in range(5):
        for writer in writers:
            writer.write(40_000, flush=flush)
            await trio.sleep(0.05)
            assert members.memory <= limit
    for writer in writers:
        writer.write(100, flush=zlib.Z_FINISH)
    await settle()
    check(intake, writers)
    assert members.memory == 0


async def test_what_is_inflated_again_is_bounded_in_time_and_every_file_has_its_turn(
    autojump_clock, follow, files, intake, members, settle, monkeypatch
):
    """The files grow by less than was to be inflated again, so that each piece would cost as much as the whole file."""
    rate = 2**20
    monkeypatch.setattr(turns, "AGAIN_RATE", rate)
    writers = [Writer(files, f"{n}.gz") for n in range(30)]
    for writer in writers:
        writer.write(200_000)
    follow(inflating_max=0)
    await settle()
    begun, whole, rounds = members.fed, sum(len(w.content) for w in writers), 20
    assert begun < whole
    for _ in range(rounds):
        for writer in writers:
            writer.write(100)
        await trio.sleep(1)
    # Each second `rate` bytes of files and content, and what a turn has to go through when it has begun.
    assert members.fed - begun < rate * rounds + 300_000
    assert members.fed - begun < rounds * whole / 4
    await trio.sleep(whole * 2 / rate + 5)
    check(intake, writers)


async def test_small_files_do_not_wait_for_the_large_ones(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    monkeypatch.setattr(turns, "AGAIN_RATE", 2**20)
    large = [Writer(files, f"large{n}.gz") for n in range(30)]
    small = Writer(files, "small.gz")
    for writer in large:
        writer.write(1_000_000)
    small.write(1000)
    tail = follow(inflating_max=0)
    await settle()
    for writer in large:
        writer.write(100)
    await trio.sleep(1)
    assert tail.source.figures().waiting["inflating_max"] > len(large) / 2
    small.write(100)
    await trio.sleep(4)
    assert small.content in intake.contents
    assert sum(writer.content in intake.contents for writer in large) < len(large) / 2


async def test_files_that_grow_by_much_or_end_need_not_wait(
    autojump_clock, follow, files, intake, members, settle, monkeypatch
):
    """The whole work at most doubles."""
    monkeypatch.setattr(turns, "AGAIN_RATE", 1)
    writers = [Writer(files, f"{n}.gz") for n in range(30)]
    for _ in range(6):
        for writer in writers:
            writer.write(max(5000, 2 * len(writer.content)))
        if len(writers[0].content) == 5000:
            follow(inflating_max=0)
        await trio.sleep(5)
    check(intake, writers)
    assert members.fed <= 2 * sum(len(writer.content) for writer in writers)
    for n, writer in enumerate(writers):
        writer.write(10)
        (files / f"{n}.gz").unlink()
    await settle()
    check(intake, writers)
    assert all(session.closed == "deleted" for session in intake.sessions)


async def test_files_that_grow_without_end_leave_others_their_turn(
    autojump_clock, follow, files, intake, monkeypatch
):
    monkeypatch.setattr(turns, "TURN", 2**20)
    hogs = [Writer(files, f"hog{n}.gz") for n in range(2 * turns.ACTIVE)]
    for hog in hogs:
        hog.write(2**22)
    last = Writer(files, "last.gz")
    last.write(1000)
    intake.fills_after = 4 * turns.ACTIVE * turns.TURN // 2**17
    follow(inflating_max=0)
    await trio.sleep(5)
    assert last.content in intake.contents
    assert any(hog.content not in intake.contents for hog in hogs)
    intake.drain()
    await trio.sleep(5)
    check(intake, [*hogs, last])


async def test_slow_files_have_their_turn_beside_files_that_grow_without_end(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    monkeypatch.setattr(turns, "TURN", 2**17)
    hogs = [Writer(files, f"hog{n}.gz") for n in range(2 * turns.ACTIVE)]
    slow = Writer(files, "slow.gz")
    for writer in [*hogs, slow]:
        writer.write(10_000)
    follow(inflating_max=0)
    await settle()
    for hog in hogs:
        hog.write(2**21)
    slow.write(100)
    intake.fills_after = len(intake.chunks) + 6 * len(hogs)
    await trio.sleep(5)
    assert slow.content in intake.contents
    assert all(hog.content not in intake.contents for hog in hogs)
    intake.drain()
    await settle()
    check(intake, [*hogs, slow])


async def test_files_that_waited_are_forgotten_with_all_of_their_state(
    autojump_clock, follow, files, intake, members, settle, monkeypatch
):
    monkeypatch.setattr(turns, "AGAIN_RATE", 1)
    writers = [Writer(files, f"{n}.gz") for n in range(30)]
    for writer in writers:
        writer.write(5000)
    tail = follow(inflating_max=0)
    await settle()
    for writer in writers:
        writer.write(10)
    await settle()
    waiting = tail.source.figures().waiting["inflating_max"]
    assert waiting > 20
    readers = [weakref.ref(reader) for reader in members.readers]
    members.readers.clear()
    for n in range(len(writers) - 5):
        (files / f"{n}.gz").unlink()
    await settle()
    gc.collect()
    assert sum(reader() is not None for reader in readers) <= 10
    assert tail.source.figures().waiting["inflating_max"] <= 5


async def test_a_file_that_ends_keeps_its_turn(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    """The last byte of the file may begin another member, so its content comes only at the end."""
    monkeypatch.setattr(turns, "TURN", 1)
    writer = Writer(files, "a.gz")
    writer.write(20_000)
    packed = (files / "a.gz").read_bytes()
    cuts = (n + 1 for n in range(10_000, len(packed)) if packed[n] == MAGIC[0])
    cut, content = next(
        (cut, inflated(packed[:cut]))
        for cut in cuts
        if inflated(packed[:cut]) != inflated(packed[: cut - 1])
    )
    files.write("a.gz", packed[:cut])
    tail = follow()
    await settle()
    assert len(intake.contents[0]) < len(content)
    tail.source.reconfigure(structs.replace(tail.config, inflating_max=0))
    await trio.sleep(1)
    (files / "a.gz").unlink()
    await settle()
    assert intake.contents == [content]


def inflated(data):
    return zlib.decompressobj(31).decompress(data)
