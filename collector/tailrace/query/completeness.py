"""What is missing of what somebody is shown: every answer says it, and some demand that it is nothing."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import IncompleteError
from tailrace.query.engine import Engine
from tailrace.query.filters import Condition


class Completeness(NamedTuple):
    """Events `missing`, net of what came after all, by reason; and `unknown`, the number of gaps of which
    nobody knows the size."""

    missing: dict[str, int]
    unknown: int

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return not self.unknown and not any(self.missing.values())

    @property
    def text(self) -> str:
        """The same in words."""
        if self.complete:
            return "nothing is known to be missing"
        parts = [f"{reason} {count}" for reason, count in sorted(self.missing.items()) if count]
        text = f"{sum(self.missing.values())} events are missing"
        if parts:
            text += f" ({', '.join(parts)})"
        if self.unknown:
            text += f", and of {self.unknown} gaps nobody knows the size"
        return text

    def __str__(self) -> str:
        return self.text

    def demand(self, which: str) -> None:
        """Raise IncompleteError when anything is missing; `which` says how to see it."""
        if not self.complete:
            raise IncompleteError(f"{self.text}; {which} says which")


EVERYTHING = Condition("true")


def completeness(engine: Engine, gaps: Condition = EVERYTHING) -> Completeness:
    """As the gaps say that a condition on the view `gaps` chooses.

    Raise QueryError or StoreError when it cannot be told."""
    sql = (
        "SELECT reason, sum(remaining)::BIGINT, count(*) - count(remaining) FROM gaps"  # noqa: S608 - our own words
        f" WHERE {gaps.sql} GROUP BY reason ORDER BY reason"
    )
    rows = list(engine.rows(sql, gaps.values))
    missing = {reason: count for reason, count, _ in rows if count}
    return Completeness(missing, sum(unknown for *_, unknown in rows))
