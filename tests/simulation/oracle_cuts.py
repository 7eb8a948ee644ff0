"""Check connections that did not end with the last byte of their program. Nothing that was handed to the kernel and not
received by the collector may be called complete.

- A session whose end was not read has a gap of unknown size (`truncated`, `cut`), unless its program had stated its
  end, or its streams continue elsewhere.
- If this gap has healed, each lost event is in a gap of its own. Streams of which all events were lost are excepted,
  because they are unknown (ARCHITECTURE.md, "Blind spots").
- A session whose end was read has no such gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tests.ingest.test_machine import attributes
from tests.simulation import oracle_wire
from tests.simulation.play import Play
from tests.simulation.violation import demand, none
from tests.simulation.words import Event, event_of

SAID_ALL = {"tailrace.goodbye", "footer"}


class Ended:
    """The end of a connection, as the rows of its session's last incarnation show it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        closes = [r for r in rows if r["kind"] == "session" and r["name"] == "close"]
        last = closes[-1] if closes else None
        self.reason = attributes(last)["closed"] if last else ""
        mine = [row for row in rows if last and row["session"] == last["session"]]
        self.said_all = any(row["kind"] == "session" and row["name"] in SAID_ALL for row in mine)
        found = [row for row in rows if row["kind"] in ("gap", "heal")]
        kinds = [row["kind"] for row in found if attributes(row).get("detail") == "cut"]
        self.gaps, self.heals = kinds.count("gap"), kinds.count("heal")

    @property
    def healed(self) -> bool:
        """Return whether the streams continue elsewhere: the gap has healed, or there was none."""
        return self.gaps == self.heals

    @property
    def read(self) -> bool:
        return self.reason == "eof"


def check(play: Play, accounted: Callable[[Event], bool]) -> None:
    """Raise Violation for the first rule that does not hold.

    `accounted` returns whether a Heph event is stored, is in a gap, or belongs to a stream whose numbers are not
    checked.
    """
    rows = _rows(play)
    known = {
        event_of(r)[:2]
        for r in play.collector.rows
        if r["kind"] == "span" and r["format"] == "heph"
    }
    for number, lost in _lost(play):
        ended = Ended(rows[number])
        about = (number, ended.reason, ended.gaps, ended.heals)
        demand(0 <= ended.heals <= ended.gaps <= 1, "cut twice, or healed and not cut", about)
        if ended.read or not ended.reason:
            demand(not ended.gaps, "an end that was read is no cut", about)
            continue
        if ended.said_all or (ended.gaps and not ended.healed):
            continue
        events = [event for event in lost if isinstance(event, Event)]
        demand(len(events) == len(lost), "lines are lost, and no gap says so", (about, lost[:9]))
        none(
            "lost behind a cut, and nowhere",
            [e for e in events if e[:2] in known and not accounted(e)],
        )


def _lost(play: Play) -> Iterator[tuple[int, list[object]]]:
    """Yield the connections of programs without a client that brought data, each with the events that the collector did
    not receive.

    For Heph, these are events; for other formats, lines.
    """
    heph = {event.name: event for program in play.programs.values() for event in program.sent}
    for number, (parts, _) in oracle_wire.taken(play).items():
        connection = play.collector.book.connections.get(number)
        if connection not in play.sent.streams:
            continue
        taken = [part.event for part in parts if part.good and part.event]
        sent = [part.event for part in play.sent.streams[connection] if part.event]
        is_jets = play.collector.book.opened[number].format == "jets"
        yield number, [e if is_jets else heph[str(e)] for e in sent[len(taken) :]]


def _rows(play: Play) -> dict[int, list[dict[str, Any]]]:
    names = play.collector.book.names
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in play.collector.rows:
        number = names.get(row["session"].partition(".")[0])
        if number is not None:
            found[number].append(row)
    return found
