"""What a pure function gave for keys that come again and again, within bounds.

Producers repeat themselves: the same call site sends the same description and often the same
attributes. A memo changes how long it takes to decode them and nothing else, so all decoders share
one and no state holds it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K", bytes, str)
V = TypeVar("V")


class Memo(dict[K, V], Generic[K, V]):
    """Forgets everything when `entries_max` are remembered; keys over `key_max` it never holds.

    A look-up is `get`, for speed; it gives None for what is not remembered.
    """

    def __init__(self, entries_max: int, key_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._key_max = key_max

    def keep(self, key: K, value: V) -> V:
        if len(key) <= self._key_max:
            if len(self) >= self._entries_max:
                self.clear()
            self[key] = value
        return value
