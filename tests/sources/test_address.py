"""`localhost` is 127.0.0.1 and ::1, whichever a peer tries."""

from __future__ import annotations

import errno
import socket

import pytest

from tailrace.sources.listening import bound, has, named

KINDS = pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
BOTH = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def reaches(sock, family, host):
    """Whether a peer reaches a socket at an address, and gets an answer."""
    with socket.socket(family, sock.type) as peer:
        peer.settimeout(20)
        try:
            peer.connect((host, sock.getsockname()[1]))
            if sock.type == socket.SOCK_STREAM:
                sock.accept()[0].close()
                return peer.recv(9) == b""
            peer.send(b"question")
            if peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return False
            question, whose = sock.recvfrom(99)
            sock.sendto(b"answer", whose)
            return (question, peer.recv(99)) == (b"question", b"answer")
        except ConnectionRefusedError:
            return False


@KINDS
@pytest.mark.parametrize("name", ["localhost", "LocalHost", "sim.localhost"])
def test_localhost_is_one_socket_of_both_families_at_one_port(kind, name):
    with bound(f"{name}:0", kind) as sock:
        sock.settimeout(20)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        port = sock.getsockname()[1]
        assert named(sock) == f"localhost:{port}"
        assert [reaches(sock, *at) for at in BOTH] == [True, True]
        assert has(sock, f"localhost:{port}", kind)
        assert has(sock, "localhost:0", kind)
        assert not has(sock, f"[::]:{port}", kind)
        assert not has(sock, f"127.0.0.1:{port}", kind)


@KINDS
def test_another_host_does_not_reach_it(kind):
    """Not even the sockets of both families that every interface has: the device decides."""
    with bound("localhost:0", kind) as sock:
        device = sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
        assert device.rstrip(b"\0") == b"lo"


@KINDS
@pytest.mark.parametrize(("family", "host"), BOTH)
def test_a_port_that_another_process_has_in_one_family_is_taken(kind, family, host):
    with socket.socket(family, kind) as taken:
        taken.bind((host, 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its errno says which
            bound(f"localhost:{taken.getsockname()[1]}", kind)
        assert raised.value.errno == errno.EADDRINUSE


@KINDS
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"])
def test_an_address_stays_one_address(kind, listen):
    with bound(listen, kind) as sock:
        sock.settimeout(20)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        assert named(sock) == f"{listen.removesuffix('0')}{sock.getsockname()[1]}"
        assert [reaches(sock, *at) for at in BOTH] == [at[1] in listen for at in BOTH]


@KINDS
def test_a_host_without_ipv6_has_the_other_family(kind, monkeypatch, caplog):
    make = socket.socket

    def without(family=-1, *rest, **options):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *rest, **options)

    monkeypatch.setattr(socket, "socket", without)
    with bound("localhost:0", kind) as sock:
        port = sock.getsockname()[1]
        assert named(sock) == f"127.0.0.1:{port}"
        assert has(sock, f"localhost:{port}", kind)
    assert caplog.messages == [
        "localhost:0: listening on 127.0.0.1 alone: Address family not supported by protocol"
    ]
