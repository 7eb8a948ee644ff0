"""Define state that grows with a producer's input: its size in bytes, and its eviction.

A container computes its size by a formula over its own entries, never from the interpreter. A restored state therefore
has the same size as before, and a replay evicts the same entries. The formulas overestimate;
`tests/ingest/test_memory.py` compares each formula with the memory that the interpreter uses.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

TEXT_MAX = 1024
"""Maximum length (characters) of a producer's text in state; the row has the whole text."""

SHORT = 32
"""Maximum length (characters) of a text that the size of an entry already includes."""


class Evicted(StrEnum):
    """Kinds of evictable state, as named in rows and metrics."""

    SPANS = "spans"
    """Begins whose end has not arrived. The spans of evicted begins lack the fields that only the begin has."""
    REFERENCES = "references"
    """Record ids. Evicted unknown ids count as missing at once; known ids are merged into larger ranges."""
    MARKS = "marks"
    """Fingerprints of events. A repeated number without a fingerprint counts as a duplicate, whichever event has the
    number."""
    GAPS = "gaps"
    """Gaps that can no longer heal, and holes that late events can no longer fill."""
    COPIES = "copies"
    """Datagrams whose duplicates are no longer recognised."""
    FRAMES = "frames"
    """Open calls. The ends of evicted calls match no begin."""
    NAMES = "names"
    """Names by key. For evicted names, later events ask by key, and the views join the names."""
    NUMBERS = "numbers"
    """Event numbers of a file, and its processes. Gaps in evicted numbers are no longer reported, and further records
    of evicted processes share one session."""


ASKED_MAX = 65536
"""Maximum number of requested name keys that are remembered for one input: keys of names that have not arrived, or that
were evicted."""

ASKED_BYTES = 192
"""Memory (bytes) of a remembered key of usual length."""


class Holding(Protocol):
    """A container whose entries come from producers."""

    what: Evicted
    evicted: int
    """Number of entries that were evicted and not yet reported."""

    @property
    def held(self) -> int:
        """Return the approximate size (bytes) of the entries."""
        ...

    def give_way(self, size: int) -> None:
        """Evict entries, the oldest first, until `size` bytes are free or no entry is left."""
        ...


def cost(text: str | None) -> int:
    """Return the number of bytes that a text takes in addition to its entry.

    After a text that is not ASCII was encoded, Python keeps the UTF-8 form beside the text."""
    if text is None or len(text) <= SHORT:
        return 0
    return 50 + len(text) * (1 if text.isascii() else 4 + 4)


class AskedNames:
    """Keys of names that events request and that have not arrived. The key "" represents further keys: those beyond
    `ASKED_MAX`, and those longer than `TEXT_MAX`. The value True marks a name that arrived and was evicted: the evicted
    name has a row, so no name is missing when an event requests the key again."""

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
        """Record that an arrived name was evicted."""
        if len(self.keys) < ASKED_MAX and len(key) <= TEXT_MAX and key not in self.keys:
            self.keys[key] = True
            self.held += _asked_cost(key)

    def forget(self) -> int:
        """Forget the keys. Return the number of forgotten keys."""
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

    A longer text ends with a digest of the whole text, so that different texts stay different."""
    if len(text) <= TEXT_MAX:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: TEXT_MAX - len(digest) - 2]}…#{digest}"
