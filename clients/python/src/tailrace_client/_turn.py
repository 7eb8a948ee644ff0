"""A lock that no exception of a signal handler leaves taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

T = TypeVar("T")

_PAUSE_SECONDS = 0.0005


class Turn:
    """Lets one thread at a time do something.

    CPython may raise such an exception (Ctrl-C) right after any call. Between a lock's `acquire`, or
    its `release`, and what would then make up for it, is room for that; here there is none: who has
    the turn is known by the one call that takes it, and giving it back is no call.
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[int, object] = {}

    def take(self, function: Callable[[], T], deadline: float = 0.0) -> T | None:
        """What a function gives that is called when nobody else has the turn; None, uncalled, if
        that is not so until the deadline (monotonic seconds)."""
        mine = object()
        holder = self._holder
        try:
            while holder.setdefault(0, mine) is not mine:
                if deadline != inf and time.monotonic() >= deadline:
                    return None
                time.sleep(_PAUSE_SECONDS)
            return function()
        finally:
            if 0 in holder and holder[0] is mine:
                del holder[0]
