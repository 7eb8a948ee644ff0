"""A UDP relay that loses and reorders in both directions, for one client: what it sends and what it is
answered. It keeps no book: who uses it compares what was emitted with what is stored.

    with BothWays(collector_address, seed, loss=0.1, delay=0.3) as relay:
        ...  # send to relay.address
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import threading
import time
from typing import Self

RECEIVE_BUFFER = 2**22


class BothWays:
    def __init__(self, target: tuple[str, int], seed: int, *, loss: float, delay: float) -> None:
        """`delay` is the maximum time (seconds) that a datagram takes. Few take so long."""
        self._target = target
        self._rng = random.Random(seed)
        self._loss, self._delay = loss, delay
        self.lost = [0, 0]
        """Number of lost datagrams: those of the client, and answers."""
        self._client: tuple[str, int] | None = None
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for each in self._sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            each.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._sockets[0].getsockname()
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over = True
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        while not self._over:
            for readable in select.select(self._sockets, [], [], 0.002)[0]:
                self._take(self._sockets.index(readable))
            while self._on_the_way and self._on_the_way[0][0] <= time.monotonic():
                self._hand_on(*heapq.heappop(self._on_the_way)[2:])

    def _take(self, side: int) -> None:
        try:
            data, peer = self._sockets[side].recvfrom(65_536)
        except ConnectionRefusedError:  # No process listened when an earlier datagram was sent.
            return
        if side == 0:
            self._client = peer
        if self._rng.random() < self._loss:
            self.lost[side] += 1
            return
        due = time.monotonic() + self._delay * self._rng.random() ** 4
        heapq.heappush(self._on_the_way, (due, self._rng.getrandbits(32), side, data))

    def _hand_on(self, side: int, data: bytes) -> None:
        to = self._target if side == 0 else self._client
        if to is not None:
            self._sockets[1 - side].sendto(data, to)
