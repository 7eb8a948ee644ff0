"""Which session each datagram peer has, for a bounded number of peers.

Peers heard of once only are forgotten before all others: whoever sends from many forged addresses
pushes out these and not the peers that have proved to be there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

Address = tuple[str, int]


class Peer:
    __slots__ = ("address", "allowance", "heard", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        """Of its session."""
        self.heard = now
        """When it was last heard of."""
        self.allowance = 0
        """Bytes that have come from it beyond those that were sent to it. An address may be forged:
        whoever has it gets no more from us than was sent to us in its name."""
        self.needed = 1
        """How many of them must be there before the next try: a packet was too large."""


_Heard = OrderedDict[Address, Peer]
"""Peers, longest silent first."""


class Peers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._once: _Heard = OrderedDict()
        self._again: _Heard = OrderedDict()
        self._of_session: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._of_session)

    def hear(self, address: Address, now: float) -> Peer | None:
        """A peer sends; None for one that is not known."""
        peer = self._again.pop(address, None) or self._once.pop(address, None)
        if peer is not None:
            peer.heard = now
            self._again[address] = peer
        return peer

    def add(self, address: Address, number: int, now: float) -> Peer:
        """A peer's first datagram; make room before."""
        peer = self._once[address] = self._of_session[number] = Peer(address, number, now)
        return peer

    def of_session(self, number: int) -> Peer | None:
        return self._of_session.get(number)

    def make_room(self) -> Iterator[int]:
        """Forget peers until there is room for one more; their sessions."""
        while len(self) >= self._most:
            yield self._forget(self._once or self._again)

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Forget the peers that were last heard of at `horizon` or before; their sessions."""
        for heard in (self._once, self._again):
            while heard and next(iter(heard.values())).heard <= horizon:
                yield self._forget(heard)

    def _forget(self, heard: _Heard) -> int:
        _, peer = heard.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """How many may be new: `rate` a second, beyond `beforehand` after a time without any."""

    def __init__(self, rate: int, beforehand: int, now: float) -> None:
        self._rate = rate
        self._most = float(beforehand + rate)
        self._room = self._most
        self._since = now

    def admit(self, now: float) -> bool:
        """One more; whether there is room for it."""
        self._room = min(self._most, self._room + (now - self._since) * self._rate)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True
