"""The newest entries are read from memory, as long as it has them."""

from __future__ import annotations

import pytest

from tailrace.spool import spool as module
from tailrace.spool.entry import EntryKind
from tailrace.spool.segment import Segment
from tailrace.spool.spool import Spool


class DiskReadError(Exception):
    pass


@pytest.fixture
def spool(open_spool, monkeypatch) -> Spool:
    """A spool that reads nothing from disk."""

    def scan(*_: object) -> None:
        raise DiskReadError

    spool = open_spool()
    monkeypatch.setattr(Segment, "scan", scan)
    return spool


def synced(spool: Spool, *sizes: int) -> list[int]:
    """Append an entry of each size, and sync; return their positions."""
    positions = [spool.append(EntryKind.DATA, 1, bytes(size)) for size in sizes]
    spool.sync()
    return positions


def sizes(spool: Spool, position: int, limit: int) -> list[int]:
    return [len(entry.payload) for entry in spool.read(position, limit)]


def test_what_was_synced_is_read_in_pieces_of_about_the_limit(spool):
    first, _ = synced(spool, 60, 61)
    third, fourth = synced(spool, 62, 300)
    assert sizes(spool, first, 250) == [60, 61]
    assert sizes(spool, third, 110) == [62]
    assert sizes(spool, fourth, 1) == [300]
    assert sizes(spool, spool.durable, 1000) == []


def test_the_oldest_are_forgotten_beyond_the_limit(spool, monkeypatch):
    monkeypatch.setattr(module, "RECENT_MAX", 300)
    first, second, _ = synced(spool, 60, 61, 59)
    assert sizes(spool, first, 1) == [60]
    synced(spool, 60)
    with pytest.raises(DiskReadError):
        spool.read(first, 1)
    assert sizes(spool, second, 1) == [61]


def test_what_a_reader_has_passed_is_forgotten(spool):
    first, second = synced(spool, 60, 61)
    assert sizes(spool, second, 1) == [61]
    with pytest.raises(DiskReadError):
        spool.read(first, 1)


def test_a_position_inside_an_entry_is_not_found_in_memory(spool):
    first, _ = synced(spool, 60, 61)
    with pytest.raises(DiskReadError):
        spool.read(first + 50, 1000)
