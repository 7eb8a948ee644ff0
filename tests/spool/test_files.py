"""The real file system: what of a file was written."""

from __future__ import annotations

import os
import tempfile
from itertools import cycle
from pathlib import Path

from hypothesis import given, settings, strategies as st

from tailrace.spool.disk import Disk, FileSystem
from tailrace.spool.entry import EntryKind
from tests.spool.conftest import kill

SIZE = 2**20
writes = st.tuples(st.integers(0, SIZE), st.binary(min_size=1, max_size=9000))


@settings(max_examples=100)
@given(st.lists(writes, max_size=6), st.sampled_from([0, SIZE // 2, SIZE]), st.booleans())
def test_outside_of_what_was_written_all_is_zero(written, allocated, synced):
    files = FileSystem()
    with tempfile.TemporaryFile() as file:
        fd = file.fileno()
        if allocated:
            files.allocate(fd, allocated)
        for offset, data in written:
            files.write(fd, [data], offset)
        if synced:
            files.sync(fd)
        ranges = files.written(fd)
        assert ranges == sorted(ranges)
        bounds = [0, *(place for each in ranges for place in each), files.size(fd)]
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            assert start <= end
            assert not any(os.pread(fd, end - start, start))


class Taking(FileSystem):
    """A file system that writes at most as many bytes at once as the next number of a cycle."""

    def __init__(self, sizes):
        self._sizes = cycle(sizes)

    def write(self, fd, pieces, offset):
        return os.pwrite(fd, b"".join(pieces)[: next(self._sizes)], offset)


@given(
    st.lists(st.binary(max_size=9), max_size=6),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_all_pieces_are_written_however_few_bytes_one_write_takes(pieces, sizes):
    with tempfile.TemporaryFile() as file:
        Disk(Taking(sizes)).write_at(file.fileno(), pieces, 5, Path("file"))
        assert os.pread(file.fileno(), 100, 5) == b"".join(pieces)


def test_a_spool_reads_of_its_segment_what_was_written(open_spool, monkeypatch):
    """Not the 64 MiB that it allocated."""
    sizes = {"segment_size": 2**26, "max_size": 2**27}
    spool = open_spool(**sizes)
    spool.append(EntryKind.DATA, 1, b"x" * 100)
    spool.sync()
    kill(spool)
    read = []

    def count(*arguments):
        read.append(os.pread(*arguments))
        return read[-1]

    monkeypatch.setattr(FileSystem, "read", staticmethod(count))
    assert open_spool(**sizes).recovery.entries == 1
    assert sum(map(len, read)) < 2**23
