"""Connections over TCP and unix sockets: what comes in, what is handed back, and to how many."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import struct
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

import pytest
import trio

from tailrace.config.schema import TcpConfig, UnixConfig
from tailrace.sources.connection import Connection
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listeners import TcpListener, UnixListener
from tests.sources.recorder import Recorder, until

PACKET = 1200


@pytest.fixture(params=["tcp", "unix"])
def make(request, tmp_path):
    """A function that makes a source, `(**limits)`."""

    def tcp(**limits):
        config = TcpConfig(format="heph", listen="127.0.0.1:0", **limits)
        return ConnectionSource(config, TcpListener(config))

    def unix(**limits):
        config = UnixConfig(format="heph", listen=str(tmp_path / "a b.sock"), **limits)
        return ConnectionSource(config, UnixListener(tmp_path / "a b.sock", 0o600))

    return {"tcp": tcp, "unix": unix}[request.param]


@asynccontextmanager
async def running(source):
    """The source at work; what it hands on."""
    intake = Recorder()
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run, intake)
        yield intake
        nursery.cancel_scope.cancel()


def connect(source):
    """A client; the kernel accepts it even while the source does not look."""
    if not source.address.startswith("unix://"):
        host, _, port = source.address.rpartition(":")
        return socket.create_connection((host, int(port)))
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(unquote(urlsplit(source.address).path))
    return sock


def packet(number):
    """Whole only as it is."""
    return struct.pack(">I", number) * (PACKET // 4)


def numbers(data):
    """Return the types of the packets that a client received."""
    assert len(data) % PACKET == 0
    packets = [data[at : at + PACKET] for at in range(0, len(data), PACKET)]
    found = [struct.unpack_from(">I", each)[0] for each in packets]
    assert packets == [packet(number) for number in found]
    return found


async def read(sock, size):
    """So many bytes, without keeping the source from its work."""
    sock.settimeout(0)
    data = b""
    with trio.fail_after(30):
        while len(data) < size:
            await trio.lowlevel.wait_readable(sock)
            data += sock.recv(size - len(data))
    return data


def replies(source):
    return source.figures().replies


async def test_bytes_come_in_and_packets_go_back(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"hello")
            await until(lambda: intake.received() == b"hello")
            source.reply(1, packet(1))
            source.reply(1, packet(2))
            assert numbers(await read(sock, 2 * PACKET)) == [1, 2]
            assert replies(source) == {"sent": 2}
        await until(lambda: intake.closed == {1: "eof"})
        source.reply(1, packet(3))
        source.reply(77, packet(3))
    assert replies(source) == {"sent": 2, "gone": 2}


async def test_a_peer_that_does_not_read_gets_whole_packets_once_it_does(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            taken = await fill(source, 1)
            assert replies(source)["sent"] == len(taken)
            assert len(taken) * PACKET < 2**20, "the kernel keeps little for it"
            sock.sendall(b"y")
            await until(lambda: intake.received() == b"xy")
            assert numbers(await read(sock, len(taken) * PACKET)) == taken
            await until(lambda: source.can_reply(1))
            assert source.reply(1, packet(10_001))
            assert numbers(await read(sock, PACKET)) == [10_001]


async def fill(source, session):
    """Reply until neither the kernel nor the source takes more; what they took. The kernel needs
    some time to find that there is no room."""
    taken = []
    while True:
        more = [n for n in range(len(taken), len(taken) + 100) if source.reply(session, packet(n))]
        if not more:
            return taken
        taken += more
        await trio.sleep(0.1)


async def test_a_peer_that_goes_with_packets_unread_is_gone(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            for number in range(1000):
                source.reply(1, packet(number))
        await until(lambda: 1 in intake.closed)
        source.reply(1, packet(0))
        assert replies(source)["gone"] == 1
        with connect(source) as sock:
            sock.sendall(b"next")
            await until(lambda: intake.received(2) == b"next")


async def test_what_comes_while_there_is_no_room_is_left_in_the_kernel(make):
    """However long the connection has waited for it: all of a source's connections might wait."""
    source = make()
    async with running(source) as intake:
        with connect(source) as one, connect(source) as other:
            one.sendall(b"a")
            other.sendall(b"b")
            await until(lambda: sorted(intake.received(n) for n in (1, 2)) == [b"a", b"b"])
            intake.full = True
            one.sendall(b"c")
            other.sendall(b"d")
            await trio.sleep(0.05)
            assert sorted(intake.received(n) for n in (1, 2)) == [b"a", b"b"]
            intake.full = False
            await until(lambda: sorted(intake.received(n) for n in (1, 2)) == [b"ac", b"bd"])


async def test_one_that_goes_while_there_is_no_room_is_found_gone_and_costs_nothing(make):
    """Nobody receives then, so nobody hears of the end."""
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            intake.full = True
            await fill(source, 1)
            assert not source.can_reply(1)
        await until(lambda: source.can_reply(1))
        source.reply(1, packet(0))
        assert replies(source)["gone"] == 1
        assert intake.closed == {}
        intake.full = False
        await until(lambda: 1 in intake.closed)
        assert not source.can_reply(1)


