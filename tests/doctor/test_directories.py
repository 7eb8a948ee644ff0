"""Directories that can be made, written to, or not, and how much room there is."""

from __future__ import annotations

import shutil

import pytest

from tailrace.config.schema import SpoolConfig
from tailrace.doctor import machine
from tailrace.units import Size
from tests.doctor.hosts import host, severities


def findings(store, check, **sections):
    return [f for f in machine.check_directories(host(store, **sections)) if f.check == check]


def test_what_is_not_there_yet_can_be_made_and_is_not(tmp_path):
    store = tmp_path / "a" / "store"
    found = findings(store, machine.DIRECTORIES)
    assert severities(found) == ["good", "good"]
    assert f"can be created in {tmp_path}" in found[0].what
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_a_problem(tmp_path):
    (tmp_path / "file").write_text("")
    found = findings(tmp_path / "file" / "store", machine.DIRECTORIES)
    assert severities(found) == ["problem", "problem"]
    assert f"{tmp_path}/file is not a directory" in found[0].what


def test_a_store_at_a_url_has_only_a_spool_here(tmp_path):
    found = list(
        machine.check_directories(
            host("s3://bucket/x", spool=SpoolConfig(path=str(tmp_path / "spool")))
        )
    )
    assert [f.figures["directory"] for f in found if f.check == machine.DIRECTORIES] == [
        f"{tmp_path}/spool"
    ]


@pytest.mark.parametrize(
    ("limit", "segment", "severity"),
    [(2**20, 2**20, "good"), (2**60, 2**20, "advice"), (2**60, 2**59, "problem")],
)
def test_room_is_measured_against_the_spools_limit(tmp_path, limit, segment, severity):
    config = SpoolConfig(max_size=Size(limit), segment_size=Size(segment))
    (finding,) = findings(tmp_path / "store", machine.SPACE, spool=config)
    assert finding.severity.value == severity
    free = shutil.disk_usage(tmp_path).free
    assert 0 < finding.figures["free_bytes"] < 2 * free
    if severity != "good":
        assert finding.commands[1].startswith("export TAILRACE_SPOOL_MAX_SIZE='")


def test_what_the_spool_holds_already_needs_no_more_room(tmp_path):
    def needed():
        (finding,) = findings(tmp_path, machine.SPACE)
        return finding.figures["needed_bytes"]

    before = needed()
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "000.segment").write_bytes(bytes(1000))
    (tmp_path / "spool" / "001.segment").symlink_to("gone")
    assert needed() == before - 1000
