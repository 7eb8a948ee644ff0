"""Sockets of sources: where they listen, how they are bound, how they are kept, and who is at the other end.

Sockets may outlive the source that reads them, and the process (`Listening`). The next reader continues with what is
queued at the socket, and no peer finds the address closed meanwhile.

Addresses have the form `host:port` or `[v6]:port`. `localhost` is 127.0.0.1 and ::1, and programs differ in which they
try, or try first. So a socket at `localhost` is one of both families, bound to the loopback device: only this host
reaches it.

`hold` binds sockets before the rest starts, from the configuration alone. To load all modules of the daemon takes 0.4 s
of CPU, and a start does more. The kernel keeps what peers send meanwhile if there is a socket, and refuses it if
there is none. So `hold` comes first, and this module imports nothing that takes long.

`owner` asks the kernel which user has the socket at the other end, if that end is on this host. The kernel names the
user of a unix socket's peer directly. For TCP and UDP, sock_diag finds the user of a socket by both its addresses. It
finds none once the user has closed the socket, and on a host without sock_diag.
"""

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
"""The loopback device."""

_WITHOUT_IPV6 = {
    errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT, errno.EPERM, errno.EPROTONOSUPPORT,
}  # fmt: skip
"""Errors of a host that has no IPv6, or a kernel before 5.7, which lets only root choose a device."""

logger = logging.getLogger(__name__)


class _Bind(NamedTuple):
    """Where to bind a socket. With a `device`, it takes both families."""

    family: socket.AddressFamily
    proto: int
    address: tuple[str, int]
    device: bytes = b""


def split(address: str) -> tuple[str, int]:
    """Return host and port: `[::1]:80` is ("::1", 80). The configuration was checked for this form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join(sockname: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = sockname[0], sockname[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(listen: str, kind: socket.SocketKind, *, shared: bool = False) -> socket.socket:
    """Return a non-blocking socket of this kind, bound to an address, which it may share with sockets of other
    processes. Raise OSError."""
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
    """Return whether a socket is of this kind and bound to this address. Port 0 matches every port."""
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
    """Return the address at which peers on this host, at least, reach a socket that `bound` returned."""
    name = sock.getsockname()
    return f"localhost:{name[1]}" if _device(sock) == LOOPBACK else join(name)


def _device(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


def refusal(key: str, listen: str, error: OSError) -> ConfigError:
    """Return the error to raise when the address `listen` of a key is not available: AddressError if
    it may become available. The text names the address, the cause and the remedy."""
    match error:
        case PermissionError():
            remedy = "change the key, or let this user"
        case OSError(errno=errno.EADDRINUSE):
            remedy = "`ss -lntuxp` says which process; end it, or change the key"
        case OSError(errno=errno.EADDRNOTAVAIL):
            remedy = "`ip -brief address` lists this host's; wait for this one, or change the key"
        case _:
            remedy = "change the key, or wait and start again"
    kind = ConfigError if isinstance(error, PermissionError) else AddressError
    return kind([f"{key}: cannot listen on {listen}: {cause(error)}; {remedy}"])


def cause(error: OSError) -> str:
    """Return in words why an address is not available."""
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another process does"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this host has no such address"
        case socket.gaierror():
            return "the name has no address"
        case _:
            return error.strerror or str(error)


def _resolved(listen: str, kind: socket.SocketKind) -> list[_Bind]:
    """Return where to bind, the best first. Raise OSError."""
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
    """One address, which is ours from `open` until `close`. `make` returns the socket or raises
    OSError. `slot` keeps the socket while no process has it; `fits` says whether a kept socket is the
    right one."""

    def __init__(
        self,
        make: Callable[[], socket.socket],
        slot: Slot = NOWHERE,
        fits: Callable[[socket.socket], bool] = lambda _: False,
    ) -> None:
        self.kept = False
        """Whether the address stays ours when its reader ends."""
        self.inherited = False
        """Whether an earlier process had the socket."""
        self.held_since: int | None = None
        """When the address became ours, if that was before its first reader came (Unix ns)."""
        self.drops_reported = 0
        """The datagrams ever dropped here, as counted when a reader last reported them."""
        self._make = make
        self._slot = slot
        self._fits = fits
        self._sock: socket.socket | None = None

    def open(self) -> socket.socket:
        """Return the socket, which does not block. Raise OSError."""
        if self._sock is None:
            self._sock = self._inherit() or self._new()
        return self._sock

    def close(self) -> None:
        """Close the socket. If somebody keeps it, what is queued there waits for the next process."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def give_up(self) -> None:
        """Close the socket for good, so that no later process gets it."""
        self._slot.forget()
        self.close()

    @contextmanager
    def reading(self) -> Iterator[socket.socket]:
        """Yield the socket to its reader. Raise OSError."""
        try:
            yield self.open()
        finally:
            if not self.kept:
                self.close()

    def _inherit(self) -> socket.socket | None:
        sock = self._slot.take(self._fits)
        self.inherited = sock is not None
        return sock

    def _new(self) -> socket.socket:
        try:
            sock = self._make()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._slot.make_way():
                raise
            sock = self._make()
        self._slot.keep(sock)
        return sock


