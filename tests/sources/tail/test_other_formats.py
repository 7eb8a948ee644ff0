"""A follower leaves out a file whose content shows another format, as long as it does so."""

from __future__ import annotations

import zlib

import pytest
import trio

from tailrace.sources.tail.watch import FIRST_RECORD_SECONDS
from tests.system.test_import import VECTORS, jets

JETS = jets(3)
HEPH = (VECTORS / "heph/runtime.in").read_bytes()
LEFT_OUT = {"other_format": 1}


async def test_a_file_is_judged_by_its_content_and_not_by_its_name(
    autojump_clock, follow, files, intake, settle
):
    files.write("a.jets", HEPH)
    files.write("b.heph", JETS)
    tail = follow()
    await settle()
    assert intake.contents == [JETS]
    assert tail.source.figures().waiting == LEFT_OUT
    assert tail.source.figures().behind_bytes == 0
    assert tail.source.figures().descriptors == 1


async def test_a_first_record_that_is_not_complete_is_waited_for(
    autojump_clock, follow, files, intake, settle
):
    """A tracer has written the beginning of its first line, under a name that says nothing."""
    line = b'[\n{"id":0,"name":"open","cat":"POSIX","pid":7,"tid":7,"ts":5,"dur":1,"ph":"X"}\n'
    tail = follow()
    for end in range(1, 30, 7):
        files.write("a", line[:end])
        await trio.sleep(FIRST_RECORD_SECONDS / 2)
        assert tail.source.figures().waiting == {"empty": 1}
    files.write("a", line)
    await settle()
    assert tail.source.figures().waiting == LEFT_OUT
    assert intake.contents == []


@pytest.mark.parametrize("ends", [(1, 2), (2,), (9,), (2, 40)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_first_record_may_come_late(
    autojump_clock, follow, files, intake, settle, ends, packed, restarts
):
    """A tracer opens its array, and writes its first events minutes later, perhaps after a restart of the daemon."""
    line = b'{"id":%d,"name":"open","cat":"POSIX","pid":7,"tid":7,"ts":5,"dur":1,"ph":"X"}\n'
    whole = b"[\n" + b"".join(line % number for number in range(9))
    packer = zlib.compressobj(wbits=31)
    tail, written, data = follow(), 0, b""
    for end in (*ends, len(whole)):
        part = whole[written:end]
        data += packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) if packed else part
        written = end
        files.write("a", data)
        await settle()
        if restarts:
            await tail.restart()
            await settle()
    assert tail.source.figures().waiting == LEFT_OUT
    # The bytes of a bare bracket are of no session, and those of a fragment are of one that has ended.
    assert intake.contents == [whole[: max(ends)]] * (max(ends) > 2)
    assert all(session.closed == "other_format" for session in intake.sessions)


async def test_a_file_with_a_bracket_alone_is_read_once_it_is_deleted(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", b"[\n")
    tail = follow()
    await settle()
    assert tail.source.figures().waiting == {"empty": 1}
    (files / "a").unlink()
    await settle()
    assert intake.contents == [b"[\n"]


async def test_a_fragment_that_does_not_grow_is_read(autojump_clock, follow, files, intake, settle):
    files.write("a", JETS[:6])
    tail = follow()
    await trio.sleep(FIRST_RECORD_SECONDS / 2)
    assert intake.contents == []
    await settle()
    assert intake.contents == [JETS[:6]]
    assert tail.source.figures().waiting == {}


async def test_a_fragment_that_is_deleted_is_read(autojump_clock, follow, files, intake, settle):
    files.write("a", JETS[:6])
    follow()
    await trio.sleep(FIRST_RECORD_SECONDS / 2)
    (files / "a").unlink()
    await settle()
    assert intake.contents == [JETS[:6]]


async def test_a_file_that_no_format_claims_is_read(autojump_clock, followed, intake):
    tail = await followed(b"no trace\n")
    assert intake.contents == [b"no trace\n"]
    assert tail.source.figures().waiting == {}


async def test_a_file_that_is_left_out_is_judged_anew_once_it_is_rewritten_or_replaced(
    autojump_clock, follow, files, intake, settle
):
    for name in ("longer", "shorter", "replaced"):
        files.write(name, HEPH)
    tail = follow()
    await settle()
    assert tail.source.figures().waiting == {"other_format": 3}
    longer = JETS + b" " * len(HEPH)
    files.write("longer", longer, "r+b")
    files.write("shorter", JETS)
    (files / "replaced").rename(files / "elsewhere")
    files.write("replaced", JETS + b"\n")
    await settle()
    assert sorted(intake.contents) == sorted([longer, JETS, JETS + b"\n"])
    assert tail.source.figures().waiting == LEFT_OUT
    (files / "elsewhere").unlink()
    await settle()
    assert tail.source.figures().waiting == {}
    assert tail.source.figures().errors == {}
    assert [session.losses for session in intake.sessions] == [[]] * 3


async def test_a_file_that_turns_into_another_format_ends_and_is_left_out(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(JETS)
    files.write("a", HEPH)
    await settle()
    assert [session.closed for session in intake.sessions] == ["rewritten"]
    assert tail.source.figures().waiting == LEFT_OUT


async def test_a_file_that_was_named_is_read(autojump_clock, follow, files, intake, settle):
    files.write("a", HEPH)
    follow("a", "*")
    await settle()
    assert intake.contents == [HEPH]


async def test_files_of_other_formats_take_no_place(autojump_clock, follow, files, intake, settle):
    for name in "abc":
        files.write(name, HEPH)
    files.write("d", JETS)
    tail = follow(files_max=1)
    await settle()
    assert intake.contents == [JETS]
    assert tail.source.figures().waiting == {"other_format": 3}


async def test_what_is_read_once_is_judged_likewise(autojump_clock, follow, files, intake):
    """`tailrace run` reads the rest of its directories so."""
    files.write("a", HEPH)
    files.write("b", JETS)
    files.write("c", JETS[:6])
    await follow(once=True).stopped.wait()
    assert sorted(intake.contents) == sorted([JETS, JETS[:6]])


async def test_an_empty_file_is_named_once_it_rests_and_followed_once_it_grows(
    autojump_clock, follow, files, intake, settle, caplog
):
    files.write("a.jets", b"")
    files.write("b.jets", JETS)
    tail = follow(rest_time=60)
    await settle()
    assert caplog.messages == []
    await trio.sleep(90)
    (message,) = caplog.messages
    assert "a.jets' is empty" in message
    assert tail.source.figures().waiting == {"empty": 1}
    files.write("a.jets", HEPH + b" ")
    await settle()
    assert len(intake.contents) == 1
    assert tail.source.figures().waiting == LEFT_OUT