def test_a_connection_that_is_about_to_be_closed_is_gone():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(ours, "me", "me")
        connection.answer(lambda: None)
        assert connection.can_reply
        assert connection.reply(b"1") == "sent"
        connection.close()
        assert not connection.can_reply
        assert connection.reply(b"2") == "gone"
        assert theirs.recv(9) == b"1"


async def test_one_that_is_cut_off_with_packets_unread_is_closed_with_the_reason(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            for number in range(1000):
                source.reply(1, packet(number))
            source.cut(1, "slow")
            source.reply(1, packet(0))
            await until(lambda: intake.closed == {1: "slow"})
    assert source.figures().refused == {"slow": 1}
    assert source.figures().open == 0


async def test_one_is_cut_off_while_there_is_no_room(make):
    """Whoever takes too long over one record must not keep its place for that."""
    source = make()
    async with running(source) as intake:
        with connect(source) as one, connect(source) as other:
            one.sendall(b"a")
            other.sendall(b"b")
            await until(lambda: sorted(intake.received(n) for n in (1, 2)) == [b"a", b"b"])
            intake.full = True
            one.sendall(b"c")
            other.sendall(b"d")
            await trio.sleep(0.05)
            source.cut(1, "slow")
            await until(lambda: intake.closed == {1: "slow"})
            intake.full = False
            await until(lambda: len(intake.received(2)) == 2)
            assert intake.closed == {1: "slow"}


async def test_one_that_is_silent_ends_and_one_that_talks_stays(make):
    source = make(idle_timeout=3)
    async with running(source) as intake:
        with connect(source) as talking, connect(source) as silent:
            silent.sendall(b"once")
            sent = 0
            while not intake.closed:
                talking.sendall(b"x")
                sent += 1
                await trio.sleep(0.02)
            ((ended, reason),) = intake.closed.items()
            assert (intake.received(ended), reason) == (b"once", "idle")
            await until(lambda: intake.received(3 - ended) == b"x" * sent)
    assert source.figures().refused == {"idle": 1}


async def test_a_shorter_patience_counts_for_those_that_are_silent_already(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            source.reconfigure(TcpConfig(format="heph", listen="127.0.0.1:0", idle_timeout=0.1))
            await until(lambda: intake.closed == {1: "idle"})


async def test_of_very_many_that_sent_while_there_was_no_room_none_counts_as_silent(make):
    count = 1100
    many = {"connections_max": 2 * count, "connections_per_peer_max": 2 * count}
    source = make(**many)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * count), hard))
    try:
        async with running(source) as intake:
            with contextlib.ExitStack() as stack:
                first, *others = [stack.enter_context(connect(source)) for _ in range(count)]
                await until(lambda: source.figures().open == count)
                intake.full = True
                first.sendall(b"x")
                await trio.sleep(0.05)
                for each in others:
                    each.sendall(b"x")
                patience = TcpConfig(format="heph", listen="127.0.0.1:0", idle_timeout=0.1, **many)
                source.reconfigure(patience)
                await trio.sleep(0.2)
                intake.full = False
                await until(lambda: source.figures().bytes == count or source.figures().refused)
                assert source.figures().refused == {}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_one_that_sends_all_the_time_leaves_the_others_their_turn(make):
    source = make()
    async with running(source) as intake:
        with connect(source) as busy, connect(source) as other:
            busy.settimeout(0)
            received = 0
            while received < 20:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        busy.send(b"b" * 65536)
                other.sendall(b"o")
                await trio.sleep(0.01)
                found = [intake.received(number) for number in intake.chunks]
                received = max((data.count(b"o") for data in found), default=0)
            assert max(map(len, found)) > 2**20


@pytest.mark.parametrize(("goes", "reason"), [(True, "eof"), (False, "stop")])
async def test_what_was_sent_before_a_stop_is_taken_in(make, goes, reason):
    """The reason says whether the peer had sent everything."""
    source = make()
    with contextlib.ExitStack() as stack:
        async with running(source) as intake:
            sock = stack.enter_context(connect(source))
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
            sock.sendall(b"y" * 100_000)
            if goes:
                sock.close()
        assert intake.received() == b"x" + b"y" * 100_000
        assert intake.closed == {1: reason}


@pytest.mark.parametrize("how", ["fin", "reset", "idle", "stop"])
async def test_a_connection_without_a_byte_leaves_nothing_but_a_figure(make, how):
    source = make(idle_timeout=0.3 if how == "idle" else 60)
    with contextlib.ExitStack() as stack:
        async with running(source) as intake:
            for _ in range(50):
                sock = stack.enter_context(connect(source))
                if how == "reset":
                    linger = struct.pack("ii", 1, 0)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                if how in ("fin", "reset"):
                    sock.close()
            if how != "stop":
                await until(lambda: source.figures().empty == 50)
            await until(lambda: source.figures().open == (50 if how == "stop" else 0))
        assert source.figures().empty == 50
        assert (intake.opened, intake.closed) == ({}, {})


