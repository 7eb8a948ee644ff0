"""C programs before a real daemon, over each transport at once: what they emitted is in the table, or
named in it as missing."""

from __future__ import annotations

import errno
import json
import signal
import socket

import pytest

from tests.c.building import HERE, Program, build
from tests.system.collector import Collector, until
from tests.system.producers import free_ports, waiting


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """A started collector with one source of each transport, at addresses that outlive it."""
    directory = tmp_path_factory.mktemp("c")
    places = {
        "udp": f"127.0.0.1:{free_ports(socket.SOCK_DGRAM, 1)[0]}",
        "tcp": f"127.0.0.1:{free_ports(socket.SOCK_STREAM, 1)[0]}",
        "unix": f"{directory}/heph.sock",
    }
    sources = "".join(
        f'[sources.{kind}]\ntype = "{kind}"\nformat = "heph"\nlisten = "{place}"\n'
        for kind, place in places.items()
    )
    started = Collector(directory, sources=sources).start()
    started.urls = {kind: f"{kind}://{place}" for kind, place in places.items()}
    yield started
    started.check_balance()
    started.stop()
    started.check_final_ledgers()
    started.end()


class Emitting:
    """A program that emits to one of the daemon's sources, and the source's figures since then."""

    def __init__(self, program, daemon, kind, options):
        self.kind, self.daemon = kind, daemon
        self.before = daemon.status()["sources"][kind]
        self.program = Program(program)
        assert self.program.ask(f"connect {daemon.urls[kind]} {options}") == "connect 0 0"

    def figures(self):
        """Return what became of the figures; those of a daemon that was started again are of all its lives."""
        now = self.daemon.status()["sources"][self.kind]
        found = {key: now[key] - n for key, n in self.before.items() if isinstance(n, int)}
        for kind in ("gap_events", "heal_events"):
            found[kind] = {
                reason: n - self.before[kind].get(reason, 0)
                for reason, n in now[kind].items()
                if n != self.before[kind].get(reason, 0)
            }
        return found | {"open_windows": now["open_windows"]}

    def account(self, expected, *, ended=True):
        """The figures, once as many events as were emitted are seen or missing and nothing is open."""

        def settled():
            found = self.figures()
            over = not ended or self.kind == "udp" or found["sessions_closed"] > 0
            return over and found["expected_events"] == expected and not found["open_windows"]

        until(settled, f"{expected} events over {self.kind} to be accounted for")
        self.daemon.settle()
        figures = self.figures()
        assert figures["seen_events"] + figures["missing_events"] == expected
        assert figures["duplicate_events"] == figures["malformed_bytes"] == 0
        return figures


@pytest.fixture
def start(daemon):
    """A function that starts a program for each transport; they are gone at the end of the test."""
    started = []

    def begin(*kinds, options="linger=20000"):
        new = [Emitting(build(HERE / "play.c"), daemon, kind, options) for kind in kinds]
        started.extend(new)
        return new

    yield begin
    for one in started:
        one.program.close()


ALL = ("udp", "tcp", "unix")


def rows_of(daemon, kind, session):
    found = daemon.rows(["source", "session", "kind", "stream", "seq"])
    return [
        r for r in found if r["source"] == kind and r["session"] in session and r["kind"] == "span"
    ]


def sessions(daemon, kind):
    return {row["session"] for row in daemon.rows(["source", "session"]) if row["source"] == kind}


def test_an_orderly_end_is_complete(start, daemon):
    clients = start(*ALL, options="threads=16 linger=20000")
    for client in clients:
        client.program.end("many 2000", "threads 4 1000")
    for client in clients:
        figures = client.account(6000)
        assert figures["missing_events"] == 0
        found = rows_of(daemon, client.kind, sessions(daemon, client.kind))
        assert len({(row["session"], row["stream"], row["seq"]) for row in found}) == 6000


def test_each_announcement_says_when_it_was_made(start, daemon):
    """The collector takes `now` for the session's time at that announcement, and judges by it how late a
    datagram was. A repeated `now` would make each later announcement look late."""
    before = {kind: sessions(daemon, kind) for kind in ALL}
    clients = start(*ALL)
    for client in clients:
        client.program.end("many 10", "sleep 1500", "many 10")
        client.account(20)
    for client in clients:
        (session,) = sessions(daemon, client.kind) - before[client.kind]
        rows = daemon.rows(["source", "session", "kind", "name", "start", "attributes"])
        mine = [row for row in rows if (row["source"], row["session"]) == (client.kind, session)]
        said = [
            json.loads(row["attributes"])
            for row in mine
            if (row["kind"], row["name"]) == ("session", "tailrace.session")
        ]
        spans = sorted(row["start"] for row in mine if row["kind"] == "span")
        times = sorted(words["now"] for words in said)
        assert times
        assert len(set(times)) == len(times)
        assert spans[9] < spans[10]
        assert times[0] < spans[10]  # before the pause
        if client.kind == "udp":  # announced once more, a second later
            assert times[-1] - times[0] >= 900_000_000


