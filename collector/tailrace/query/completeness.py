"""What is missing of what somebody is shown: every answer says it, and some demand that it is nothing."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import IncompleteError
from tailrace.query.engine import Engine


class Shortfall(NamedTuple):
    """Events missing, net of what came after all, by reason; of how many gaps nobody knows the size."""

    missing: dict[str, int]
    unknown: int

    @property
    def complete(self) -> bool:
        return not self.unknown and not any(self.missing.values())

    @property
    def text(self) -> str:
        parts = [f"{reason} {count}" for reason, count in sorted(self.missing.items()) if count]
        text = f"{sum(self.missing.values())} events are missing"
        if parts:
            text += f" ({', '.join(parts)})"
        if self.unknown:
            text += f", and of {self.unknown} gaps nobody knows the size"
        return f"{text}; `tailrace gaps` says which"


def shortfall(engine: Engine, condition: str = "") -> Shortfall:
    """Of the sources and sessions that a WHERE chooses, or of all.

    Raise QueryError or StoreError when it cannot be told."""
    sql = f"SELECT reason, sum(remaining)::BIGINT, count(*) - count(remaining) FROM gaps {condition} GROUP BY ALL"  # noqa: S608 - our own words
    rows = list(engine.rows(sql))
    missing = {reason: count or 0 for reason, count, _ in rows}
    return Shortfall(missing, sum(unknown for *_, unknown in rows))


def demand(short: Shortfall) -> None:
    """Raise IncompleteError when anything is missing."""
    if not short.complete:
        raise IncompleteError(short.text)
