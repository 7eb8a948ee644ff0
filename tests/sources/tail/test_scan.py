"""Which paths patterns lead to, and how often directories are listed for that."""

from __future__ import annotations

import errno
import os

import pytest

from tailrace.sources.tail import search
from tailrace.sources.tail.location import Roots
from tailrace.sources.tail.search import COARSE, RELIST, Found, Outside, Search, parse


class SteppedClock:
    def __init__(self) -> None:
        self.now = 0.0

    def wall_ns(self) -> int:
        return int((2_000_000_000 + self.now) * 1e9)

    def monotonic(self) -> float:
        return self.now


class Searched:
    def __init__(self, *patterns) -> None:
        self.clock = SteppedClock()
        self.failures = []
        self.search = Search(
            [str(pattern) for pattern in patterns], Roots(lambda _: ()), self.clock,
            self.failures.append,
        )  # fmt: skip

    def run(self, after=0.0):
        self.clock.now += after
        return list(filter(None, self.search.run()))

    def paths(self, after=0.0):
        return [found.path for found in self.run(after) if isinstance(found, Found)]


def tree(directory, *names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def found(directory, *patterns):
    paths = Searched(*(directory / pattern for pattern in patterns)).paths()
    assert len(set(paths)) == len(paths)
    return sorted(os.path.relpath(path, directory) for path in paths)


@pytest.mark.parametrize(
    ("pattern", "root", "parts"),
    [
        ("/a/b", "/a/b", ()),
        ("/a/*/ovni", "/a", ("*", "ovni")),
        ("/a/b[[]1]", "/a/b[1]", ()),
        ("/a/b[12]/c", "/a", ("b[12]", "c")),
        ("/a//b/../c/**/x?", "/a/c", ("**", "x?")),
    ],
)
def test_the_root_is_what_stands_before_the_first_wildcard(pattern, root, parts):
    assert parse(pattern) == (root, parts)


def test_patterns_of_files(tmp_path):
    tree(tmp_path, "a.pfw", "b.pfw.gz", "c.txt", "sub/d.pfw")
    assert found(tmp_path, "*.pfw*") == ["a.pfw", "b.pfw.gz"]
    assert found(tmp_path, "**/*.pfw") == ["a.pfw", "sub/d.pfw"]
    assert found(tmp_path, "?.txt", "[ab].pfw") == ["a.pfw", "c.txt"]


def test_a_directory_is_searched_with_all_below_it(tmp_path):
    tree(tmp_path, "run1/ovni/loom/proc/x", "run2/ovni/y", "run2/other/z", "run3")
    assert found(tmp_path, "*/ovni") == ["run1/ovni/loom/proc/x", "run2/ovni/y"]
    assert found(tmp_path, "**/ovni") == ["run1/ovni/loom/proc/x", "run2/ovni/y"]
    assert found(tmp_path, "run2") == ["run2/other/z", "run2/ovni/y"]
    assert found(tmp_path, "**") == [
        "run1/ovni/loom/proc/x", "run2/other/z", "run2/ovni/y", "run3",
    ]  # fmt: skip


def test_hidden_directories_are_entered_where_a_pattern_spells_the_dot(tmp_path):
    tree(tmp_path, ".hidden/a", "b/.c/d", "b/.e")
    assert found(tmp_path, "*") == ["b/.e"]
    assert found(tmp_path, "**") == ["b/.e"]
    assert found(tmp_path, ".h*") == [".hidden/a"]


def test_a_pattern_without_wildcards_is_a_file_that_was_named(tmp_path):
    tree(tmp_path, "a", "b[1]")
    assert Searched(tmp_path / "a").run() == [Found(str(tmp_path / "a"), named=True)]
    assert Searched(tmp_path / "b[[]1]").run() == [Found(str(tmp_path / "b[1]"), named=True)]


def test_what_is_not_there_yet_appears(tmp_path):
    searched = Searched(tmp_path / "run" / "*.txt")
    assert searched.paths() == []
    tree(tmp_path, "run/a.txt")
    assert searched.paths(1) == [str(tmp_path / "run/a.txt")]
    assert searched.failures == []


def test_a_link_is_followed_within_the_root_and_not_out_of_it(tmp_path):
    tree(tmp_path, "root/a/file", "outside/secret")
    (tmp_path / "root/inside").symlink_to("a/file")
    (tmp_path / "root/out").symlink_to("../outside")
    (tmp_path / "root/out_file").symlink_to("../outside/secret")
    (tmp_path / "root/nowhere").symlink_to("gone")
    results = Searched(tmp_path / "root").run()
    assert {f.path for f in results if isinstance(f, Found)} == {
        str(tmp_path / "root/a/file"),
        str(tmp_path / "root/inside"),
    }
    assert {f.path for f in results if isinstance(f, Outside)} == {
        str(tmp_path / "root/out"),
        str(tmp_path / "root/out_file"),
    }


@pytest.fixture
def swapped(monkeypatch):
    """A function that gives a link to be replaced by a file, or deleted, just before it is read."""
    readlink, swaps = os.readlink, {}

    def swap_and_read(path, **options):
        if os.fspath(path) in swaps:
            swaps.pop(os.fspath(path))()
        return readlink(path, **options)

    monkeypatch.setattr(os, "readlink", swap_and_read)
    return lambda path, swap: swaps.update({str(path): swap})


@pytest.mark.parametrize("way", ["replaced", "deleted"])
@pytest.mark.parametrize("place", ["root/link", "root", "file"])
def test_a_link_that_changes_while_it_is_followed_ends_nothing(tmp_path, swapped, place, way):
    tree(tmp_path, "real/a", "real/b")
    link = tmp_path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / ("real/a" if place == "file" else "real"))
    (tmp_path / "new").write_bytes(b"")

    def swap():
        if way == "deleted":
            link.unlink()
        else:
            (tmp_path / "new").rename(link)

    swapped(link, swap)
    pattern = tmp_path / ("file" if place == "file" else "root")
    search = Searched(pattern)
    assert search.paths() == []
    assert not search.search.covers(str(link))
    assert search.failures == []
    there = [str(link)] if way == "replaced" else []
    assert search.paths(COARSE) == there


