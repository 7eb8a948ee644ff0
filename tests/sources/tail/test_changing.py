"""Files that are truncated, rewritten, moved, replaced and deleted while they are followed."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from msgspec import structs

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail import identity, search
from tailrace.sources.tail.follow import KEPT_OPEN
from tailrace.sources.tail.location import System
from tailrace.sources.tail.watch import LINGER, MISSING_LINGER
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import LAST, FileFacts, FileLoss

TEXT = (bytes(range(33, 127)) + b"\n") * 10
HEADER = b'{"type":"header","version":2}' * 10
"""Longer than what is kept of a file's beginning."""


async def test_a_truncated_file_is_another_incarnation(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.write("a", b"new")
    await settle()
    assert intake.contents == [TEXT, b"new"]
    assert intake.sessions[0].closed == "truncated"
    assert intake.sessions[0].losses == []


async def test_what_was_known_and_not_read_before_a_truncation_is_named(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    intake.fill()
    files.append("a", b"x" * 70)
    await settle()
    files.write("a", b"new")
    intake.drain()
    await settle()
    assert intake.contents == [TEXT, b"new"]
    assert intake.sessions[0].losses == [FileLoss(detail="unread", size=70)]


@pytest.mark.parametrize(("more", "lost"), [(69, 70), (70, 0)])
async def test_what_was_known_and_not_read_of_a_file_that_is_rewritten_is_named_if_it_is_shorter_now(
    autojump_clock, followed, files, intake, settle, more, lost
):
    """Its end may have stayed otherwise: nobody emptied it."""
    await followed(TEXT)
    intake.fill()
    files.append("a", b"x" * 70)
    await settle()
    other = TEXT[::-1] + b"y" * more
    files.write("a", other)
    intake.drain()
    await settle()
    assert intake.contents == [TEXT, other]
    assert intake.sessions[0].closed == "rewritten"
    assert sum(loss.size for loss in intake.sessions[0].losses) == lost


@pytest.mark.parametrize("known", [0, 70])
@pytest.mark.parametrize("new", [b"new", HEADER, HEADER + b"another one and more" * 10])
async def test_a_file_emptied_while_it_is_looked_at_has_not_the_size_that_was_found(
    autojump_clock, followed, files, intake, settle, known, new
):
    """Only bytes that were known and that nobody had read are lost with it, if it is shorter now."""
    before = HEADER + b"one"
    due = False

    def stat(path: str) -> os.stat_result:
        nonlocal due
        found = Path(path).stat()
        if due and path == str(files / "a"):
            due = False
            files.write("a", new)
        return found

    await followed(before, system=System(stat=stat))
    files.append("a", b"x" * known)
    due = True
    await settle()
    assert intake.contents == [before, new]
    lost = known if len(new) < len(before) + known else 0
    assert [sum(loss.size for loss in session.losses) for session in intake.sessions] == [lost, 0]


@pytest.mark.parametrize("size", [3, 70, 99])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_what_was_known_before_a_truncation_is_named_though_nothing_was_read(
    autojump_clock, follow, files, intake, settle, size, pack
):
    """The first bytes that are read are those of the smaller file."""
    intake.fill()
    follow()
    before = pack(TEXT)
    files.write("a", before)
    await settle()
    files.write("a", pack(TEXT[:size]))
    intake.drain()
    await settle()
    assert intake.contents == [b"", TEXT[:size]]
    assert intake.sessions[0].closed == "truncated"
    assert intake.sessions[0].losses == [FileLoss(detail="unread", size=len(before))]


async def test_a_file_rewritten_in_place_is_another_incarnation(
    autojump_clock, followed, files, intake, settle
):
    """libovni opens without O_TRUNC: a second run writes over the first, whose end stays."""
    await followed(TEXT)
    files.overwrite("a", b"\x00" * 20)
    await settle()
    assert intake.contents == [TEXT, b"\x00" * 20 + TEXT[20:]]
    assert intake.sessions[0].closed == "rewritten"


async def test_a_file_that_grew_past_our_place_again_is_another_incarnation(
    autojump_clock, followed, files, intake, settle
):
    """Emptied and written anew between two looks, with the same header."""
    await followed(HEADER + b"one")
    files.write("a", HEADER + b"two and more")
    await settle()
    assert intake.contents == [HEADER + b"one", HEADER + b"two and more"]
    assert intake.sessions[0].closed == "rewritten"


@pytest.mark.parametrize("end", [b"", b"z" * LAST], ids=["other lines", "lines that end alike"])
async def test_a_file_rewritten_between_two_chunks_is_not_read_across(
    autojump_clock, follow, files, intake, settle, end
):
    first, second = (letter * (CHUNK_MAX - len(end)) + end for letter in (b"a", b"b"))
    files.write("a", 4 * first)
    intake.fills_after = 2
    follow()
    await settle()
    files.write("a", 4 * second)
    intake.drain()
    await settle()
    assert intake.contents == [2 * first, 4 * second]


async def test_bytes_sorted_in_place_were_overwritten(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.overwrite("a", TEXT[-20:][::-1], len(TEXT) - 20)
    await settle()
    assert intake.sessions[0].losses == [FileLoss(detail="overwritten", size=20)]
    files.append("a", b"more")
    await settle()
    assert intake.contents == [TEXT + b"more"]


async def test_bytes_changed_anywhere_behind_our_place_are_named_once(
    autojump_clock, followed, files, intake, settle
):
    data = TEXT * 3000
    assert len(data) > 2 * identity.VERIFY_BYTES
    await followed(data)
    files.overwrite("a", b"other", len(data) // 2)
    await settle()
    assert intake.sessions[0].losses == [FileLoss(detail="overwritten", size=0)]
    files.overwrite("a", b"another", len(data) // 2)
    files.append("a", b"more")
    await settle()
    assert intake.contents == [data + b"more"]
    assert len(intake.sessions[0].losses) == 1


async def test_what_the_next_run_has_written_over_since_the_look_is_not_overwritten(
    autojump_clock, followed, files, intake, settle, monkeypatch
):
    """It is another one: nothing of the last is missing."""
    again = TEXT[::-1]
    step = identity.ContentCheck.step

    def late(verification, fd):
        files.overwrite("a", again)
        return step(verification, fd)

    await followed(TEXT)
    monkeypatch.setattr(identity.ContentCheck, "step", late)
    files.overwrite("a", TEXT[:8])
    await settle()
    assert intake.contents == [TEXT, again]
    assert [session.losses for session in intake.sessions] == [[], []]
    assert intake.sessions[0].closed == "rewritten"


async def test_a_file_that_was_only_touched_is_what_it_was(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", TEXT)
    follow()
    for data in (b"", b"more", b""):
        await settle()
        files.append("a", data)
        files.overwrite("a", TEXT[500:600], 500)
    await settle()
    assert intake.contents == [TEXT + b"more"]
    assert intake.sessions[0].losses == []


async def test_what_was_read_in_an_earlier_life_cannot_be_verified(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    await tail.restart()
    await settle()
    files.overwrite("a", b"other", len(TEXT) // 2)
    await settle()
    assert intake.sessions[0].losses == []


async def test_a_trace_of_dftracer_1_is_finished_in_place(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(b"  " + TEXT)
    files.overwrite("a", b"[\n")
    await settle()
    files.append("a", b"]")
    await settle()
    assert intake.contents == [b"  " + TEXT + b"]"]
    await tail.restart()
    await settle()
    assert intake.sessions[0].losses == []
    assert intake.sessions[0].closed is None


async def test_a_change_in_the_tick_of_the_last_look_is_seen(
    autojump_clock, follow, files, intake, settle
):
    stat = os.stat

    def coarse(path, *args, **keys):
        found = stat(path, *args, **keys)
        if not str(path).startswith(str(files.directory)):
            return found
        names = ("st_mode", "st_dev", "st_ino", "st_size")
        times = {"st_mtime_ns": 1, "st_ctime_ns": 1}
        return SimpleNamespace(**{name: getattr(found, name) for name in names}, **times)

    files.write("a", TEXT)
    follow(system=System(stat=coarse))
    await trio.sleep(0.05)
    files.overwrite("a", b"new" * 10)
    await settle()
    assert intake.contents == [TEXT, b"new" * 10 + TEXT[30:]]


async def test_a_touched_file_is_what_it_was(autojump_clock, followed, files, intake, settle):
    await followed(TEXT)
    files.touch(files / "a")
    (files / "a").chmod(0o400)
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].losses == []


async def test_a_renamed_file_goes_on_in_its_session(
    autojump_clock, followed, files, intake, settle
):
    await followed(b"one ")
    (files / "a").rename(files / "b")
    files.append("b", b"two ")
    await settle()
    files.append("b", b"three")
    await settle()
    assert intake.contents == [b"one two three"]
    assert intake.sessions[0].state.facts.path == str(files / "b")
    assert intake.sessions[0].closed is None


async def test_two_files_that_swap_their_names_keep_their_sessions(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"a")
    files.write("b", b"b")
    follow()
    await settle()
    (files / "a").rename(files / "c")
    (files / "b").rename(files / "a")
    (files / "c").rename(files / "b")
    files.append("a", b"b")
    files.append("b", b"a")
    await settle()
    assert sorted(intake.contents) == [b"aa", b"bb"]
    paths = {bytes(s.content): s.state.facts.path for s in intake.sessions}
    assert paths == {b"aa": str(files / "b"), b"bb": str(files / "a")}


async def test_a_file_that_leaves_the_patterns_ends(autojump_clock, follow, files, intake, settle):
    files.write("a.log", b"one")
    follow("*.log")
    await settle()
    (files / "a.log").rename(files / "a.old")
    files.append("a.old", b" two")
    await settle()
    assert intake.contents == [b"one two"]
    assert intake.sessions[0].closed == "deleted"


async def test_a_replaced_file_is_read_to_its_end(autojump_clock, followed, files, intake, settle):
    await followed(b"old")
    files.append("a", b" and its end")
    files.write("new", b"new")
    (files / "new").replace(files / "a")
    await settle()
    assert intake.contents == [b"old and its end", b"new"]
    assert intake.sessions[0].closed == "replaced"
    assert intake.sessions[1].closed is None


async def test_a_deleted_file_is_read_for_as_long_as_its_writer_writes(
    autojump_clock, follow, files, intake, settle
):
    with (files / "a").open("wb", buffering=0) as writer:
        writer.write(b"start ")
        tail = follow()
        await settle()
        (files / "a").unlink()
        for _ in range(10):
            await trio.sleep(LINGER / 2)
            writer.write(b"on ")
    await settle()
    assert intake.contents == [b"start " + b"on " * 10]
    assert intake.sessions[0].closed == "deleted"
    assert tail.source.figures().files == 0
    assert tail.source.figures().descriptors == 0


async def test_a_deleted_file_stays_open_though_others_want_its_place(
    autojump_clock, follow, files, intake, settle
):
    with (files / "a").open("wb", buffering=0) as writer:
        writer.write(b"start ")
        follow(descriptors_max=1)
        await settle()
        (files / "a").unlink()
        await trio.sleep(1.5)
        files.write("b", b"b")
        await trio.sleep(1.5)
        writer.write(b"end")
    await settle()
    assert intake.contents == [b"start end", b"b"]


async def test_a_file_that_is_deleted_at_once_is_read(
    autojump_clock, followed, files, intake, settle
):
    """It was empty when it was seen."""
    await followed(b"")
    files.write("a", b"x")
    (files / "a").unlink()
    await settle()
    assert intake.contents == [b"x"]
    assert intake.sessions[0].closed == "deleted"


async def test_what_a_deleted_file_had_and_was_not_open_is_named(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"x")
    files.write("b", b"y")
    follow(descriptors_max=1)
    await settle()
    intake.fill()
    files.append("a", b"x" * 10)
    files.append("b", b"y" * 10)
    await settle()
    (files / "a").unlink()
    (files / "b").unlink()
    await settle()
    intake.drain()
    await settle()
    read = sum(map(len, intake.contents))
    lost = sum(session.lost("unread") for session in intake.sessions)
    assert (read + lost, lost) == (22, 10)


async def test_a_file_made_again_is_another(autojump_clock, followed, files, intake, settle):
    """Its inode may be the same, its content to the byte."""
    await followed(TEXT)
    (files / "a").unlink()
    files.write("a", TEXT[:100])
    await settle()
    files.append("a", TEXT[100:])
    await settle()
    assert intake.contents == [TEXT, TEXT]


async def test_a_file_made_again_after_its_end_is_another(
    autojump_clock, followed, files, intake, settle
):
    """A simulation that is run again may write the same to the byte."""
    await followed(TEXT)
    (files / "a").unlink()
    await settle()
    files.write("a", TEXT)
    await settle()
    assert intake.contents == [TEXT, TEXT]


async def test_a_file_gone_at_the_start_is_searched_for_and_ended(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"one")
    files.write("b", b"two")
    tail = follow()
    await settle()
    await tail.stop()
    (files / "a").unlink()
    (files / "b").rename(files / "c")
    tail.start()
    await settle()
    assert [session.closed for session in intake.sessions] == ["deleted", None]
    assert intake.sessions[1].state.facts.path == str(files / "c")


async def test_stopping_ends_no_session(autojump_clock, followed, files, intake):
    tail = await followed(b"one")
    (files / "a").unlink()
    await trio.sleep(LINGER / 2)
    await tail.stop()
    assert intake.sessions[0].closed is None


async def test_another_file_with_the_inode_of_one_that_is_gone_is_another(
    autojump_clock, follow, files, intake, settle
):
    path = files.write("b", b"something else")
    found = path.stat()
    facts = FileFacts(path=str(files / "a"), device=found.st_dev, inode=found.st_ino, birth=12345)
    intake.append(
        EntryKind.DATA, intake.open_file(facts, "", record_max=1, dialect="auto"), b"before"
    )
    follow()
    await settle()
    assert intake.contents == [b"before", b"something else"]
    assert intake.sessions[0].closed == "deleted"


@pytest.fixture
def born_again(followed, files, settle):
    """A function that reads the files `a` and `b`. The files at their paths later were made later, and has the
    same inodes."""

    async def read() -> None:
        born = []
        system = System(birth=lambda fd: born[0] if born else identity.birth(fd))
        await followed(TEXT, descriptors_max=1, system=system)
        files.write("b", b"b")
        await settle()
        born.append(12345)

    return read


async def test_another_file_with_the_inode_and_the_path_of_one_that_is_gone_is_another(
    autojump_clock, born_again, files, intake, settle
):
    await born_again()
    files.write("a", b"another text")
    await settle()
    assert sorted(intake.contents) == sorted([TEXT, b"b", b"another text"])
    assert intake.sessions[0].closed == "replaced"


async def test_an_empty_file_that_was_never_open_has_not_the_size_of_one_with_its_inode_and_path(
    autojump_clock, born_again, files, intake, settle
):
    files.write("c", b"")
    await born_again()
    files.write("c", b"another text")
    await settle()
    assert sorted(intake.contents) == sorted([TEXT, b"b", b"another text"])
    assert [session.lost("unread") for session in intake.sessions] == [0, 0, 0]


async def test_what_is_deleted_before_it_can_be_opened_is_lost_and_named(
    autojump_clock, followed, files, intake, settle
):
    def stat(path: str) -> os.stat_result:
        found = Path(path).stat()
        if path == str(files / "c") and found.st_size:
            (files / "c").unlink()
        return found

    files.write("c", b"")
    tail = await followed(TEXT, descriptors_max=1, system=System(stat=stat))
    files.write("c", b"a text")
    await settle()
    assert intake.contents == [TEXT, b""]
    assert intake.sessions[1].lost("unread") == len(b"a text")
    assert intake.sessions[1].closed == "deleted"
    assert tail.source.figures().files == 1


async def test_a_longer_copy_in_the_place_of_a_file_goes_on_with_it_though_the_inode_is_the_same(
    autojump_clock, born_again, files, intake, settle
):
    await born_again()
    files.append("a", b"more")
    await settle()
    assert intake.contents == [TEXT + b"more", b"b"]
    assert intake.sessions[0].closed is None


async def test_a_packed_copy_goes_on_with_a_file_whose_inode_and_path_another_one_has(
    autojump_clock, born_again, files, intake, settle
):
    await born_again()
    (files / "a.gz").write_bytes(gzip.compress(TEXT + b"more"))
    files.write("a", b"another text")
    await settle()
    assert sorted(intake.contents) == sorted([TEXT + b"more", b"b", b"another text"])
    assert intake.sessions[0].closed is None


async def test_where_births_are_unknown_the_content_tells(
    autojump_clock, follow, files, intake, settle
):
    for name, content in (("a2", b"content, and more"), ("b2", b"another thing")):
        found = files.write(name, content).stat()
        path = str(files / name[0])
        facts = FileFacts(path=path, device=found.st_dev, inode=found.st_ino, birth=0)
        intake.append(
            EntryKind.DATA, intake.open_file(facts, "", record_max=1, dialect="auto"), b"content"
        )
    follow()
    await settle()
    assert sorted(intake.contents) == [b"another thing", b"content", b"content, and more"]
    assert [session.closed for session in intake.sessions] == [None, "deleted", None]


async def stopped_and_mounted_anew(tail):
    """From now on the file system has another number, as network file systems have after a mount."""
    await tail.stop()
    state = tail.intake.sessions[0].state
    state.facts = structs.replace(state.facts, device=state.facts.device + 1)


async def test_a_device_that_has_another_number_now_is_no_reason_to_read_again(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    await stopped_and_mounted_anew(tail)
    files.append("a", b"more")
    tail.start()
    await settle()
    assert intake.contents == [TEXT + b"more"]
    assert intake.sessions[0].state.facts.device == (files / "a").stat().st_dev


async def test_files_of_a_file_system_that_is_not_mounted_yet_are_waited_for(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    await stopped_and_mounted_anew(tail)
    (files / "a").rename(files.directory.parent / "elsewhere")
    tail.start()
    await settle()
    assert intake.sessions[0].closed is None
    (files.directory.parent / "elsewhere").rename(files / "a")
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].closed is None


async def test_and_are_let_go_when_that_takes_too_long_until_they_are_found(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    await stopped_and_mounted_anew(tail)
    (files / "a").rename(files.directory.parent / "elsewhere")
    tail.start()
    await trio.sleep(MISSING_LINGER + 10)
    assert (intake.sessions[0].closed, intake.sessions[0].unfollowed) == (None, True)
    (files.directory.parent / "elsewhere").rename(files / "a")
    await settle()
    assert intake.contents == [TEXT]
    assert (intake.sessions[0].closed, intake.sessions[0].unfollowed) == (None, False)


async def test_a_directory_that_was_moved_may_return(autojump_clock, follow, files, intake, settle):
    """Its files are not read twice, and what is written meanwhile is read while they are open."""
    files.write("run/quiet", b"quiet")
    files.write("run/grows", b"first ")
    follow()
    await trio.sleep(2 * KEPT_OPEN)
    files.append("run/grows", b"second ")
    await settle()
    elsewhere = files.directory.parent / "elsewhere"
    (files / "run").rename(elsewhere)
    await settle()
    with (elsewhere / "grows").open("ab") as file:
        file.write(b"third")
    await settle()
    assert b"first second third" in intake.contents
    elsewhere.rename(files / "run")
    files.append("run/quiet", b" no more")
    await settle()
    assert sorted(intake.contents) == [b"first second third", b"quiet no more"]
    assert [session.closed for session in intake.sessions] == [None, None]


@pytest.mark.parametrize("deleted", [False, True])
async def test_files_of_a_directory_that_is_gone_end(
    autojump_clock, follow, files, intake, settle, deleted
):
    """Deleted files that are open end at once. Files of a moved directory end after `MISSING_LINGER` seconds."""
    files.write("run/a", TEXT)
    tail = follow()
    await settle()
    if deleted:
        shutil.rmtree(files / "run")
    else:
        (files / "run").rename(files.directory.parent / "elsewhere")
        await settle()
        assert [session.closed for session in intake.sessions] == [None]
        await trio.sleep(MISSING_LINGER)
    await settle()
    assert [session.closed for session in intake.sessions] == ["deleted"]
    assert tail.source.figures().files == 0


async def test_a_directory_that_cannot_be_listed_ends_nothing(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    files.write("run/a", TEXT)
    tail = follow()
    await settle()
    await tail.stop()
    (files / "run/a").rename(files / "run/b")
    scandir, refused = os.scandir, [str(files / "run")]

    def listed(path):
        if path in refused:
            raise PermissionError(errno.EACCES, "not yours")
        return scandir(path)

    monkeypatch.setattr(search.os, "scandir", listed)
    tail.start()
    await settle()
    assert intake.sessions[0].closed is None
    assert "EACCES" in tail.source.figures().errors
    refused.clear()
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].closed is None


async def test_errors_of_a_path_are_counted_and_it_is_tried_again(
    autojump_clock, follow, files, intake, settle
):
    stat, refused = os.stat, [True]

    def refusing(path, *args, **keys):
        if refused and str(path).endswith("/a"):
            raise PermissionError(13, "not yours")
        return stat(path, *args, **keys)

    files.directory.joinpath("a").write_bytes(b"x")
    tail = follow(system=System(stat=refusing))
    await settle()
    assert intake.sessions == []
    assert tail.source.figures().errors["EACCES"] > 1
    refused.clear()
    await settle()
    assert intake.contents == [b"x"]
