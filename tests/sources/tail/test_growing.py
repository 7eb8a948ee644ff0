"""Files that grow: all of their bytes, once, soon."""

from __future__ import annotations

import errno
import gzip
import os
import sys
from itertools import count, pairwise

import pytest
import trio
from msgspec import structs

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail import identity, search
from tailrace.sources.tail.catalog import LOOK_COST, LOOKS_SHARE
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.location import Roots, System
from tailrace.sources.tail.search import FILES_AT_ONCE, Discovery
from tailrace.spool.payloads import FileLoss
from tests.sources.tail.recorder import TestClock

BIG = bytes(range(251)) * 4000


async def test_a_file_is_read_as_it_grows(autojump_clock, follow, files, intake):
    follow()
    files.write("a", b"one\n")
    await trio.sleep(1.2)
    assert intake.contents == [b"one\n"]
    for word in (b"two ", b"three"):
        files.append("a", word)
        await trio.sleep(0.5)
    assert intake.contents == [b"one\ntwo three"]
    assert intake.sessions[0].closed is None


async def test_it_is_told_which_file_it_is(autojump_clock, follow, files, intake, settle):
    path = files.write("run/a", b"x")
    follow()
    await settle()
    session = intake.sessions[0]
    facts, found = session.state.facts, path.stat()
    assert (facts.path, facts.inode, facts.device) == (str(path), found.st_ino, found.st_dev)
    assert facts.member is None
    assert session.group == str(path.parent)


async def test_large_files_come_in_chunks_and_in_turn(
    autojump_clock, follow, files, intake, settle
):
    for name in "abc":
        files.write(name, BIG)
    intake.fill()
    tail = follow()
    await trio.sleep(1)
    assert intake.sessions == []
    intake.drain()
    await settle()
    assert intake.contents == [BIG] * 3
    order = [number for number, size in intake.chunks]
    assert order[:6] == [0, 1, 2, 0, 1, 2]
    assert tail.source.figures().chunks == len(order)
    assert tail.source.figures().bytes == 3 * len(BIG)
    assert max(size for _, size in intake.chunks) == CHUNK_MAX


async def test_an_empty_file_begins_no_session(autojump_clock, followed, files, intake):
    tail = await followed(b"")
    assert intake.sessions == []
    assert tail.source.figures().waiting == {"empty": 1}
    files.append("a", b"x\n")
    await trio.sleep(1.1)
    assert intake.contents == [b"x\n"]


@pytest.mark.parametrize("count", [1, 1000])
async def test_what_rests_long_and_grows_is_seen_within_a_second(
    autojump_clock, follow, files, intake, count
):
    for number in range(count):
        files.write(f"{number}", b"x")
    follow()
    await trio.sleep(20)
    files.append("0", b"y")
    files.write("new", b"z\n")
    await trio.sleep(1.2)
    assert b"xy" in intake.contents
    assert b"z\n" in intake.contents


@pytest.mark.parametrize(("count", "most"), [(1, 1.1), (1500, 1000)])
async def test_files_that_rest_are_looked_at_more_and_more_seldom(
    autojump_clock, follow, files, count, most, monkeypatch
):
    looks = []
    look = Followed.look
    monkeypatch.setattr(Followed, "look", lambda self, now: looks.append(now) or look(self, now))
    for number in range(count):
        files.write(f"{number}", b"")
    follow()
    await trio.sleep(10)
    looks.clear()
    await trio.sleep(15)
    assert len(looks) / 15 <= most


async def test_more_files_than_descriptors(autojump_clock, follow, files, intake, settle):
    tail = follow(descriptors_max=2)
    for round_ in range(4):
        for number in range(7):
            files.append(f"{number}", b"%d " % round_)
        await settle()
        assert tail.source.figures().descriptors <= 2
    assert intake.contents == [b"0 1 2 3 "] * 7


async def test_files_beyond_the_most_wait_for_a_place(
    autojump_clock, follow, files, intake, settle
):
    for number in range(5):
        files.write(f"{number}", b"%d" % number)
    tail = follow(files_max=3)
    await settle()
    assert len(intake.sessions) == 3
    assert tail.source.figures().waiting == {"files_max": 2}
    for number in range(2):
        os.unlink(intake.sessions[number].state.facts.path)  # noqa: PTH108 - trio's rule wants neither
    await settle()
    assert sorted(intake.contents) == [b"0", b"1", b"2", b"3", b"4"]
    assert tail.source.figures().waiting == {}


