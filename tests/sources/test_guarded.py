"""Connections that must show a certificate, a token or an address before they have a session."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
import trio

from tailrace.clock import SystemClock
from tailrace.config.schema import TcpConfig
from tailrace.security.guard import LOOK_EVERY, guard
from tailrace.sources.connection import LINE_MAX, Connection
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listeners import TcpListener
from tests.security.authority import PAST, Authority, StoppedClock, replace
from tests.sources.recorder import Recorder, until

NAME = "tailrace.test"
TOKEN = b"0123456789abcdef"
LINE = b"tailrace-token " + TOKEN + b"\n"
PACKET = b"p" * 1200


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def tls(authority):
    """The keys of a source with TLS."""
    certificate, key = authority.issue(NAME)
    return {"tls_certificate": str(certificate), "tls_key": str(key)}


@pytest.fixture
def mutual(tls, authority):
    return tls | {"tls_client_authority": str(authority.certificate)}


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    replace(path, TOKEN + b"\n")
    return {"tokens": str(path)}


@asynccontextmanager
async def running(*, clock=None, **keys):
    """A source at work, and what it hands on."""
    config = TcpConfig(format="heph", **{"listen": "127.0.0.1:0"} | keys)
    guarded = guard("sources.s", config, clock or SystemClock())
    source, intake = ConnectionSource(config, TcpListener(config, guarded)), Recorder()
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run, intake)
        yield source, intake
        nursery.cancel_scope.cancel()


async def connect(source):
    host, _, port = source.address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


@asynccontextmanager
async def secured(source, context, name=NAME):
    """A TLS client; its handshake is done."""
    stream = trio.SSLStream(await connect(source), context, server_hostname=name)
    with trio.fail_after(30):
        await stream.do_handshake()
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def ended(stream):
    """Read to the end, whichever way it comes; what was read."""
    data = b""
    with trio.fail_after(30), contextlib.suppress(trio.BrokenResourceError):
        while more := await stream.receive_some(65536):
            data += more
    return data


async def refused(source, intake, cause, count=1):
    await until(lambda: source.figures().refused.get(cause) == count)
    assert source.figures().refused == {cause: count}
    await until(lambda: source.figures().open == 0)
    assert intake.opened == {}


# TLS


async def test_bytes_come_in_and_packets_go_back_through_tls(tls, authority):
    async with running(**tls) as (source, intake), secured(source, authority.client()) as stream:
        await stream.send_all(b"hello")
        await until(lambda: intake.received() == b"hello")
        assert source.reply(1, PACKET)
        assert source.reply(1, PACKET)
        data = b""
        while len(data) < 2 * len(PACKET):
            data += await stream.receive_some(65536)
        assert data == 2 * PACKET
        large = bytes(range(256)) * 4000
        await stream.send_all(large)
        await stream.aclose()
        await until(lambda: intake.closed == {1: "eof"})
        assert intake.received() == b"hello" + large
    assert source.figures().bytes == 5 + len(large)
    assert source.figures().refused == {}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_what_comes_with_the_end_of_the_handshake_is_not_left_lying(tls, authority, version):
    """A client's first bytes may come in one segment with its last of the handshake, and the end of
    the stream as well: nothing more makes the socket readable then."""
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    async with running(**tls) as (source, intake):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        end = context.wrap_bio(back, there, server_hostname=NAME)
        stream = await connect(source)
        while True:
            try:
                end.do_handshake()
                break
            except ssl.SSLWantReadError:
                await stream.send_all(there.read())
                back.write(await stream.receive_some(65536))
        if version is ssl.TLSVersion.TLSv1_3:  # of 1.2, the client is not the last to speak
            assert there.pending
        end.write(b"first and last")
        with contextlib.suppress(ssl.SSLError):
            end.unwrap()
        await stream.send_all(there.read())
        await until(lambda: intake.closed == {1: "eof"})
        assert intake.received() == b"first and last"
        await stream.aclose()


async def test_an_end_without_close_notify_is_told_from_one_with(tls, authority):
    async with running(**tls) as (source, intake), secured(source, authority.client()) as stream:
        await stream.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        await stream.transport_stream.aclose()
        await until(lambda: intake.closed == {1: "eof without close_notify"})


async def test_a_client_is_told_that_the_end_is_one(tls, authority):
    async with running(**tls) as (source, intake), secured(source, authority.client()) as stream:
        await stream.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        source.cut(1, "slow")
        with trio.fail_after(30):
            assert await stream.receive_some() == b""


async def test_bytes_that_are_changed_on_their_way_end_the_connection(tls, authority):
    async with running(**tls) as (source, intake), secured(source, authority.client()) as stream:
        await stream.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        await stream.transport_stream.send_all(b"\x17\x03\x03\x00\x30" + b"\0" * 48)
        await until(lambda: intake.closed == {1: "tls error"})
    assert source.figures().refused == {"tls error": 1}
    assert intake.received() == b"x"


async def test_a_peer_that_does_not_read_is_not_waited_for(tls, authority):
    async with running(**tls) as (source, intake), secured(source, authority.client()) as stream:
        await stream.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        sent = 0
        while source.reply(1, PACKET):
            sent += 1
            assert sent * len(PACKET) < 2**23, "the kernel keeps little for it"
            await trio.sleep(0.001)
        await stream.send_all(b"y")
        await until(lambda: intake.received() == b"xy")
        data = b""
        while len(data) < sent * len(PACKET):
            data += await stream.receive_some(65536)
        assert data == sent * PACKET
        await until(lambda: source.can_reply(1))


async def test_a_peer_that_reads_nothing_and_breaks_tls_loses_no_order(tls, authority):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "peer", "peer")
    certificates = guard(
        "sources.s", TcpConfig(format="heph", listen="127.0.0.1:0", **tls), SystemClock()
    ).certificates
    transport = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    client = trio.SSLStream(transport, authority.client(), server_hostname=NAME)
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.do_handshake)
            await connection.secure(certificates.context())
        connection.receive()
        await client.send_all(b"tailrace-tok")
        assert await connection.next() == (b"", None)
        connection.answer(lambda: None)
        for packet in (PACKET, b"."):
            while connection.reply(packet) == "sent":
                pass
        await client.send_all(b" and later")
        await transport.send_all(b"\x17\x03\x03\x00\x30" + b"\0" * 48)
        assert connection.receive() == (b"tailrace-tok and later", "tls error")


async def test_what_was_sent_before_a_stop_is_taken_in(tls, authority):
    async with contextlib.AsyncExitStack() as stack:
        async with running(**tls) as (source, intake):
            stream = await stack.enter_async_context(secured(source, authority.client()))
            await stream.send_all(b"x")
            await until(lambda: intake.received() == b"x")
            await stream.send_all(b"y" * 100_000)
        with trio.fail_after(30):
            assert await stream.receive_some() == b""
        assert intake.received() == b"x" + b"y" * 100_000
        assert intake.closed == {1: "stop"}


# Whom TLS lets in


async def fails(source, context, name=NAME):
    """A client's handshake, or, of TLS 1.3, what it reads after it."""
    stream = trio.SSLStream(await connect(source), context, server_hostname=name)
    try:
        with trio.fail_after(30):
            await stream.do_handshake()
            assert await stream.receive_some() == b"never"
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)


