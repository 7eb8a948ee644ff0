"""Copies of files: one stream is read once, wherever it goes."""

from __future__ import annotations

import gzip
from errno import EACCES

import pytest
import trio
from msgspec import structs

from tailrace.decoding.contract import Files
from tailrace.decoding.formats import FORMATS
from tailrace.sources.tail.inflate import statement
from tailrace.sources.tail.watch import LINGER
from tailrace.spool.payloads import Member

TEXT = (bytes(range(33, 127)) + b"\n") * 10


def packed(data, cut=0):
    """Two members if cut."""
    return gzip.compress(data[:cut]) * bool(cut) + gzip.compress(data[cut:])


async def test_a_file_that_is_compressed_goes_on_in_its_session(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.append("a", b"the end")
    files.write("a.gz", packed(TEXT + b"the end"))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT + b"the end"]
    session = intake.sessions[0]
    assert session.state.facts.path == str(files / "a.gz")
    assert session.state.facts.inode == (files / "a.gz").stat().st_ino
    assert session.state.facts.member == Member(0, 0)
    assert session.closed is None


async def test_a_copy_of_what_was_sorted_in_place_is_one(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.overwrite("a", TEXT[-20:][::-1], len(TEXT) - 20)
    await settle()
    files.write("a.gz", packed((files / "a").read_bytes() + b"more"))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT + b"more"]


async def test_a_copy_is_known_though_its_original_is_begun_again_between_two_looks(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.write("a.gz", packed(TEXT)[:-50])
    await settle()
    (files / "a.gz").unlink()
    files.write("a", b"another text")
    await settle()
    assert intake.contents == [TEXT, b"another text"]


async def test_a_copy_that_is_found_before_its_original_is_read_once(
    autojump_clock, follow, files, intake, settle
):
    """A look finds what replaces a known file at once; a search finds a new name up to a second later."""
    follow()
    await settle()
    files.write("a.gz", b"")
    await trio.sleep(1.6)
    (files / "a.gz").unlink()
    files.write("a", TEXT)
    files.write("a.gz", packed(TEXT[:100]))
    while not intake.contents:  # noqa: ASYNC110 - the clock is virtual
        await trio.sleep(0.05)
    assert intake.contents == [TEXT[:100]]
    await trio.sleep(3)
    files.append("a.gz", packed(TEXT[100:]))
    await trio.sleep(1)
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].state.facts.path == str(files / "a.gz")


async def test_a_compressed_file_that_lacks_something_is_no_copy_that_is_being_written(
    autojump_clock, follow, files, intake, settle
):
    """The file of that content would go on in a session that lacks what it has."""
    follow()
    files.write("a.gz", statement("unread", 7) + packed(TEXT[:100]))
    await settle()
    files.write("a", TEXT)
    await settle()
    assert sorted(intake.contents) == sorted([TEXT[:100], TEXT])


async def test_a_compressed_file_that_only_begins_like_another_is_read(
    autojump_clock, followed, files, intake, settle
):
    files.write("a.gz", packed(TEXT[:100]))
    await followed(TEXT + b"one")
    files.append("a.gz", gzip.compress(b"other"))
    await settle()
    assert sorted(intake.contents) == sorted([TEXT + b"one", TEXT[:100] + b"other"])


async def test_what_the_copy_has_and_the_original_had_not_is_read_from_it(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    await tail.stop()
    files.write("a.gz", packed(TEXT + b"the end", cut=100))
    (files / "a").unlink()
    tail.start()
    await settle()
    assert intake.contents == [TEXT + b"the end"]
    assert intake.sessions[0].state.facts.path == str(files / "a.gz")


async def test_a_copy_that_waited_for_a_place_ends_as_others_do(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT, files_max=1)
    files.write("a.gz", packed(TEXT))
    await settle()
    (files / "a").unlink()
    await settle()
    (files / "a.gz").unlink()
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].closed == "deleted"


