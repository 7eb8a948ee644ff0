"""State that grows with a producer's input: its size in bytes, and how it is evicted.

A container computes its size by a formula over its own entries and never asks the interpreter. So a
restored state has the same size as before, and a replay evicts the same entries. The formulas
overestimate; `tests/ingest/test_memory.py` compares each with the memory that the interpreter takes.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

TEXT_MAX = 1024
"""The longest text of a producer, in characters, that state holds; the row has the whole text."""

SHORT = 32
"""The size of an entry includes a text up to this length."""


class Evicted(StrEnum):
    """The kinds of state that can be evicted, as rows and metrics name them."""

    SPANS = "spans"
    """Begins whose ends have not come: their spans lack the fields that only the begin has."""
    REFERENCES = "references"
    """Record ids: unknown ids count as missing at once, known ids are kept as whole ranges."""
    MARKS = "marks"
    """Fingerprints of events: a number that comes again counts as a duplicate, whichever event it is."""
    GAPS = "gaps"
    """Gaps that can no longer be healed, and holes that late events can no longer fill."""
    COPIES = "copies"
    """Datagrams whose copies are no longer recognised."""
    FRAMES = "frames"
    """Open calls: their ends match no begin."""
    NAMES = "names"
    """Names: later events ask for them by key, and the views join them."""
    NUMBERS = "numbers"
    """Event numbers of a file, and its processes: gaps in the numbers are no longer reported, and further records of the
    processes are in one session."""


ASKED_MAX = 65536
"""How many keys of names that have not come, or that came and were evicted, are remembered for one input."""

ASKED_BYTES = 192
"""Bytes of memory that one such key of usual length takes."""


class Holding(Protocol):
    """A container whose entries producers make."""

    what: Evicted
    evicted: int
    """How many entries were evicted and not yet reported."""

    @property
    def held(self) -> int:
        """The approximate size of its entries in bytes."""
        ...

    def give_way(self, size: int) -> None:
        """Evict entries, the oldest first, until `size` bytes are free or no entry is left."""
        ...


def cost(text: str | None) -> int:
    """Return how many bytes a text takes in addition to its entry.

    Beside a text that is not ASCII, Python keeps its UTF-8 once the text was encoded."""
    if text is None or len(text) <= SHORT:
        return 0
    return 50 + len(text) * (1 if text.isascii() else 4 + 4)


class AskedNames:
    """The keys of names that events ask for and that have not come. With the key "", there are more. True stands for the
    key of a name that came and was evicted: it has a row, so nothing is missing when an event asks again."""

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
        """Note that a name which came is evicted."""
        if len(self.keys) < ASKED_MAX and len(key) <= TEXT_MAX and key not in self.keys:
            self.keys[key] = True
            self.held += _asked_cost(key)

    def forget(self) -> int:
        """Forget which keys they are. Return how many."""
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


def shortened(text: str) -> str:
    """Return a text of at most `TEXT_MAX` characters.

    A longer text ends with a digest of the whole, so that different texts stay different."""
    if len(text) <= TEXT_MAX:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: TEXT_MAX - len(digest) - 2]}…#{digest}"
