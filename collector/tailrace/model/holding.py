"""Define how the memory of state that grows with a producer's input is measured, and how state is evicted.

A container computes its size from its own entries by a formula, and does not use the sizes that the interpreter
reports. So decoding the same input again, after a restart, evicts the same entries. The formulas overestimate;
`tests/ingest/test_memory.py` compares them with the memory that the interpreter really uses."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

TEXT_MAX = 1024
"""Maximum length (characters) of a producer's text that the state of a session keeps."""

SHORT = 32
"""Maximum length (characters) of a text for which `cost` returns 0, because the fixed size of an entry has room for
it."""


class Evicted(StrEnum):
    """Kinds of state that can be evicted to save memory. Rows and metrics use these names."""

    SPANS = "spans"  # Open spans; the row of an evicted span lacks the fields of its begin.
    REFERENCES = "references"  # Ids of records; an id that is evicted before its record arrives counts as lost.
    MARKS = "marks"  # Fingerprints of events; without one, a new event with a reused number counts as a duplicate.
    GAPS = "gaps"  # Ranges of missing event numbers; late events cannot fill an evicted range.
    COPIES = "copies"  # Digests of datagrams; without one, a duplicate datagram is not recognised.
    FRAMES = "frames"  # Calls that have not returned; without one, an end has no begin.
    NAMES = "names"  # Names of events; without one, later rows contain the name's key.
    NUMBERS = "numbers"  # Event or process numbers of a file; without them, gaps or processes stay unknown.


ASKED_MAX = 65536
"""Maximum number of keys in an `AskedNames`. The decoder of one input has at most one `AskedNames`."""

ASKED_BYTES = 192
"""Memory (bytes) of one key in `AskedNames`, if the key has at most `SHORT` characters."""


class Holding(Protocol):
    """A container whose entries are created by a producer's input, and which can evict entries to save memory."""

    what: Evicted
    evicted: int  # Number of evicted entries that no row has reported yet.

    @property
    def held(self) -> int:
        """Return the approximate memory (bytes) of all entries."""
        ...

    def give_way(self, size: int) -> None:
        """Evict entries, oldest first, until `size` bytes are free or no entry is left."""
        ...


def cost(text: str | None) -> int:
    """Return the memory (bytes) that a text needs in addition to the fixed size of its entry; 0 for a short text."""
    if text is None or len(text) <= SHORT:
        return 0
    # Python keeps the UTF-8 form of a text, too, once it has encoded a text that is not ASCII.
    return 50 + len(text) * (1 if text.isascii() else 4 + 4)


class AskedNames:
    """Keys that events contain in place of their names, because the names were not in memory.

    The value of a key is None if its name has not arrived, and True if the name is in the
    table and was evicted from memory. The key "" stands for keys longer than `TEXT_MAX` and
    for keys beyond the first `ASKED_MAX`."""

    def __init__(self, keys: dict[str, bool | None]) -> None:
        self.keys = keys
        self.held = sum(map(_asked_cost, keys))

    @property
    def missing(self) -> list[str]:
        return [key for key, came in self.keys.items() if not came]

    def ask(self, key: str) -> None:
        if key in self.keys:
            return
        if len(self.keys) >= ASKED_MAX or len(key) > TEXT_MAX:
            key = ""
        self.keys[key] = None
        self.held += _asked_cost(key)

    def given(self, key: str) -> None:
        if key in self.keys:
            del self.keys[key]
            self.held -= _asked_cost(key)

    def gone(self, key: str) -> None:
        """Record that the name for a key arrived, and was later evicted from memory."""
        if len(self.keys) < ASKED_MAX and len(key) <= TEXT_MAX and key not in self.keys:
            self.keys[key] = True
            self.held += _asked_cost(key)

    def forget(self) -> int:
        """Remove all keys to save memory, and return how many. If the names of some of these keys have not arrived,
        store the key "" in their place."""
        forgotten = len(self.keys) - ("" in self.keys)
        if forgotten:
            lacks = bool(self.missing)
            self.keys.clear()
            if lacks:
                self.keys[""] = None
            self.held = 0
        return forgotten


def _asked_cost(key: str) -> int:
    return ASKED_BYTES + cost(key) if key else 0
