"""Compressed files that grow, holes, and reading what is there once."""

from __future__ import annotations

import errno
import gzip
import os

import pytest
import trio

from tailrace.sources.tail import watch
from tailrace.sources.tail.content import RAW_MAX
from tailrace.sources.tail.location import System
from tailrace.spool.payloads import FileLoss, FileState, Member

LINES = b"".join(b'{"id":%d}\n' % (n * 7919) for n in range(40_000))
PIECES = [LINES[at : at + 30_000] for at in range(0, len(LINES), 30_000)]


async def test_a_compressed_file_is_read_as_it_grows(autojump_clock, follow, files, intake, settle):
    tail = follow()
    for piece in PIECES[:5]:
        member = gzip.compress(piece)
        for at in range(0, len(member), 1000):
            files.append("a.gz", member[at : at + 1000])
            await trio.sleep(0.2)
    await settle()
    assert intake.contents == [b"".join(PIECES[:5])]
    assert intake.sessions[0].losses == []
    figures = tail.source.figures()
    assert figures.raw_bytes == (files / "a.gz").stat().st_size
    assert figures.bytes == 5 * 30_000


async def test_it_is_known_by_its_content_and_not_by_its_name(
    autojump_clock, follow, files, intake, settle
):
    files.write("a.gz", b"plain")
    files.write("b", gzip.compress(b"packed"))
    follow()
    await settle()
    assert sorted(intake.contents) == [b"packed", b"plain"]


async def test_one_byte_that_may_begin_a_compressed_file_is_waited_for(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"\x1f")
    files.write("b", b"\x1f")
    files.write("c", b"{")
    follow()
    await settle()
    assert intake.contents == [b"{"]
    files.append("a", b"x")
    files.append("b", gzip.compress(b"y")[1:])
    await settle()
    assert sorted(intake.contents) == [b"\x1fx", b"y", b"{"]


async def test_and_is_what_it_is_when_the_file_is_gone(
    autojump_clock, followed, files, intake, settle
):
    await followed(b"\x1f")
    (files / "a").unlink()
    await settle()
    assert intake.contents == [b"\x1f"]


async def test_after_a_kill_before_the_first_byte_the_content_decides_again(
    autojump_clock, followed, files, intake, settle
):
    """The session was stored and its first bytes were not. Meanwhile the file was written anew, packed."""
    tail = await followed(b"plain")
    await tail.stop()
    session = intake.sessions[0]
    session.state, session.content = FileState(session.state.facts), bytearray()
    files.write("a", gzip.compress(b"packed"))
    for _ in range(2):
        await tail.restart()
        await settle()
    assert intake.contents == [b"packed"]
    assert intake.sessions[0].losses == []


async def test_so_it_does_of_a_file_that_was_packed_before(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(gzip.compress(b"packed"))
    await tail.stop()
    session = intake.sessions[0]
    session.state, session.content = FileState(session.state.facts), bytearray()
    files.write("a", b"plain")
    for _ in range(2):
        await tail.restart()
        await settle()
    assert intake.contents == [b"plain"]
    assert intake.sessions[0].losses == []


async def test_after_a_kill_between_a_loss_and_the_end_the_session_ends(
    autojump_clock, followed, files, intake, settle
):
    """The file was emptied before it was read. The session has this loss, and its end was not stored."""
    tail = await followed(b"plain")
    await tail.stop()
    session = intake.sessions[0]
    session.state, session.content = FileState(session.state.facts), bytearray()
    intake.loss(0, FileLoss(detail="unread", size=5))
    files.write("a", gzip.compress(b"packed"))
    await tail.restart()
    await settle()
    assert intake.contents == [b"", b"packed"]
    assert [each.closed for each in intake.sessions] == ["replaced", None]


async def test_after_a_restart_it_is_inflated_from_the_last_member(
    autojump_clock, followed, files, intake, settle, monkeypatch
):
    members = [gzip.compress(piece) for piece in PIECES]
    tail = await followed(b"".join(members))
    await tail.stop()
    last = Member(sum(map(len, members[:-1])), len(LINES) - len(PIECES[-1]))
    assert intake.sessions[0].state.facts.member == last
    offsets = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: offsets.append(args[2]) or pread(*args))
    files.append("a", gzip.compress(b"more"))
    tail.start()
    await settle()
    assert intake.contents == [LINES + b"more"]
    assert len(intake.sessions[0].moves) == len(members)
    assert min(offset for offset in offsets if offset) >= last.raw


