"""Files that are whole or not there."""

from __future__ import annotations

import os
import threading

import pytest

from tailrace.errors import ExportError
from tailrace.export.output import Output


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_files_have_their_names_once_all_are_whole(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("older")
    with Output(str(path)) as output:
        output.main().write(b"rows")
        output.beside("gaps").write(b"gaps")
        assert path.read_text() == "older"
        assert "trace.gaps.csv" not in names(tmp_path)
    assert names(tmp_path) == ["trace.csv", "trace.gaps.csv"]
    assert (path.read_bytes(), (tmp_path / "trace.gaps.csv").read_bytes()) == (b"rows", b"gaps")
    assert output.names == [path, tmp_path / "trace.gaps.csv"]


def break_off(path, error):
    with Output(str(path)) as output:
        output.main().write(b"rows")
        output.beside("gaps")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_is_left_of_what_broke_off(tmp_path, error):
    path = tmp_path / "trace.csv"
    path.write_text("older")
    with pytest.raises(error):
        break_off(path, error)
    assert names(tmp_path) == ["trace.csv"]
    assert path.read_text() == "older"


def test_what_was_written_from_an_older_snapshot_is_written_anew(tmp_path):
    with Output(str(tmp_path / "trace")) as output:
        output.main().write(b"old and longer")
        output.restart()
        output.main().write(b"new")
    assert (tmp_path / "trace").read_bytes() == b"new"
    assert names(tmp_path) == ["trace"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "trace").symlink_to("there/real")
    with Output(str(tmp_path / "trace")) as output:
        output.main().write(b"rows")
    assert (tmp_path / "trace").is_symlink()
    assert names(tmp_path / "there") == ["real"]


def test_a_pipe_takes_one_file_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with Output(str(path)) as output:
        output.main().write(b"rows")
        assert output.beside("gaps") is None
        with pytest.raises(ExportError, match="ask again"):
            output.restart()
    reader.join()
    assert read == [b"rows"]
    assert path.is_fifo()


def test_a_full_disk_is_said(tmp_path):
    (tmp_path / "disk").symlink_to("/dev/full")
    with (
        pytest.raises(ExportError, match="No space left"),
        Output(str(tmp_path / "disk")) as output,
    ):
        output.main().write(b"x" * 10**6)


@pytest.mark.parametrize("name", [".", "there/is/none"])
def test_a_place_where_no_file_can_be_is_said(tmp_path, name):
    with (
        pytest.raises(ExportError, match="directory"),
        Output(str(tmp_path / name)) as output,
    ):
        output.main()