async def test_a_file_that_begins_again_keeps_its_place(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(b"first", files_max=1)
    files.write("b", b"b")
    files.write("a", b"2nd\n")
    await settle()
    assert intake.contents == [b"first", b"2nd\n"]
    assert tail.source.figures().waiting == {"files_max": 1}


async def test_a_file_that_is_deleted_while_it_waits_for_its_turn_is_read(
    autojump_clock, follow, files, intake, settle
):
    for number in range(5):
        files.write(f"{number}", b"%d" % number)
    tail = follow(files_max=1)
    await settle()
    for number in range(5):
        (files / f"{number}").unlink()
    await trio.sleep(60)
    assert sorted(intake.contents) == [b"0", b"1", b"2", b"3", b"4"]
    assert tail.source.figures().files == 0


@pytest.mark.parametrize("how", ["emptied", "deleted"])
async def test_bytes_that_are_lost_while_their_file_waits_for_a_place_are_named(
    autojump_clock, follow, files, intake, settle, how
):
    files.write("a", b"a")
    tail = follow(files_max=1, descriptors_max=1)
    await settle()
    files.write("b", b"b" * 70)
    await settle()
    assert tail.source.figures().waiting == {"files_max": 1}
    files.append("a", b"takes the only descriptor")
    await settle()
    if how == "emptied":
        files.write("b", b"")
    else:
        (files / "b").unlink()
    await settle()
    lost = intake.sessions[1]
    assert lost.losses == [FileLoss(detail="unread", size=70)]
    assert (lost.state.facts.path, bytes(lost.content)) == (str(files / "b"), b"")
    assert lost.closed == ("truncated" if how == "emptied" else "deleted")


async def test_a_copy_of_what_was_lost_while_it_waited_for_a_place_is_read_and_nothing_is_named(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"a")
    follow(files_max=1, descriptors_max=1)
    await settle()
    files.write("b", BIG[:999])
    await settle()
    files.write("b.gz", gzip.compress(BIG[:999]))
    (files / "b").unlink()
    await settle()
    (files / "a").unlink()
    await settle()
    assert intake.contents == [b"a", BIG[:999]]
    assert [session.losses for session in intake.sessions] == [[], []]


async def test_a_packed_file_that_was_there_before_is_no_copy_of_what_was_lost_while_it_waited(
    autojump_clock, followed, files, intake, settle
):
    await followed(BIG, files_max=1, descriptors_max=1)
    files.write("a.gz", gzip.compress(BIG))
    (files / "a").unlink()
    await trio.sleep(2)
    files.write("a", b"b" * 70)
    await settle()
    (files / "a").unlink()
    await settle()
    assert intake.contents == [BIG, b""]
    assert intake.sessions[1].losses == [FileLoss(detail="unread", size=70)]


async def test_a_file_without_content_is_no_copy_of_what_was_lost_while_it_waited(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"a")
    follow(files_max=1, descriptors_max=1)
    await settle()
    files.write("b", b"b" * 70)
    await settle()
    files.write("b.gz", b"")
    files.append("a", b"takes the only descriptor")
    await settle()
    (files / "b").unlink()
    await settle()
    assert intake.sessions[1].losses == [FileLoss(detail="unread", size=70)]


async def test_a_file_that_waits_is_known_by_its_birth_though_it_is_closed(
    autojump_clock, follow, files, intake, settle
):
    births = []
    system = System(birth=lambda fd: births[0] if births else identity.birth(fd))
    files.write("a", b"a")
    follow(files_max=1, descriptors_max=1, system=system)
    await settle()
    files.write("b", b"b" * 70)
    await settle()
    files.append("a", b"a")  # takes the only descriptor
    await settle()
    births.append(12345)
    files.write("b", b"c" * 70, "r+b")
    (files / "a").unlink()
    await settle()
    assert sorted(intake.contents) == [b"", b"aa", b"c" * 70]
    assert sum(session.lost("unread") for session in intake.sessions) == 70


async def test_a_file_that_was_known_before_is_no_copy_of_what_was_lost_wherever_it_is_moved(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"a")
    follow(files_max=1, descriptors_max=1)
    await settle()
    files.write("b", b"b" * 70)
    await settle()
    (files / "a").rename(files / "b.gz")
    await settle()
    (files / "b").unlink()
    await settle()
    assert intake.sessions[1].losses == [FileLoss(detail="unread", size=70)]


async def test_places_are_given_in_the_order_of_waiting(
    autojump_clock, followed, files, intake, settle, monkeypatch
):
    """Though the file that makes room has the later ones' name. No two readings of the clock are equal."""
    readings = count()
    monkeypatch.setattr(
        TestClock, "monotonic", lambda _: trio.current_time() + next(readings) * 1e-9
    )
    await followed(b"first", files_max=1)
    for content in (b"second", b"3rd"):
        (files / "a").unlink()
        files.write("a", content)
        await trio.sleep(2)
    await settle()
    assert intake.contents[:2] == [b"first", b"second"]


async def test_a_file_in_the_place_of_one_that_ends_waits_for_its_turn_and_ends_in_time(
    autojump_clock, followed, files, intake, settle
):
    await followed(b"first", files_max=1)
    files.write("b", b"second")
    await trio.sleep(2)
    for content in (b"third", b"fourth"):
        (files / "a").unlink()
        files.write("a", content)
        await settle()
    assert intake.contents == [b"first", b"second"]
    (files / "b").unlink()
    await settle()
    assert intake.contents == [b"first", b"second", b"third", b"fourth"]
    assert [session.closed for session in intake.sessions] == [
        "replaced",
        "deleted",
        "replaced",
        None,
    ]


async def test_nothing_is_read_while_there_is_no_room_and_stopping_does_not_wait(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", BIG)
    tail = follow()
    intake.fill()
    await settle()
    assert intake.sessions == []
    await tail.stop()
    assert tail.source.figures().descriptors == 0


async def test_going_on_after_a_stop_anywhere(autojump_clock, follow, files, intake, settle):
    files.write("a", BIG)
    tail = follow()
    for _ in range(20):
        await trio.lowlevel.checkpoint()
        await tail.restart()
        files.append("a", b"more")
    await settle()
    assert intake.contents == [BIG + b"more" * 20]
    assert intake.sessions[0].losses == []


async def test_many_files_that_take_each_others_place_are_known_again(
    autojump_clock, follow, files, intake, settle
):
    """Each file's former path leads to the next one: more of them than the interpreter nests calls."""
    names = [f"{number:04}" for number in range(sys.getrecursionlimit() // 2 + 20)]
    contents = [b"%d" % number for number, _ in enumerate(names)]
    for name, content in zip(names, contents, strict=True):
        files.write(name, content)
    follow()
    await settle()
    for to, name in pairwise(names):
        (files / name).rename(files / to)
    await settle()
    files.append(names[300], b" more")
    await settle()
    contents[301] += b" more"
    assert sorted(intake.contents) == sorted(contents)


async def test_a_file_that_was_gone_on_with_is_told_of_only_if_it_moved(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(b"one")
    await tail.restart()
    await settle()
    assert intake.sessions[0].moves == []
    await tail.stop()
    (files / "a").rename(files / "b")
    tail.start()
    await settle()
    assert [facts.path for facts in intake.sessions[0].moves] == [str(files / "b")]


async def test_what_fails_is_counted_and_tried_again(autojump_clock, followed, intake, monkeypatch):
    pread, failing = os.pread, [errno.EIO, errno.ESTALE, errno.EIO]

    def stumbling(fd, size, offset):
        if failing and size > 1000:
            raise OSError(failing.pop(), "no")
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", stumbling)
    tail = await followed(BIG)
    assert intake.contents == [BIG]
    assert tail.source.figures().errors == {"EIO": 2, "ESTALE": 1}


async def test_a_stale_file_is_opened_again(autojump_clock, followed, files, intake, monkeypatch):
    """As after a network file system's server has come back."""
    open_, pread, opened = os.open, os.pread, []

    def opening(path, *args, **keys):
        opened.append(path)
        return open_(path, *args, **keys)

    def reading(fd, size, offset):
        if size > 1000 and opened.count(str(files / "a")) < 2:
            raise OSError(errno.ESTALE, "stale")
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "pread", reading)
    await followed(BIG)
    assert intake.contents == [BIG]


async def test_a_short_read_is_read_on(autojump_clock, followed, intake, settle, monkeypatch):
    """On network file systems the size may be known before the content."""
    pread, visible = os.pread, [100]

    def reading(fd, size, offset):
        data = pread(fd, size, offset)
        return data[: max(0, visible[0] - offset)]

    monkeypatch.setattr(os, "pread", reading)
    tail = await followed(BIG)
    assert intake.contents == [BIG[:100]]
    assert tail.source.figures().behind_bytes == len(BIG) - 100
    visible[0] = len(BIG)
    await settle()
    assert intake.contents == [BIG]
    assert tail.source.figures().behind_bytes == 0


async def test_a_link_within_the_root_is_the_same_file_and_one_out_of_it_is_refused_once(
    autojump_clock, follow, files, intake, settle, tmp_path
):
    (tmp_path / "secret").write_bytes(b"secret")
    files.write("a", b"x")
    (files / "b").symlink_to("a")
    (files / "c").hardlink_to(files / "a")
    (files / "d").symlink_to("../secret")
    tail = follow()
    await settle()
    assert intake.contents == [b"x"]
    assert tail.source.figures().refused == {"outside": 1}


async def test_a_file_with_two_names_lives_on_under_the_other(
    autojump_clock, follow, files, intake, settle
):
    files.write("one/a", b"x")
    (files / "two").mkdir()
    (files / "two/b").hardlink_to(files / "one/a")
    os.utime(files / "two", (1, 1))  # it will not be listed again for a while
    follow()
    await settle()
    (files / "one/a").unlink()
    files.append("two/b", b"y")
    await settle()
    assert intake.contents == [b"xy"]
    assert intake.sessions[0].state.facts.path == str(files / "two/b")
    assert intake.sessions[0].closed is None


async def test_a_name_that_was_another_files_too_gets_a_file_of_its_own(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"x")
    (files / "b").hardlink_to(files / "a")
    follow()
    await settle()
    (files / "b").unlink()
    files.write("b", b"other")
    await settle()
    assert sorted(intake.contents) == [b"other", b"x"]


async def test_a_path_that_was_written_out_is_a_stream_whatever_its_name(
    autojump_clock, follow, files, intake, settle
):
    files.write(".a", b"x")
    files.write(".b", b"x")
    follow(".a")
    await settle()
    assert intake.contents == [b"x"]


async def test_a_pattern_that_spells_a_name_finds_files_by_their_content(
    autojump_clock, follow, files, intake, settle, caplog
):
    """`*` spells nothing. A file without content may become one of the format."""
    header = b'{"type":"header","version":"2.0","metadata":{}}\n'
    files.write(".a.jets", header + b"1")
    files.write(".notes.jets", b"nothing that a tracer wrote")
    files.write(".later.jets", b"")
    files.write(".other", header)
    follow(".*.jets", "*")
    await settle()
    assert intake.contents == [header + b"1"]
    assert [line.split("'")[1].rpartition("/")[2] for line in caplog.messages] == [".notes.jets"]
    files.write(".later.jets", header)
    await settle()
    assert sorted(intake.contents) == [header, header + b"1"]
    assert len(caplog.messages) == 1


async def test_files_of_others_are_opened_once_and_looked_at_in_small_steps(
    autojump_clock, follow, files, monkeypatch
):
    for number in range(250):
        files.write(f".{number}.log", b"nothing that a tracer wrote")
    looks, opened, steps = [], [], []
    stat, open_, run = os.stat, Roots.open, Discovery.run

    def look(path):
        if str(path).endswith(".log"):
            looks.append(path)
        return stat(path)

    def opening(roots, path):
        opened.append(path)
        return open_(roots, path)

    def stepping(discovery):
        before = len(looks)
        for _ in run(discovery):
            steps.append(len(looks) - before)
            yield
            before = len(looks)

    monkeypatch.setattr(Roots, "open", opening)
    monkeypatch.setattr(Discovery, "run", stepping)
    follow(".*.log", idle_interval=0.1, system=System(stat=look))
    await trio.sleep(30)
    assert len(opened) == len(set(opened)) == 250
    assert max(steps) == FILES_AT_ONCE
    assert len(looks) <= 30 * LOOKS_SHARE / LOOK_COST + 500


async def test_a_file_that_grows_and_is_of_no_format_is_named_once(
    autojump_clock, follow, files, intake, caplog
):
    follow(".*.log")
    for number in range(10):
        files.append(".app.log", b"nothing that a tracer wrote")
        if number == 8:
            files.write(".other.log", b"nothing that a tracer wrote")
        await trio.sleep(5)
    assert intake.sessions == []
    names = [line.split("'")[1].rpartition("/")[2] for line in caplog.messages]
    assert names == [".app.log", ".other.log"]


async def test_a_file_whose_content_cannot_be_read_now_is_tried_at_the_next_search(
    autojump_clock, follow, files, intake, monkeypatch
):
    header = b'{"type":"header","version":"2.0","metadata":{}}\n'
    open_, refused = Roots.open, [True]

    def opening(roots, path):
        if refused:
            raise OSError(errno.EMFILE, "too many")
        return open_(roots, path)

    monkeypatch.setattr(Roots, "open", opening)
    files.write(".a.jets", header)
    tail = follow(".*.jets")
    await trio.sleep(5)
    assert tail.source.figures().errors["EMFILE"] > 1
    refused.clear()
    await trio.sleep(5)
    assert intake.contents == [header]


async def test_the_figures_tell_how_far_it_is(autojump_clock, follow, files, intake, settle):
    files.write("a", b"x" * 100)
    files.write("b", b"y" * 50)
    tail = follow()
    await settle()
    intake.fill()
    files.append("b", b"z" * 7)
    await settle()
    figures = tail.source.figures()
    assert (figures.files, figures.open, figures.descriptors) == (2, 2, 2)
    assert (figures.raw_bytes, figures.behind_bytes) == (150, 7)
    assert tail.source.address == str(files.directory)


RECORD = (
    b'{"id":1,"name":"start","cat":"dftracer","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{}}\n'
)


@pytest.mark.parametrize("pattern", [".", "*", "*.json"])
async def test_a_trace_under_another_name_is_found_by_its_content(
    autojump_clock, follow, files, intake, settle, caplog, pattern
):
    """As an import finds it; a growing one as soon as its first record is there."""
    files.write("trace.json", RECORD)
    files.write("other.json", b"{}")
    files.write(".hidden.json", RECORD)
    follow(pattern, format="dftracer")
    await settle()
    assert intake.contents == [RECORD]
    path = files.write("young.json", RECORD[:20])
    os.utime(path, (1e9 + trio.current_time(),) * 2)
    await settle()
    files.append("young.json", RECORD[20:])
    files.append("trace.json", RECORD)
    await trio.sleep(3)
    assert intake.contents == [RECORD * 2, RECORD]
    named = [line.split("'")[1].rpartition("/")[2] for line in caplog.messages]
    assert named == (["other.json", "young.json"] if pattern == "*.json" else [])


async def test_files_of_other_programs_in_a_directory_are_looked_at_once_a_minute(
    autojump_clock, follow, files, intake
):
    for number in range(250):
        files.write(f"{number}.log", b"nothing that a tracer wrote")
    looks, stat = [], os.stat

    def look(path):
        if str(path).endswith(".log"):
            looks.append(path)
        return stat(path)

    follow(format="dftracer", idle_interval=0.1, system=System(stat=look))
    await trio.sleep(50)
    assert len(looks) == len(set(looks)) == 250
    files.write("9.log", RECORD)
    await trio.sleep(70)
    assert intake.contents == [RECORD]
    assert len([path for path in looks if not path.endswith("/9.log")]) == 2 * 249


def looked_at(follow, clock=None, refuses=None):
    """Follow the directory. Return the source and the paths that it looks at; the first look at each takes some time."""
    looks, stat = [], os.stat

    def look(path):
        if str(path).endswith(".log"):
            if clock and path not in looks:
                clock.jump(0.01)
            looks.append(path)
        if str(path).endswith(refuses or "/"):
            raise PermissionError(errno.EACCES, "no")
        return stat(path)

    tail = follow(format="dftracer", idle_interval=0.1, system=System(stat=look))
    return tail, looks


async def test_files_of_other_programs_are_looked_at_each_minute_however_long_a_look_takes(
    autojump_clock, follow, files
):
    for number in range(20):
        files.write(f"{number}.log", b"nothing that a tracer wrote")
    files.touch(files.directory)  # it is listed once a minute
    _, looks = looked_at(follow, autojump_clock)
    await trio.sleep(70)
    assert len(looks) == 2 * 20


async def test_a_file_of_another_program_that_cannot_be_read_is_counted_once(
    autojump_clock, follow, files
):
    files.write("a.log", b"nothing for others")
    tail, looks = looked_at(follow, refuses="a.log")
    await trio.sleep(130)
    assert len(looks) == 3
    assert tail.source.figures().errors == {"EACCES": 1}


async def test_more_files_of_other_programs_than_are_remembered_are_looked_at_once_a_minute(
    autojump_clock, follow, files, intake, monkeypatch
):
    """Though their directory changes, and is listed, in each search. A trace among them is found."""
    monkeypatch.setattr(search, "STRANGE_MAX", 10)
    for number in range(50):
        files.write(f"{number}.log", b"nothing that a tracer wrote")
    _, looks = looked_at(follow)
    for number in range(55):
        files.write(f".{number}", b"")
        await trio.sleep(1)
    assert len(looks) == 50
    files.write("49.log", RECORD)
    files.write("below/a.log", RECORD * 2)
    await trio.sleep(20)
    assert sorted(intake.contents) == [RECORD, RECORD * 2]


async def test_a_deleted_file_in_the_place_of_one_that_nobody_followed_is_read(
    autojump_clock, followed, files, intake, settle
):
    """It waited for a place, and its path leads the source to the former file's session."""
    tail = await followed(b"former")
    await tail.stop()
    intake.let_go(0)
    files.write("b", b"b")
    (files / "a").unlink()
    tail.config = structs.replace(tail.config, files_max=1)
    tail.start()
    await settle()
    files.write("a", b"later")
    await settle()
    assert tail.source.figures().waiting == {"files_max": 1}
    (files / "a").unlink()
    await trio.sleep(1)
    (files / "b").unlink()
    await trio.sleep(60)
    assert sorted(intake.contents) == [b"b", b"former", b"later"]
    assert [session.closed for session in intake.sessions] == ["deleted"] * 3
    assert tail.source.figures().files == 0


async def test_a_deleted_file_goes_on_in_the_session_that_nobody_followed(
    autojump_clock, followed, files, intake, settle
):
    """It waited for a place, and grew meanwhile. The source reads the new bytes, too."""
    tail = await followed(b"first ")
    await tail.stop()
    intake.let_go(0)
    files.write("b", b"b")
    tail.config = structs.replace(tail.config, files_max=1)
    (files / "a").rename(files.directory.parent / "a")
    tail.start()
    await settle()
    (files.directory.parent / "a").rename(files / "a")
    files.append("a", b"second")
    await settle()
    assert tail.source.figures().waiting == {"files_max": 1}
    (files / "a").unlink()
    await trio.sleep(1)
    (files / "b").unlink()
    await trio.sleep(60)
    assert intake.contents == [b"first second", b"b"]
    assert [session.closed for session in intake.sessions] == ["deleted"] * 2


async def test_a_deleted_file_is_not_given_up_before_the_ingest_knows_whose_it_is(
    autojump_clock, follow, files, intake, settle
):
    """It is kept open until then, for longer than deleted files are."""
    files.write("b", b"b")
    follow(files_max=1)
    await settle()
    files.write("a", b"second")
    await settle()
    (files / "a").unlink()
    (files / "b").unlink()
    intake.knows_from = trio.current_time() + 60
    await trio.sleep(120)
    assert intake.contents == [b"b", b"second"]
    assert [session.closed for session in intake.sessions] == ["deleted"] * 2