async def test_with_an_authority_a_session_says_whose_certificate_it_was(mutual, authority):
    async with running(**mutual) as (source, intake):
        for number, common_name in enumerate((None, "rack 7\nnode ä"), 1):
            mine = authority.issue("node.test", stem="me", common_name=common_name)
            async with secured(source, authority.client(*mine)) as stream:
                await stream.send_all(b"x")
                await until(lambda n=number: intake.received(n) == b"x")
    peers = [peer for _, peer in intake.opened.values()]
    assert peers[0].startswith("127.0.0.1:")
    assert peers[0].endswith(",certificate=node.test")
    assert peers[1].endswith(r",certificate=rack 7\nnode \xe4")


async def test_who_shows_no_certificate_or_a_bad_one_is_refused(
    mutual, authority, tmp_path, caplog
):
    caplog.set_level("INFO")
    stranger = Authority(tmp_path).issue("me.test", stem="stranger")
    old = authority.issue("me.test", stem="old", expires=PAST)
    async with running(**mutual) as (source, intake):
        for client in (authority.client(), authority.client(*stranger), authority.client(*old)):
            await fails(source, client)
        await refused(source, intake, "tls handshake", 3)
    assert [record.getMessage().partition("tls handshake: ")[2] for record in caplog.records] == [
        "peer did not return a certificate", "unable to get local issuer certificate", "certificate has expired"
    ]  # fmt: skip


