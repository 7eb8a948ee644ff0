"""Which files stay open when there may be no more."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from tailrace.sources.tail.follow import KEPT_OPEN
from tailrace.sources.tail.location import Roots, TailDescriptors


def within(directory):
    roots = Roots(lambda _: ())
    roots.add(str(directory), is_file=False)
    return roots


@pytest.fixture
def three(tmp_path):
    """Three places for the files a to e."""
    for name in "abcde":
        (tmp_path / name).write_bytes(name.encode())
    descriptors = TailDescriptors(3, within(tmp_path))
    yield descriptors, lambda name: descriptors.open(name, str(tmp_path / name))
    descriptors.close_all()
    assert len(descriptors) == 0


def held(descriptors):
    return "".join(name for name in "abcde" if name in descriptors)


def test_the_one_used_longest_ago_is_closed(three):
    descriptors, open_ = three
    fds = {name: open_(name) for name in "abc"}
    assert not descriptors.spare
    assert descriptors.get("a") == fds["a"]
    assert os.pread(open_("d"), 9, 0) == b"d"
    assert held(descriptors) == "acd"
    assert descriptors.get("b") is None


def test_a_pinned_one_stays(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
    descriptors.pin("a")
    descriptors.pin("d")
    open_("d")
    assert held(descriptors) == "acd"
    descriptors.unpin("a")
    open_("e")
    assert held(descriptors) == "cde"


def test_if_all_are_pinned_there_is_one_more(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
        descriptors.pin(name)
    open_("d")
    assert held(descriptors) == "abcd"


def test_one_that_cannot_be_opened_closes_none(three):
    descriptors, open_ = three
    for name in "abc":
        open_(name)
    with pytest.raises(FileNotFoundError):
        open_("nowhere")
    assert held(descriptors) == "abc"


def test_half_of_what_the_process_may_have_is_the_most(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        descriptors = TailDescriptors(1000, within(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in range(70):
        descriptors.open(number, str(tmp_path / "a"))
    assert len(descriptors) == 64
    descriptors.close_all()


def open_files(directory):
    """The names of files in a directory that this process holds open, which keep its file system mounted."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(fd.readlink())
    return {path.name for path in found if path.parent == directory}


@pytest.mark.parametrize("keys", [{"rest_time": 5}, {}], ids=["rests", "has not changed"])
async def test_a_file_that_rests_is_closed_until_it_changes(
    autojump_clock, follow, files, intake, keys
):
    files.write("a", b"a line\n")
    files.write("empty", b"")
    tail = follow(**keys)
    await trio.sleep(3)
    assert ("a" in open_files(files.directory)) != bool(keys)
    await trio.sleep(KEPT_OPEN + 5)
    assert open_files(files.directory) == set()
    assert tail.source.figures().descriptors == 0
    files.append("a", b"another\n")
    files.write("empty", b"no more\n")
    await trio.sleep(3)
    assert intake.contents == [b"a line\nanother\n", b"no more\n"]
    assert ("a" in open_files(files.directory)) != bool(keys), "kept for bytes before a deletion"
    await trio.sleep(KEPT_OPEN + 5)
    assert open_files(files.directory) == set()


@pytest.mark.parametrize("change", ["deleted", "replaced", "moved", "emptied", "overwritten"])
async def test_what_befalls_a_closed_file_is_seen(
    autojump_clock, follow, files, intake, settle, change
):
    files.write("a", b"a line\n" * 100)
    follow()
    await trio.sleep(KEPT_OPEN + 5)
    assert open_files(files.directory) == set()
    if change == "deleted":
        (files / "a").unlink()
    elif change == "replaced":
        # On many file systems the new file gets the inode of the old one.
        (files / "a").unlink()
        files.write("a", b"another\n" * 200)
    elif change == "moved":
        (files / "a").rename(files / "b")
        files.append("b", b"more\n")
    elif change == "emptied":
        files.write("a", b"new\n")
    else:
        files.overwrite("a", b"A", at=690)
    await settle()
    closed, contents = [s.closed for s in intake.sessions], intake.contents
    whole = b"a line\n" * 100
    assert (closed, contents) == {
        "deleted": (["deleted"], [whole]),
        "replaced": (["replaced", None], [whole, b"another\n" * 200]),
        "moved": ([None], [whole + b"more\n"]),
        "emptied": (["truncated", None], [whole, b"new\n"]),
        "overwritten": ([None], [whole]),
    }[change]
    assert intake.sessions[0].lost("unread") == 0
    assert intake.sessions[0].lost("overwritten") == (change == "overwritten")
