from __future__ import annotations

from itertools import pairwise

from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.spool import Recent


def entries(*bounds: int) -> list[Entry]:
    return [
        Entry(start, end, EntryKind.DATA, 1, 0, bytes(end - start))
        for start, end in pairwise(bounds)
    ]


def test_what_was_added_is_read_in_pieces_of_about_the_limit():
    recent = Recent(1000)
    added = entries(0, 100, 200, 300, 700)
    recent.add(added[:2])
    recent.add(added[2:])
    assert recent.read(0, 250) == added[:2]
    assert recent.read(200, 100) == added[2:3]
    assert recent.read(300, 1) == added[3:]
    assert recent.read(700, 1000) == []


def test_the_oldest_are_forgotten_beyond_the_limit():
    recent = Recent(300)
    recent.add(entries(0, 100, 200, 300))
    assert recent.read(0, 1) == entries(0, 100)
    recent.add(entries(300, 400))
    assert recent.read(0, 1) == []
    assert recent.read(100, 1) == entries(100, 200)


def test_what_a_reader_has_passed_is_forgotten():
    recent = Recent(1000)
    recent.add(entries(0, 100, 200))
    assert recent.read(100, 1) == entries(100, 200)
    assert recent.read(0, 1) == []


def test_a_position_inside_an_entry_gives_nothing():
    recent = Recent(1000)
    recent.add(entries(0, 100, 200))
    assert recent.read(50, 1000) == []
