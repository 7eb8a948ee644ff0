"""Copies that stay beside their originals: a file is left out only as a proven copy, and none waits
for ever."""

from __future__ import annotations

import gzip
from errno import EIO
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from tailrace.sources.tail.catalog import SETTLED, UNPROVEN_MAX
from tailrace.sources.tail.content import ContentSum
from tailrace.sources.tail.watch import Chosen
from tests.forms import examples
from tests.sources.tail.conftest import Files
from tests.sources.tail.recorder import Recorder, Tail

TEXT = bytes(range(33, 127)) * 10
OTHER = TEXT[:500] + TEXT[::-1]


def spelled(name: str, data: bytes) -> bytes:
    return gzip.compress(data) if name.endswith(".gz") else data


@pytest.fixture
def settled():
    """Wait until files that do not change count as completely written, and are compared."""

    async def wait() -> None:
        await trio.sleep(SETTLED + 30)

    return wait


@pytest.mark.parametrize("part", [len(TEXT), 600], ids=["whole", "begun"])
async def test_a_kept_packed_copy_is_proven_and_left_out(
    autojump_clock, followed, files, intake, settled, part
):
    tail = await followed(TEXT)
    files.write("a.gz", gzip.compress(TEXT[:part]))
    for more in (b"", b"more", b"and more"):
        files.append("a", more)
        await settled()
    assert intake.contents == [TEXT + b"moreand more"]
    assert tail.source.figures().waiting == {"original": 1}


async def test_a_large_packed_copy_is_proven_while_its_original_grows(
    autojump_clock, followed, files, intake, settled
):
    large = TEXT * 3000
    tail = await followed(large)
    files.write("a.gz", gzip.compress(large, 1))
    for _ in range(3000):
        files.append("a", b"more\n")
        await trio.sleep(0.05)
    assert len(intake.contents) == 1
    assert tail.source.figures().waiting == {"original": 1}


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(OTHER),
        gzip.compress(TEXT) + gzip.compress(b"more"),
        gzip.compress(TEXT)[:-9],
        gzip.compress(TEXT)[:-1],
        gzip.compress(TEXT)[:-5] + b"?" + gzip.compress(TEXT)[-4:],
        gzip.compress(TEXT) + b"not of a member",
    ],
    ids=["other", "longer", "torn", "lacks a byte", "bad checksum", "bad end"],
)
async def test_a_packed_file_that_only_begins_like_its_neighbour_is_read(
    autojump_clock, followed, files, intake, settled, packed
):
    tail = await followed(TEXT)
    files.write("a.gz", packed)
    await settled()
    assert len(intake.sessions) == 2
    assert not tail.source.figures().waiting.total()


@pytest.mark.parametrize("name", ["a", "a.gz"])
async def test_a_file_that_grows_for_ever_beside_one_that_begins_alike_is_read(
    autojump_clock, follow, files, intake, settle, name
):
    first = "a.gz" if name == "a" else "a"
    files.write(first, spelled(first, TEXT))
    follow()
    await settle()
    files.write(name, spelled(name, TEXT[:300]))
    for _ in range(int(UNPROVEN_MAX / 10) + 10):
        files.append(name, spelled(name, b"x"))
        await trio.sleep(10)
    assert sorted(map(len, intake.contents)) == sorted([len(TEXT), 300 + 70])


async def test_a_file_that_outgrows_a_packed_one_is_read(
    autojump_clock, follow, files, intake, settle, settled
):
    files.write("a.gz", gzip.compress(TEXT))
    follow()
    await settled()
    files.write("a", OTHER)
    await settled()
    assert intake.contents == [TEXT, OTHER]


@pytest.mark.parametrize("copy", ["a.gz", "a.1"])
async def test_a_run_that_begins_like_the_rotated_one_is_read(
    autojump_clock, followed, files, intake, settled, copy
):
    """The earlier run has the name of a copy, and the later run is longer when it is found."""
    await followed(TEXT)
    await settled()
    if copy == "a.1":
        (files.directory / "a").rename(files.directory / copy)
    else:
        files.write(copy, gzip.compress(TEXT))
        await settled()
        (files.directory / "a").unlink()
    files.write("a", TEXT + b"more")
    await settled()
    assert intake.contents == [TEXT, TEXT + b"more"]


