"""Define how state that grows with a producer's input is measured and evicted.

A container computes its size in bytes by a formula over its own entries, and does not ask the interpreter. So after a
restart, the restored state has the same size, and decoding the same input again evicts the same entries. The formulas
give rather too much than too little; `tests/ingest/test_memory.py` compares each with the memory that the interpreter
really uses.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

TEXT_MAX = 1024
"""Maximum length (characters) of a text from a producer that is kept in state.

The text's row in the table is not shortened.
"""

SHORT = 32
"""Maximum length (characters) of a text whose memory is already included in the size of its entry."""


class Evicted(StrEnum):
    """Kinds of state that can be evicted to save memory. Rows and metrics use these names."""

    SPANS = "spans"
    """Begins of spans that have not ended. If a begin is evicted, its span lacks the fields that only the begin has."""
    REFERENCES = "references"
    """Ids of records.

    If an id is evicted that is not defined yet, it counts as missing at once; ranges of defined ids are joined to
    larger ones.
    """
    MARKS = "marks"
    """Fingerprints of events.

    If a number arrives again whose fingerprint was evicted, its event counts as a duplicate, whatever it is.
    """
    GAPS = "gaps"
    """Gaps that then can no longer heal, and holes that late events then can no longer fill."""
    COPIES = "copies"
    """Digests of datagrams, whose duplicates are then no longer recognised."""
    FRAMES = "frames"
    """Calls that have not returned. If a call is evicted, its end finds no begin."""
    NAMES = "names"
    """Names of events by key.

    If a name is evicted, the rows of later events contain its key instead, and the views look up the name.
    """
    NUMBERS = "numbers"
    """Event numbers and processes of a file.

    If numbers are evicted, gaps in them are no longer reported. If processes are evicted, all their further records
    share one session.
    """


ASKED_MAX = 65536
"""Maximum number of keys that one input remembers because events refer to them and their names have not arrived, or
were evicted.
"""

ASKED_BYTES = 192
"""Memory (bytes) of one remembered key with a text of usual length."""


class Holding(Protocol):
    """A container whose entries are created by a producer's input, and which can evict entries to save memory."""

    what: Evicted
    evicted: int
    """Number of evicted entries that no row has reported yet."""

    @property
    def held(self) -> int:
        """Return the approximate memory (bytes) of all entries."""
        ...

    def give_way(self, size: int) -> None:
        """Evict entries, oldest first, until `size` bytes are free or no entry is left."""
        ...


def cost(text: str | None) -> int:
    """Return how much memory (bytes) a text takes that its entry's size does not include; 0 for a short text.

    Python stores the UTF-8 form of a text in addition once it has been encoded, unless the text is ASCII.
    """
    if text is None or len(text) <= SHORT:
        return 0
    return 50 + len(text) * (1 if text.isascii() else 4 + 4)


class AskedNames:
    """Keys to which events refer although their names are not known.

    The value of a key is None if its name has not arrived. It is True if the name arrived and was evicted: then the
    name has a row, so it is not missing when an event refers to the key again. The key "" stands for all further keys,
    beyond `ASKED_MAX` or longer than `TEXT_MAX`.
    """

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
        """Record that the name of a key was evicted after it had arrived."""
        if len(self.keys) < ASKED_MAX and len(key) <= TEXT_MAX and key not in self.keys:
            self.keys[key] = True
            self.held += _asked_cost(key)

    def forget(self) -> int:
        """Remove all keys to save memory.

        Return their number. If names were missing, the key "" stands for them from now on.
        """
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
    """Return a text with at most `TEXT_MAX` characters.

    A text that had to be shortened ends with a digest of the whole text, so that different texts stay different.
    """
    if len(text) <= TEXT_MAX:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: TEXT_MAX - len(digest) - 2]}…#{digest}"
