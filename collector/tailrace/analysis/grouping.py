"""Say by what spans are grouped: columns of the view `spans`, or members of their attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from tailrace.errors import UnknownError
from tailrace.query.filters import quote

COLUMNS = (
    "name", "category", "source", "session", "format", "stream", "substream", "day", "depth", "parent",
)  # fmt: skip
"""The columns of `spans` to group by."""

ATTRIBUTES = "attributes."
"""The beginning of a key that names a member of the attributes."""


class Key(NamedTuple):
    """One key to group by, and its SQL over a row of `spans`: a text or null."""

    word: str
    sql: str

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the key that a word names: a column, or `attributes.` and the name of a member.

        Raise UnknownError, which lists the columns, for any other word."""
        member = word.removeprefix(ATTRIBUTES)
        if word in COLUMNS:
            return cls(word, f'"{word}"::VARCHAR')
        if member == word or not member:
            allowed = ", ".join(COLUMNS)
            raise UnknownError(
                f"spans are not grouped by {word!r}; use {allowed}, or {ATTRIBUTES}KEY"
            )
        pointer = "/" + member.replace("~", "~0").replace("/", "~1")
        return cls(word, f"part.member(attributes, {quote(pointer)})")


def parse(words: Sequence[str]) -> tuple[Key, ...]:
    """Return the keys that words name, each once, in order. Raise UnknownError."""
    return tuple(Key.parse(word) for word in dict.fromkeys(words))


BY_NAME = parse(["name"])
