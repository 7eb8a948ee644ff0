"""The events that an answer lacks: every answer tells them, and some callers demand that it lacks none."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import IncompleteError
from tailrace.query.engine import Engine
from tailrace.query.filters import Condition, Selection, all_of
from tailrace.query.live import NOBODY, Live
from tailrace.units import counted


class Completeness(NamedTuple):
    """Events `missing`, net of what came after all, by reason; `unknown`, the number of gaps of which
    nobody knows the size; and `awaited`, the number of events that the running collector still waits
    for. `unasked` is why it could not be asked, empty when it was, or none runs. `selected` is whether
    any event is there of what was asked for."""

    missing: dict[str, int]
    unknown: int
    awaited: int = 0
    unasked: str = ""
    selected: bool = True

    @property
    def complete(self) -> bool:
        """Whether there is something, and nothing of it is known to be missing or still awaited."""
        short = self.unknown or self.awaited or self.unasked or any(self.missing.values())
        return self.selected and not short

    @property
    def text(self) -> str:
        """The same in words."""
        if self.complete:
            return "nothing is known to be missing"
        parts = [", and ".join(self._gaps())] if self.unknown or any(self.missing.values()) else []
        if self.awaited:
            parts.append(f"{self.awaited} still awaited")
        if self.unasked:
            parts.append(f"nobody knows what is still awaited: {self.unasked}")
        return "; ".join(
            parts or ["there is no event of it, which is not to say that none is missing"]
        )

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
            parts.append(f"of {counted(self.unknown, 'gap')} nobody knows the size")
        return parts

    def __str__(self) -> str:
        return self.text

    def demand(self, which: str) -> None:
        """Raise IncompleteError unless it is complete; `which` says how to see what is not there."""
        if not self.complete:
            raise IncompleteError(f"{self.text}; {which} says which")


class Scope(NamedTuple):
    """The subject of an answer: a selection, and a condition that chooses the gaps and the events that
    may belong to it."""

    selection: Selection
    gaps: Condition

    @classmethod
    def of(cls, selection: Selection) -> Scope:
        return cls(selection, selection.gaps)


EVERYTHING = Scope.of(Selection())

_EVENTS = "kind IN ('span', 'begin', 'instant', 'counter', 'annotation')"


def completeness(engine: Engine, scope: Scope = EVERYTHING, live: Live = NOBODY) -> Completeness:
    """Return the completeness of an answer, from the snapshot's gaps and from the running collector.

    Raise QueryError or StoreError when the gaps cannot be read."""
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
    """Return whether there is an event in the scope. The collector's own events prove nothing about a
    producer, so they count only where somebody asks for them."""
    producers = Condition("source <> ?", (OWN_SOURCE,))
    asked_for_own = OWN_SOURCE in (scope.selection.sources or ())
    chosen = all_of([scope.gaps, *([] if asked_for_own else [producers])])
    sql = f"SELECT 1 FROM stored WHERE {_EVENTS} AND ({chosen.sql}) LIMIT 1"  # noqa: S608 - our own words
    return any(True for _ in engine.rows(sql, chosen.values))