async def test_going_on_after_a_stop_anywhere(autojump_clock, follow, files, intake, settle):
    files.write("a", b"".join(gzip.compress(piece) for piece in PIECES))
    tail = follow()
    for number in range(60):
        for _ in range(number % 7):
            await trio.lowlevel.checkpoint()
        await tail.restart()
    await settle()
    assert intake.contents == [LINES]
    assert intake.sessions[0].losses == []


async def test_a_torn_member_and_damage_are_named_once_however_often_it_is_stopped(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    monkeypatch.setattr(watch, "READS_AT_ONCE", 1)
    members = [gzip.compress(piece) for piece in PIECES[:8]]
    members[2] = members[2][:-500]
    members[5] = members[5][:1000] + b"\xff" * 3000 + members[5][4000:]
    files.write("a", b"".join(members))
    tail = follow()
    for life in range(70):
        for _ in range(life):
            await trio.lowlevel.checkpoint()
        await tail.restart()
    await settle()
    content = intake.contents[0]
    for number in (0, 1, 3, 4, 6, 7):
        assert PIECES[number] in content
    losses = intake.sessions[0].losses
    assert [loss.detail for loss in losses].count("torn_member") == 1
    bad = [loss for loss in losses if loss.detail == "bad_member"]
    assert b"".join(loss.data for loss in bad) in members[5]
    assert 2000 < sum(loss.size for loss in bad) < len(members[5])


async def test_a_stop_right_after_a_loss_does_not_name_it_again(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    monkeypatch.setattr(watch, "READS_AT_ONCE", 1)
    members = [gzip.compress(piece) for piece in PIECES[:3]]
    files.write("a", members[0][:-500] + members[1] + b"garbage" + members[2])
    tail = follow()
    lose = intake.loss

    def lose_and_stop(number, loss):
        lose(number, loss)
        tail.scope.cancel()

    monkeypatch.setattr(intake, "loss", lose_and_stop)
    for _ in range(2):
        await tail.stopped.wait()
        tail.start()
    await settle()
    assert not tail.stopped.is_set()
    details = [loss.detail for loss in intake.sessions[0].losses]
    assert details == ["torn_member", "bad_member"]
    assert intake.contents[0].endswith(PIECES[1] + PIECES[2])


async def test_a_truncated_compressed_file_is_another_incarnation(
    autojump_clock, followed, files, intake, settle
):
    await followed(gzip.compress(LINES[:1000]))
    files.write("a", gzip.compress(b"new"))
    await settle()
    assert intake.contents == [LINES[:1000], b"new"]
    assert intake.sessions[0].closed == "truncated"


async def test_one_that_was_rewritten_while_nobody_looked_is_another_incarnation(
    autojump_clock, follow, files, intake, settle
):
    for name, new in (("a", LINES[1000:9000]), ("b", b"x" + LINES[:5000]), ("c", LINES[1:200])):
        files.write(name, gzip.compress(LINES[:3000]) + gzip.compress(LINES[3000:3100]))
        tail = follow(name)
        await settle()
        await tail.stop()
        files.write(name, gzip.compress(new))
        tail.start()
        await settle()
        assert intake.contents[-2:] == [LINES[:3100], new]
        assert intake.sessions[-2].closed in {"rewritten", "truncated"}


@pytest.mark.parametrize("begun", [0, 5, 12])
async def test_another_one_whose_members_begin_at_the_same_places_is_another_incarnation(
    autojump_clock, followed, files, intake, settle, begun
):
    """Nothing of the member was read from which reading goes on after a restart."""
    stored, other, more = (
        gzip.compress(piece, compresslevel=0, mtime=0)
        for piece in (LINES[:3000], LINES[3000:6000], LINES[6000:9000])
    )
    tail = await followed(stored + more[:begun])
    await tail.stop()
    files.write("a", other + more)
    tail.start()
    await settle()
    assert intake.contents == [LINES[:3000], LINES[3000:9000]]
    assert intake.sessions[0].closed == "rewritten"


async def test_a_file_full_of_almost_nothing_does_not_keep_others_from_running(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", gzip.compress(bytes(20 * 2**20)))
    files.write("b", b"x" * 9 + b"\n")
    follow()
    await settle()
    assert sorted(map(len, intake.contents)) == [10, 20 * 2**20]
    assert (0, 10) in intake.chunks[:3] or (1, 10) in intake.chunks[:3]


async def test_a_hole_is_waited_for_and_then_passed_over(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"x" * 4096)
    follow(hole_timeout=20)
    await trio.sleep(3)
    files.overwrite("a", b"y" * 10, at=2**20)
    await trio.sleep(15)
    assert intake.contents == [b"x" * 4096]
    await settle()
    session = intake.sessions[0]
    assert session.losses == [FileLoss(detail="hole", size=2**20 - 4096)]
    assert bytes(session.content) == b"x" * 4096 + bytes(2**20 - 4096) + b"y" * 10
    assert intake.chunks == [(0, 4096), (0, 10)]


async def test_a_hole_that_is_filled_in_time_is_none(autojump_clock, follow, files, intake, settle):
    files.write("a", b"")
    files.overwrite("a", b"y" * 10, at=2**20)
    follow(hole_timeout=20)
    await trio.sleep(3)
    files.overwrite("a", b"x" * 2**20)
    await settle()
    assert intake.contents == [b"x" * 2**20 + b"y" * 10]
    assert intake.sessions[0].losses == []


async def test_a_terabyte_of_nothing_costs_nothing(autojump_clock, follow, files, intake, settle):
    """A file made long before it is filled: its end is not a hole until it is over."""
    files.write("a", b"x")
    os.truncate(files / "a", 2**40)
    tail = follow()
    await settle()
    assert [size for _, size in intake.chunks] == [4096]
    assert intake.sessions[0].losses == []
    intake.sessions[0].content = bytearray()
    intake.keeps_holes = False
    (files / "a").unlink()
    await settle()
    assert intake.sessions[0].losses == [FileLoss(detail="hole", size=2**40 - 4096)]
    assert intake.sessions[0].closed == "deleted"
    assert tail.source.figures().behind_bytes == 0


async def test_going_on_behind_a_hole_after_a_restart(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"x")
    files.overwrite("a", b"y", at=100_000)
    tail = follow()
    await settle()
    await tail.restart()
    files.append("a", b"z")
    await settle()
    assert len(intake.sessions) == 1
    assert intake.contents[0].endswith(b"\0yz")
    assert len(intake.sessions[0].losses) == 1


async def test_a_hole_in_a_compressed_file_is_bad(autojump_clock, follow, files, intake, settle):
    first, second = gzip.compress(LINES[:3000]), gzip.compress(b"more")
    files.write("a", first)
    files.overwrite("a", second, at=10 * RAW_MAX)
    follow()
    await settle()
    assert intake.contents == [LINES[:3000] + b"more"]
    losses = intake.sessions[0].losses
    assert {loss.detail for loss in losses} == {"bad_member"}
    assert sum(loss.size for loss in losses) == 10 * RAW_MAX - len(first)
    assert sum(len(loss.data) for loss in losses) <= 2 * 4096


@pytest.mark.parametrize("sparse", [False, True])
async def test_padding_behind_a_compressed_file_is_no_loss(
    autojump_clock, follow, files, intake, settle, sparse
):
    members = gzip.compress(LINES[:3000]) + gzip.compress(b"more")
    path = files.write("a", members if sparse else members.ljust(10 * RAW_MAX, b"\0"))
    if sparse:
        os.truncate(path, 10 * RAW_MAX)
    tail = follow(rest_time=5)
    await settle()
    (session,) = intake.sessions
    if not sparse:
        assert session.moves[-1].rest.pending == 0
    await tail.restart()
    await settle()
    path.unlink()
    await settle()
    assert intake.contents == [LINES[:3000] + b"more"]
    assert (session.losses, session.closed) == ([], "deleted")


async def once(follow, intake, *patterns, **keys):
    tail = follow(*patterns, once=True, **keys)
    await tail.stopped.wait()
    return tail.source.figures()


async def test_once_reads_all_to_its_end_and_returns(autojump_clock, follow, files, intake):
    files.write("a", LINES)
    files.write("sub/b.gz", gzip.compress(LINES))
    files.write("empty", b"")
    figures = await once(follow, intake)
    assert intake.contents == [LINES] * 2
    assert {session.closed for session in intake.sessions} == {"at rest"}
    assert (figures.files, figures.files_ended, figures.behind_bytes) == (3, 3, 0)
    assert figures.raw_bytes == len(LINES) + len(gzip.compress(LINES))
    assert figures.descriptors == 0


async def test_once_tells_how_far_it_is(autojump_clock, follow, files, intake):
    files.write("a", LINES)
    files.write("b", LINES)
    intake.fill()
    tail = follow(once=True)
    await trio.sleep(1)
    figures = tail.source.figures()
    assert (figures.files, figures.files_ended) == (2, 0)
    assert figures.raw_bytes + figures.behind_bytes == 2 * len(LINES)
    intake.drain()
    await tail.stopped.wait()


async def test_once_reads_a_file_and_its_copy_once(autojump_clock, follow, files, intake):
    files.write("a", LINES)
    files.write("a.gz", gzip.compress(LINES))
    figures = await once(follow, intake)
    assert intake.contents == [LINES]
    assert figures.files_ended == 2


async def test_once_with_fewer_places_than_files(autojump_clock, follow, files, intake):
    for number in range(5):
        files.write(f"{number}", b"%d" % number)
    await once(follow, intake, files_max=2)
    assert sorted(intake.contents) == [b"0", b"1", b"2", b"3", b"4"]


async def test_once_says_what_is_missing_at_the_end(autojump_clock, follow, files, intake):
    files.write("a", gzip.compress(LINES)[:-100])
    files.write("b", b"x")
    os.truncate(files / "b", 100_000)
    await once(follow, intake)
    a, b = sorted(intake.sessions, key=lambda session: session.state.facts.path)
    assert a.losses == [FileLoss(detail="torn_member", size=0)]
    assert b.losses == [FileLoss(detail="hole", size=100_000 - 4096)]


async def test_once_goes_on_with_what_was_interrupted(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", LINES)
    files.write("b", LINES[7:])
    files.write("gone", b"x")
    tail = follow()
    await settle()
    await tail.stop()
    files.append("a", b"more")
    (files / "gone").unlink()
    await once(follow, intake)
    assert sorted(intake.contents) == sorted([LINES[7:], LINES + b"more", b"x"])
    assert sorted(s.closed for s in intake.sessions) == ["at rest", "at rest", "deleted"]


async def test_once_leaves_what_it_cannot_read(autojump_clock, follow, files, intake, monkeypatch):
    files.write("a", LINES)
    files.write("b", b"x")
    open_ = os.open

    def opened(path, flags, *args, **keys):
        if os.path.realpath(path).endswith("/b") and not flags & os.O_PATH:
            raise PermissionError(13, "not yours")
        return open_(path, flags, *args, **keys)

    monkeypatch.setattr(os, "open", opened)
    figures = await once(follow, intake)
    assert intake.contents == [LINES]
    assert figures.errors == {"EACCES": 1}
    assert figures.files_ended == 2


async def test_once_ends_a_file_that_fails_in_its_last_moment_once(
    autojump_clock, follow, files, intake
):
    stat = os.stat

    def failing(path, *args, **keys):
        if str(path).endswith("/a") and intake.contents == [LINES]:
            raise OSError(errno.EIO, "no")
        return stat(path, *args, **keys)

    files.write("a", LINES)
    intake.delay = 0.3
    figures = await once(follow, intake, system=System(stat=failing))
    assert intake.contents == [LINES]
    assert (figures.files, figures.files_ended, figures.errors) == (1, 1, {"EIO": 1})


async def test_once_with_nothing_there_returns(autojump_clock, follow, intake):
    await once(follow, intake, "nowhere")
    assert intake.sessions == []
