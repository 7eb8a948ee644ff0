"""A bounded cache of a pure function's results, for arguments that repeat.

Producers often send the same descriptions and attributes again. A memo changes only the run time of decoding. Therefore
all decoders can share one memo, and no decoder's state includes a memo.
"""

from __future__ import annotations

from itertools import cycle
from typing import Generic, TypeVar

K = TypeVar("K", bytes, str)
V = TypeVar("V")


class Memo(dict[K, V], Generic[K, V]):
    """A cache of results by key. It removes all entries when it has `entries_max` of them, and does not store keys
    longer than `key_max`.

    Look up keys with `get`, for speed. `get` returns None if the key is not stored.
    """

    def __init__(self, entries_max: int, key_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._key_max = key_max
        self.is_eighth = cycle([True] + 7 * [False]).__next__
        """Return True for the first of every eight calls. A caller that stores only the results of these calls soon has
        all frequent keys. Keys that never repeat then cost little time and evict few entries."""

    def keep(self, key: K, value: V) -> V:
        if len(key) <= self._key_max:
            if len(self) >= self._entries_max:
                self.clear()
            self[key] = value
        return value
