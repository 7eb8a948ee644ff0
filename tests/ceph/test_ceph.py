"""A real distributed object store: what the doctor says of it, and a daemon that writes into it while parts of both are killed."""

from __future__ import annotations

import json
import os
import socket

import pytest

from tests import program, toml
from tests.ceph.bucket import BucketCollector
from tests.ceph.cluster import INSTALL, RunningCeph, missing
from tests.ingest.log import heph_event
from tests.system.collector import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"Ceph is not installed: {INSTALL}"),
]

SIGNED_WITH = "AWS_SECRET_ACCESS_KEY"

PART = 2_000
"""Events between two kills."""


@pytest.fixture(scope="module")
def ceph():
    with RunningCeph() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bucket(ceph):
    return ceph.bucket("traces")


@pytest.fixture
def doctor(ceph, bucket, tmp_path):
    """The findings about the endpoint, and the exit code."""

    def run(**options):
        done = program.run(
            [*program.COMMAND, "doctor", "--quick", "--json", "--store", f"{bucket}/doctor"],
            env=os.environ | ceph.options | {"XDG_DATA_HOME": str(tmp_path)} | options,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        findings = json.loads(done.stdout)["findings"]
        beside = {"conditional puts", "read after write", "listing after write"}
        return {f["check"]: f for f in findings if f["check"] in beside or "endpoint" in f["check"]}

    return run


def test_the_doctor_finds_that_it_keeps_its_promises(doctor):
    found = doctor()
    assert {finding["severity"] for finding in found.values()} == {"good"}
    assert len(found) == 7
    assert found["conditional puts"]["figures"]["keys_with_one_winner"] == 50


def test_the_doctor_names_keys_that_are_wrong(doctor):
    wrong = doctor(**{SIGNED_WITH: "wrong"})["endpoint rights"]
    assert "403 SignatureDoesNotMatch" in wrong["what"]
    unknown = doctor(AWS_ACCESS_KEY_ID="nobody")["endpoint rights"]
    assert "403 InvalidAccessKeyId" in unknown["what"]


def test_the_doctor_names_rights_that_are_missing(ceph, doctor):
    ceph.user("stranger")
    keys = {"AWS_ACCESS_KEY_ID": "stranger-key", SIGNED_WITH: "stranger-secret"}
    found = doctor(**keys)
    assert "put, get, list and delete below" in found["endpoint rights"]["what"]
    assert "403 AccessDenied" in found["endpoint rights"]["what"]


def test_everything_is_stored_once_though_daemon_and_osd_are_killed(ceph, bucket, tmp_path):
    collector = BucketCollector(
        tmp_path,
        f"{bucket}/killed",
        ceph.options,
        more=toml.section("store", commit_interval="100 ms"),
    )
    sent = 0
    try:
        for killed in ("daemon", "osd.1", "daemon", "osd.2", "daemon"):
            collector.start()
            sent = send(collector, sent)
            if killed == "daemon":
                collector.kill()
            else:
                ceph.kill(killed)
                sent = send(collector, sent)
                ceph.begin(killed)
                collector.settle()
                collector.stop()
        collector.start()
        collector.settle()
        collector.check_balance()
        collector.stop()
    finally:
        collector.end()
    assert seqs(collector) == list(range(sent))
    assert sent == 7 * PART
    collector.cli("upkeep", "--all")
    assert seqs(collector) == list(range(sent))


def send(collector, first):
    """Send events of one stream; return the next number once the spool has all of them."""
    last = first + PART
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, number) for number in range(first, last)))
        until(lambda: received(collector) == last, "the events to be in the spool", 120)
    return last


def received(collector):
    return collector.status()["sources"]["tcp"]["seen_events"]


def seqs(collector):
    statement = "SELECT seq FROM events WHERE kind = 'span' ORDER BY seq"
    text = collector.cli("query", "--json", statement)
    return [json.loads(line)["seq"] for line in text.splitlines()]
