"""`tailrace import` of what is no plain readable file: nothing blocks, nothing is passed over without a
word."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.pipeline.finding import find
from tests.system.test_import import VECTORS, ask, do, jets

NOBODY = 65534


@pytest.fixture
def shared():
    """A directory that is everybody's to search, with a file in it and below it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "below").mkdir()
        (directory / "a.jets").write_bytes(jets(1))
        (directory / "below/b.jets").write_bytes(jets(1))
        yield directory
        (directory / "below").chmod(0o755)


@contextmanager
def nobody():
    """As somebody who may not read everything."""
    before = os.geteuid()
    if not before:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("format_", [None, "jets"])
def test_a_pipe_is_not_waited_for(format_, tmp_path):
    os.mkfifo(tmp_path / "a.jets")
    with pytest.raises(ConfigError, match=r"a\.jets: is neither a file nor a directory"):
        find([tmp_path / "a.jets"], format_)
    (tmp_path / "b.jets").write_bytes(jets(1))
    (tmp_path / "pipe.jets").symlink_to("a.jets")
    assert find([tmp_path], format_) == ({"jets": [str(tmp_path / "b.jets")]}, [])


@pytest.mark.parametrize("format_", [None, "jets"])
def test_a_device_is_no_file(format_):
    with pytest.raises(ConfigError, match="/dev/zero: is neither"):
        find([Path("/dev/zero")], format_)


@pytest.mark.parametrize("format_", [None, "jets"])
@pytest.mark.parametrize("place", ["a.jets", "below"])
def test_what_may_not_be_read_is_named(format_, place, shared):
    (shared / place).chmod(0)
    with nobody(), pytest.raises(ConfigError, match=f"{shared / place}: Permission denied"):
        find([shared], format_)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no-such", "there is no such file"), ("x" * 300, "File name too long"), ("loop", "Too many")],
)
def test_a_path_that_leads_nowhere_is_a_clear_error(name, problem, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=problem):
        find([tmp_path / name], None)


def test_what_could_not_be_read_in_the_end_is_said_and_is_a_failure(tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(VECTORS / "ovni/traces/two-looms-offsets/ovni", runs)
    document = next(runs.rglob("stream.json"))
    document.rename(tmp_path / "elsewhere.json")
    document.symlink_to(tmp_path / "elsewhere.json")
    said = do(tmp_path / "store", runs, code=1)
    assert "some of it could not be read: ELOOP" in said
    assert ask(tmp_path / "store", "SELECT count(*) FROM sessions") == [(4,)]


@pytest.mark.parametrize(
    "name", ["a\nb.jets", " a .jets", "[a]*?.jets", "\x1b[31m.jets", "'\".jets"]
)
def test_a_file_may_have_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(jets(2))
    found, others = find([tmp_path], None)
    assert (found, others) == ({"jets": [str(tmp_path / name)]}, [])