async def test_a_client_that_does_not_want_our_certificate_has_no_session(tls, authority, tmp_path):
    async with running(**tls) as (source, intake):
        await fails(source, Authority(tmp_path).client())
        await fails(source, authority.client(), "another.test")
        await refused(source, intake, "tls handshake", 2)


async def test_a_client_does_not_want_one_that_has_expired(authority):
    certificate, key = authority.issue(NAME, expires=PAST)
    async with running(tls_certificate=str(certificate), tls_key=str(key)) as (source, intake):
        await fails(source, authority.client())
        await refused(source, intake, "tls handshake")
        assert "expired" in source.figures().problems[0]


async def test_nobody_is_let_in_with_less_than_tls_1_2(tls, authority):
    client = authority.client()
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        client.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        client.maximum_version = ssl.TLSVersion.TLSv1_1
    async with running(**tls) as (source, intake):
        await fails(source, client)
        await refused(source, intake, "tls handshake")


@pytest.mark.parametrize(
    "first", [b"", b"\0\0\0\x20" * 50, LINE, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70_000]
)  # fmt: skip
async def test_whatever_else_comes_to_a_port_with_tls_is_refused(tls, first):
    async with running(**tls) as (source, intake):
        stream = await connect(source)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(first)
            await stream.send_eof()
        await ended(stream)
        await stream.aclose()
        await refused(source, intake, "tls handshake")


async def test_tls_to_a_port_without_is_bytes_like_others(authority):
    """The format's decoder says what they are; the client is not answered and ends it."""
    async with running(idle_timeout=3) as (source, intake):
        stream = trio.SSLStream(await connect(source), authority.client(), server_hostname=NAME)
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(30):
            await stream.do_handshake()
        assert intake.received()[:3] == b"\x16\x03\x01"
        await trio.aclose_forcefully(stream)


async def test_one_that_is_slow_over_its_handshake_holds_up_nobody(tls, authority):
    async with running(**tls, greeting_timeout=3) as (source, intake):
        slow = [await connect(source) for _ in range(20)]
        for stream in slow[:10]:
            await stream.send_all(b"\x16\x03\x01\x02\x00\x01")
        async with secured(source, authority.client()) as stream:
            await stream.send_all(b"x")
            await until(lambda: intake.received() == b"x")
            for each in slow:
                await ended(each)
                await each.aclose()
            await until(lambda: source.figures().refused == {"greeting too slow": 20})
            await stream.send_all(b"y")
            await until(lambda: intake.received() == b"xy")
    assert len(intake.opened) == 1


async def test_those_who_have_not_greeted_yet_count_towards_the_limits(tls):
    async with running(**tls, connections_max=3, connections_per_peer_max=2) as (source, intake):
        first, second = await connect(source), await connect(source)
        await until(lambda: source.figures().open == 2)
        third = await connect(source)
        assert await ended(third) == b""
        assert source.figures().refused == {"too many connections from one address": 1}
        await first.aclose()
        await until(lambda: source.figures().open == 1)
        for stream in (second, third):
            await stream.aclose()
        await until(lambda: source.figures().open == 0)
    assert intake.opened == {}


# New certificates


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(tls, authority):
    clock = StoppedClock()
    async with (
        running(clock=clock, **tls) as (source, intake),
        secured(source, authority.client()) as old,
    ):
        before = old.getpeercert()["serialNumber"]
        authority.issue(NAME)
        clock.seconds += LOOK_EVERY
        async with secured(source, authority.client()) as new:
            assert new.getpeercert()["serialNumber"] != before
            await old.send_all(b"old")
            await new.send_all(b"new")
            await until(lambda: intake.received(1) + intake.received(2) == b"oldnew")
            assert source.figures().problems == []


async def test_a_bad_new_pair_is_said_and_the_old_one_served(tls, authority, tmp_path):
    clock = StoppedClock()
    async with running(clock=clock, **tls) as (source, _):
        replace(tmp_path / "server.pem", b"oops")
        clock.seconds += LOOK_EVERY
        async with secured(source, authority.client()):
            (problem,) = source.figures().problems
        assert problem.startswith(f"{tmp_path}/server.pem: holds no certificate")
        authority.issue(NAME)
        clock.seconds += LOOK_EVERY
        assert source.figures().problems == []


# Tokens


