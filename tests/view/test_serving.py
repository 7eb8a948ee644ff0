"""Clients that behave badly, many pages, a killed collector: the viewer goes on serving. All over real sockets."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing, suppress
from itertools import islice

import psutil
import pytest

from tailrace.view import serve
from tailrace.view.leases import FRESH_SECONDS
from tests.system.collector import until
from tests.view.viewer import Viewer

PAGES = 200
SLOW_SQL = "SELECT count(*) FROM range(1000000000000) AS a(x) WHERE x % 7 = 3"


def raw(viewer, path, window=None):
    """A connection that has sent a request and read nothing."""
    sock = socket.socket()
    if window is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    sock.settimeout(30)
    sock.connect((viewer.host, viewer.port))
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {viewer.token}\r\n\r\n".encode()
    )
    return sock


def children(viewer):
    return [each for each in psutil.Process(viewer.pid).children() if each.is_running()]


def test_200_open_pages_get_the_news_and_questions_are_answered(viewer):
    with ExitStack() as stack:
        pages = [stack.enter_context(closing(raw(viewer, "/api/v1/live"))) for _ in range(PAGES)]
        assert viewer.get("overview")["version"] == 1
        for page in pages:
            heard = b""
            while b"event: news" not in heard:
                heard += page.recv(4096)
    assert viewer.get("store")["version"] == 1


ATTACKED_BY = 1500
"""Connections, three times as many as there may be."""


def over(sock):
    """Whether the server has ended a connection."""
    try:
        return not sock.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /api/v1/store HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    ],
    ids=["nothing", "head", "body"],
)
def test_requests_that_never_end_hold_up_nobody(viewer, begun):
    with ExitStack() as stack:
        pages = [stack.enter_context(closing(raw(viewer, "/api/v1/live"))) for _ in range(5)]
        for page in pages:
            page.recv(1000)
        slow = [
            stack.enter_context(closing(socket.create_connection((viewer.host, viewer.port))))
            for _ in range(ATTACKED_BY)
        ]
        for sock in slow:
            with suppress(ConnectionError):
                sock.sendall(begun)
        assert viewer.get("store")["version"] == 1
        assert sum(not over(sock) for sock in slow) <= serve.CONNECTIONS_MAX
        until(lambda: all(map(over, slow)), "the rest to be ended")
        for page in pages:
            assert page.recv(1000)
        assert not any(map(over, pages))


def test_clients_that_never_read_hold_up_nobody(viewer):
    with ExitStack() as stack:
        for _ in range(20):
            for path in ("/api/v1/live", "/api/v1/store", "/api/v1/export?format=parquet"):
                stack.enter_context(closing(raw(viewer, path, window=2048)))
        began = time.monotonic()
        assert viewer.get("statistics")["total"] == 2
        assert time.monotonic() - began < serve.UNREAD_SECONDS
        assert next(viewer.news())["version"] == 1


def test_localhost_is_both_families(viewer_of, few_store):
    viewer = viewer_of(few_store, "--listen", "localhost:0")
    assert viewer.host == "localhost"
    for viewer.host in ("127.0.0.1", "::1", "localhost"):
        assert viewer.get("store")["version"] == 1


def test_the_kernel_closes_a_connection_whose_client_never_reads():
    listening = serve.listen("127.0.0.1:0")
    with closing(listening), closing(socket.create_connection(listening.getsockname())):
        accepted, _ = listening.accept()
        with accepted:
            given = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert given == serve.UNREAD_SECONDS * 1000


def test_the_body_of_an_answer_does_not_wait_for_the_client_to_acknowledge_the_headers():
    with (
        closing(serve.listen("127.0.0.1:0")) as sock,
        closing(socket.create_connection(sock.getsockname())),
        closing(sock.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_statement_ends_when_its_client_leaves(viewer):
    body = f'{{"sql": "{SLOW_SQL}"}}'.encode()
    with closing(socket.create_connection((viewer.host, viewer.port))) as sock:
        sock.sendall(
            b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            + f"{viewer.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        while not children(viewer):
            time.sleep(0.05)
    deadline = time.monotonic() + 120
    while children(viewer) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children(viewer) == []
    assert viewer.get("store")["version"] == 1


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'x'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "DELETE FROM events",
        "SELECT 1; SELECT 2",
        "SET memory_limit = '1TB'",
        "INSTALL httpfs",
        "SELECT getvariable('files')",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(viewer, sql):
    answer = viewer.ask("sql", {"sql": sql})
    assert answer.status == 400
    assert answer.json["error"]["where"] == "POST /api/v1/sql"


def test_a_large_answer_of_sql_ends_and_says_that_there_is_more(viewer):
    found = viewer.ask("sql", {"sql": "SELECT x FROM range(1000000) AS a(x)", "limit": 5}).json
    assert (found["rows"], found["more"]) == ([[0], [1], [2], [3], [4]], True)
    wide = viewer.ask("sql", {"sql": "SELECT repeat('x', 1000000) AS t FROM range(20)"}).json
    assert wide["more"]
    assert wide["cut"] == len(wide["rows"])
    assert all(len(text) < 20_000 for (text,) in wide["rows"])
    exact = viewer.ask("sql", {"sql": "SELECT 9007199254740993, 2::HUGEINT ** 70, 1.5, NULL"}).json
    assert exact["rows"][0][0] == "9007199254740993"


def test_a_body_that_never_ends_is_refused(viewer):
    body = b" " * (2**20 + 1)
    headers = {"Authorization": f"Bearer {viewer.token}"}
    assert viewer.send("POST", "/api/v1/sql", headers, body).status == 400


def test_what_is_no_request_is_answered_and_forgotten(viewer):
    for junk in (b"\x16\x03\x01\x00\xff" * 50, b"GET / HTTP/9\r\n\r\n", b"A" * 300_000):
        with closing(socket.create_connection((viewer.host, viewer.port))) as sock:
            sock.settimeout(30)
            try:
                sock.sendall(junk)
                sock.recv(1000)
            except ConnectionError:
                pass
    assert viewer.get("store")["version"] == 1


def test_it_stops_at_once_with_open_pages(viewer_of, few_store):
    viewer = viewer_of(few_store)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(closing(raw(viewer, "/api/v1/live"))).recv(10)
        assert viewer.end() == (0, "")


def test_a_killed_collector_leaves_the_viewer_serving(collectors, viewer_of):
    collector = collectors().start()
    viewer = viewer_of("--config", collector.config, collector.store)
    news = viewer.news()
    alive = next(each for each in news if each["collectors"])
    assert alive["collectors"][0]["state"] in {"ok", "starting"}
    assert viewer.get("store")["watched"]
    collector.kill()
    gone = next(each for each in islice(news, 30) if not each["collectors"])
    assert "killed" in gone["unasked"]
    time.sleep(FRESH_SECONDS)  # so long counts what the collector said last
    found = viewer.get("overview")
    assert not found["whole"]["complete"]
    assert "killed" in found["whole"]["unasked"]
    assert not viewer.get("store")["watched"]
    news.close()
    collector.start()
    assert viewer.get("store")["watched"]


def test_a_viewer_of_nothing_says_so_and_fails(tmp_path):
    with pytest.raises(AssertionError, match="not a Tailrace store"):
        Viewer(tmp_path / "none")
