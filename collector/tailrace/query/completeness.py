"""Compute the events that an answer lacks. Every answer reports them, and some callers demand that there
are none.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import IncompleteError
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection, all_of
from tailrace.query.live import NOBODY, Live
from tailrace.units import counted

METADATA = b"tailrace.completeness"
"""The key under which an Arrow schema's metadata states the completeness of its rows, as JSON."""


class Completeness(NamedTuple):
    """The events that an answer lacks.

    `missing` counts missing events by reason, minus those that arrived later. `unknown` counts gaps of
    unknown size. `awaited` counts events that the running collector still waits for. `unasked` is why
    that collector could not be asked; it is empty if the collector answered or none runs. `selected` says
    whether any event matches the question."""

    missing: dict[str, int]
    unknown: int
    awaited: int = 0
    unasked: str = ""
    selected: bool = True

    @property
    def complete(self) -> bool:
        """Return whether some event matches, and none is known to be missing or still awaited."""
        short = self.unknown or self.awaited or self.unasked or any(self.missing.values())
        return self.selected and not short

    @property
    def text(self) -> str:
        """Return the same in words."""
        if self.complete:
            return "nothing is known to be missing"
        parts = [", and ".join(self._gaps())] if self.unknown or any(self.missing.values()) else []
        if self.awaited:
            parts.append(f"{self.awaited} still awaited")
        if self.unasked:
            parts.append(f"nobody knows what is still awaited: {self.unasked}")
        return "; ".join(parts or ["no event matches, so nobody knows whether any is missing"])

    @property
    def words(self) -> dict[str, object]:
        """Return the same as an object of JSON."""
        return {"complete": self.complete, **self._asdict()}

    def _gaps(self) -> list[str]:
        parts = []
        if events := sum(self.missing.values()):
            reasons = [
                f"{reason} {count}" for reason, count in sorted(self.missing.items()) if count
            ]
            verb = "is" if events == 1 else "are"
            parts.append(f"{counted(events, 'event')} {verb} missing ({', '.join(reasons)})")
        if self.unknown and not parts:
            parts.append("an unknown number of events is missing")
        elif self.unknown:
            parts.append(f"{counted(self.unknown, 'gap')} of unknown size")
        return parts

    def __str__(self) -> str:
        return self.text

    def demand(self, which: str) -> None:
        """Raise IncompleteError unless the answer is complete. `which` says how to list what is missing."""
        if not self.complete:
            raise IncompleteError(f"{self.text}; {which} says which")


class Scope(NamedTuple):
    """The subject of an answer: a selection, and a condition on the gaps and events that may concern it."""

    selection: Selection
    gaps: RowCondition

    @classmethod
    def of(cls, selection: Selection) -> Scope:
        return cls(selection, selection.gaps)


EVERYTHING = Scope.of(Selection())

_EVENTS = "kind IN ('span', 'begin', 'instant', 'counter', 'annotation')"


def completeness(engine: Engine, scope: Scope = EVERYTHING, live: Live = NOBODY) -> Completeness:
    """Return the completeness of an answer, from the snapshot's gaps and from the running collector.

    Raise QueryError or StoreError when the gaps cannot be read."""
    if engine.empty:
        awaited = sum(each.events for each in live.of(scope.selection))
        return Completeness({}, 0, awaited, live.unasked, selected=False)
    sql = (
        "SELECT reason, sum(remaining)::BIGINT, count(*) - count(remaining) FROM gaps"  # noqa: S608 - our own words
        f" WHERE {scope.gaps.sql} GROUP BY reason ORDER BY reason"
    )
    rows = list(engine.rows(sql, scope.gaps.values))
    return Completeness(
        missing={reason: count for reason, count, _ in rows if count},
        unknown=sum(unknown for *_, unknown in rows),
        awaited=sum(each.events for each in live.of(scope.selection)),
        unasked=live.unasked,
        selected=_any_event(engine, scope),
    )


def _any_event(engine: Engine, scope: Scope) -> bool:
    """Return whether the scope contains an event. The collector's own events prove nothing about a
    producer, so they count only if the question asks for them."""
    producers = RowCondition("source <> ?", (OWN_SOURCE,))
    asked_for_own = OWN_SOURCE in (scope.selection.sources or ())
    chosen = all_of([scope.gaps, *([] if asked_for_own else [producers])])
    sql = f"SELECT 1 FROM stored WHERE {_EVENTS} AND ({chosen.sql}) LIMIT 1"  # noqa: S608 - our own words
    return any(True for _ in engine.rows(sql, chosen.values))