async def test_one_that_shows_a_token_has_a_session_without_it(tokens):
    async with running(**tokens) as (source, intake):
        stream = await connect(source)
        await stream.send_all(LINE + b"hello")
        await until(lambda: intake.received() == b"hello")
        await stream.send_all(LINE)  # a second one is none
        await until(lambda: intake.received() == b"hello" + LINE)
        await stream.aclose()
        await until(lambda: intake.closed == {1: "eof"})
    assert source.figures().refused == {}


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"tailrace-token " + TOKEN[:-1] + b"\n", "wrong token"),
        (b"tailrace-token " + TOKEN + b"\r\n", "wrong token"),
        (b"tailrace-token \n", "wrong token"),
        (b"tailrace-token " + TOKEN + b" " + TOKEN + b"\n", "wrong token"),
        (b"", "no token"),
        (b"\n", "no token"),
        (TOKEN + b"\n", "no token"),
        (LINE[:-1], "no token"),
        (b"Tailrace-token " + TOKEN + b"\n", "no token"),
        (b"\0\0\0\x20" * 50, "no token"),
        (b"tailrace-token " + b"x" * (LINE_MAX - 15) + b"\n", "no token"),
        (b"tailrace-token " + b"x" * 200_000, "no token"),
    ],
)
async def test_one_that_shows_none_or_a_wrong_one_has_no_session(tokens, first, cause):
    async with running(**tokens) as (source, intake):
        stream = await connect(source)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(first)
            await stream.send_eof()
        await refused(source, intake, cause)
        await stream.aclose()


@pytest.mark.parametrize("demanded", [True, False])
async def test_the_line_may_be_cut_anywhere(tokens, demanded):
    async with running(**(tokens if demanded else {})) as (source, intake):
        for number, at in enumerate(range(1, len(LINE) + 2), 1):
            stream = await connect(source)
            await stream.send_all((LINE + b"hello")[:at])
            await trio.sleep(0.01)
            await stream.send_all((LINE + b"hello")[at:])
            await until(lambda n=number: intake.received(n) == b"hello")
            await stream.aclose()
    assert source.figures().refused == {}


async def test_one_that_is_slow_over_its_token_is_closed(tokens):
    async with running(**tokens, greeting_timeout=0.3) as (source, intake):
        stream = await connect(source)
        for byte in LINE[:4]:
            await stream.send_all(bytes([byte]))
        await refused(source, intake, "greeting too slow")
        await stream.aclose()


async def test_tokens_go_through_tls(tls, tokens, authority):
    async with running(**tls, **tokens) as (source, intake):
        async with secured(source, authority.client()) as stream:
            await stream.send_all(LINE + b"hello")
            await until(lambda: intake.received() == b"hello")
        async with secured(source, authority.client()) as stream:
            await stream.send_all(b"hello, with no token at all")
            await until(lambda: source.figures().refused == {"no token": 1})
    assert len(intake.opened) == 1


async def test_a_new_file_of_tokens_counts_for_new_connections(tokens, tmp_path):
    clock = StoppedClock()
    async with running(clock=clock, **tokens) as (source, intake):
        old = await connect(source)
        await old.send_all(LINE + b"x")
        await until(lambda: intake.received() == b"x")
        replace(tmp_path / "tokens", b"another-token-of-ours\n")
        clock.seconds += LOOK_EVERY
        late = await connect(source)
        await late.send_all(LINE)
        await until(lambda: source.figures().refused == {"wrong token": 1})
        await old.send_all(b"y")
        await until(lambda: intake.received() == b"xy")
        for stream in (old, late):
            await stream.aclose()


async def test_a_greeting_with_nothing_behind_it_leaves_nothing_but_a_figure(
    tls, tokens, authority
):
    """As of a health probe that speaks TLS."""
    async with running(**tls) as (source, intake):
        for _ in range(9):
            async with secured(source, authority.client()):
                pass
        await until(lambda: (source.figures().empty, source.figures().open) == (9, 0))
        assert intake.opened == {}
    async with running(**tokens) as (source, intake):
        stream = await connect(source)
        await stream.send_all(LINE)
        await stream.aclose()
        await until(lambda: source.figures().empty == 1)
        assert intake.opened == {}
    assert source.figures().refused == {}


# Sources that demand no token


@pytest.mark.parametrize("first", [b"t", b"tailrace-token", b"tailrace-token abc", b"tailrace-tokens\n", b"tailrace-token " + b"x" * 600 + b"\n"])  # fmt: skip
async def test_what_is_no_token_line_after_all_is_handed_on(first):
    async with running() as (source, intake):
        stream = await connect(source)
        await stream.send_all(first)
        await stream.aclose()
        await until(lambda: intake.closed == {1: "eof"})
    assert intake.received() == first


