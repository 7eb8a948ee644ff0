"""Collectors introduce themselves to one another in their directories."""

from __future__ import annotations

from tailrace.store.presence import INTRODUCTION, Introduction, introduce, introduction_of

WHO = Introduction("0" * 32, "/spool")


def test_it_is_read_as_it_was_written(tmp_path):
    introduce(tmp_path, WHO)
    assert introduction_of(tmp_path) == WHO


def test_it_is_written_once_and_again_when_it_changes(tmp_path):
    introduce(tmp_path, WHO)
    written = (tmp_path / INTRODUCTION).stat()
    introduce(tmp_path, WHO)
    now = (tmp_path / INTRODUCTION).stat()
    assert (now.st_ino, now.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    moved = Introduction(WHO.identity, "/elsewhere")
    introduce(tmp_path, moved)
    assert introduction_of(tmp_path) == moved


def test_nobody_is_known_from_nothing_or_from_damage(tmp_path):
    assert introduction_of(tmp_path) is None
    (tmp_path / INTRODUCTION).write_bytes(b'{"identity": 1}')
    assert introduction_of(tmp_path) is None
    introduce(tmp_path, WHO)
    assert introduction_of(tmp_path) == WHO


def test_what_is_in_the_way_makes_way(tmp_path):
    (tmp_path / INTRODUCTION).mkdir()
    introduce(tmp_path, WHO)
    assert introduction_of(tmp_path) == WHO
