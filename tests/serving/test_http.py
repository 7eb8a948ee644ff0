"""One connection: what is answered, what is refused, and that nobody is waited for for ever."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tailrace.serving import http
from tailrace.serving.http import Conversation, EndedError, plain

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = re.compile(rb"HTTP/1\.1 (\d+) [^\r]*\r\n(.*?)\r\n\r\n", re.DOTALL)


class Client:
    """The other end of a conversation; `asked` is what it has been asked, `ended` how it ended."""

    def __init__(self, stream):
        self.stream = stream
        self.asked = []
        self.ended = None
        self.over = trio.Event()

    async def answer(self, request):
        self.asked.append(request)
        return plain(200, request.path)

    async def heard(self):
        """All that comes until the other end closes: (code, headers, what follows) of each."""
        received = b""
        while data := await self.stream.receive_some():
            received += data
        parts = HEAD.split(received)
        assert parts[0] == b""
        return [
            (int(code), headers.lower(), body)
            for code, headers, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
        ]


@asynccontextmanager
async def talking(pair=trio.testing.memory_stream_pair):
    ours, theirs = pair()
    client = Client(theirs)
    conversation = Conversation(ours, client.answer)

    async def serve():
        try:
            await conversation.run()
            client.ended = "in order"
        except EndedError as ended:
            client.ended = ended.cause
        finally:
            client.over.set()
            await trio.aclose_forcefully(ours)

    with trio.fail_after(3600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield client
            nursery.cancel_scope.cancel()


async def test_requests_on_one_connection_are_answered_in_turn(autojump_clock):
    async with talking() as client:
        await client.stream.send_all(GET + GET.replace(b"/a", b"/b?c=d") + GET[:10])
        await client.stream.send_all(
            GET[10:] + b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answers = await client.heard()
    assert [code for code, *_ in answers] == [200] * 4
    assert [body for *_, body in answers] == [b"/a\n", b"/b\n", b"/a\n", b"/last\n"]
    assert b"connection: close" in answers[-1][1]
    assert client.ended == "in order"


async def test_a_head_request_gets_no_body(autojump_clock):
    async with talking() as client:
        await client.stream.send_all(GET.replace(b"GET", b"HEAD") + GET.replace(b"1.1", b"1.0"))
        first, second = await client.heard()
    assert (first[0], first[2]) == (200, b"")
    assert b"content-length: 3" in first[1]
    assert second[2] == b"/a\n"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bytes(range(256)) * 4 + b"\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * http.HEADERS_MAX, 431),
        (b"GET /" + b"a" * http.HEADERS_MAX, 431),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: " + b"b" * http.HEADERS_MAX + b"\r\n\r\n", 431),
        (b"GET /a HTTP/1.1\nHost: x\n\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n y\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600) + b"\r\n\r\n", 400),  # TLS
    ],
)  # fmt: skip
async def test_what_is_no_request_is_refused_once(sent, code, autojump_clock):
    async with talking() as client:
        await client.stream.send_all(sent)
        answers = await client.heard()
    assert [answer[0] for answer in answers] == [code]
    assert client.ended == "malformed"
    assert client.asked == []


@pytest.mark.parametrize(
    "more",
    [
        b"Content-Length: 1000000000000\r\n\r\n" + bytes(1000),
        b"Content-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nno size\r\n",
        b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
    ],
)
async def test_a_body_is_not_read(more, autojump_clock):
    async with talking() as client:
        await client.stream.send_all(GET[:-2] + more)
        answers = await client.heard()
    assert [code for code, *_ in answers] == [200]
    assert b"connection: close" in answers[0][1]
    assert len(client.asked) == 1


async def test_http_2_is_not_spoken(autojump_clock):
    async with talking() as client:
        await client.stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100))
        answers = await client.heard()
    assert [code for code, *_ in answers] == [200, 400]  # to a method PRI, and to what follows
    assert client.ended == "malformed"


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
async def test_an_upgrade_is_passed_over(upgrade, autojump_clock):
    async with talking() as client:
        more = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        await client.stream.send_all(GET[:-2] + more + b"Upgrade: " + upgrade + b"\r\n\r\n")
        await client.stream.send_all(GET[:-2] + b"Connection: close\r\n\r\n")
        assert [code for code, *_ in await client.heard()] == [200, 200]


async def drip(client, data, seconds):
    """A byte now and then; how many were taken."""
    for number in range(len(data)):
        try:
            await client.stream.send_all(data[number : number + 1])
        except trio.BrokenResourceError:
            return number
        await trio.sleep(seconds)
    return len(data)


@pytest.mark.parametrize("before", [b"", GET])
async def test_a_request_that_takes_too_long_is_not_waited_for(before, autojump_clock):
    async with talking() as client:
        await client.stream.send_all(before)
        taken = await drip(client, GET[:-2] + b"A: b\r\n" * 1000, 1.0)
        assert taken == pytest.approx(http.REQUEST_SECONDS, abs=2)
    assert client.ended == "slow"


@pytest.mark.parametrize(("before", "seconds", "cause"), [(b"", http.REQUEST_SECONDS, "slow"), (GET, http.IDLE_SECONDS, None)])  # fmt: skip
async def test_silence_ends_a_connection(before, seconds, cause, autojump_clock):
    async with talking() as client:
        began = trio.current_time()
        await client.stream.send_all(before)
        await client.heard()
        assert trio.current_time() - began == pytest.approx(seconds, abs=1)
    assert client.ended == cause


async def test_an_answer_that_nobody_takes_is_given_up(autojump_clock):
    async with talking(trio.testing.lockstep_stream_pair) as client:
        await client.stream.send_all(GET)
        began = trio.current_time()
        await client.over.wait()
        assert trio.current_time() - began == pytest.approx(http.ANSWER_SECONDS, abs=2)
    assert client.ended == "unread"


async def test_who_goes_away_is_nobody_to_blame(autojump_clock):
    for sent in (b"", GET):
        async with talking() as client:
            await client.stream.send_all(sent)
            await client.stream.send_eof()
            await client.heard()
        assert client.ended is None


async def test_a_head_as_long_as_may_be_is_answered_however_it_comes(autojump_clock):
    head = GET.replace(b"\r\n\r\n", b"\r\nA: ")
    whole = head + b"b" * (http.HEADERS_MAX - len(head) - 4) + b"\r\n\r\n"
    assert len(whole) == http.HEADERS_MAX
    async with talking() as client:
        await client.stream.send_all(whole + whole)
        for at in range(0, len(whole), 1000):
            await client.stream.send_all(whole[at : at + 1000])
        for byte in GET:
            await client.stream.send_all(bytes([byte]))
        await client.stream.send_eof()
        await client.over.wait()
    assert len(client.asked) == 4
    assert client.ended is None
