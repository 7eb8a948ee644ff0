"""A collector that was away while an heir went on with a copy of its spool writes nothing more into the table in Ceph, and
says so: one that stood still, and one that a partition kept from the store."""

from __future__ import annotations

import json
import shutil
import signal
import socket

import pytest

from tests.ceph.bucket import BucketCollector
from tests.ceph.cluster import INSTALL, RunningCeph, missing
from tests.ingest.log import heph_event
from tests.system.collector import until
from tests.traffic.http_proxy import LossyProxy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"Ceph is not installed: {INSTALL}"),
]


@pytest.fixture(scope="module")
def ceph():
    with RunningCeph() as cluster:
        cluster.bucket("fenced")
        yield cluster


@pytest.fixture
def proxy(ceph):
    with LossyProxy(ceph.url, seed=1) as running:
        yield running


@pytest.fixture
def make(ceph, tmp_path):
    """A function that makes a collector in a directory of its own, on one table."""
    made = []

    def collector(name, **options):
        directory = tmp_path / name
        directory.mkdir()
        made.append(
            BucketCollector(directory, f"s3://fenced/{tmp_path.name}", ceph.options | options)
        )
        return made[-1]

    yield collector
    for each in made:
        each.end()


@pytest.fixture
def older(make, proxy):
    """A collector behind the proxy that has stored some events."""
    collector = make("older", AWS_ENDPOINT_URL=proxy.url).start()
    send(collector.address("udp"), 1, range(3))
    until(lambda: seen(collector) == 3, "the events")
    collector.settle()
    return collector


def send(address, stream, numbers):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in numbers:
            sock.sendto(heph_event(stream, number), address)


def seen(collector):
    return collector.status()["sources"]["udp"]["seen_events"]


def inherit(make, older, uncommitted=0):
    """Start an heir with a copy of the spool, in which so many events are that the table lacks, and let it store these and
    events of its own."""
    heir = make("heir")
    shutil.copytree(older.store, heir.store)
    heir.start()
    send(heir.address("udp"), 2, range(3))
    until(lambda: seen(heir) == uncommitted + 3, "the events of the heir")
    heir.settle()
    return heir


def check_fenced(older, heir, numbers=range(3)):
    """The older one ended, and of the events that it received the table has these numbers."""
    assert older.process.wait(timeout=300) == 1
    assert "another instance of collector" in older.log()
    statement = "SELECT stream, seq FROM events WHERE kind = 'span' ORDER BY stream, seq"
    lines = heir.cli("query", "--json", statement).splitlines()
    rows = [(row["stream"], row["seq"]) for row in map(json.loads, lines)]
    assert rows == [("1", seq) for seq in numbers] + [("2", seq) for seq in range(3)]
    heir.stop()
    heir.check_final_ledgers()


def test_one_that_stood_still_writes_nothing_more(make, older):
    older.process.send_signal(signal.SIGSTOP)
    heir = inherit(make, older)
    send(older.address("udp"), 1, range(3, 6))
    older.process.send_signal(signal.SIGCONT)
    check_fenced(older, heir)


def test_one_that_a_partition_kept_away_writes_nothing_more(make, older, proxy):
    proxy.refusing = True
    heir = inherit(make, older)
    send(older.address("udp"), 1, range(3, 6))
    until(lambda: seen(older) == 6, "the events that it receives meanwhile")
    until(lambda: "store" in older.status()["conditions"], "its trouble with the store", 300)
    proxy.refusing = False
    check_fenced(older, heir)


def test_one_whose_version_was_on_the_way_meanwhile_writes_nothing_more(make, older, proxy):
    """The heir has the events in its copy, and stores them; then the older one's version reaches the store."""
    proxy.versions_pass.clear()
    send(older.address("udp"), 1, range(3, 6))
    until(lambda: proxy.counts["held"] == 1, "a version that is held up")
    heir = inherit(make, older, uncommitted=3)
    proxy.versions_pass.set()
    check_fenced(older, heir, range(6))