async def test_a_file_that_is_read_when_it_is_gone_leaves_its_session_to_its_copy(
    autojump_clock, followed, files, intake, settle
):
    """It waited for a place until then. The next life of the collector knows the copy by the session."""
    tail = await followed(b"first", files_max=1)
    files.write("b", TEXT)
    await settle()
    files.write("b.gz", packed(TEXT))
    (files / "b").unlink()
    await settle()
    (files / "a").unlink()
    await settle()
    await tail.stop()
    tail.start()
    await settle()
    assert intake.contents == [b"first", TEXT]
    assert intake.sessions[1].state.facts.path == str(files / "b.gz")
    assert intake.sessions[1].closed is None


async def test_a_packed_file_that_is_begun_again_is_no_copy_of_the_one_before(
    autojump_clock, follow, files, intake, settle
):
    """Though it begins with the same content."""
    files.write("a.gz", packed(TEXT) + packed(TEXT[:99]))
    follow()
    await settle()
    (files / "a.gz").unlink()
    files.write("a.gz", packed(TEXT))
    await settle()
    assert intake.contents == [TEXT + TEXT[:99], TEXT]
    assert intake.sessions[0].closed == "replaced"


async def test_a_packed_copy_that_has_just_begun_is_of_the_file_that_is_there(
    autojump_clock, followed, files, intake, settle
):
    """The session of the file before is still open. It begins like the new file, which gzip packs."""
    await followed(TEXT)
    (files / "a").unlink()
    files.write("a", TEXT[:200] + b"the next")
    await trio.sleep(1.5)
    whole = gzip.compress(TEXT[:100], 0) + packed(TEXT[100:200] + b"the next")
    files.write("a.gz", whole[:80])
    await trio.sleep(LINGER)
    files.append("a.gz", whole[80:])
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT, TEXT[:200] + b"the next"]
    assert [session.closed for session in intake.sessions] == ["replaced", None]
    assert intake.sessions[1].state.facts.path == str(files / "a.gz")


async def test_a_packed_copy_of_a_short_file_goes_on_though_the_next_one_has_just_begun(
    autojump_clock, followed, files, intake, settle
):
    """The next file has only the first bytes in common, which a tracer writes again at its end."""
    await followed(TEXT[:28])
    await trio.sleep(100)
    files.append("a", TEXT[28:])
    files.write("a.gz", packed(TEXT))
    (files / "a").unlink()
    files.write("a", TEXT[:2])
    await settle()
    assert TEXT in intake.contents
    assert TEXT[:28] not in intake.contents


