"""Follow pieces beside their file, and joined or merged files beside their parts. The source reads all of them, and
reports the files whose content other files have."""

from __future__ import annotations

import gzip
import random

import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from tailrace.sources.tail import comparison
from tailrace.sources.tail.comparison import ALIKE_MAX, Cover, PieceFile, RecordSum
from tailrace.sources.tail.content import LINE_MAX
from tailrace.spool.payloads import HEAD, checksum
from tests.forms import examples
from tests.sources.tail.conftest import Files
from tests.sources.tail.recorder import Recorder, Tail

DATA = random.Random(1).randbytes(4000)
PARTS = [DATA[at : at + 1000] for at in range(0, 4000, 1000)]


def reported(intake):
    """Return the files that repeat others, each with these others, by name."""
    names = {f"session{n}": s.state.facts.path.rpartition("/")[2] for n, s in enumerate(intake.sessions)}  # fmt: skip
    return {
        names[f"session{number}"]: " ".join(
            sorted(names[of] for of in session.state.facts.copied_in)
        )
        for number, session in enumerate(intake.sessions)
        if session.state.facts.copied_in
    }


def write(files, contents):
    for name, data in contents.items():
        files.write(name, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


@pytest.mark.parametrize("last", ["d", "d.gz"])
@pytest.mark.parametrize("order", ["pieces first", "file first", "together"])
async def test_pieces_and_their_file_are_reported_as_the_same(
    autojump_clock, follow, files, intake, settle, order, last
):
    pieces = dict(zip(["a", "b", "c", last], PARTS, strict=True))
    first, second = (pieces, {"w": DATA}) if order == "pieces first" else ({"w": DATA}, pieces)
    write(files, first)
    if order == "together":
        write(files, second)
    follow()
    await settle()
    if order != "together":
        write(files, second)
        await settle()
    assert len(intake.sessions) == 5
    assert reported(intake) == dict.fromkeys(pieces, "w")


@pytest.mark.parametrize("beside", [{"t": DATA[1700:]}, {"a": DATA[:900], "b": DATA[900:1500]}])
async def test_a_part_of_the_pieces_is_enough_unless_only_the_beginning_is_there(
    autojump_clock, follow, files, intake, settle, beside
):
    write(files, {"w": DATA} | beside)
    follow()
    await settle()
    assert reported(intake) == dict.fromkeys(beside, "w")
    write(files, {"h": DATA[:1200]})
    await settle()
    assert reported(intake) == dict.fromkeys(beside, "w")


async def test_a_piece_that_comes_last_completes_the_others(
    autojump_clock, follow, files, intake, settle
):
    write(files, {"w": DATA, "a": PARTS[0]})
    follow()
    await settle()
    assert reported(intake) == {}
    for name, part in {"b": PARTS[1], "c": PARTS[2]}.items():
        write(files, {name: part})
        await settle()
    assert reported(intake) == dict.fromkeys("abc", "w")


async def test_a_piece_that_grows_in_another_way_is_a_file_again(
    autojump_clock, follow, files, intake, settle
):
    write(files, {"w": DATA, "t": DATA[1700:]})
    tail = follow()
    await settle()
    assert reported(intake) == {"t": "w"}
    await tail.restart()
    await settle()
    assert reported(intake) == {"t": "w"}
    files.append("t", b"more")
    await settle()
    assert reported(intake) == {}
    assert (
        intake.contents[1] == DATA[1700:] + b"more" or intake.contents[0] == DATA[1700:] + b"more"
    )


async def test_files_are_compared_after_a_restart(autojump_clock, follow, files, intake, settle):
    write(files, dict(zip("abcd", PARTS, strict=True)))
    tail = follow()
    await settle()
    await tail.stop()
    write(files, {"w": DATA})
    tail.start()
    await settle()
    assert reported(intake) == dict.fromkeys("abcd", "w")


async def test_files_that_only_begin_alike_are_not_read_again(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    monkeypatch.setattr(comparison, "ContentSum", None)
    write(files, {"w": DATA, "a": DATA[:300] + DATA[500:900], "b": DATA[300:600] + DATA[1700:]})
    follow()
    await settle()
    assert len(intake.sessions) == 3
    assert reported(intake) == {}


async def test_a_file_that_is_forgotten_while_it_is_compared_is_not_opened_again(
    autojump_clock, follow, files, intake, settle, monkeypatch
):
    data = DATA * 2000
    write(files, {"w": data, "t": data[1700:]})
    tail = follow()
    step = comparison.Repeats.step

    def forget(repeats):
        step(repeats)
        if repeats._steps is not None:
            monkeypatch.undo()
            (files / "w").unlink()
            tail.source.watch._forget(tail.source.watch._catalog.at(str(files / "w")))

    monkeypatch.setattr(comparison.Repeats, "step", forget)
    await settle()
    assert not (files / "w").exists()
    assert tail.source.figures().errors == {}


def records(*ids):
    line = b'{"id":%d,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":17%014d,"dur":1,"ph":"X","args":{"x":"%s"}}\n'
    return b"".join(line % (n, n, b"y" * 100) for n in ids)


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "merged",
    [
        b"[\n" + records(0, 1, 2) + records(10, 11, 12) + records(20, 21) + b"]\n",
        records(0, 10, 20, 1, 11, 21, 2, 12).replace(b"}\n", b"},\n"),
    ],
    ids=["joined", "interleaved"],
)
@pytest.mark.parametrize("order", ["parts first", "together"])
async def test_a_merged_file_of_dftracer_has_the_records_of_its_parts(
    autojump_clock, follow, files, intake, settle, order, merged, packed
):
    suffix = ".pfw" if packed is bytes else ".pfw.gz"
    parts = {"a": records(0, 1, 2), "b": records(10, 11, 12), "c": records(20, 21)}
    for name, data in parts.items():
        files.write(name + suffix, packed(b"[\n" + data))
    if order == "together":
        files.write("w" + suffix, packed(merged))
    follow(format="dftracer")
    await settle()
    files.write("w" + suffix, packed(merged))
    await settle()
    names, whole = [name + suffix for name in "abc"], "w" + suffix
    assert reported(intake) in [
        {whole: " ".join(names)},
        *[dict.fromkeys(names, whole)] * (order == "together"),
    ]
    files.write("more" + suffix, packed(records(0, 1, 99)))
    await settle()
    assert "more" + suffix not in reported(intake)


async def test_a_copied_directory_has_copies_of_its_own(
    autojump_clock, follow, files, intake, settle
):
    for place in ("1", "2"):
        write(files, {f"{place}/{name}": part for name, part in zip("abcd", PARTS, strict=True)})
        if place == "1":
            follow()
            await settle()
        write(files, {f"{place}/w": DATA})
        await settle()
    assert reported(intake) == dict.fromkeys("abcd", "w")


@pytest.mark.parametrize("record", [b"x", b"y" * HEAD], ids=["short", "long"])
def test_a_file_that_repeats_one_record_is_compared_at_few_places(record):
    compared = []

    def beginning_with(data, at):
        compared.append(at)
        return [PieceFile("a", record, len(record), checksum(0, record, 0))]

    cover = Cover(beginning_with, {})
    cover.feed(record * 1000)
    assert cover.found(dated=False) == (["a"] * (len(record) >= HEAD), [])
    assert len(compared) == ALIKE_MAX + 1


def test_a_line_without_an_end_is_summed_in_parts():
    line = random.Random(2).randbytes(3 * LINE_MAX).replace(b"\n", b"") + b"\nlast"
    sums = set()
    for size in (len(line), LINE_MAX, LINE_MAX // 3):
        records = RecordSum({})
        for at in range(0, len(line), size):
            records.feed(line[at : at + size])
            assert len(records._left) <= LINE_MAX
        sums.add(records.end())
    assert len(sums) == 1


CUTS = st.lists(st.sampled_from(range(0, 4001, 500)), min_size=2, max_size=4).map(sorted)


@examples(30)
@given(st.lists(st.tuples(CUTS, CUTS, st.sampled_from([0, 20])), min_size=2, max_size=6))
def test_what_is_reported_is_in_files_that_are_not(tmp_path_factory, plan):
    """Each file may have any parts of the data, and the files may come in any order."""

    async def play() -> None:
        files, intake = Files(tmp_path_factory.mktemp("repeats")), Recorder()
        async with trio.open_nursery() as nursery:
            tail = Tail(nursery, intake, files.directory)
            for number, (one, two, pause) in enumerate(plan):
                files.write(str(number), DATA[one[0] : one[-1]] + DATA[two[0] : two[-1]])
                await trio.sleep(pause)
            await trio.sleep(60)
            await tail.stop()
        for session in intake.sessions:
            if of := session.state.facts.copied_in:
                whole = intake.sessions[int(of[0].removeprefix("session"))]
                assert len(whole.content) > len(session.content)
                assert session.content in whole.content

    trio.run(play, clock=MockClock(autojump_threshold=0))
