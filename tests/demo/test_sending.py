from __future__ import annotations

import os

import pytest
import trio

from tailrace.demo.traffic import Write, write_files

RATE = 10_000.0


async def test_what_is_written_to_a_file_is_appended_or_takes_the_place_of_all(tmp_path):
    writes = [
        Write("a/trace", b"one "),
        Write("a/b/stream.json", b"{}", anew=True),
        Write("a/trace", b"two"),
        Write("a/b/stream.json", b"", anew=True),
        Write("a/b/stream.json", b"[]"),
    ]
    await write_files(tmp_path, writes, RATE)
    assert (tmp_path / "a" / "trace").read_bytes() == b"one two"
    assert (tmp_path / "a" / "b" / "stream.json").read_bytes() == b"[]"
    assert sum(len(files) for *_, files in os.walk(tmp_path)) == 2


async def test_each_write_is_there_at_once_and_a_file_stays_the_same(tmp_path):
    path = tmp_path / "trace"
    seen = []

    def writes():
        for number in range(4):
            if path.exists():
                seen.append((path.stat().st_ino, path.read_bytes()))
            yield Write("trace", b"%d" % number, anew=number == 2)

    await write_files(tmp_path, writes(), RATE)
    inodes, contents = zip(*seen, strict=True)
    assert contents == (b"0", b"01", b"2")
    assert len(set(inodes)) == 1


async def test_files_of_another_run_are_left_alone(tmp_path):
    (tmp_path / "trace").write_bytes(b"another")
    with pytest.raises(FileExistsError):
        await write_files(tmp_path, [Write("trace", b"1")], RATE)
    assert (tmp_path / "trace").read_bytes() == b"another"


async def test_the_rate_is_kept(autojump_clock, tmp_path):
    begun = trio.current_time()
    await write_files(tmp_path, [Write("trace", b"1")] * 600, 60.0)
    assert trio.current_time() - begun == pytest.approx(10.0, rel=0.1)
