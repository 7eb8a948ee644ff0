"""Test how measured data is combined when processes were killed while they wrote it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from coverage import CoverageData

from tests.combine import NAME, combine
from tests.order import ROOT


def measured(directory, number, lines):
    """Write what a process has measured: lines of a module."""
    file = directory / f"{NAME}.host.pid{number}.Xabcdef{number}x"
    data = CoverageData(str(file))
    data.add_lines({"/a.py": lines})
    data.write()
    return file


def combined(directory):
    data = CoverageData(str(directory / NAME))
    data.read()
    return sorted(data.lines("/a.py"))


@pytest.mark.parametrize("left", [0, 1, 15, 16, 100, 4096, 8192, -4096])
def test_a_file_that_was_cut_short_is_left_out_and_named(tmp_path, capsys, left):
    measured(tmp_path, 1, [1, 2])
    measured(tmp_path, 2, [2, 3])
    broken = measured(tmp_path, 3, [*range(100, 9000)])
    broken.write_bytes(broken.read_bytes()[:left])
    assert combine(tmp_path)
    assert combined(tmp_path) == [1, 2, 3]
    said = capsys.readouterr().out
    assert f"killed while it wrote: {broken.name} (" in said
    assert "combined what 2 processes have measured" in said
    assert [file.name for file in tmp_path.iterdir()] == [NAME], "a report would find it again"


def test_a_file_that_is_damaged_inside_is_left_out_too(tmp_path, capsys):
    measured(tmp_path, 1, [1])
    broken = measured(tmp_path, 2, [*range(100, 9000)])
    data = bytearray(broken.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    broken.write_bytes(data)
    assert combine(tmp_path)
    assert combined(tmp_path) == [1]
    assert broken.name in capsys.readouterr().out


def test_whole_files_are_all_combined_and_nothing_is_left_out(tmp_path, capsys):
    for number in range(5):
        measured(tmp_path, number, [number + 1])
    assert combine(tmp_path)
    assert combined(tmp_path) == [1, 2, 3, 4, 5]
    assert capsys.readouterr().out == "combined what 5 processes have measured\n"


@pytest.mark.parametrize("broken", [0, 2])
def test_where_nothing_can_be_read_nothing_was_measured(tmp_path, capsys, broken):
    for number in range(broken):
        measured(tmp_path, number, [1]).write_bytes(b"SQLite")
    assert not combine(tmp_path)
    assert "nothing was measured" in capsys.readouterr().out
    assert not (tmp_path / NAME).exists()


def test_the_command_fails_then_too(tmp_path):
    command = [sys.executable, "-m", "tests.combine"]
    environ = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
