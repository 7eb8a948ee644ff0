"""Define how state that grows with a producer's input is measured and evicted.

A container computes its size in bytes by a formula over its own entries. It does not use the sizes that the interpreter
reports. So the restored state has the same size after a restart, and decoding the same input again evicts the same
entries. The formulas overestimate rather than underestimate; `tests/ingest/test_memory.py` compares each with the
memory that the interpreter really uses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

TEXT_MAX = 1024
"""Maximum length (characters) of a producer's text in the state of a session.

A longer text is not kept there.
"""

SHORT = 32
"""Maximum length (characters) of a text for which `cost` returns 0, because the fixed size of a container's entry
includes a text of this length.
"""


class Evicted(StrEnum):
    """Kinds of state that can be evicted to save memory. Rows and metrics use these names."""

    SPANS = "spans"
    """Begins of spans that have not ended.

    If a begin is evicted, the row of its span lacks the fields that only the begin has.
    """
    REFERENCES = "references"
    """Ids of records that arrived, or to which other records refer.

    If the session evicts an id whose record has not arrived, the record counts as missing at once. Received ids are
    stored as ranges, which are evicted by joining them to larger ranges."""
    MARKS = "marks"
    """Fingerprints of events.

    If a fingerprint is evicted, the next event with the same number counts as a duplicate, even if it is another event.
    """
    GAPS = "gaps"
    """Ranges of missing event numbers: holes, whose numbers may still arrive, and gaps, whose numbers were reported. A
    late event can no longer fill an evicted hole, or take back a part of an evicted gap."""
    COPIES = "copies"
    """Digests of datagrams. A duplicate of a datagram whose digest was evicted is no longer recognised."""
    FRAMES = "frames"
    """Calls that have not returned. If a call is evicted, its begin is unknown when its end arrives."""
    NAMES = "names"
    """Names of events, by the keys with which events refer to them.

    If a name is evicted, the rows of later events contain its key instead, and the views look up the name.
    """
    NUMBERS = "numbers"
    """A file's event numbers and process numbers.

    If event numbers are evicted, gaps in them are no longer reported. If process numbers are evicted, later records of
    different processes go to one session.
    """


ASKED_MAX = 65536
"""Maximum number of keys without a known name that the decoder of one input remembers.

Events refer to these keys, but their names have not arrived or were evicted.
"""

ASKED_BYTES = 192
"""Memory (bytes) of one key in `AskedNames`, if the key has at most `SHORT` characters."""


class Holding(Protocol):
    """A container whose entries are created by a producer's input, and which can evict entries to save memory."""

    what: Evicted
    evicted: int
    """Number of this container's entries that were evicted to save memory, and that no row has reported yet."""

    @property
    def held(self) -> int:
        """Return the approximate memory (bytes) of all entries of this container."""
        ...

    def give_way(self, size: int) -> None:
        """Evict entries of this container, oldest first, until `size` bytes are free or no entry is left."""
        ...


def cost(text: str | None) -> int:
    """Return the memory (bytes) of a text beyond the size of its entry; 0 for a short text.

    The result includes the UTF-8 form, which Python stores, too, once it has encoded a text that is not ASCII."""
    if text is None or len(text) <= SHORT:
        return 0
    return 50 + len(text) * (1 if text.isascii() else 4 + 4)


class AskedNames:
    """Keys that events contain in place of names, because memory does not hold the names.

    The value of a key is None if its name has not arrived. It is True if the name arrived, was written to the table and
    then evicted from memory; such a name is not missing. The key "" stands for all keys that are longer than
    `TEXT_MAX`, and for all keys beyond the first `ASKED_MAX`."""

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
        """Remove all keys to save memory. Return the number of removed keys.

        If some of these keys have no name yet, add the key "" in their place."""
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