def of_datagrams(
    listen: str, slot: Slot = NOWHERE, *, buffer: int = 0, shared: bool = False
) -> Listening:
    """Return an address for datagrams, which other processes may have as well if it is `shared`. A `buffer` is the size of the receive buffer to ask for, as
    soon as there is a socket."""
    kind = socket.SOCK_DGRAM

    def make() -> socket.socket:
        sock = bound(listen, kind, shared=shared)
        count_drops(sock)
        if buffer:
            size_buffer(sock, buffer)
        return sock

    return Listening(make, slot, lambda sock: has(sock, listen, kind))


def count_drops(sock: socket.socket) -> None:
    """Make the kernel attach to each datagram that it queues from now on the number of datagrams that it has dropped
    at the socket so far."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)


def drops_of(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the count of `count_drops` that came with a datagram; 0 if none came."""
    counts = [
        data
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL)
    ]
    return int.from_bytes(counts[0], sys.byteorder) if counts else 0


def size_buffer(sock: socket.socket, asked: int, *, force: bool = True) -> int:
    """Ask for a receive buffer of so many bytes; return how many the kernel granted.

    With `force`, and the privilege for it, net.core.rmem_max is no limit."""
    # The kernel doubles the size that it is given and reports the doubled size. It counts in an int.
    given = min(asked // 2, 2**30 - 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if force else socket.SO_RCVBUF, given)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, given)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def of_connections(listen: str, slot: Slot = NOWHERE, *, shared: bool = False) -> Listening:
    kind = socket.SOCK_STREAM
    return Listening(
        lambda: _accepting(listen, shared=shared),
        slot,
        lambda sock: has(sock, listen, kind) and accepts(sock),
    )


def accepts(sock: socket.socket) -> bool:
    """Make a socket listen; return whether it accepts connections."""
    try:
        sock.listen(BACKLOG)
    except OSError:
        return False
    return True


def _accepting(listen: str, *, shared: bool) -> socket.socket:
    sock = bound(listen, socket.SOCK_STREAM, shared=shared)
    try:
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


Place = tuple[str, str, int, str]
"""Protocol, host, port and name. Port 0 is another port each time, so the source's name tells such
places apart. An address that is shared has the name `shared`. A unix socket has its path as host."""


def place_of(name: str, config: SourceConfig) -> Place:
    """Return where a source listens. A source of files gets a place that no other has."""
    if isinstance(config, TailConfig):
        return ("tail", "", 0, name)
    if isinstance(config, UnixConfig):
        return ("unix", parse_path(config.listen), 0, "")
    host, port = parse(config.listen)
    if port:
        name = "shared" if config.reuse_port else ""
    return (str(config.__struct_config__.tag), host, port, name)


def address_of(config: UdpConfig | TcpConfig, slot: Slot = NOWHERE) -> Listening:
    """Return the address of a source, without opening it."""
    if isinstance(config, UdpConfig):
        return of_datagrams(
            config.listen, slot, buffer=int(config.receive_buffer), shared=config.reuse_port
        )
    return of_connections(config.listen, slot, shared=config.reuse_port)


def hold(config: Config, clock: Clock) -> dict[Place, Listening]:
    """Bind the sockets of all sources that receive from a network, as far as their addresses are
    available.

    Other addresses are left out: the start of their source reports them. Unix sockets are left out
    because they are files, and a start that is refused must change no file. So are addresses that are
    shared: a start that is refused must take no datagram from the collectors that run."""
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
"""The socket's own port, its user and its inode."""


def owner(kind: socket.SocketKind, peer: Sequence[Any], ours: Sequence[Any]) -> int | None:
    """Return the user of the socket at `peer` that is connected to `ours`, or None if the kernel finds none."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    near, far = _packed(peer), _packed(ours)
    if len(near[1]) != len(far[1]):
        far = (far[0], bytes(len(near[1])))  # bound to both families
    if family == socket.AF_INET6 and near[1].startswith(b"\0" * 10 + b"\xff\xff"):
        family, near, far = socket.AF_INET, (near[0], near[1][12:]), (far[0], far[1][12:])
    if not any(far[1]):  # a source on the unspecified address has the peer's own address
        far = (far[0], near[1])
    stream = kind == socket.SOCK_STREAM
    # For UDP, the kernel expects the addresses of a datagram that arrives at the peer's socket.
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
    """Return whether the kernel names users at all. Some sandboxes have no sock_diag, or forbid AF_NETLINK."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as peer,
        ):
            return owner(socket.SOCK_STREAM, peer.getsockname(), server.getsockname()) is not None
    except OSError:
        return False


def is_trusted(user: int | None) -> bool:
    """Return whether a user is the collector's own, or root."""
    return user in {os.geteuid(), 0}


def _packed(address: Sequence[Any]) -> tuple[int, bytes]:
    host = address[0].partition("%")[0]
    return address[1], socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
