"""The datagram peers of a source and their sessions, for a bounded number of peers.

Peers heard of only once are evicted first. Somebody who sends from many forged addresses evicts
these, and not the peers that have proved to be there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

Address = tuple[str, int]


class Peer:
    """One datagram peer."""

    __slots__ = ("address", "allowance", "heard", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        """The number of its session."""
        self.heard = now
        """When it was last heard of."""
        self.allowance = 0
        """Bytes received from it, less the bytes sent to it. Its address may be forged: the owner of
        the address gets no more from us than was sent to us in its name."""
        self.needed = 1
        """The allowance needed before the next try, because a packet was too large."""


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
        """Note that a peer sends; return it, None if it is not known."""
        peer = self._again.pop(address, None) or self._once.pop(address, None)
        if peer is not None:
            peer.heard = now
            self._again[address] = peer
        return peer

    def add(self, address: Address, number: int, now: float) -> Peer:
        """Add a peer at its first datagram. Make room before."""
        peer = self._once[address] = self._of_session[number] = Peer(address, number, now)
        return peer

    def of_session(self, number: int) -> Peer | None:
        return self._of_session.get(number)

    def make_room(self) -> Iterator[int]:
        """Forget peers until there is room for one more; yield their sessions."""
        while len(self) >= self._most:
            yield self._forget(self._once or self._again)

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Forget the peers that were last heard of at `horizon` or before; yield their sessions."""
        for heard in (self._once, self._again):
            while heard and next(iter(heard.values())).heard <= horizon:
                yield self._forget(heard)

    def _forget(self, heard: _Heard) -> int:
        _, peer = heard.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """A limit for new peers: `rate` a second, and `beforehand` more after a time without any."""

    def __init__(self, rate: int, beforehand: int, now: float) -> None:
        self._rate = rate
        self._most = float(beforehand + rate)
        self._room = self._most
        self._since = now

    def admit(self, now: float) -> bool:
        """Admit one more if there is room for it; return whether there is."""
        self._room = min(self._most, self._room + (now - self._since) * self._rate)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True
