"""Test what a service manager is told and keeps, by the real daemon and a stand-in for systemd."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until
from tests.system.manager import Manager, threads
from tests.system.producers import free_ports
from tests.system.stall import stalled_while

WATCHDOG = 2.0

ONE_UDP = '[sources.udp]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:0"\n{more}\n'


@pytest.fixture
def managers(tmp_path_factory):
    made = []

    def make(**options):
        made.append(Manager(tmp_path_factory.mktemp("managed"), **options))
        return made[-1]

    yield make
    try:
        for manager in made:
            manager.collector.check_balance()
            manager.collector.check_final_ledgers()
    finally:
        for manager in made:
            manager.end()


@pytest.mark.parametrize(
    "abstract", [pytest.param(False, marks=pytest.mark.slow), True], ids=["path", "abstract"]
)
def test_it_is_told_of_the_start_of_what_goes_on_and_of_the_stop(managers, abstract):
    manager = managers(abstract=abstract)
    collector = manager.start()
    until(lambda: manager.said("STATUS"), "a line of status")
    assert not manager.said("STOPPING")
    assert not manager.said("WATCHDOG")
    collector.stop()
    assert manager.said("READY") == ["1"]
    assert manager.said("STOPPING") == ["1"]
    assert any("rows/s into" in line for line in manager.said("STATUS"))


def test_without_a_manager_that_listens_it_works_all_the_same(managers):
    manager = managers(watchdog_seconds=WATCHDOG)
    Path(manager.collector.environ["NOTIFY_SOCKET"]).unlink()
    collector = manager.start(heard=False)
    assert collector.get("/healthz")[0] == 200
    log = collector.stop()
    assert collector.process.returncode == 0
    assert log.count("cannot tell the service manager") == 1


def test_heartbeats_feed_the_watchdog_while_nobody_sends(managers):
    manager = managers(watchdog_seconds=WATCHDOG)
    collector = manager.start()
    for _ in range(3):
        manager.wait_alive()
    status = collector.status()
    assert status["heartbeat"]["interval_seconds"] <= WATCHDOG / 3
    # On a busy machine a commit has two of them.
    assert 0 < status["commits"] <= status["heartbeat"]["committed"]


@pytest.mark.parametrize("hangs", ["the loop", "all others", "every thread"])
def test_a_thread_that_hangs_starves_the_watchdog(managers, hangs):
    """`all others` are those that write and the one that reads the socket: the loop goes on answering."""
    manager = managers(watchdog_seconds=WATCHDOG)
    collector = manager.start()
    manager.wait_alive()
    main, *others = threads(collector.process.pid)
    assert others
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        stands = {"the loop": [main], "all others": others, "every thread": [main, *others]}
        goes_on = partial(answers, collector) if hangs == "all others" else lambda: True
        with stalled_while(stands[hangs], goes_on):
            for number in range(50):
                sock.send(heph_event(1, number))
            assert manager.signs_of_life_within(2 * WATCHDOG) == 0
            collector.process.kill()  # who is traced is not gone before its tracer is
        collector.kill()
        manager.start()
        manager.wait_alive()
        sock.send(heph_event(1, 50))
        until(lambda: udp(collector)["expected_events"] == 51, "the events")
    # While no thread reads, they wait in the socket, which the manager keeps. Bytes that a thread has read
    # may not have come to a disk: then all are known to be missing.
    assert udp(collector)["missing_events"] in ({0} if hangs == "every thread" else {0, 50})


def answers(collector):
    try:
        return collector.get("/healthz", seconds=2)[0] == 200
    except TimeoutError:
        return False


def udp(collector):
    return collector.status()["sources"]["udp"]


@pytest.fixture
def senders():
    with contextlib.ExitStack() as stack:
        yield lambda address: Sender(stack.enter_context(datagrams(address)))


def datagrams(address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(address)
    return sock


class Sender:
    """One stream over one socket, counted."""

    def __init__(self, sock):
        self.sent = 0
        self.sock = sock

    def send(self, count):
        for _ in range(count):
            self.sock.send(heph_event(1, self.sent))
            self.sent += 1


@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
def test_what_is_sent_while_nobody_runs_arrives(managers, senders, how, tmp_path):
    path = tmp_path / "heph.sock"
    unix = toml.source("unix", "unix", listen=path)
    tcp = toml.source("tcp", "tcp")
    manager = managers(sources=ONE_UDP.format(more="") + tcp + unix)
    collector = manager.start()
    assert set(manager.store) == {
        "udp.127.0.0.1.udp", "tcp.127.0.0.1.tcp", f"unix.{path}"
    }  # fmt: skip
    assert {message["FDPOLL"] for message in manager.messages if "FDSTORE" in message} == {"0"}
    before = dict(collector.ports["sources"])
    sender = senders(collector.address("udp"))
    sender.send(100)
    until(lambda: udp(collector)["seen_events"] == 100, "the first events")
    getattr(collector, how)()
    sender.send(200)
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(socket.create_connection(collector.address("tcp")))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.connect(str(path))
        for sock in (waiting, local):
            sock.sendall(b"".join(heph_event(7, number) for number in range(30)))
        manager.start()
        assert collector.ports["sources"] == before
        assert not manager.said("FDSTORE"), "the manager has them"
        sender.send(100)
        until(lambda: udp(collector)["seen_events"] == 400, "all datagrams")
        for name in ("tcp", "unix"):
            until(
                lambda name=name: collector.status()["sources"][name]["seen_events"] == 30,
                "what waited in the backlog",
            )
    assert udp(collector)["missing_events"] == udp(collector)["duplicate_events"] == 0
    assert udp(collector)["sessions_opened"] == 1
    collector.settle()
    collector.stop()
    stored = [
        row["seq"] for row in collector.rows() if row["source"] == "udp" and row["kind"] == "span"
    ]
    assert sorted(stored) == list(range(400))


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_what_the_kernel_dropped_while_nobody_ran_is_known(managers, senders, how):
    """To the event, and once: the next life does not count it again."""
    more = 'receive_buffer = "32 KiB"\n[ledger]\nreorder_time = "200 ms"'
    manager = managers(sources=ONE_UDP.format(more=more))
    collector = manager.start()
    sender = senders(collector.address("udp"))
    sender.send(10)
    until(lambda: udp(collector)["seen_events"] == 10, "the first events")
    collector.settle()
    getattr(collector, how)()
    sender.send(2000)
    manager.start()
    until(lambda: udp(collector)["seen_events"] > 10, "what the buffer held")
    sender.send(1)
    until(
        lambda: udp(collector)["missing_events"] and not udp(collector)["open_windows"], "the gap"
    )
    status = udp(collector)
    missing = status["missing_events"]
    assert missing == sender.sent - status["seen_events"] > 1000
    assert status["gap_events"] == {"kernel": missing}
    assert (status["unassigned_drops"], status["kernel_drops"]) == (0, missing)
    collector.settle()
    getattr(collector, how)()
    manager.start()
    sender.send(10)
    until(lambda: udp(collector)["seen_events"] == sender.sent - missing, "the last events")
    status = udp(collector)
    assert status["gap_events"] == {"kernel": missing}
    assert (status["missing_events"], status["unassigned_drops"]) == (missing, 0)


def test_a_socket_that_the_configuration_does_not_want_any_more_is_let_go(managers):
    first, second = free_ports(socket.SOCK_DGRAM, 2)
    sources = (
        '[sources.a]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:{a}"\n'
        '[sources.b]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:{b}"\n'
        '[sources.{last}]\ntype = "udp"\nformat = "heph"\nlisten = "127.0.0.1:0"\n'
    )
    manager = managers(sources=sources.format(a=first, b=second, last="old"))
    collector = manager.start()
    collector.stop()
    text = collector.config.read_text()
    text = text.replace(f":{first}", ":x").replace(f":{second}", f":{first}")
    text = text.replace(":x", f":{second}").replace("sources.old", "sources.new")
    collector.config.write_text(text)
    manager.start()
    assert collector.address("a") == ("127.0.0.1", second)
    assert collector.address("b") == ("127.0.0.1", first)
    kept = {
        name: [sock.getsockname()[1] for sock in socks] for name, socks in manager.store.items()
    }
    assert kept == {
        f"udp.127.0.0.1.{first}": [first],
        f"udp.127.0.0.1.{second}": [second],
        "udp.127.0.0.1.new": [collector.address("new")[1]],
    }
    assert len(manager.said("FDSTORE")) == 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("a"))
        sock.send(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["a"]["seen_events"] == 1, "the event")


def test_sockets_that_the_manager_made_are_used_and_strange_ones_closed(managers):
    """As of a socket unit: they are not for us to store."""
    manager = managers(sources=ONE_UDP.format(more=""))
    made = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
    for sock in made:
        sock.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unnamed:
        unnamed.bind(("127.0.0.1", 0))
        port = made[1].getsockname()[1]
        text = manager.collector.config.read_text().replace(":0", f":{port}", 2)
        manager.collector.config.write_text(text.replace(f":{port}", ":0", 1))
        manager.store = {"tailrace.socket": [*made, unnamed]}
        collector = manager.start()
        assert collector.address("udp") == made[1].getsockname()
        assert not manager.said("FDSTORE")
    links = []
    for path in Path(f"/proc/{collector.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the collector has closed it meanwhile
            links.append(str(path.readlink()))
    inodes = {f"socket:[{os.fstat(sock.fileno()).st_ino}]" for sock in made}
    assert len(inodes.intersection(links)) == 1
    assert manager.said("FDSTOREREMOVE") == []


def test_the_file_of_a_kept_socket_stays_and_one_that_is_gone_is_made_again(managers, tmp_path):
    path = tmp_path / "heph.sock"
    manager = managers(sources=toml.source("unix", "unix", listen=path))
    collector = manager.start()
    made = path.lstat()
    collector.stop()
    assert os.path.samestat(path.lstat(), made)
    path.unlink()
    manager.start()
    assert not os.path.samestat(path.lstat(), made)
    until(lambda: len(manager.store.get(f"unix.{path}", [])) == 1, "the new socket to be kept")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["unix"]["seen_events"] == 1, "the event")


def test_a_long_replay_asks_for_patience(managers):
    manager = managers(more=toml.section("spool", checkpoint_interval="1 h"))
    collector = manager.start()
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, number) for number in range(100_000)))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 100_000, "the events")
    collector.settle()
    collector.kill()
    manager.start()
    first = [next(iter(message)) for message in manager.messages]
    assert "EXTEND_TIMEOUT_USEC" in first[: first.index("READY")]
    collector.process.send_signal(signal.SIGTERM)
    collector.process.wait(timeout=180)
    until(lambda: manager.said("STOPPING"), "the stop")
    time.sleep(0.1)
    assert collector.process.returncode == 0
