"""Test floods of short records that each begin a session and take as long as a hundred events, and other input that costs more
than its size. An honest program beside it loses nothing, the daemon still answers within its memory, and refused bytes are
in the quarantine."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
from http.client import HTTPException

import pytest

from tests import toml
from tests.ingest.log import heph_epoch, heph_event, heph_option, heph_session
from tests.system.collector import until
from tests.system.producers import CROWDED, waiting
from tests.system.test_memory import peak

SOURCES = "".join(
    toml.source(name, *name.split("_")[::-1])
    + ('pending_max = "2 MiB"\n' if name.endswith("tcp") else "")
    for name in ("heph_tcp", "heph_udp", "jets_tcp", "jets_udp")
) + toml.source("honest", "udp")  # fmt: skip
RATE, TURN = 5000, 50
"""Events that the honest program sends in a second, and at a time."""


def header(n):
    metadata = {"clock_frequency_mhz": 1000, "n": n}
    return json.dumps({"type": "header", "version": "2.0", "metadata": metadata}).encode() + b"\n"


FLOODS = {
    "epochs": ("heph", lambda n: heph_epoch(10**18 + n)),
    "new ids": ("heph", lambda n: heph_session(n + 1)),
    "known ids": ("heph", lambda n: heph_session(n % 3 + 1)),
    "headers": ("jets", header),
}


def figures_of(collector, source):
    return collector.status()["sources"][source]


@contextlib.contextmanager
def beside_an_honest_program(collector):
    """Send events of an honest program, and ask for /healthz, while the body runs. The program sends at a fixed rate, but
    waits while the collector does not read."""
    over = threading.Event()
    sent, answers = [0], []

    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(address := collector.address("honest"))
            while not over.wait(TURN / RATE):
                if waiting(address[1]) > CROWDED:
                    continue
                for _ in range(TURN):
                    sock.send(heph_event(1, sent[0], start=200_000 * sent[0]))
                    sent[0] += 1

    def ask():
        while not over.is_set():
            for attempt in range(3):  # one that asks late may be cut, and asks again, as probes do
                try:
                    answers.append(collector.get("/healthz"))
                    break
                except (OSError, HTTPException) as error:
                    if attempt == 2:
                        answers.append((repr(error), ""))
            time.sleep(0.1)

    threads = [threading.Thread(target=each) for each in (send, ask)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    collector.settle()
    honest = figures_of(collector, "honest")
    assert (honest["seen_events"], honest["missing_events"]) == (sent[0], 0)
    assert honest["kernel_drops"] == 0
    assert answers
    assert {status for status, _ in answers} == {200}
    assert peak(collector) <= collector.status()["memory"]["bound_bytes"]
    collector.check_balance()


def packets(make, size):
    found, number = [], 0
    while size > 0:
        found.append(make(number))
        size -= len(found[-1])
        number += 1
    return found


def send_until_cut(collector, source, data):
    """Send over one connection until the daemon ends it."""
    with (
        socket.create_connection(collector.address(source), timeout=60) as sock,
        contextlib.suppress(ConnectionError),
    ):
        sock.sendall(data)
        assert sock.recv(1) == b""


@pytest.mark.parametrize("flood", FLOODS)
def test_sessions_without_number_over_one_connection(collector_of, flood):
    format_, make = FLOODS[flood]
    source = f"{format_}_tcp"
    collector = collector_of(sources=SOURCES)
    with beside_an_honest_program(collector):
        send_until_cut(collector, source, b"".join(packets(make, 10**7)))
        until(lambda: figures_of(collector, source)["refused"], "the connection to be cut")
    figures = figures_of(collector, source)
    assert figures["refused"] == {"too many new sessions": 1}
    assert figures["restarts"] < figures["rows"] < 10_000
    assert figures["malformed_records"].keys() == {"too_many_sessions"}
    rows = [json.loads(row["attributes"]) for row in collector.rows(source=source, kind="gap")]
    refused = [row["bytes"] for row in rows if row.get("detail") == "too_many_sessions"]
    assert sum(refused) == figures["malformed_bytes"]
    kept = (collector.store / "quarantine").rglob("*")
    assert sum(each.stat().st_size for each in kept if each.is_file()) > 2**19


@pytest.mark.parametrize("flood", FLOODS)
def test_sessions_without_number_in_a_few_datagrams(collector_of, flood):
    format_, make = FLOODS[flood]
    source = f"{format_}_udp"
    collector = collector_of(sources=SOURCES)
    found = packets(make, 2 * 10**6)
    each = 60_000 // len(found[-1])
    with (
        beside_an_honest_program(collector),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        for at in range(0, len(found), each):
            sock.sendto(b"".join(found[at : at + each]), collector.address(source))
        until(lambda: figures_of(collector, source)["malformed_records"], "what is refused")
    figures = figures_of(collector, source)
    assert figures["malformed_records"].keys() == {"too_many_sessions"}
    assert figures["rows"] < 20_000


@pytest.mark.parametrize(
    "make", [lambda n: heph_event(n, 0), lambda n: heph_option("x", n)], ids=["streams", "options"]
)
def test_what_is_no_session_and_costs_as_much_is_stored(collector_of, make):
    collector = collector_of(sources=SOURCES)
    found = packets(make, 10**6)
    with beside_an_honest_program(collector):
        with socket.create_connection(collector.address("heph_tcp")) as sock:
            sock.sendall(b"".join(found))
        until(
            lambda: (
                sum(collector.status()["sources"]["heph_tcp"]["records"].values()) == len(found)
            ),
            "all that was sent",
        )
    assert figures_of(collector, "heph_tcp")["malformed_bytes"] == 0


def trace_line(arguments):
    return (
        b'{"id":1,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{%s}}\n'
        % arguments
    )


def nested(depth):
    return trace_line(b'"a":{' * depth + b"}" * depth)


FILES = {
    "members without content": lambda: gzip.compress(b"") * 50_000,
    "members of one short line": lambda: gzip.compress(b"x\n") * 5000,
    "headers of members": lambda: (b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 100) * 10_000,
    "a member with a name without end": lambda: (
        b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 10**7 + b"\0"
    ),
    "compressed bytes behind a line": lambda: gzip.compress(
        trace_line(b"") + gzip.compress(bytes(10**8))
    ),
    "lines that never end": lambda: gzip.compress((b"x" * 10**7 + b"\n") * 3),
    "nested objects": lambda: gzip.compress(nested(400) * 4000 + nested(10**5) * 20),
    "many arguments": lambda: gzip.compress(
        trace_line(b",".join(b'"k%d":1' % n for n in range(50_000))) * 5
    ),
    "numbers of any length": lambda: gzip.compress(trace_line(b'"x":' + b"9" * 400_000) * 20),
    "faults between events": lambda: gzip.compress((trace_line(b"") + b"x\n") * 20_000),
}
"""Functions that make the contents of a compressed DFTracer file. Making all takes seconds, so collecting the tests makes
none.
"""


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_a_followed_file_that_costs_more_than_its_size(collector_of, tmp_path, make):
    """The source reads it to its end."""
    files = tmp_path / "files"
    files.mkdir()
    source = toml.source("files", "tail", "dftracer", paths=[files], pending_max="4 MiB")
    collector = collector_of(sources=SOURCES + source)
    last = b'\n{"id":9,"name":"last","cat":"POSIX","pid":9,"tid":9,"ts":9,"dur":9,"ph":"X","args":{}}\n'
    content = make() + gzip.compress(last)
    with beside_an_honest_program(collector):
        (files / "a.pfw.gz").write_bytes(content)
        until(lambda: collector.rows(["name"], name="last"), "the last event", pause=0.5)


def empty_datagrams(collector):
    for number in range(5000):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((f"127.4.{number // 250}.{1 + number % 250}", 0))
            sock.sendto(b"x" * (number % 2), collector.address("heph_udp"))


def short_connections(collector):
    for number in range(2000):
        with socket.create_connection(collector.address("heph_tcp")) as sock:
            sock.sendall(heph_event(1, 0) * (number % 2))


def scrapers(collector):
    """Ask for more than the collector answers, over more connections than it has."""

    def ask():
        for _ in range(5):
            with contextlib.suppress(OSError, HTTPException):
                collector.get("/metrics")

    threads = [threading.Thread(target=ask) for _ in range(150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: collector.get("/status")[0] == 200, "an answer that is not refused")
    assert collector.status()["admin_requests"]["503"]


def clients_that_never_read(collector):
    host, _, port = collector.ports["admin"].rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(150):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.connect((host, int(port)))
            with contextlib.suppress(OSError):
                sock.settimeout(0)
                sock.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)
            time.sleep(0.02)
    until(lambda: collector.get("/status")[0] == 200, "an answer that is not refused")


@pytest.mark.parametrize(
    "attack", [empty_datagrams, short_connections, scrapers, clients_that_never_read]
)
def test_very_many_who_ask_for_little(collector_of, attack):
    collector = collector_of(sources=SOURCES)
    with beside_an_honest_program(collector):
        attack(collector)