def test_a_killed_program_had_sent_what_it_emitted_a_moment_before(start, daemon):
    clients = start(*ALL)
    for client in clients:
        client.program.tell("many 500", "sleep 300", "many 10", "sleep 300", "kill")
    for client in clients:
        assert client.program.process.wait() == -signal.SIGKILL
        assert client.account(510, ended=False)["missing_events"] == 0


def test_programs_that_end_before_the_collector_takes_them_in_say_so_and_lose_nothing(daemon):
    before = daemon.status()["sources"]["tcp"]["seen_events"]
    daemon.process.send_signal(signal.SIGSTOP)
    programs = [Program(build(HERE / "play.c")) for _ in range(60)]
    for program in programs:
        program.tell(f"connect {daemon.urls['tcp']}", "many 10", "close", "wrong")
    said = [program.end()[1] for program in programs]
    daemon.process.send_signal(signal.SIGCONT)
    assert {int(error.split()[0]) for error in said} == {errno.ETIMEDOUT}
    until(
        lambda: daemon.status()["sources"]["tcp"]["seen_events"] == before + 600, "all the events"
    )


def test_what_a_stalled_collector_did_not_take_is_the_senders(start, daemon):
    clients = start("tcp", "unix", options="memory=262144 threads=2 linger=20000")
    discarded = {}
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        for client in clients:
            client.program.tell("many 200000")
            discarded[client] = int(client.program.ask("say x").split()[1])
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    for client, count in discarded.items():
        assert count > 10_000
        assert client.program.ask("flush 30000") == "flush 0"
        client.program.end("many 100")
        figures = client.account(200_100)
        assert figures["gap_events"] == {"sender": count}
        assert not figures["heal_events"]


def test_what_the_kernel_dropped_of_datagrams_is_counted(start, daemon):
    (client,) = start("udp")
    program = client.program
    program.tell("many 1000")
    assert program.ask("flush 10000") == "flush 0"
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        program.tell("many 400000")
        discarded = int(program.ask("say x").split()[1])
        assert program.ask("flush 10000") == "flush 0"
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    # The kernel drops a client's last words, too, while the buffer is full.
    until(lambda: not waiting(daemon.address("udp")[1]), "the daemon to read its socket")
    daemon.settle()
    program.end("many 100")
    figures = client.account(401_100)
    assert figures["gap_events"].get("sender", 0) <= discarded
    assert figures["missing_events"] > 10_000


def test_a_collector_killed_and_started_again_goes_on_with_the_session(start, daemon):
    before = {kind: sessions(daemon, kind) for kind in ALL}
    clients = start(*ALL)
    for client in clients:
        client.program.tell("many 3000")
        assert client.program.ask("flush 10000") == "flush 0"
    for client in clients:
        client.account(3000, ended=False)
    daemon.kill()
    for client in clients:
        client.program.tell("many 2000")
        client.program.ask("say x")
    daemon.start()
    flushed = {}
    for client in clients:
        flushed[client.kind] = client.program.ask("flush 20000")
        client.program.end("many 1000")
    for client in clients:
        figures = client.account(6000)
        new = sessions(daemon, client.kind) - before[client.kind]
        found = rows_of(daemon, client.kind, new)
        assert len({row["session"] for row in found}) == 1
        assert len(found) == figures["seen_events"]
        # The first datagrams are gone before the kernel says that nobody is there.
        assert client.kind == "udp" or flushed[client.kind] == "flush 0"
        # While the daemon starts, the kernel may drop datagrams that it accepted, and counts them.
        unsaid = figures["missing_events"] - figures["gap_events"].get("kernel", 0)
        assert unsaid == 0 or flushed[client.kind] == "flush -1"


def test_a_forked_child_is_a_producer_of_its_own(start, daemon):
    clients = start(*ALL)
    for client in clients:
        client.program.tell("many 100")
        assert client.program.ask("fork many 50") == "child 0"
        client.program.end("many 100")
    for client in clients:
        figures = client.account(250)
        assert figures["missing_events"] == figures["restarts"] == 0
