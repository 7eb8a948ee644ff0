"""A unit that blocks what the configuration is for is a problem, however it is put together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.config.schema import AdminConfig, CollectorConfig, UdpConfig
from tailrace.doctor import processes
from tests.doctor.hosts import host, only, put, tcp

DEPLOY = Path(__file__).parents[2] / "deploy/systemd"
TEMPLATE = (DEPLOY / "tailrace@.service").read_text()
SHIPPED = (DEPLOY / "tailrace.service").read_text()
ETC = "etc__systemd__system__tailrace.service"
EVERYWHERE = "0.0.0.0:7701"


def check(root, store="/nowhere/store", **sections):
    return list(processes.check_unit(host(store, root=root, **sections)))


@pytest.fixture
def installed(tmp_path):
    put(tmp_path, **{ETC: SHIPPED})
    return tmp_path


def test_what_is_meant_for_loopback_is_not_blocked(installed):
    assert only(check(installed, sources={"a": tcp()})).severity == "good"


def test_without_the_unit_nothing_is_said(tmp_path):
    assert check(tmp_path, sources={"a": tcp(EVERYWHERE, open_to_all=True)}) == []


def test_a_source_that_all_may_reach(installed):
    finding = only(check(installed, sources={"a": tcp(EVERYWHERE, open_to_all=True)}), "problem")
    assert finding.what == (
        "tailrace.service blocks every network but loopback,"
        f" which sources.a.listen ({EVERYWHERE}) must reach."
    )
    assert finding.figures == {"address": EVERYWHERE}


def test_a_source_of_datagrams_and_the_admin_endpoint(installed):
    source = UdpConfig(format="heph", listen="[::]:7701", allow=["10.0.0.0/8", "192.0.2.0/24"])
    admin = AdminConfig(listen="192.0.2.1:9464", open_to_all=True)
    put(installed, **{f"{ETC}.d__a.conf": "[Service]\nIPAddressAllow=10.1.0.0/16\n"})
    found = check(installed, sources={"a": source}, admin=admin)
    # The operator lets a part of 10.0.0.0/8 through, which is some of what is meant.
    assert [finding.what for finding in found] == [
        "tailrace.service blocks 192.0.2.0/24, which sources.a.listen ([::]:7701) must reach."
    ]


def test_an_object_store(installed):
    assert "store.path (s3://bucket/a)" in only(check(installed, "s3://bucket/a")).what


@pytest.mark.parametrize("place", ["etc", "run", "usr__lib", "usr__local__lib"])
def test_the_shipped_drop_in_opens_what_it_names(installed, place):
    drop_in = (DEPLOY / "networks.conf").read_text()
    put(installed, **{f"{place}__systemd__system__tailrace.service.d__networks.conf": drop_in})
    known = tcp(EVERYWHERE, allow=["192.0.2.0/25"])
    other = tcp("0.0.0.0:7702", allow=["198.51.100.0/24"])
    finding = only(check(installed, sources={"known": known, "other": other}))
    assert "sources.other.listen" in finding.what


def test_the_nearest_file_counts_and_what_is_empty_takes_back(tmp_path):
    put(tmp_path, **{ETC.replace("etc", "usr__lib"): SHIPPED})
    sources = {"a": tcp(EVERYWHERE, open_to_all=True)}
    assert only(check(tmp_path, sources=sources)).severity == "problem"
    put(tmp_path, **{f"{ETC}.d__10.conf": "[Service]\nIPAddressDeny=\n"})
    assert only(check(tmp_path, sources=sources)).severity == "good"
    # One of the same name, nearer.
    put(tmp_path, **{f"{ETC.replace('etc', 'run')}.d__10.conf": "[Service]\nIPAddressDeny=any\n"})
    assert only(check(tmp_path, sources=sources)).severity == "good"
    put(tmp_path, **{ETC: "[Service]\n#IPAddressDeny=any\n[Unit]\nIPAddressDeny=any\n"})
    (tmp_path / "etc/systemd/system/tailrace.service.d/10.conf").unlink()
    (tmp_path / "run/systemd/system/tailrace.service.d/10.conf").unlink()
    assert only(check(tmp_path, sources=sources)).severity == "good"


def test_a_collector_with_a_name_has_the_template_and_the_drop_ins_of_both(tmp_path):
    sections = {
        "collector": CollectorConfig(name="second"),
        "sources": {"a": tcp(EVERYWHERE, open_to_all=True)},
    }
    put(tmp_path, **{ETC: SHIPPED})
    assert check(tmp_path, **sections) == []
    put(tmp_path, **{ETC.replace(".service", "@.service"): TEMPLATE})
    finding = only(check(tmp_path, **sections), "problem")
    assert finding.what.startswith("tailrace@second.service blocks every network but loopback")
    assert "sudo systemctl restart tailrace@second.service" in finding.commands
    opened = "[Service]\nIPAddressAllow=any\n"
    put(tmp_path, **{f"{ETC.replace('.service', '@third.service')}.d__a.conf": opened})
    assert only(check(tmp_path, **sections)).severity == "problem"
    put(tmp_path, **{f"{ETC.replace('.service', '@second.service')}.d__a.conf": opened})
    assert only(check(tmp_path, **sections)).severity == "good"
    put(
        tmp_path,
        **{f"{ETC.replace('.service', '@.service')}.d__b.conf": "[Service]\nIPAddressAllow=\n"},
    )
    assert only(check(tmp_path, **sections)).severity == "problem"


def test_what_a_filter_does_not_let_through_of_one_family_only(tmp_path):
    put(tmp_path, **{ETC: "[Service]\nIPAddressDeny=0.0.0.0/0 nonsense\n"})
    both, old = tcp("[::]:1", open_to_all=True), tcp("0.0.0.0:2", open_to_all=True)
    assert "sources.old.listen" in only(check(tmp_path, sources={"both": both, "old": old})).what


@pytest.mark.skipif(os.geteuid() != 0, reason="to put a unit in its place needs root")
def test_the_command_tells_it(tmp_path):
    config = tmp_path / "tailrace.toml"
    source = 'type = "tcp"\nformat = "heph"\nlisten = "0.0.0.0:0"\nallow = ["10.0.0.0/8"]\n'
    config.write_text(f'[store]\npath = "{tmp_path}/store"\n[sources.far]\n{source}')
    doctor = ["sh", "-c", 'mount --bind "$0" /etc/systemd/system && exec "$@"', str(DEPLOY)]
    doctor += [sys.executable, "-m", "tailrace", "doctor", "--quick", "--config", str(config)]
    done = subprocess.run(
        ["unshare", "--mount", *doctor], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "tailrace.service blocks 10.0.0.0/8, which sources.far.listen" in done.stdout