async def test_three_files_of_one_stream_are_compared_with_each_other_once(
    autojump_clock, follow, files, intake, settled
):
    """A result for one file does not make the comparison with another file begin again."""
    large = TEXT * 2000
    for name in ("a", "a.1"):
        files.write(name, large + name.encode())
    follow()
    await settled()
    files.write("a.gz", gzip.compress(large + OTHER))
    await settled()
    assert sorted(map(len, intake.contents)) == [
        len(large) + 1,
        len(large) + 3,
        len(large) + len(OTHER),
    ]


async def test_a_copy_that_is_made_again_and_again_is_no_second_file(
    autojump_clock, followed, files, intake, settled
):
    tail = await followed(TEXT)
    files.write("a.gz", gzip.compress(TEXT))
    await trio.sleep(UNPROVEN_MAX + 100)
    for number in range(3):
        files.append("a", b"more")
        (files.directory / "a.gz").write_bytes(gzip.compress(TEXT + b"more" * (number + 1)))
        await trio.sleep(UNPROVEN_MAX + 100)
    assert intake.contents == [TEXT + b"more" * 3]
    assert tail.source.figures().waiting == {"original": 1}


async def test_an_error_proves_nothing(
    autojump_clock, followed, files, intake, settled, monkeypatch
):
    tail = await followed(TEXT)
    files.write("a.gz", gzip.compress(TEXT))
    await trio.sleep(5)
    roots = tail.source.watch._descriptors.roots
    open_, failures = roots.open, []

    def fail(path):
        if len(failures) < 3:
            failures.append(path)
            raise OSError(EIO, "no", path)
        return open_(path)

    tail.source.watch._descriptors.close_all()
    monkeypatch.setattr(roots, "open", fail)
    await settled()
    await settled()
    assert len(failures) == 3
    assert intake.contents == [TEXT]
    assert tail.source.figures().waiting == {"original": 1}


async def test_a_copy_that_cannot_be_read_holds_up_no_other(
    autojump_clock, followed, files, intake, settled, monkeypatch
):
    """The proof of a file needs an inflater, and another file waits for the inflater."""
    tail = await followed(TEXT)
    step = ContentSum.step

    def fail(content, fd, size):
        if Path(f"/proc/self/fd/{fd}").readlink().name == "a.gz":
            raise OSError(EIO, "no")
        return step(content, fd, size)

    monkeypatch.setattr(ContentSum, "step", fail)
    files.write("a.gz", gzip.compress(TEXT))
    files.write("b", OTHER)
    await settled()
    files.write("b.gz", gzip.compress(OTHER + b"more"))
    await settled()
    assert intake.contents == [TEXT, OTHER, OTHER + b"more"]
    assert tail.source.figures().waiting == {"original": 1}


names = st.sampled_from(["a", "a.gz", "a.1", "a.1.gz", "a~"])
contents = st.sampled_from([TEXT[:300], TEXT, TEXT + b"more", OTHER, OTHER + b"more"])
steps = st.lists(
    st.tuples(st.sampled_from(["write", "append"]), names, contents, st.sampled_from([2, 100])),
    max_size=6,
)


@examples(60)
@given(steps)
def test_every_byte_of_a_file_that_stays_is_in_a_session(tmp_path_factory, script):
    """Whatever files are found beside each other, and in whichever order."""

    async def play() -> None:
        files, intake = Files(tmp_path_factory.mktemp("copies")), Recorder()
        there: dict[str, bytes] = {}
        async with trio.open_nursery() as nursery:
            tail = Tail(nursery, intake, files.directory)
            for action, name, data, pause in script:
                if action == "write" and name not in there:
                    there[name] = data
                    files.write(name, spelled(name, data))
                elif name in there:
                    there[name] += data
                    files.append(name, spelled(name, data))
                await trio.sleep(pause)
            await trio.sleep(UNPROVEN_MAX + 2 * SETTLED)
            await tail.stop()
        for name, data in there.items():
            assert any(read.startswith(data) for read in intake.contents), name

    trio.run(play, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize(("other", "reads"), [(OTHER, True), (TEXT, False)], ids=["other", "copy"])
@pytest.mark.parametrize(("left", "beside"), [("a", "a.gz"), ("a.gz", "a")])
async def test_no_file_waits_for_one_that_an_earlier_session_has_read(
    autojump_clock, follow, files, intake, left, beside, other, reads
):
    """Its copy is not read, if the file itself is not compressed."""
    path = files.write(left, spelled(left, TEXT))
    files.write(beside, spelled(beside, other))
    tail = follow(once=True, chosen=Chosen({}, left_out=frozenset([str(path)])))
    await tail.stopped.wait()
    assert intake.contents == [other] * (reads or left == "a.gz")
    assert tail.source.figures().files == 2
