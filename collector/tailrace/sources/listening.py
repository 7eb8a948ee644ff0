"""Bind the sources' sockets, keep the sockets across restarts, and find the user of a peer.

A socket may stay open after its source has stopped, and even after the process has ended (`Listening`). `localhost`
means 127.0.0.1 and ::1, because programs differ in which of them they try first. A socket at `localhost` accepts IPv4
and IPv6, and is bound to the loopback device, so that only this host can reach it.

`hold` binds sockets before the daemon loads its other modules, because the kernel rejects data while no socket is
bound. Loading takes 0.4 s of CPU, so this module imports only modules that load quickly. `owner` finds a peer's user by
the kernel's interface sock_diag."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

from tailrace.clock import Clock
from tailrace.config.listen import is_localhost, parse, parse_path
from tailrace.config.schema import (
    Config,
    SourceConfig,
    TailConfig,
    TcpConfig,
    UdpConfig,
    UnixConfig,
)
from tailrace.errors import AddressError, ConfigError
from tailrace.service_manager.descriptors import NOWHERE, Slot

LOOPBACK = b"lo"
_WITHOUT_IPV6 = {
    errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT, errno.EPERM, errno.EPROTONOSUPPORT,
}  # fmt: skip
"""Error numbers that show that one socket cannot be bound to the loopback device for both IPv4 and IPv6: the host has
no IPv6, or its kernel is older than Linux 5.7 and requires a privilege for this."""

logger = logging.getLogger(__name__)


class _Bind(NamedTuple):
    """How a socket is bound. If `device` is set, as for `localhost`, the socket is bound to this network device, and
    accepts IPv4 and IPv6."""

    family: socket.AddressFamily
    proto: int
    address: tuple[str, int]
    device: bytes = b""


def split(address: str) -> tuple[str, int]:
    """Split an address into host and port: `[::1]:80` becomes ("::1", 80)."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join(sockname: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = sockname[0], sockname[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(listen: str, kind: socket.SocketKind, *, shared: bool = False) -> socket.socket:
    """Return a non-blocking socket that is bound to an address. With `shared`, other processes may bind to it, too.
    Raise OSError if the address is not available."""
    first, *rest = _resolved(listen, kind)
    try:
        return _bound(first, kind, shared=shared)
    except OSError as error:
        if not rest or error.errno not in _WITHOUT_IPV6:
            raise
        logger.warning("%s: listening on %s alone: %s", listen, rest[0].address[0], error.strerror)
    return _bound(rest[0], kind, shared=shared)


def _bound(at: _Bind, kind: socket.SocketKind, *, shared: bool) -> socket.socket:
    sock = socket.socket(at.family, kind, at.proto)
    try:
        if at.device:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, at.device)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(at.address)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def has(sock: socket.socket, listen: str, kind: socket.SocketKind) -> bool:
    """Return whether a socket has the given kind and is bound to the given address. Port 0 stands for any port."""
    try:
        wanted = _resolved(listen, kind)
        host, port, *_ = sock.getsockname()
        found = sock.family, host, _device(sock)
    except OSError:
        return False
    return sock.type == kind and any(
        found == (each.family, each.address[0], each.device) and each.address[1] in {0, port}
        for each in wanted
    )


def named(sock: socket.socket) -> str:
    """Return the address of a bound socket as text, in a form to which programs on this host can connect."""
    name = sock.getsockname()
    return f"localhost:{name[1]}" if _device(sock) == LOOPBACK else join(name)