async def test_a_copy_waits_for_as_long_as_its_original_is_there(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    for at in range(1, 11):
        data = packed(TEXT)
        files.write("a.gz", data[: len(data) * at // 10])
        await settle()
    assert intake.contents == [TEXT]
    assert tail.source.figures().waiting == {"original": 1}


@pytest.mark.parametrize("size", [1, 2, 12, 60, None])
@pytest.mark.parametrize("after", [0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
async def test_a_copy_waits_for_an_original_that_was_empty_when_it_was_looked_at(
    autojump_clock, followed, files, intake, settle, after, size
):
    """Whichever of both is looked at first."""
    tail = await followed(b"")
    await trio.sleep(after)
    files.append("a", TEXT)
    files.write("a.gz", packed(TEXT)[:size])
    await settle()
    assert tail.source.figures().waiting == {"original": 1}
    files.write("a.gz", packed(TEXT))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT]


async def test_what_has_no_content_yet_may_be_a_copy_of_what_comes_later(
    autojump_clock, files, follow, intake, settle
):
    files.write("a.gz", packed(TEXT)[:10])
    tail = follow()
    await settle()
    files.write("a", TEXT)
    await settle()
    assert intake.contents == [TEXT]
    assert tail.source.figures().waiting == {"original": 1}
    files.write("a.gz", packed(TEXT))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT]


async def test_an_original_that_cannot_be_read_holds_nothing_up(
    autojump_clock, followed, files, intake, settle, monkeypatch
):
    tail = await followed(b"")
    open_ = tail.source.watch._descriptors.roots.open

    def refuse(path):
        if path == str(files / "a"):
            raise PermissionError(EACCES, "no", path)
        return open_(path)

    monkeypatch.setattr(tail.source.watch._descriptors.roots, "open", refuse)
    tail.source.watch._descriptors.close_all()
    files.append("a", TEXT)
    files.write("a.gz", packed(TEXT))
    await settle()
    assert intake.contents == [TEXT]


async def test_a_copy_made_since_the_last_look_at_a_resting_original_waits(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT[:50])
    files.append("a", TEXT[50:])
    files.write("a.gz", packed(TEXT))
    await settle()
    assert intake.contents == [TEXT]


async def test_a_file_longer_than_what_it_begins_like_is_no_copy(
    autojump_clock, follow, files, intake, settle
):
    """Streams that begin alike, one of which came to nothing."""
    files.write("a", b"header")
    files.write("a.gz", packed(b"header and more"))
    follow()
    await settle()
    assert sorted(intake.contents) == [b"header", b"header and more"]


async def test_a_file_of_the_same_name_and_other_content_is_no_copy(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", TEXT)
    files.write("a.gz", packed(TEXT[::-1]))
    follow()
    await settle()
    (files / "a").unlink()
    await settle()
    assert sorted(intake.contents) == sorted([TEXT, TEXT[::-1]])
    assert sorted(str(session.closed) for session in intake.sessions) == ["None", "deleted"]


async def test_a_copy_of_a_file_that_has_ended_is_not_read_again(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    (files / "a").unlink()
    await settle()
    files.write("a.gz", packed(TEXT))
    await settle()
    assert intake.contents == [TEXT]
    assert tail.source.figures().open == 0


async def test_a_copy_that_has_more_than_the_file_that_ended_is_read_whole(
    autojump_clock, follow, files, intake, settle
):
    for name, pack in (("a", packed), ("b.gz", bytes)):
        files.write(name, packed(TEXT) if name.endswith(".gz") else TEXT)
        follow(name + "*" if name == "a" else "b*")
        await settle()
        (files / name).unlink()
        await settle()
        files.write(name.removesuffix(".gz") + (".gz" if name == "a" else ""), pack(TEXT + b"!"))
        await settle()
    assert intake.contents == [TEXT, TEXT + b"!"] * 2


async def test_what_only_began_like_a_file_that_ended_is_read_whole(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    (files / "a").unlink()
    await settle()
    other = TEXT[:-1] + b"?"
    files.write("a.gz", packed(other))
    await settle()
    assert intake.contents == [TEXT, other]


async def test_a_longer_copy_in_its_place_goes_on_in_its_session(
    autojump_clock, followed, files, intake, settle
):
    """As rsync does while the original grows elsewhere."""
    await followed(TEXT)
    for more in (b" more", b" more and more"):
        files.write(".a.tmp", TEXT + more)
        (files / ".a.tmp").replace(files / "a")
        await settle()
    assert intake.contents == [TEXT + b" more and more"]
    assert intake.sessions[0].state.facts.inode == (files / "a").stat().st_ino


async def test_a_longer_file_in_its_place_that_only_begins_like_it_is_another(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.write(".a.tmp", TEXT[:-1] + b"? and more")
    (files / ".a.tmp").replace(files / "a")
    await settle()
    assert intake.contents == [TEXT, TEXT[:-1] + b"? and more"]
    assert intake.sessions[0].closed is not None


async def test_a_compressed_copy_is_gone_on_with_after_a_restart_from_its_last_member(
    autojump_clock, followed, files, intake, settle
):
    tail = await followed(TEXT)
    files.write("a.gz", packed(TEXT, cut=300))
    (files / "a").unlink()
    await settle()
    await tail.stop()
    with (files / "a.gz").open("ab") as file:
        file.write(packed(b"more"))
    tail.start()
    await settle()
    assert intake.contents == [TEXT + b"more"]
    assert intake.sessions[0].losses == []


@pytest.fixture
def streams(monkeypatch):
    """A format whose streams are known by the name of their directory, with a document."""
    files = Files(
        stream=lambda path: path.endswith(".obs"),
        copy=lambda path: path.split("/")[-2],
        documents=lambda path: ("stream.json",),
        group=lambda path: path.rsplit("/", 2)[0],
    )
    monkeypatch.setitem(FORMATS, "streams", structs.replace(FORMATS["jets"], files=files))


async def test_a_stream_that_is_moved_by_copying_is_read_once(
    streams, autojump_clock, follow, files, intake, settle
):
    """libovni with OVNI_TMPDIR: each file is copied piece by piece, then removed."""
    files.write("tmp/thread.1/stream.obs", TEXT)
    files.write("tmp/thread.1/stream.json", b"{}")
    follow(format="streams")
    await settle()
    files.append("tmp/thread.1/stream.obs", b"the end")
    files.write("final/thread.1/stream.json", b"{1}")
    for end in range(0, len(TEXT), 100):
        files.append("final/thread.1/stream.obs", TEXT[end : end + 100])
        await trio.sleep(0.2)
    files.append("final/thread.1/stream.obs", b"the end")
    (files / "tmp/thread.1/stream.obs").unlink()
    await settle()
    assert intake.contents == [TEXT + b"the end"]
    assert intake.sessions[0].state.facts.path == str(files / "final/thread.1/stream.obs")
    assert intake.sessions[0].documents == {"stream.json": b"{1}"}


async def test_what_a_copy_lacks_as_its_original_did_is_named_once(
    streams, autojump_clock, follow, files, intake, settle
):
    data = packed(TEXT)[:-30] + packed(b"more") + b"garbage" + packed(b"and more")
    files.write("one/thread.1/stream.obs", data)
    follow(format="streams")
    await settle()
    losses = intake.sessions[0].losses.copy()
    assert [loss.detail for loss in losses] == ["torn_member", "bad_member"]
    files.write("two/thread.1/stream.obs", data)
    (files / "one/thread.1/stream.obs").unlink()
    await settle()
    assert len(intake.sessions) == 1
    assert intake.sessions[0].state.facts.path.startswith(str(files / "two"))
    assert intake.sessions[0].losses == losses


@pytest.mark.parametrize("ended", [False, True])
async def test_a_stream_as_long_that_only_begins_like_it_is_another(
    streams, autojump_clock, follow, files, intake, settle, ended
):
    other = TEXT[:-1] + b"?"
    files.write("one/thread.1/stream.obs", TEXT)
    follow(format="streams")
    await settle()
    (files / "one/thread.1/stream.obs").unlink()
    if ended:
        await settle()
    files.write("two/thread.1/stream.obs", other)
    await settle()
    assert intake.contents == [TEXT, other]
    assert intake.sessions[0].losses == []


@pytest.mark.parametrize("ended", [False, True])
async def test_a_stream_that_comes_back_elsewhere_is_the_same(
    streams, autojump_clock, follow, files, intake, settle, ended
):
    files.write("one/thread.1/stream.obs", TEXT)
    follow(format="streams")
    await settle()
    (files / "one/thread.1/stream.obs").unlink()
    if ended:
        await settle()
    files.write("two/thread.1/stream.obs", TEXT[:500])
    await settle()
    files.append("two/thread.1/stream.obs", TEXT[500:])
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].closed == ("deleted" if ended else None)


async def test_streams_with_one_name_in_two_runs_are_two(
    streams, autojump_clock, follow, files, intake, settle
):
    """In containers every process is number 1; the first bytes are the same, then come the clocks."""
    for run in ("one", "two"):
        files.write(f"{run}/thread.1/stream.obs", b"ovni\1\0\0\0")
    follow(format="streams")
    await settle()
    for run in ("one", "two"):
        files.append(f"{run}/thread.1/stream.obs", run.encode())
    await settle()
    assert sorted(intake.contents) == [b"ovni\1\0\0\0one", b"ovni\1\0\0\0two"]


async def test_documents_come_first_and_at_the_end(
    streams, autojump_clock, follow, files, intake, settle
):
    files.write("run/thread.1/stream.obs", TEXT)
    files.write("run/thread.1/stream.json", b"{}")
    tail = follow(format="streams")
    await settle()
    assert intake.sessions[0].documents == {"stream.json": b"{}"}
    assert intake.sessions[0].group == str(files / "run")
    await tail.stop()
    files.write("run/thread.1/stream.json", b"{finished}")
    tail.start()
    await settle()
    assert intake.calls == ["document 0 stream.json"] * 2
    (files / "run/thread.1/stream.obs").unlink()
    await trio.sleep(LINGER - 0.5)
    files.write("run/thread.1/stream.json", b"{more}")
    await settle()
    assert intake.sessions[0].documents == {"stream.json": b"{more}"}
    assert intake.sessions[0].closed == "deleted"


@pytest.mark.parametrize("away", [0, LINGER / 2], ids=["replaced", "deleted"])
async def test_documents_of_the_next_file_at_a_path_are_not_told_of_the_last(
    streams, autojump_clock, follow, files, intake, settle, away
):
    """A program in a container has the PID of the run before it, and so the path."""
    files.write("run/thread.1/stream.obs", TEXT)
    files.write("run/thread.1/stream.json", b"{}")
    follow(format="streams")
    await settle()
    (files / "run/thread.1/stream.obs").unlink()
    await trio.sleep(away)
    files.write("run/thread.1/stream.obs", TEXT[::-1])
    await trio.sleep(LINGER / 2)
    files.write("run/thread.1/stream.json", b"{next}")
    await settle()
    assert [session.documents["stream.json"] for session in intake.sessions] == [b"{}", b"{next}"]
    assert [session.closed for session in intake.sessions] == ["replaced", None]


async def test_documents_beside_a_new_path_belong_to_the_content_there(
    streams, autojump_clock, follow, files, intake, settle
):
    """A stream moves. Before the source finds it, the next program empties it and writes its own document."""
    files.write("run/thread.1/stream.obs", TEXT)
    files.write("run/thread.1/stream.json", b"{}")
    tail = follow(format="streams")
    await settle()
    await tail.stop()
    (files / "run").rename(files / "moved")
    files.write("moved/thread.1/stream.obs", TEXT[::-1])
    files.write("moved/thread.1/stream.json", b"{next}")
    tail.start()
    await settle()
    assert intake.contents == [TEXT, TEXT[::-1]]
    assert [session.documents["stream.json"] for session in intake.sessions] == [b"{}", b"{next}"]
    assert [session.closed for session in intake.sessions] == ["rewritten", None]


async def test_a_packed_copy_that_is_found_before_the_file_it_copies_waits_for_it(
    autojump_clock, follow, files, intake, settle
):
    """The file is in the place of another one, so that its path is known and it is not found anew."""
    files.write("a", b"another text")
    follow()
    await settle()
    (files / "a").unlink()
    files.write("a", TEXT)
    files.write("a.gz", packed(TEXT, cut=100)[:110])
    await trio.sleep(3)
    files.write("a.gz", packed(TEXT, cut=100))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [b"another text", TEXT]


@pytest.mark.parametrize("pause", [1, 3, 4.5])
async def test_a_copy_of_a_file_that_waits_for_an_earlier_one_waits_for_both(
    autojump_clock, follow, files, intake, settle, pause
):
    """Too little was read of the earlier file in the copy's place to tell it from either."""
    files.write("a.gz", packed(TEXT[:2]))
    follow()
    await trio.sleep(3)
    (files / "a.gz").unlink()
    files.write("a", TEXT)
    await trio.sleep(pause)
    files.write("a.gz", packed(TEXT, cut=100)[:110])
    await trio.sleep(8 - pause)
    files.write("a.gz", packed(TEXT, cut=100))
    (files / "a").unlink()
    await settle()
    assert intake.contents == [TEXT]


LEFT_BESIDE = ["a~", "#a#", "a.part", "a.bak", "a (copy)", "Copy of a", "a.1", "a_old", "a.gz~"]
"""Names that editors, download tools, log rotations and people make of a file's name."""


def left_beside(name, data):
    """The original's name and content for a copy of this name."""
    return ("a.gz", gzip.compress(data, compresslevel=0)) if ".gz" in name else ("a", data)


@pytest.mark.parametrize("name", LEFT_BESIDE)
@pytest.mark.parametrize("part", [10**9, 300], ids=["whole", "begun"])
@pytest.mark.parametrize("first", [True, False], ids=["at_start", "later"])
async def test_what_is_left_beside_a_file_under_a_name_made_of_its_own_is_no_file_of_its_own(
    autojump_clock, follow, files, intake, settle, name, part, first
):
    original, data = left_beside(name, TEXT)
    files.write(original, data)
    if not first:
        follow()
        await settle()
    files.write(name, data[:part])
    tail = follow() if first else None
    await settle()
    files.append(original, left_beside(name, b"more")[1])
    await settle()
    if tail is not None:
        assert tail.source.figures().waiting["original"] == 1
    (files / original).unlink()
    await settle()
    assert intake.contents == [TEXT + b"more"]


@pytest.mark.parametrize("name", LEFT_BESIDE)
async def test_a_file_that_only_begins_like_the_one_whose_name_its_own_is_made_of_is_read(
    autojump_clock, follow, files, intake, settle, name
):
    """A run that goes on otherwise, and one that is found while it holds no more than the other."""
    original, data = left_beside(name, TEXT)
    files.write(original, data)
    files.write(name, data[:-20])
    follow()
    await settle()
    assert intake.contents == [TEXT]
    files.append(name, data[-20:] + left_beside(name, b"of its own")[1])
    await settle()
    assert intake.contents == [TEXT, TEXT + b"of its own"]


@pytest.mark.parametrize("name", ["a~", "a.1"])
async def test_a_file_that_has_few_bytes_of_a_longer_one_is_no_copy_by_its_name(
    autojump_clock, follow, files, intake, settle, name
):
    """A process that died after its header; and one whose header was all that the other had, too."""
    files.write("a", TEXT)
    files.write(name, TEXT[:100])
    files.write("b", TEXT[:50])
    files.write(f"b{name[1:]}", TEXT[:50])
    follow()
    await settle()
    assert sorted(intake.contents) == [TEXT[:50], TEXT[:100], TEXT]
    files.append("b", TEXT[50:])
    await settle()
    assert sorted(intake.contents) == [TEXT[:50], TEXT[:100], TEXT, TEXT]


async def test_a_file_that_has_what_was_not_read_of_the_original_is_read(
    autojump_clock, follow, files, intake, settle
):
    files.write("a", TEXT)
    files.write("a.bak", TEXT + b"more")
    follow()
    await settle()
    assert intake.contents == [TEXT, TEXT + b"more"]


async def test_a_large_copy_is_compared_to_its_end_with_each_original(
    autojump_clock, follow, files, intake, settle
):
    large = TEXT * 3000
    files.write("a", large + b"a")
    files.write("a.1", large + b"1")
    files.write("a.1.bak", large + b"a")
    files.write("a.1.old", large + b"b")
    follow()
    await settle()
    assert sorted(intake.contents) == [large + b"1", large + b"a", large + b"b"]


async def test_runs_in_two_directories_may_be_equal(autojump_clock, follow, files, intake, settle):
    files.write("one/a", TEXT)
    files.write("two/a.bak", TEXT)
    follow()
    await settle()
    assert intake.contents == [TEXT, TEXT]


async def test_a_log_rotation_that_copies_and_empties_is_read_once(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.write("a.1", TEXT)
    files.write("a", b"the next")
    await settle()
    assert intake.contents == [TEXT, b"the next"]


async def test_a_rotated_file_and_the_next_of_its_name_are_two_however_they_begin(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    (files / "a").rename(files / "a.1")
    files.write("a", TEXT[:300])
    await settle()
    files.append("a", TEXT[300:])
    await settle()
    assert intake.contents == [TEXT, TEXT]


async def test_a_download_that_is_renamed_when_it_is_whole_is_one(
    autojump_clock, follow, files, intake, settle
):
    follow()
    files.write("a.part", TEXT[:500])
    await settle()
    files.append("a.part", TEXT[500:])
    (files / "a.part").rename(files / "a")
    await settle()
    assert intake.contents == [TEXT]
    assert intake.sessions[0].closed is None
