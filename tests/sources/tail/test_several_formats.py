"""Sources of several formats follow one directory: none reads the files of another format as damaged files of its own."""

from __future__ import annotations

import pytest
import trio

from tests.decoding.test_conformance import VECTORS

FILES = {
    "jets": ("run", VECTORS / "jets/dialect_a.in"),
    "et3": ("objects", VECTORS / "et3/spec_example.in"),
    "heph": ("work", VECTORS / "heph/busy.in"),
    "dftracer": ("trace-app.pfw", VECTORS / "dftracer/brackets.in"),
}


@pytest.mark.parametrize("format_", FILES)
@pytest.mark.parametrize("pattern", ["", "*", "**"])
async def test_a_source_follows_the_files_of_its_format(
    autojump_clock, follow, files, intake, settle, format_, pattern
):
    for name, vector in FILES.values():
        files.write(name, vector.read_bytes())
    files.write("loom.h.1/proc.1/thread.1/stream.obs", b"ovni\1\0\0\0")
    files.write("loom.h.1/proc.1/thread.1/stream.json", b"{}")
    follow(*[pattern] * bool(pattern), format=format_)
    await settle()
    name, vector = FILES[format_]
    assert [session.state.facts.path for session in intake.sessions] == [str(files / name)]
    assert intake.contents == [vector.read_bytes()]


@pytest.mark.parametrize("pattern", ["*.pfw", "trace*", "trace-app.pfw"])
async def test_a_pattern_that_spells_the_name_decides(
    autojump_clock, follow, files, intake, pattern
):
    files.write("trace-app.pfw", b"no JETS\n")
    follow(pattern)
    await trio.sleep(30)
    assert intake.contents == [b"no JETS\n"]


async def test_an_empty_file_with_the_name_of_another_format_waits_for_its_content(
    autojump_clock, follow, files, intake, settle
):
    files.write("trace-app.pfw", b"")
    files.write("run", b"")
    tail = follow()
    await settle()
    assert tail.source.figures().files == 1
    for name in ("trace-app.pfw", "run"):
        files.append(name, FILES["jets"][1].read_bytes())
    await trio.sleep(90)
    assert len(intake.contents) == 2
