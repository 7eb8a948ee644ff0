"""Copies and their originals, found in any order: all bytes are read, each once."""

from __future__ import annotations

import gzip

import pytest

TEXT = bytes(range(33, 127)) * 10
NAMES = ["a.gz", "a.1.gz", "a.1", "a.bak.gz", "a~"]
PAIRS = [(copy, original) for copy in NAMES for original in ("a", "a.gz") if copy != original]


def spelled(name, data):
    return gzip.compress(data) if name.endswith(".gz") else data


@pytest.mark.parametrize(("copy", "original"), PAIRS)
@pytest.mark.parametrize("part", [len(TEXT), 600], ids=["whole", "begun"])
@pytest.mark.parametrize("first", ["copy", "original", "together"])
async def test_whichever_is_found_first_the_original_is_read_and_its_copy_is_not(
    autojump_clock, follow, files, intake, settle, copy, original, part, first
):
    tail = follow()
    order = [copy, original] if first != "original" else [original, copy]
    for name in order:
        files.write(name, spelled(name, TEXT[: part if name == copy else None]))
        if first != "together":
            await settle()
    await settle()
    if copy == "a.gz" or original == "a":
        assert intake.contents == [TEXT]
    files.append(original, spelled(original, b"more"))
    await settle()
    assert intake.contents == [TEXT + b"more"]
    assert tail.source.figures().waiting == {"original": 1}
    files.append(copy, spelled(copy, b"of its own"))
    await settle()
    assert intake.contents == [TEXT + b"more", TEXT[:part] + b"of its own"]


@pytest.mark.parametrize("copy", NAMES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
async def test_a_file_that_only_begins_like_the_one_with_its_name_is_read(
    autojump_clock, follow, files, intake, settle, copy, first
):
    """A run that was packed, and the next one."""
    other = TEXT[:500] + TEXT[::-1]
    names = [copy, "a"] if first else ["a", copy]
    tail = follow()
    for name in names:
        files.write(name, TEXT if name == "a" else spelled(name, other))
        await settle()
    assert sorted(intake.contents) == sorted([TEXT, other])
    assert not tail.source.figures().waiting.total()


async def test_a_rotation_that_copies_packs_and_empties_is_read_once(
    autojump_clock, followed, files, intake, settle
):
    await followed(TEXT)
    files.write("a.1.gz", gzip.compress(TEXT))
    files.write("a", b"the next")
    await settle()
    assert intake.contents == [TEXT, b"the next"]


async def test_a_large_packed_copy_is_compared_to_its_end(
    autojump_clock, follow, files, intake, settle
):
    large = TEXT * 3000
    files.write("a.1.gz", gzip.compress(large + b"1"))
    files.write("a.2.gz", gzip.compress(large))
    follow()
    await settle()
    files.write("a", large + b"a")
    await settle()
    assert sorted(intake.contents) == [large + b"1", large + b"a"]
