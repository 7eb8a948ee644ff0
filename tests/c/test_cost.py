"""The bound on an event call: one system call at most, none that waits; and what odd answers of the
kernel do. `cost.c` also measures the time, which a test cannot demand."""

from __future__ import annotations

import subprocess

import pytest

from tests.c.building import HERE, build
from tests.c.listening import Stream, Udp, hear
from tests.c.test_peers import heard_by, listen

WRAPPED = [
    "send",
    "write",
    "recv",
    "read",
    "poll",
    "getsockopt",
    "close",
    "socket",
    "connect",
    "sched_yield",
]


@pytest.fixture(scope="module")
def cost():
    program = build(HERE / "cost.c", "-std=gnu99", *(f"-Wl,--wrap={name}" for name in WRAPPED))

    def run(address, count=20_000, gap=0, fault="none", *options):
        done = subprocess.run(
            [program, address, str(count), str(gap), fault, *options],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        words = done.stdout.split()
        return dict(zip(words[::2], map(float, words[1::2]), strict=True))

    return run


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix"])
@pytest.mark.parametrize("gap", [0, 3000])
def test_an_event_makes_one_system_call_at_most(cost, tmp_path, kind, gap):
    peer = listen(kind, tmp_path)
    # None at all where the sending thread was quicker to look than the emitting one to wake it.
    assert cost(peer.address, gap=gap)["calls"] <= 1
    heard_by(peer).check_complete()


def test_nor_more_where_nobody_is_or_reads(cost, tmp_path):
    taken = Stream()
    absent = taken.port
    taken.close()
    stalled = Stream(wait=True, room=4096)
    for address in (f"tcp://127.0.0.1:{absent}", f"udp://127.0.0.1:{absent}", stalled.address):
        found = cost(address, 200_000, 0, "absent")
        assert found["calls"] <= 1
        assert found["discarded"] > 10_000
    stalled.may_read.set()
    stalled.close()


def test_to_a_file_only_the_sending_thread_writes(cost, tmp_path):
    """The emitting one wakes it."""
    assert cost(f"file://{tmp_path}/t", gap=500)["calls"] <= 1
    hear((tmp_path / "t").read_bytes()).check_complete()


@pytest.mark.parametrize("fault", ["short", "full", "interrupted"])
@pytest.mark.parametrize("options", [(), ("no_thread",)])
@pytest.mark.parametrize("kind", ["tcp", "unix", "file"])
def test_whatever_the_kernel_does_to_a_call_packets_stay_whole(
    cost, tmp_path, kind, fault, options
):
    if kind == "file":
        cost(f"file://{tmp_path}/t", 3000, 0, fault, *options)
        heard = hear((tmp_path / "t").read_bytes())
    else:
        peer = listen(kind, tmp_path)
        cost(peer.address, 3000, 0, fault, *options)
        heard = heard_by(peer)
    assert heard.final == {"1": 6001}
    heard.check_complete()


@pytest.mark.parametrize("fault", ["full", "interrupted"])
def test_nor_does_it_lose_datagrams(cost, fault):
    peer = Udp()
    cost(peer.address, 3000, 0, fault)
    heard = heard_by(peer)
    assert heard.final == {"1": 6001}
    heard.check_complete()


def test_datagrams_become_as_short_as_the_path_wants(cost):
    """They are cut smaller until they pass; nothing is lost by it but what is too long by itself."""
    peer = Udp()
    cost(peer.address, 3000, 0, "long")
    heard = heard_by(peer)
    assert max(len(datagram) for datagram in peer.datagrams[1:]) <= 1000
    heard.check_complete()
    assert heard.ranges == [[1, 1, 1]]
    assert heard.said("tailrace.goodbye")[0]["discarded"] == {"refused": 1}
