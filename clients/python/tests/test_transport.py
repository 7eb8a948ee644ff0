from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import stat
import subprocess
import sys

import pytest

from clients.python.tests.collectors import (
    Answering,
    Authority,
    TcpCollector,
    UdpCollector,
    until,
)
from tailrace_client import Emitter
from tailrace_client._sockets import DATAGRAM_BYTES, LOCAL_DATAGRAM_BYTES, Tcp, Udp, Unix
from tailrace_client._tls import Tls
from tailrace_client._transport import File, parse


@pytest.mark.parametrize(
    "address",
    [
        "", "udp", "udp://", "udp://host", "tcp://host:0", "tcp://host:x", "tcp://host:70000", "http://host:1",
        "file://", "file:///", "file://elsewhere/path", "udp://host:1/path", "tcp://:1", "tls://host", "tls://host:1/path", "tcp://[::1:1",
        "unix://", "unix:///", "unix://elsewhere/path", "unix:///" + "x" * 103, "unix:///a%00b", "file:///a%00b",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_the_forms_are_named(address):
    forms = "unix:///path, tcp://host:port, tls://host:port, udp://host:port or file:///path"
    with pytest.raises(ValueError, match=forms):
        parse(address)


def test_each_form_of_address_gives_its_transport(tmp_path):
    assert isinstance(parse("udp://localhost:1"), Udp)
    assert type(parse("tcp://[::1]:65535/")) is Tcp
    assert isinstance(parse("tls://localhost:7701"), Tls)
    assert isinstance(parse("unix:///run/tailrace/heph.sock"), Unix)
    file = parse(f"file://{tmp_path}/a%20b")
    assert isinstance(file, File)
    file.open()
    file.close()
    assert (tmp_path / "a b").exists()


@pytest.mark.parametrize(
    ("host", "size"),
    [
        ("127.0.0.1", LOCAL_DATAGRAM_BYTES),
        ("127.8.9.10", LOCAL_DATAGRAM_BYTES),
        ("localhost", LOCAL_DATAGRAM_BYTES),
        ("[::1]", LOCAL_DATAGRAM_BYTES),
        ("192.0.2.1", DATAGRAM_BYTES),  # an address reserved for examples, at which no host answers
        ("[2001:db8::1]", DATAGRAM_BYTES),
        ("collector.example", DATAGRAM_BYTES),
    ],
)
def test_datagrams_are_longer_where_no_frame_cuts_them(host, size):
    assert parse(f"udp://{host}:7701").chunk_bytes == size


def test_a_datagram_refused_on_behalf_of_an_earlier_one_is_said_and_the_next_goes_out():
    with UdpCollector() as collector:
        port = collector.socket.getsockname()[1]
    transport = parse(f"udp://127.0.0.1:{port}")
    transport.open()
    assert transport.send([b"into the void"]) == 13
    with UdpCollector(port) as collector:  # the first datagram's refusal waits in the socket
        with pytest.raises(ConnectionRefusedError):
            transport.send([b"one"])
        assert transport.is_open
        assert transport.send([b"one", b"two"]) == 6
        transport.close()
        assert collector.waiting() == [b"onetwo"]


def test_a_datagram_that_the_kernel_will_never_take_is_an_error_that_leaves_it_open():
    with UdpCollector() as collector:
        transport = parse(collector.address)
        transport.open()
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
            transport.send([bytes(66_000)])
        assert raised.value.errno == errno.EMSGSIZE
        assert transport.send([b"next"]) == 4
        transport.close()


def test_what_a_datagram_socket_gets_back_is_read_one_by_one():
    with UdpCollector() as collector:
        transport = parse(collector.address)
        transport.open()
        assert transport.receive() == b""
        transport.send([b"x"])
        _, peer = collector.socket.recvfrom(10)
        collector.socket.sendto(b"one", peer)
        collector.socket.sendto(b"two", peer)
        transport.wait(20, to_send=False)
        assert [transport.receive(), transport.receive(), transport.receive()] == [
            b"one",
            b"two",
            b"",
        ]
        transport.close()


@pytest.fixture(params=["tcp", "unix"])
def connection(request, tmp_path):
    """Yield an open stream transport, and the peer's end of the connection, whose receive buffer is small."""
    if request.param == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        transport = parse(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        transport = parse(f"unix://{tmp_path}/socket")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with listener:
        transport.open()
        peer, _ = listener.accept()
        with peer:
            yield transport, peer
    transport.close()


def test_a_stream_takes_what_there_is_room_for_and_never_waits(connection):
    transport, peer = connection
    data = os.urandom(2**20)
    sent = 0
    while taken := transport.send([data[sent % 2**20 :], data]):
        sent += taken
    assert transport.is_open
    received = bytearray()
    while len(received) < sent:
        received += peer.recv(2**20)
    assert bytes(received) == (data * (sent // 2**20 + 1))[:sent]
    transport.wait(20, to_send=True)
    assert transport.send([b"more"]) == 4


def test_an_orderly_end_and_a_reset_are_seen_when_something_is_received(connection):
    transport, peer = connection
    peer.send(b"answer")
    transport.wait(20, to_send=False)
    assert transport.receive() == b"answer"
    assert transport.receive() == b""
    peer.close()
    transport.wait(20, to_send=False)
    with pytest.raises(ConnectionError):
        transport.receive()
    assert not transport.is_open
    assert transport.receive() == b""
    assert transport.send([b"x"]) == 0


def test_finishing_waits_for_the_peer_to_have_read_all_and_is_not_held_up_by_answers(connection):
    transport, peer = connection
    transport.send([b"x" * 1000])
    peer.send(b"an answer that nobody reads")
    assert len(peer.recv(2000)) == 1000
    peer.shutdown(socket.SHUT_WR)
    transport.finish(20)
    assert not transport.is_open
    assert peer.recv(100) == b""


def test_a_peer_that_never_ends_is_not_waited_for_longer_than_asked(connection):
    transport, _ = connection
    transport.finish(0.05)
    assert not transport.is_open


def test_a_port_that_nobody_listens_on_is_refused_even_if_it_is_our_own():
    with TcpCollector() as closed:
        address = closed.address
    transport = parse(address)
    with pytest.raises(OSError):  # noqa: PT011 - refused, or whatever the system says
        transport.open()
    assert not transport.is_open
    transport.wait(0, to_send=True)


def test_a_file_is_gone_on_with_or_emptied_as_its_format_wants(tmp_path):
    path = tmp_path / "trace"
    for append, expected in ((True, b"oldnewmore"), (False, b"newmore")):
        path.write_bytes(b"old")
        transport = parse(f"file://{path}", append=append)
        transport.open()
        transport.send([b"new"])
        transport.close()
        transport.open()
        transport.send([b"more"])
        transport.close()
        assert path.read_bytes() == expected


def test_a_trace_is_for_its_owner_unless_it_is_there(tmp_path):
    (tmp_path / "there").touch(0o644)
    before = os.umask(0)
    try:
        for name in ("there", "new"):
            transport = parse(f"file://{tmp_path}/{name}")
            transport.open()
            transport.close()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("there", "new")]
    assert modes == [0o644, 0o600]


@pytest.mark.parametrize("target", ["there", "absent"])
def test_a_link_in_the_traces_place_is_not_followed(tmp_path, target):
    (tmp_path / "there").write_bytes(b"of somebody else")
    (tmp_path / "trace").symlink_to(tmp_path / target)
    for append in (True, False):
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
            parse(f"file://{tmp_path}/trace", append=append).open()
        assert raised.value.errno == errno.ELOOP
    assert (tmp_path / "there").read_bytes() == b"of somebody else"
    assert not (tmp_path / "absent").exists()


def test_a_full_disk_has_no_room():
    transport = parse("file:///dev/full")
    transport.open()
    assert transport.send([b"one"]) == 0
    assert transport.is_open
    transport.close()


def test_a_file_that_fails_is_closed(tmp_path):
    """A resource limit of the process makes the kernel accept a part of the data and refuse the rest."""
    transport = parse(f"file://{tmp_path}/trace")
    transport.open()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        assert transport.send([b"a" * 60, b"b" * 60]) == 100
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
            transport.send([b"b" * 20])
        assert raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not transport.is_open


def test_a_pipe_that_nobody_reads_cannot_be_opened_and_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    transport = parse(f"file://{tmp_path}/pipe")
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
        transport.open()
    assert raised.value.errno == errno.ENXIO


DEFAULT_SIGNALS = """
import resource, signal, sys
from tailrace_client import Credentials
from tailrace_client._transport import parse

def count(number, frame):
    caught.append(number)

caught = []
signals = {signal.SIGPIPE, signal.SIGXFSZ}
for each in signals:
    signal.signal(each, count if sys.argv[3] == "own" else signal.SIG_DFL)
transport = parse(sys.argv[1], Credentials(tls_authority=sys.argv[2]))
transport.open()
transport.send([b"first"])
print("open", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (5, resource.RLIM_INFINITY))
error = None
while error is None:
    try:
        transport.send([b"more" * 1000])
    except OSError as failure:
        error = failure.errno
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & signals
assert not signal.sigpending()
print(error, caught)
"""


@pytest.mark.parametrize("handler", ["default", "own"])
@pytest.mark.parametrize("kind", ["unix", "tcp", "tls", "pipe", "file"])
def test_a_peer_that_has_gone_sends_no_signal_to_the_program(tmp_path, kind, handler):
    """By default, these signals end the program. Many programs restore the default, so that they end when the reader of
    their output ends."""
    authority = Authority(tmp_path)
    listener = socket.socket(socket.AF_UNIX) if kind == "unix" else socket.socket()
    listener.bind(f"{tmp_path}/socket" if kind == "unix" else ("127.0.0.1", 0))
    listener.listen()
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    where = {"unix": f"{tmp_path}/socket", "pipe": path, "file": path}
    place = where.get(kind) or "127.0.0.1:{}".format(*listener.getsockname()[1:])
    scheme = {"pipe": "file"}.get(kind, kind)
    words = [f"{scheme}://{place}", authority.file, handler]
    server = authority.server()  # create the context before the child needs the certificate
    with listener, subprocess.Popen(
        [sys.executable, "-c", DEFAULT_SIGNALS, *map(str, words)],
        env={"PYTHONPATH": ":".join(sys.path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        if kind == "pipe":
            assert program.stdout.readline() == "open\n"
            os.close(reader)
        elif kind == "file":
            assert program.stdout.readline() == "open\n"
        else:
            peer, _ = listener.accept()
            peer = server.wrap_socket(peer, server_side=True) if kind == "tls" else peer
            assert program.stdout.readline() == "open\n"
            assert peer.recv(5) == b"first"
            peer.close()
        said, _ = program.communicate("go\n")
    assert program.returncode == 0
    error, caught = said.split(maxsplit=1)
    assert caught == "[]\n"
    assert int(error) in ({errno.EFBIG} if kind == "file" else {errno.EPIPE, errno.ECONNRESET})


def test_a_forked_childs_transport_is_another_and_closes_its_parents(tmp_path):
    with TcpCollector() as collector:
        transport = parse(collector.address)
        transport.open()
        child = transport.forked()
        assert not transport.is_open
        assert not child.is_open
        child.open()
        child.send([b"x"])
        until(lambda: len(collector.sessions) == 2 and collector.sessions[1] == b"x")
        child.close()
    file = parse(f"file://{tmp_path}/trace").forked()
    file.open()
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == [f"trace.{os.getpid()}"]


@pytest.fixture
def two_families(monkeypatch):
    """Let each host name have two addresses, ::1 and then 127.0.0.1, as `localhost` has on hosts that prefer IPv6."""
    resolve = socket.getaddrinfo

    def both(_, port, **options):
        return [*resolve("::1", port, **options), *resolve("127.0.0.1", port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]
)
def test_datagrams_go_to_the_address_of_a_host_at_which_somebody_listens(
    two_families, family, host
):
    with socket.socket(family, socket.SOCK_DGRAM) as collector:
        collector.bind((host, 0))
        collector.settimeout(20)
        transport = parse(f"udp://localhost:{collector.getsockname()[1]}")
        transport.open()
        assert transport.send([b"first ", b"datagram"]) == 14
        assert collector.recv(99) == b"first datagram"
        transport.close()


def test_where_nobody_listens_at_any_address_a_datagram_is_refused(two_families):
    with UdpCollector() as closed:
        port = closed.socket.getsockname()[1]
    transport = parse(f"udp://localhost:{port}")
    transport.open()
    with pytest.raises(ConnectionRefusedError):
        transport.send([b"x"])
    assert transport.is_open
    with UdpCollector(port) as collector:
        assert transport.send([b"y"]) == 1
        assert collector.receive() == b"y"
    transport.close()


@pytest.mark.parametrize("acknowledge", [True, False])
def test_no_event_to_a_host_of_two_families_is_lost(two_families, acknowledge):
    with Answering("udp") as collector:
        collector.mute = not acknowledge
        emitter = Emitter(f"udp://localhost:{collector.place[1]}", acknowledge=acknowledge)
        for _ in range(10):
            for _ in range(300):
                emitter.event("x")
            assert emitter.flush(20)
        assert emitter.close(20)
        until(lambda: collector.only.goodbyes)
        until(lambda: len(collector.only.stored[1]) == 3000)
    assert emitter.discarded["lost"] == 0


def test_a_collector_that_has_answered_is_waited_for_at_its_address(two_families):
    """The collector may be started again at this address and receive the next request there. No process listens at the
    host's other address."""
    collector = Answering("udp").start()
    emitter = Emitter(f"udp://localhost:{collector.place[1]}")
    try:
        emitter.event("x")
        assert emitter.flush(20)
        collector.kill()
        emitter.event("x")
        assert not emitter.flush(0.3)
        collector.start()
        emitter.event("x")
        assert emitter.flush(20)
        assert emitter.close(20)
        assert collector.only.stored[1] == {0, 1, 2}
    finally:
        collector.kill()
        emitter.close(0)
