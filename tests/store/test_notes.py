"""Notes beside the table: in a directory, and at a URL."""

from __future__ import annotations

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.errors import FullError, StoreError
from tailrace.store import notes as module
from tailrace.store.notes import ListedNotes, Note, NoteStore
from tests.system.test_odd_files import FULL, READ_ONLY, needs_mounts, nobody, spoiled


def note(text="slow here", **values):
    return Note(**{"made": 3, "from_": 1, "to": 2, "text": text} | values)


@pytest.fixture(params=["directory", "url"])
def notes(request, tmp_path):
    if request.param == "directory":
        return NoteStore(str(tmp_path), {})
    s3 = request.getfixturevalue("s3")
    return NoteStore("s3://bucket/noted", s3.options)


def test_a_store_begins_without_notes(notes):
    assert notes.list() == ListedNotes([], [])
    assert notes.refused is None


def test_notes_are_kept_and_listed_by_their_times(notes):
    late, early = note(from_=5, to=9), note(source="sim", session="a", stream="1")
    notes.add(late)
    notes.add(early)
    assert notes.list().notes == [early, late]


def test_a_removed_note_is_gone_once(notes):
    one = note()
    notes.add(one)
    assert notes.remove(one.id)
    assert not notes.remove(one.id)
    assert notes.list().notes == []


@pytest.mark.parametrize(
    "name", ["../ports", "", "x", "0123456789abcdef/../..", "0123456789ABCDEF"]
)
def test_only_a_note_is_removed(tmp_path, name):
    (tmp_path / "ports.json").touch()
    assert not NoteStore(str(tmp_path), {}).remove(name)
    assert (tmp_path / "ports.json").exists()


def test_any_text_is_kept(notes):
    one = note('<b>"\u202e\x00\n' + "ü" * 100)
    notes.add(one)
    assert notes.list().notes == [one]


def test_a_damaged_file_is_named_and_hides_no_other(tmp_path):
    notes = NoteStore(str(tmp_path), {})
    one = note()
    notes.add(one)
    (tmp_path / "notes" / f"{'0' * 16}.json").write_text("{")
    (tmp_path / "notes" / "README").write_text("not ours")
    assert notes.list() == ListedNotes([one], [f"{'0' * 16}.json"])


def test_a_note_under_another_name_is_none(tmp_path):
    notes = NoteStore(str(tmp_path), {})
    one = note()
    notes.add(one)
    other = f"{'0' * 16}.json"
    (tmp_path / "notes" / f"{one.id}.json").rename(tmp_path / "notes" / other)
    assert notes.list() == ListedNotes([], [other])


def test_a_note_that_cannot_be_read_hides_no_other(everybodys):
    """Somebody with another umask wrote one, and somebody made a directory."""
    notes = NoteStore(str(everybodys), {})
    one, private = note(), note()
    notes.add(one)
    notes.add(private)
    (everybodys / "notes" / f"{private.id}.json").chmod(0o600)
    directory = everybodys / "notes" / f"{'0' * 16}.json"
    directory.mkdir()
    with nobody():
        listed = notes.list()
    assert (listed.notes, set(listed.unreadable)) == ([one], {directory.name, f"{private.id}.json"})


def test_many_writers_lose_no_note(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = [note(text=str(number)) for number in range(40)]
        list(pool.map(lambda each: NoteStore(str(tmp_path), {}).add(each), made))
    assert {each.text for each in NoteStore(str(tmp_path), {}).list().notes} == {
        n.text for n in made
    }


def test_there_is_room_for_so_many(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NOTES_MAX", 2)
    notes = NoteStore(str(tmp_path), {})
    notes.add(note())
    notes.add(note())
    with pytest.raises(FullError, match="has 2 notes"):
        notes.add(note())


def test_a_place_that_is_no_directory_is_an_error_and_not_an_absence(tmp_path):
    (tmp_path / "notes").touch()
    notes = NoteStore(str(tmp_path), {})
    with pytest.raises(StoreError, match="list the notes"):
        notes.list()
    with pytest.raises(StoreError, match="list the notes"):
        notes.add(note())


@pytest.fixture
def everybodys():
    """A directory that is everybody's to read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_store_that_may_only_be_read_says_so(everybodys):
    notes = NoteStore(str(everybodys), {})
    notes.add(note())
    for path in (everybodys / "notes", everybodys):
        path.chmod(0o555)
    with nobody():
        assert "may not write" in notes.refused
        with pytest.raises(StoreError, match="keep a note"):
            notes.add(note())
        assert len(notes.list().notes) == 1
    everybodys.chmod(0o755)
    (everybodys / "notes").chmod(0o755)


ADD = """
import sys
from pathlib import Path
from tailrace.errors import FullError, StoreError
from tailrace.store.notes import Note, NoteStore
try:
    NoteStore(sys.argv[1], {}).add(Note(made=3, from_=1, to=2, text="slow here"))
except (FullError, StoreError) as error:
    print(type(error).__name__, error, [path.name for path in Path(sys.argv[1], "notes").iterdir()])
"""


@needs_mounts
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (FULL, "FullError .*: no room to keep a note: "),
        (READ_ONLY, "StoreError .*: Read-only file system"),
    ],
)
def test_a_failed_write_is_a_refusal_and_leaves_nothing(tmp_path, how, said):
    assert re.fullmatch(f"{said}.* \\[\\]\n", spoiled(tmp_path, how, ADD))
