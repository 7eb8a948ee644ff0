"""A bounded cache of a pure function's results. It changes only the run time, so that all decoders can share it."""

from __future__ import annotations

from itertools import cycle
from typing import Generic, TypeVar

K = TypeVar("K", bytes, str)
V = TypeVar("V")


class Memo(dict[K, V], Generic[K, V]):
    """A cache of at most `entries_max` results, for keys no longer than `key_max`. `get` of the base class reads it,
    for speed."""

    def __init__(self, entries_max: int, key_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._key_max = key_max
        # true for one of eight calls. If a caller stores a result only when this is true, rare keys seldom get into the
        # cache
        self.is_eighth = cycle([True] + 7 * [False]).__next__

    def keep(self, key: K, value: V) -> V:
        if len(key) <= self._key_max:
            if len(self) >= self._entries_max:
                self.clear()
            self[key] = value
        return value
