"""Count again what the ledger states that it holds: marks, ranges, streams, and places by session.

Budgets and shares of places are computed from these figures. If a figure is too low, sessions hold more than they may;
if it is too high, they give up state although there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tailrace.ingest.machine import Ingest
from tailrace.ledger.counters import Counters
from tailrace.ledger.stream import MARK_BYTES, HeldMarks
from tailrace.ledger.windows import RANGE_BYTES, Windows
from tests.simulation.violation import demand
from tests.simulation.watch import SOURCES


def check(ingest: Ingest) -> None:
    """Raise Violation for the first figure of the ledger that is wrong."""
    for source in SOURCES:
        state = ingest.common(source).state
        streams = ranges = uncounted = 0
        for counters in _counters(ingest, source):
            _check_session(counters)
            streams += len(counters.state.streams)
            ranges += counters.windows.ranges
            uncounted += bool(counters.state.unfollowed)
            places = ingest.common(source).shares.held(counters)
            own = len(counters.state.streams)
            demand(places == own, "another number of places", (counters.name, places, own))
        told = state.streams, state.ranges, state.uncounted_sessions
        found = streams, ranges, uncounted
        demand(told == found, "other figures of a source", (source, told, found))


def _check_session(counters: Counters) -> None:
    streams = counters.state.streams
    marks = sum(len(s.recent) + len(s.head) for s in streams.values())
    demand(counters.marks.count == marks, "another number of marks", (counters.marks.count, marks))
    windows = counters.windows
    ranges = sum(stream.ranges for stream in streams.values())
    demand(windows.ranges == ranges, "another number of ranges", (windows.ranges, ranges))
    lacking = {name for name, stream in streams.items() if stream.holes}
    demand(windows._open == lacking, "other open windows", (windows._open, lacking))


def _counters(ingest: Ingest, source: str) -> Iterator[Counters]:
    """Yield the counters of all incarnations of a source."""
    for session in ingest._sessions.values():
        if session.state.info.source == source:
            for each in session.generations.unannounced:
                if each.counters is not None:
                    yield each.counters
    announcements = ingest.shared.announced[source]
    for id_ in ingest.state.announced.get(source, ()):
        if (known := announcements[id_].incarnation.counters) is not None:
            yield known


@contextmanager
def watched() -> Iterator[None]:
    """Compare what sessions state that they gave up with what they really gave up."""
    with (
        patch.object(HeldMarks, "give_way", _watched(HeldMarks.give_way, MARK_BYTES)),
        patch.object(Windows, "give_way", _watched(Windows.give_way, RANGE_BYTES)),
    ):
        yield


def _watched(give_way: Callable[[Any, int], None], unit: int) -> Callable[[Any, int], None]:
    def give_way_watched(self: Any, size: int) -> None:
        held, evicted = self.held, self.evicted
        give_way(self, size)
        gone, said = held - self.held, (self.evicted - evicted) * unit
        demand(gone >= min(size, held), "less given up than was wanted", (gone, size))
        split = isinstance(self, Windows) and self._commons.drops.state.dropped
        demand(said == gone or split, "another number given up than was said", (gone, said))
        one = isinstance(self, Windows) and not split
        demand(not one or gone < size + unit, "more given up than was wanted", (gone, size))

    return give_way_watched
