"""A relay in front of several collectors, as a load balancer is: it carries a client's bytes to one of them, and moves
the client to another one while it sends.

TCP connections are cut when the client moves. Datagrams go to the other collector from then on, from the same address,
which is the client's own, so that answers find their way back.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self

_READ = 65_536

Address = tuple[str, int]


class Switch:
    """A thread that relays during the `with` block. Clients connect to `address`, and their bytes go to `target`."""

    def __init__(self, transport: str, target: Address) -> None:
        self._datagrams = transport == "udp"
        kind = socket.SOCK_DGRAM if self._datagrams else socket.SOCK_STREAM
        self._front = socket.socket(socket.AF_INET, kind)
        self._front.bind(("127.0.0.1", 0))
        self._target = target
        self._far: dict[Address, socket.socket] = {}
        """By client that sends datagrams, the socket to its collector."""
        self._others: dict[socket.socket, socket.socket] = {}
        """By socket of a connection, the socket of its other side."""
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = f"{transport}://127.0.0.1:{self._front.getsockname()[1]}"

    def __enter__(self) -> Self:
        if not self._datagrams:
            self._front.listen()
        self._selector.register(self._front, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over = True
        self._thread.join()
        self._cut()
        self._front.close()
        self._selector.close()

    def move(self, target: Address) -> None:
        """Lead clients to another collector from now on. Bytes on their way through a connection are lost."""
        with self._lock:
            self._target = target
            if not self._datagrams:
                self._cut()

    def _cut(self) -> None:
        for sock in (*self._others, *self._far.values()):
            with suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()
        self._others.clear()
        self._far.clear()

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.02):
                with self._lock, suppress(OSError, KeyError):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock.fileno() < 0:
                        continue
                    if self._datagrams:
                        self._pass_datagram(sock)
                    else:
                        self._pass_bytes(sock)

    def _pass_datagram(self, sock: socket.socket) -> None:
        if sock is self._front:
            data, client = sock.recvfrom(_READ)
            if client not in self._far:
                far = self._far[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                far.bind(("127.0.0.1", 0))
                self._selector.register(far, selectors.EVENT_READ)
            self._far[client].sendto(data, self._target)
            return
        data = sock.recv(_READ)
        client = next(address for address, far in self._far.items() if far is sock)
        self._front.sendto(data, client)

    def _pass_bytes(self, sock: socket.socket) -> None:
        if sock is self._front:
            near, _ = sock.accept()
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                near.close()
                return
            self._others |= {near: far, far: near}
            for each in (near, far):
                self._selector.register(each, selectors.EVENT_READ)
            return
        other = self._others[sock]
        try:
            data = sock.recv(_READ)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (sock, other):
                self._selector.unregister(each)
                del self._others[each]
                each.close()