async def test_limits_are_for_all_and_for_each_peer(make):
    source = make(connections_max=3, connections_per_peer_max=2)
    async with running(source) as intake:
        with connect(source), connect(source) as second:
            await until(lambda: source.figures().open == 2)
            with connect(source) as third:
                assert await closed(third)
            (refused,) = source.figures().refused
            assert refused.startswith("too many connections from one ")
            second.close()
            await until(lambda: source.figures().open == 1)
            with connect(source) as fourth:
                fourth.sendall(b"x")
                await until(lambda: intake.received() == b"x")


async def closed(sock):
    sock.settimeout(0)
    with trio.fail_after(30):
        await trio.lowlevel.wait_readable(sock)
    return sock.recv(1) == b""


async def test_connections_that_come_and_go_do_not_count_against_the_limits(make):
    """The source does not rest while others come."""
    source = make(connections_max=4, connections_per_peer_max=4)
    async with running(source) as intake:
        for number in range(50):
            with connect(source) as sock:
                sock.sendall(packet(number))
            await until(lambda number=number: len(intake.opened) > number)
            await trio.sleep(0.003)
        await until(lambda: len(intake.closed) == 50)
    assert source.figures().refused == {}
    assert [numbers(intake.received(1 + number)) for number in range(50)] == [
        [n] for n in range(50)
    ]


async def test_what_comes_little_by_little_comes_together(make):
    """A producer that flushes each event costs a look for many, not for each."""
    source = make()
    async with running(source) as intake:
        with connect(source) as sock:
            for number in range(400):
                sock.sendall(packet(number)[:4])
                await trio.sleep(0.001)
            await until(lambda: len(intake.received()) == 1600)
    assert intake.received() == b"".join(packet(number)[:4] for number in range(400))
    assert len(intake.chunks[1]) < 100


async def test_two_hundred_connections_are_each_told_their_own(make):
    source = make()
    async with running(source) as intake:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(connect(source)) for _ in range(200)]
            for at, sock in enumerate(socks):
                sock.sendall(struct.pack(">I", at))
            await until(lambda: sum(map(bool, intake.chunks.values())) == 200)
            for number, (chunk,) in intake.chunks.items():
                source.reply(number, packet(struct.unpack(">I", chunk)[0]))
            for at, sock in enumerate(socks):
                assert numbers(await read(sock, PACKET)) == [at]
    assert replies(source) == {"sent": 200}


# Unix sockets


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.sock"


def unix(path, *, mode=0o600):
    config = UnixConfig(format="heph", listen=str(path))
    return ConnectionSource(config, UnixListener(path, mode))


async def refusal(path):
    """The failures of a source that cannot listen there."""
    with pytest.RaisesGroup(OSError) as caught:
        async with running(unix(path)):
            pass
    error = caught.value.exceptions[0]
    assert str(error).endswith(f": '{path}'")
    return error


async def test_a_peer_is_a_process_of_a_user(path):
    source = unix(path)
    async with running(source) as intake:
        assert source.address == f"unix://{path}"
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")
    name = f"unix:uid={os.getuid()},pid={os.getpid()}"
    assert intake.opened == {1: ("unix", name)}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
async def test_the_sockets_file_has_its_mode_whatever_the_umask_and_goes_at_the_end(
    path, mode, umask
):
    before = os.umask(umask)
    try:
        async with running(unix(path, mode=mode)):
            assert stat.S_IMODE(path.stat().st_mode) == mode
        assert not path.exists()
    finally:
        os.umask(before)


async def test_the_file_that_a_killed_process_left_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
    assert path.is_socket()
    source = unix(path)
    async with running(source) as intake:
        with connect(source) as sock:
            sock.sendall(b"x")
            await until(lambda: intake.received() == b"x")


@pytest.mark.parametrize("backlog", [0, 5])
async def test_a_socket_that_somebody_listens_on_is_left_alone(path, backlog):
    with socket.socket(socket.AF_UNIX) as sock, contextlib.ExitStack() as stack:
        sock.bind(str(path))
        sock.listen(backlog)
        for _ in range(backlog == 0 and 2):  # so many that one more would have to wait
            other = stack.enter_context(socket.socket(socket.AF_UNIX))
            other.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                other.connect(str(path))
        assert "Address already in use" in str(await refusal(path))
        assert path.is_socket()


async def test_a_file_that_is_no_socket_is_left_alone(path):
    path.write_text("precious")
    assert "no socket" in str(await refusal(path))
    assert path.read_text() == "precious"


async def test_a_link_is_left_alone_wherever_it_leads(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    assert "no socket" in str(await refusal(path))
    assert path.is_symlink()


async def test_the_directory_must_exist(tmp_path):
    assert isinstance(await refusal(tmp_path / "none/a.sock"), FileNotFoundError)


async def test_a_socket_that_another_put_in_our_place_is_not_removed(path):
    async with running(unix(path)):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    assert path.is_socket()
