"""The proxy does what it says, with a client and a server that know nothing of it."""

from __future__ import annotations

import http.client
from contextlib import suppress
from urllib.request import Request, urlopen

import pytest

from tests.store.s3_server import RunningS3
from tests.traffic.http_proxy import Chances, LossyProxy

DATA = b"0123456789" * 1000
BROKEN = (OSError, http.client.HTTPException)


@pytest.fixture(scope="module")
def server():
    with RunningS3() as running:
        yield running


@pytest.fixture
def proxy(server):
    with LossyProxy(server.url, seed=1) as running:
        yield running


def ask(url, method="GET", data=None, **headers):
    with urlopen(Request(f"{url}/bucket/key", data, headers, method=method)) as answer:  # noqa: S310 - our own http address
        return answer.read()


def test_answers_get_through_whole(proxy):
    ask(proxy.url, "PUT", DATA)
    assert ask(proxy.url) == DATA
    assert ask(proxy.url, Range="bytes=3-12") == DATA[3:13]
    assert ask(proxy.url, "HEAD") == b""
    assert ask(proxy.url, "DELETE") == b""
    with pytest.raises(OSError, match="404"):
        ask(proxy.url)
    assert (proxy.counts["requests"], proxy.counts["handed_on"]) == (6, 6)


def test_a_dropped_request_never_reaches_the_server(proxy, server):
    ask(server.url, "PUT", DATA)
    proxy.misbehave(Chances(dropped=1))
    with pytest.raises(BROKEN):
        ask(proxy.url, "PUT", b"other")
    assert ask(server.url) == DATA


def test_what_was_asked_for_is_done_though_the_answer_is_lost(proxy, server):
    proxy.misbehave(Chances(lost=1))
    with pytest.raises(BROKEN):
        ask(proxy.url, "PUT", b"lost")
    assert ask(server.url) == b"lost"
    assert proxy.withheld == {("PUT", "other"): 1}


def test_an_answer_is_cut_in_the_middle(proxy, server):
    ask(server.url, "PUT", DATA)
    proxy.misbehave(Chances(cut=1))
    for _ in range(5):
        with suppress(*BROKEN):  # Python's client takes a cut head for a whole one
            assert ask(proxy.url) == b""
    assert proxy.counts["cut"] == 5


def test_who_is_refused_reaches_nothing_until_the_partition_ends(proxy, server):
    ask(server.url, "PUT", DATA)
    proxy.refusing = True
    with pytest.raises(BROKEN):
        ask(proxy.url, "PUT", b"other")
    assert ask(server.url) == DATA
    proxy.refusing = False
    assert ask(proxy.url) == DATA
