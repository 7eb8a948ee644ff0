"""Directories that are whole or not there."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tailrace.errors import ExportError
from tailrace.export.output import Directory


def names(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def put(output, name, data=b"rows"):
    with output.file(PurePosixPath(name)) as file:
        file.write(data)


def test_a_directory_has_its_name_once_it_is_whole(tmp_path):
    with Directory(str(tmp_path / "out")) as output:
        put(output, "a/b/one")
        assert output.has(PurePosixPath("a/b"))
        assert not (tmp_path / "out").exists()
    assert names(tmp_path) == ["out", "out/a", "out/a/b", "out/a/b/one"]


def test_an_empty_directory_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    with Directory(str(tmp_path / "out")) as output:
        put(output, "one")
    assert names(tmp_path) == ["out", "out/one"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_is_left_of_what_broke_off(tmp_path, error):
    def break_off():
        with Directory(str(tmp_path / "out")) as output:
            put(output, "one")
            raise error

    with pytest.raises(error):
        break_off()
    assert names(tmp_path) == []


def test_what_was_written_from_an_older_snapshot_is_written_anew(tmp_path):
    with Directory(str(tmp_path / "out")) as output:
        put(output, "old")
        output.restart()
        put(output, "new")
    assert names(tmp_path) == ["out", "out/new"]


def test_a_place_that_is_taken_is_said(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").write_text("kept")
    with pytest.raises(ExportError, match="not empty"):
        Directory(str(tmp_path / "full"))
    with pytest.raises(ExportError, match="is a file"):
        Directory(str(tmp_path / "full" / "theirs"))
    with pytest.raises(ExportError, match="cannot be made"):
        Directory(str(tmp_path / "there" / "is" / "none"))
    assert names(tmp_path) == ["full", "full/theirs"]


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_no_file_leads_out_of_it(tmp_path, name):
    with (
        pytest.raises(ExportError, match="not in it"),
        Directory(str(tmp_path / "out")) as output,
    ):
        put(output, name)
    assert names(tmp_path) == []