def _device(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


_OBSTACLES = {
    errno.EADDRINUSE: (
        "another process does",
        "`ss -lntuxp` says which process; end it, or change the key",
    ),
    errno.EADDRNOTAVAIL: (
        "this host has no such address",
        "`ip -brief address` lists this host's; wait for this one, or change the key",
    ),
}
"""For each error number, two texts: why an address is not available, and what to do."""


def refusal(key: str, listen: str, error: OSError) -> ConfigError:
    """Return the exception to raise for a configuration key whose address cannot be bound: an AddressError if the
    address may become available later."""
    kind: type[ConfigError] = AddressError
    remedy = "change the key, or wait and start again"
    if isinstance(error, PermissionError):
        kind, remedy = ConfigError, "change the key, or let this user"
    elif error.errno in _OBSTACLES:
        _, remedy = _OBSTACLES[error.errno]
    return kind([f"{key}: cannot listen on {listen}: {cause(error)}; {remedy}"])


def cause(error: OSError) -> str:
    """Return the reason, in words, why an address is not available."""
    if error.errno in _OBSTACLES:
        return _OBSTACLES[error.errno][0]
    if isinstance(error, socket.gaierror):
        return "the name has no address"
    return error.strerror or str(error)


def _resolved(listen: str, kind: socket.SocketKind) -> list[_Bind]:
    """Return all ways to bind a socket to an address, the best one first. Raise OSError if the host name is unknown."""
    host, port = split(listen)
    if is_localhost(host):
        both = _Bind(socket.AF_INET6, 0, ("::", port), LOOPBACK)
        return [both, _Bind(socket.AF_INET, 0, ("127.0.0.1", port))]
    family, _, proto, _, address = socket.getaddrinfo(
        host or None, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    return [_Bind(family, proto, cast("tuple[str, int]", address))]


BACKLOG = 4096
_SO_RCVBUFFORCE = 33
_SO_RXQ_OVFL = 40


class Listening:
    """One address, whose socket this process keeps bound from `open` until `close`. The function `make` returns a new
    socket or raises OSError. `slot` stores the socket for the next process, and the function `fits` returns whether a
    stored socket has this address."""

    def __init__(
        self,
        make: Callable[[], socket.socket],
        slot: Slot = NOWHERE,
        fits: Callable[[socket.socket], bool] = lambda _: False,
    ) -> None:
        self.kept = False
        """Whether the socket stays open when its source stops, for the source that replaces it."""
        self.inherited = False
        """Whether the socket was inherited from an earlier process."""
        self.held_since: int | None = None
        """Time (Unix ns) at which the address was bound before its source began to read; None once the source reads."""
        self.drops_reported = 0
        """Number of datagrams that the kernel has dropped at the socket, according to the last report to the daemon."""
        self._make = make
        self._slot = slot
        self._fits = fits
        self._sock: socket.socket | None = None

    def open(self) -> socket.socket:
        """Return the non-blocking socket, created at the first call. Raise OSError if the address is not available."""
        if self._sock is None:
            self._sock = self._slot.take(self._fits)
            self.inherited = self._sock is not None
        if self._sock is None:
            try:
                self._sock = self._make()
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not self._slot.make_way():
                    raise
                self._sock = self._make()
            self._slot.keep(self._sock)
        return self._sock

    def close(self) -> None:
        """Close the socket. If the service manager has a copy, the kernel queues data for the next process."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def give_up(self) -> None:
        """Close the socket and remove the service manager's copy, because no process will read this address any more."""
        self._slot.forget()
        self.close()

    @contextmanager
    def reading(self) -> Iterator[socket.socket]:
        """Open the socket for a `with` block; then close it, unless `kept` is set. Raise OSError if the address is not
        available."""
        try:
            yield self.open()
        finally:
            if not self.kept:
                self.close()


def of_datagrams(
    listen: str, slot: Slot = NOWHERE, *, buffer: int = 0, shared: bool = False
) -> Listening:
    """Return an address for datagrams, whose socket is not open yet. With `shared`, other processes may bind to it.
    `buffer` is the size (bytes) of the receive buffer to request from the kernel; 0 requests none."""
    kind = socket.SOCK_DGRAM

    def make() -> socket.socket:
        sock = bound(listen, kind, shared=shared)
        count_drops(sock)
        if buffer:
            size_buffer(sock, buffer)
        return sock

    return Listening(make, slot, lambda sock: has(sock, listen, kind))


def count_drops(sock: socket.socket) -> None:
    """Make the kernel attach to each arriving datagram the number of datagrams dropped at the socket before."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)


def drops_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the number that `count_drops` makes the kernel attach to a datagram; 0 if there is none."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL):
            return int.from_bytes(data, sys.byteorder)
    return 0


def size_buffer(sock: socket.socket, asked: int, *, force: bool = True) -> int:
    """Request a receive buffer of `asked` bytes from the kernel. Return the granted size (bytes). With `force`, a
    privileged process may exceed the system's limit net.core.rmem_max."""
    # Request half the size, at most 2^30 - 1 bytes, because the kernel doubles it and stores it as an int.
    given = min(asked // 2, 2**30 - 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if force else socket.SO_RCVBUF, given)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, given)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def of_connections(listen: str, slot: Slot = NOWHERE, *, shared: bool = False) -> Listening:
    kind = socket.SOCK_STREAM

    def make() -> socket.socket:
        sock = bound(listen, kind, shared=shared)
        try:
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock

    return Listening(make, slot, lambda sock: has(sock, listen, kind) and accepts(sock))


def accepts(sock: socket.socket) -> bool:
    """Make a socket listen for connections. Return False if it cannot listen, such as a datagram socket."""
    try:
        sock.listen(BACKLOG)
    except OSError:
        return False
    return True


Place = tuple[str, str, int, str]
"""Key of a configured source's address: protocol, host or path, port and name. Sources at the same address have equal
keys.

The name is `shared` for an address that collectors share, and the source's name for port 0; otherwise it is empty."""


def place_of(name: str, config: SourceConfig) -> Place:
    """Return the key of the address at which a source listens. A source of files gets a key of its own."""
    if isinstance(config, TailConfig):
        return ("tail", "", 0, name)
    if isinstance(config, UnixConfig):
        return ("unix", parse_path(config.listen), 0, "")
    host, port = parse(config.listen)
    if port:
        name = "shared" if config.reuse_port else ""
    return (str(config.__struct_config__.tag), host, port, name)


def address_of(config: UdpConfig | TcpConfig, slot: Slot = NOWHERE) -> Listening:
    """Return a source's address. Do not open the socket yet."""
    if isinstance(config, UdpConfig):
        return of_datagrams(
            config.listen, slot, buffer=int(config.receive_buffer), shared=config.reuse_port
        )
    return of_connections(config.listen, slot, shared=config.reuse_port)


def hold(config: Config, clock: Clock) -> dict[Place, Listening]:
    """Bind the sockets of all network sources whose addresses are available, and return these addresses by key. Do not
    bind unix sockets, because that changes a file, nor shared addresses, because that takes datagrams away from running
    collectors: the daemon may still refuse to start."""
    held: dict[Place, Listening] = {}
    for name, source in config.sources.items():
        if isinstance(source, UdpConfig | TcpConfig) and not source.reuse_port:
            address = address_of(source)
            with suppress(OSError):
                address.open()
                address.held_since = clock.wall_ns()
                held[place_of(name, source)] = address
    return held


_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_ADDRESSES = struct.Struct("16s16s")
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND = struct.Struct("=4x2s2x16x16x12x12xII")
"""Layout of the kernel's sock_diag answer. Only the socket's port, user id and inode are unpacked."""


def owner(kind: socket.SocketKind, peer: Sequence[Any], ours: Sequence[Any]) -> int | None:
    """Return the id of the user of a peer's socket, or None if the kernel finds no such socket on this host. `peer` is
    the peer's address, and `ours` the address of the collector's socket."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    near, far = _packed(peer), _packed(ours)
    if len(near[1]) != len(far[1]):
        # A socket that accepts IPv4 and IPv6 shows IPv4 peers with addresses of IPv6 form
        far = (far[0], bytes(len(near[1])))
    if family == socket.AF_INET6 and near[1].startswith(b"\0" * 10 + b"\xff\xff"):
        family, near, far = socket.AF_INET, (near[0], near[1][12:]), (far[0], far[1][12:])
    # If the collector's socket is bound to all addresses, use the peer's address, because both are on this host
    if not any(far[1]):
        far = (far[0], near[1])
    stream = kind == socket.SOCK_STREAM
    # The kernel looks for the socket at the first address of the request for TCP, and at the second one for UDP. Put
    # the peer's address there.
    first, second = (near, far) if stream else (far, near)
    asked = (
        _ASKED.pack(family, socket.IPPROTO_TCP if stream else socket.IPPROTO_UDP, 0, 0xFFFFFFFF)
        + _PORTS.pack(first[0], second[0])
        + _ADDRESSES.pack(first[1], second[1])
        + _ANY_COOKIE
    )
    header = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with suppress(OSError):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0)
            kernel.sendto(header + asked, (0, 0))
            answer = kernel.recv(4096)
        if _HEADER.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY:
            port, user, inode = _FOUND.unpack_from(answer, _HEADER.size)
            if inode and int.from_bytes(port, "big") == near[0]:
                return int(user)
    return None


def names_users() -> bool:
    """Return whether the kernel can tell which user owns a socket. Some sandboxes have no sock_diag, or forbid
    AF_NETLINK."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as peer,
        ):
            return owner(socket.SOCK_STREAM, peer.getsockname(), server.getsockname()) is not None
    except OSError:
        return False


def is_trusted(user: int | None) -> bool:
    """Return whether a user id is root or the collector's own user id."""
    return user in {os.geteuid(), 0}


def _packed(address: Sequence[Any]) -> tuple[int, bytes]:
    host = address[0].partition("%")[0]
    return address[1], socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
