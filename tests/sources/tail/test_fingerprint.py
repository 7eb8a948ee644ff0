"""A file's fingerprint is what the ingest remembers of having read it, however it came."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tailrace.sources.tail.content import RAW_MAX, beginning, fingerprint
from tailrace.spool.payloads import FileFacts, FileLoss, FileState

FACTS = FileFacts(path="/a", device=1, inode=1, birth=0)
FILES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def as_read(content, cuts=()):
    """The state after these bytes, cut anywhere."""
    state = FileState(FACTS, crc=0)
    for begin, stop in pairwise(
        [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    ):
        state.read(content[begin:stop])
    return state


@FILES
@given(st.binary(max_size=600), st.lists(st.integers(0, 10**6)), st.lists(st.integers(0, 700)))
@example(b"\x1f", [1], [1])
@example(b"\x1f\x8b", [], [2])
def test_it_is_what_was_read_at_every_size_asked_for(tmp_path, content, cuts, sizes):
    plain, compressed = tmp_path / "a", tmp_path / "a.gz"
    plain.write_bytes(content)
    half = len(content) // 2
    compressed.write_bytes(gzip.compress(content[:half]) + gzip.compress(content[half:]))
    state = as_read(content, cuts)
    for file in (plain, compressed):
        found = fingerprint(str(file), sizes)
        if file is plain and content.startswith(b"\x1f\x8b"):
            continue  # it is no plain file
        assert (found.size, found.crc) == (state.offset, state.crc)
        for size in sizes:
            crc = as_read(content[:size]).crc
            assert found.begins_with(size, crc) == (0 < size <= len(content))
            assert not found.begins_with(size, crc ^ 1)


def test_the_first_two_bytes_say_nothing(tmp_path):
    """DFTracer 1.0 writes a bracket there when it is done."""
    for name, content in {"a": b"  {1}", "b": b"[\n{1}", "c": b"[\n{2}"}.items():
        (tmp_path / name).write_bytes(content)
    a, b, c = (fingerprint(str(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_holes_are_passed_over_and_counted(tmp_path):
    file = tmp_path / "a"
    with file.open("wb") as sparse:
        sparse.write(b"begin" * 1000)
        sparse.truncate(2**20)
        sparse.seek(2**20)
        sparse.write(b"end")
    if os.stat(file).st_blocks * 512 >= 2**20:  # noqa: PTH116 - blocks
        pytest.skip("the file system keeps no holes")
    with file.open("rb") as there:
        begin = os.lseek(there.fileno(), 0, os.SEEK_HOLE)
    state = as_read((b"begin" * 1000).ljust(begin, b"\0"))
    state.lose(FileLoss(detail="hole", size=2**20 - begin))
    state.read(b"end")
    found = fingerprint(str(file), [begin, begin + 1])
    assert (found.size, found.crc) == (state.offset, state.crc)
    assert found.begins[begin] == found.begins[begin + 1]


def test_a_beginning_is_looked_for_in_few_bytes(tmp_path):
    """A file may have millions of empty members."""
    file, empty = tmp_path / "a.gz", gzip.compress(b"")
    for members, found in ((100, b"x"), (RAW_MAX // len(empty) + 1, b"")):
        file.write_bytes(empty * members + gzip.compress(b"x"))
        with file.open("rb") as opened:
            assert beginning(opened.fileno()) == found


def test_a_beginning_leaves_damage_out_and_goes_on_behind_it(tmp_path):
    """So that the copy of a damaged file is known, wherever the damage ends the members before it."""
    file, torn = tmp_path / "a.gz", gzip.compress(b"a" * 99, mtime=0)[:-8]
    damaged = gzip.compress(b"b" * 99, mtime=0) + b"?" * 200
    file.write_bytes(torn + damaged + gzip.compress(b"c" * 9000))
    with file.open("rb") as opened:
        assert beginning(opened.fileno()) == (b"a" * 99 + b"b" * 99).ljust(4096, b"c")


def test_a_state_of_which_an_earlier_version_read_a_part_has_none():
    state = FileState(FACTS, offset=3)
    state.read(b"more")
    assert state.crc is None