@pytest.mark.parametrize("how", ["stop", "idle"])
async def test_the_start_of_a_line_is_handed_on_however_the_connection_ends(how):
    async with contextlib.AsyncExitStack() as stack:
        async with running(idle_timeout=0.3 if how == "idle" else 60) as (source, intake):
            stream = await stack.enter_async_context(await connect(source))
            await stream.send_all(b"tailrace-tok")
            await until(lambda: source.figures().open == 1)
            await trio.sleep(0.05)
            assert intake.opened == {}
            if how != "stop":
                await until(lambda: intake.closed == {1: how})
        assert intake.closed == {1: how}
        assert intake.received() == b"tailrace-tok"


# Networks


async def test_an_address_outside_the_list_is_closed_at_once():
    async with running(allow=["192.0.2.0/24", "::1"]) as (source, intake):
        stream = await connect(source)
        assert await ended(stream) == b""
        await stream.aclose()
        await refused(source, intake, "address not allowed")


async def test_an_address_inside_the_list_is_let_in():
    async with running(allow=["192.0.2.0/24", "127.0.0.0/8"]) as (source, intake):
        stream = await connect(source)
        await stream.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        await stream.aclose()
    assert source.figures().refused == {}


async def test_an_ipv4_address_is_itself_on_a_socket_for_both():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as probe:
        both = f"[::]:{probe.getsockname()[1]}"
    config = TcpConfig(format="heph", listen=both, allow=["127.0.0.0/8"])
    source = ConnectionSource(
        config, TcpListener(config, guard("sources.s", config, SystemClock()))
    )
    intake = Recorder()
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run, intake)
        port = int(source.address.rpartition(":")[2])
        four = await trio.open_tcp_stream("127.0.0.1", port)
        await four.send_all(b"x")
        await until(lambda: intake.received() == b"x")
        six = await trio.open_tcp_stream("::1", port)
        assert await ended(six) == b""
        for stream in (four, six):
            await stream.aclose()
        nursery.cancel_scope.cancel()
    assert source.figures().refused == {"address not allowed": 1}


# Users of this host


@contextlib.contextmanager
def as_nobody():
    """Make sockets as another user does. A socket stays its maker's."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def connected(source, family=socket.AF_INET):
    """A socket that is connected to a source; its user is the one who is on now."""
    sock = socket.socket(family)
    sock.connect(
        (
            "::1" if family == socket.AF_INET6 else "127.0.0.1",
            int(source.address.rpartition(":")[2]),
        )
    )
    return sock


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


@as_root
@pytest.mark.parametrize("with_tokens", [False, True])
async def test_another_user_of_this_host_is_refused(tokens, with_tokens):
    """Also with a token, so that others take no place while they greet."""
    keys = tokens if with_tokens else {}
    async with running(same_user=True, **keys) as (source, intake):
        with as_nobody():
            others = [connected(source) for _ in range(3)]
        await refused(source, intake, "another user", 3)
        for sock in others:
            sock.close()
        with connected(source) as own:
            own.sendall(b"hello")
            await until(lambda: intake.received() == b"hello")
        with connected(source) as own:
            own.sendall(LINE + b"hello")
            await until(lambda: intake.received(2) == b"hello")


@as_root
async def test_a_token_decides_where_the_kernel_knows_no_user(tokens):
    async with running(same_user=True, **tokens) as (source, intake):
        for first in (LINE, b""):
            with connected(source) as sock:
                sock.sendall(first + b"hello")
        await until(lambda: source.figures().refused == {"no token": 1})
        assert intake.received() == b"hello"
        assert len(intake.opened) == 1


@as_root
async def test_one_who_is_gone_without_a_token_is_nobody():
    async with running(same_user=True) as (source, intake):
        with connected(source) as sock:
            sock.sendall(b"hello")
        await refused(source, intake, "unknown user")


@as_root
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_users_are_known_over_both_families(family):
    async with running(listen="localhost:0", same_user=True) as (source, intake):
        with as_nobody():
            other = connected(source, family)
        await refused(source, intake, "another user")
        other.close()
        with connected(source, family) as own:
            own.sendall(b"hello")
            await until(lambda: intake.received() == b"hello")
