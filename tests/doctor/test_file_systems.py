"""Kinds of file systems, from mount tables as the kernel prints them."""

from __future__ import annotations

import pytest

from tailrace.config.schema import SpoolConfig
from tailrace.doctor import machine
from tests.doctor.hosts import host, only, put

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard"


def check(tmp_path, *mounts, store="/nowhere/store", **sections):
    put(tmp_path, proc__self__mountinfo="\n".join([ROOT, *mounts]) + "\n")
    return list(machine.check_durability(host(store, root=tmp_path, **sections)))


@pytest.mark.parametrize(
    ("kind", "options", "severity", "meaning"),
    [
        ("ext4", "rw", "good", ""),
        ("btrfs", "rw,space_cache=v2", "good", ""),
        ("tmpfs", "rw,size=100k", "problem", "gone after the next reboot"),
        ("overlay", "rw,lowerdir=/x", "advice", "deleted with the container"),
        ("nfs4", "rw,vers=4.2", "advice", "that server's"),
        ("fuse.sshfs", "rw", "advice", "that server's"),
        ("ext4", "rw,nobarrier", "advice", "A power cut"),
        ("ext4", "rw,barrier=0", "advice", "A power cut"),
    ],
)
def test_what_a_kind_means_for_what_was_synced(tmp_path, kind, options, severity, meaning):
    place = tmp_path / "disk"
    place.mkdir()
    mount = f"30 27 0:30 / {place} rw,relatime shared:1 master:2 - {kind} source {options}"
    finding = only(check(tmp_path, mount, store=place / "store"))
    assert finding.severity.value == severity
    assert finding.figures == {"file_system": kind, "mount": str(place)}
    assert meaning in finding.why
    assert bool(finding.commands) == (severity != "good")


def test_the_nearest_mount_counts_and_of_two_in_one_place_the_later(tmp_path):
    place = tmp_path / "disk with space"
    place.mkdir()
    escaped = str(place).replace(" ", "\\040")
    mounts = [
        f"30 27 0:30 / {escaped} rw - xfs a rw",
        f"31 30 0:31 / {escaped} rw - tmpfs b rw",
        f"32 27 0:32 / {tmp_path} rw - btrfs c rw",
        f"33 27 0:33 / {escaped}x rw - nfs4 d rw",
    ]
    assert only(check(tmp_path, *mounts, store=place)).figures["file_system"] == "tmpfs"


def test_a_spool_on_another_file_system_is_judged_by_itself(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = f"30 27 0:30 / {place} rw - tmpfs a rw"
    found = check(tmp_path, mount, spool=SpoolConfig(path=str(place / "spool")))
    assert [f.figures["file_system"] for f in found] == ["ext4", "tmpfs"]
    assert "of the store is" in found[0].what
    assert "of the spool is" in found[1].what


def test_a_mount_whose_name_is_the_beginning_of_another_is_not_above_it(tmp_path):
    (tmp_path / "store").mkdir()
    mount = f"30 27 0:30 / {tmp_path}/sto rw - tmpfs a rw"
    assert only(check(tmp_path, mount, store=tmp_path / "store")).severity == "good"


def test_a_link_is_judged_by_where_it_leads(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    mount = f"30 27 0:30 / {place} rw - tmpfs a rw"
    assert only(check(tmp_path, mount, store=tmp_path / "link" / "store")).severity == "problem"


def test_without_a_table_nothing_is_claimed(tmp_path):
    finding = only(machine.check_durability(host(root=tmp_path)))
    assert "not known" in finding.what
    assert finding.severity == "good"