def test_loops_of_links_end(tmp_path):
    tree(tmp_path, "a/file")
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "a/self").symlink_to("self")
    searched = Searched(tmp_path)
    assert searched.paths() == [str(tmp_path / "a/file")]
    assert searched.failures == ["ELOOP"]


def test_a_root_that_is_a_link_is_where_it_leads(tmp_path):
    tree(tmp_path, "real/a")
    (tmp_path / "link").symlink_to("real")
    assert found(tmp_path, "link") == ["link/a"]


def test_a_directory_that_may_not_be_read_is_tried_again(tmp_path, monkeypatch):
    tree(tmp_path, "a/file", "b/file")
    refused = [str(tmp_path / "a")]
    scandir = os.scandir

    def listed(path):
        if path in refused:
            raise PermissionError(errno.EACCES, "not yours", path)
        return scandir(path)

    monkeypatch.setattr(search.os, "scandir", listed)
    searched = Searched(tmp_path)
    assert searched.paths() == [str(tmp_path / "b/file")]
    assert searched.failures == ["EACCES"]
    assert not searched.search.covers(str(tmp_path / "a/file"))
    assert searched.search.covers(str(tmp_path / "ab/file"))
    refused.clear()
    assert str(tmp_path / "a/file") in searched.paths(1)
    assert searched.search.covers(str(tmp_path / "a/file"))


def test_a_root_whose_directory_is_missing_covers_nothing(tmp_path):
    searched = Searched(tmp_path / "mount" / "run")
    searched.run()
    assert not searched.search.covers(str(tmp_path / "mount/run/a/file"))
    (tmp_path / "mount").mkdir()
    searched.run()
    assert searched.search.covers(str(tmp_path / "mount/run/a/file"))


class Listings:
    def __init__(self, monkeypatch) -> None:
        self.paths = []
        scandir = os.scandir
        monkeypatch.setattr(
            search.os, "scandir", lambda path: self.paths.append(path) or scandir(path)
        )


def test_a_directory_is_listed_again_when_it_has_changed(tmp_path, monkeypatch):
    listings = Listings(monkeypatch)
    tree(tmp_path, "a")
    os.utime(tmp_path, (1_000_000_000, 1_000_000_000))
    searched = Searched(tmp_path)
    assert searched.paths() == [str(tmp_path / "a")]
    assert searched.paths(1) == []
    assert len(listings.paths) == 1
    tree(tmp_path, "b")
    assert searched.paths(1) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len(listings.paths) == 2


def test_a_listing_made_within_a_tick_of_the_change_does_not_count(tmp_path, monkeypatch):
    """A file that appeared in the same tick after the listing would never be found."""
    listings = Listings(monkeypatch)
    searched = Searched(tmp_path)
    tree(tmp_path, "a")
    changed = 2_000_000_000
    os.utime(tmp_path, (changed, changed))
    searched.paths(COARSE / 2)
    tree(tmp_path, "b")
    os.utime(tmp_path, (changed, changed))
    assert searched.paths(1) == [str(tmp_path / "a"), str(tmp_path / "b")]
    searched.paths(COARSE)
    searched.paths(1)
    assert len(listings.paths) == 3


def test_all_is_listed_again_now_and_then(tmp_path, monkeypatch):
    listings = Listings(monkeypatch)
    tree(tmp_path, "a")
    os.utime(tmp_path, (1_000_000_000, 1_000_000_000))
    searched = Searched(tmp_path)
    searched.run()
    searched.run(RELIST - 1)
    assert len(listings.paths) == 1
    assert searched.paths(1) == [str(tmp_path / "a")]


def test_others_may_run_during_a_search(tmp_path):
    tree(tmp_path, *(f"{n}/file" for n in range(3 * search.BREATH)))
    searched = Searched(tmp_path)
    assert list(searched.search.run()).count(None) >= 3
