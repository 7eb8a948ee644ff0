"""A bounded cache of a pure function's results, for keys that come again and again.

Producers repeat themselves: the same call site sends the same description and often the same
attributes. A memo changes only the time that decoding takes, so all decoders share one and no state
holds it.
"""

from __future__ import annotations

from itertools import cycle
from typing import Generic, TypeVar

K = TypeVar("K", bytes, str)
V = TypeVar("V")


class Memo(dict[K, V], Generic[K, V]):
    """A dict that forgets everything once it has `entries_max` entries; it refuses keys over `key_max`.

    Look up with `get`, for speed; it returns None for a key that is not remembered.
    """

    def __init__(self, entries_max: int, key_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._key_max = key_max
        self.is_eighth = cycle([True] + 7 * [False]).__next__
        """Returns True for the first of every eight calls. A caller that keeps only these results soon remembers
        frequent keys, and keys that change all the time cost little and evict little."""

    def keep(self, key: K, value: V) -> V:
        if len(key) <= self._key_max:
            if len(self) >= self._entries_max:
                self.clear()
            self[key] = value
        return value
