"""State that grows with what a producer sends: how many bytes it takes, and how it gives way.

A container says what it holds by a formula over its own entries, and never asks the interpreter: so
a restored state weighs what it weighed, and a replay gives up the same entries. Formulas err on the
side of more. `tests/ingest/test_memory.py` holds each to what the interpreter really takes.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

TEXT_MAX = 1024
"""Characters of a producer's text that state holds; a row has the text whole."""

SHORT = 32
"""A text up to this length is in the cost of the entry that has it."""


class Evicted(StrEnum):
    """What state can give up, as the rows and the metrics call it."""

    SPANS = "spans"
    """Begins whose ends have not come: their spans lack what only the begin said."""
    REFERENCES = "references"
    """Record ids: unknown ids are missing at once, known ids count as known in whole ranges."""
    MARKS = "marks"
    """Fingerprints of events: a number that comes again is a duplicate, whatever it is of."""
    GAPS = "gaps"
    """Gaps that can be healed no more, and holes that late events can fill no more."""
    COPIES = "copies"
    """Datagrams whose copies are not known any more."""
    FRAMES = "frames"
    """Open calls: their ends match no begin."""
    NAMES = "names"
    """Names that events ask for from then on; the views join them."""
    NUMBERS = "numbers"
    """Event numbers of a file: nothing is said to be missing by them any more."""


class Holding(Protocol):
    """A container whose entries producers make."""

    what: Evicted
    evicted: int
    """Entries given up that nobody has been told of."""

    @property
    def held(self) -> int:
        """About how many bytes its entries take."""
        ...

    def give_way(self, size: int) -> None:
        """Give up entries, the oldest first, until `size` bytes are free or nothing is left to give."""
        ...


def cost(text: str | None) -> int:
    """Return how many bytes a text takes beyond those of its entry."""
    if text is None or len(text) <= SHORT:
        return 0
    return 50 + len(text) * (1 if text.isascii() else 4)


def shortened(text: str) -> str:
    """Return a text of at most `TEXT_MAX` characters; a longer text ends with a digest of the whole,
    so that texts that differ stay different."""
    if len(text) <= TEXT_MAX:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: TEXT_MAX - len(digest) - 2]}…#{digest}"
