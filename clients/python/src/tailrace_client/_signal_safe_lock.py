"""A lock that no exception of a signal handler leaves taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

T = TypeVar("T")

_PAUSE_SECONDS = 0.0005


class SignalSafeLock:
    """A lock for one thread at a time. An exception of a signal handler never leaves it taken.

    CPython may raise such an exception (Ctrl-C) right after any call. A `threading.Lock` can stay
    taken when the exception comes just after `acquire` or just before `release`. Here one call both
    takes the lock and records the holder, and the release is a statement without a call.
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[int, object] = {}

    def run(self, function: Callable[[], T], deadline: float = 0.0) -> T | None:
        """Call a function while holding the lock and return its result.

        Return None, without a call, if the lock is not free by the deadline (monotonic seconds).
        """
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
