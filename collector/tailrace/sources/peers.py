"""Which session each datagram peer has, for a bounded number of peers.

Peers heard of once only are forgotten before all others: whoever sends from many forged addresses
pushes out these and not the peers that have proved to be there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

Address = tuple[str, int]

_Heard = OrderedDict[Address, tuple[int, float]]
"""A peer's session and when it was last heard of, longest silent first."""


class Peers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._once: _Heard = OrderedDict()
        self._again: _Heard = OrderedDict()

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def hear(self, address: Address, now: float) -> int | None:
        """A peer sends: its session, None for one that is not known."""
        known = self._again.pop(address, None) or self._once.pop(address, None)
        if known is None:
            return None
        self._again[address] = (known[0], now)
        return known[0]

    def add(self, address: Address, number: int, now: float) -> None:
        """A peer's first datagram; make room before."""
        self._once[address] = (number, now)

    def make_room(self) -> Iterator[int]:
        """Forget peers until there is room for one more; their sessions."""
        while len(self) >= self._most:
            _, (number, _) = (self._once or self._again).popitem(last=False)
            yield number

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Forget the peers that were last heard of at `horizon` or before; their sessions."""
        for heard in (self._once, self._again):
            while heard:
                address, (number, last) = next(iter(heard.items()))
                if last > horizon:
                    break
                del heard[address]
                yield number
