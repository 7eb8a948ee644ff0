"""Check what readers see of clients that move between collectors of one table.

The real views read the rows of all collectors from a real table, during the play and after it. The oracle compares the
views with the events that the clients emitted, and with those that any collector received.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tailrace.query.live import AwaitedEvents, Live, beside
from tailrace.query.table import TableReader
from tests.ingest.test_machine import attributes, of
from tests.simulation.book import Row
from tests.simulation.collector import Collector
from tests.simulation.moves import Moves
from tests.simulation.oracle import announced
from tests.simulation.play import Program
from tests.simulation.readers import MEMORY, SNAPSHOTS, Reader, Rows, live
from tests.simulation.reasons import Facts
from tests.simulation.session_rows import stays_in_doubt
from tests.simulation.spans import Spans
from tests.simulation.violation import demand, none
from tests.simulation.watch import SOURCES
from tests.simulation.words import Event, event_of

_SHOWN = "SELECT name, attributes FROM events WHERE kind = 'span' AND source IN ('udp', 'tcp')"
_GAPS = "SELECT session, stream, reason, first, last, remaining, attributes FROM gaps"


@contextmanager
def looking(play: Moves) -> Iterator[None]:
    """Look at the table of the play within the `with` block: during the play, and after the checks."""
    place: dict[str, Any] = {"dir": MEMORY} if MEMORY.is_dir() else {}
    with TemporaryDirectory(prefix="simulation-", **place) as store:
        names = property(lambda _: [name for name, each in _named(play) if each.life is not None])
        with patch.object(TableReader, "watchers", names):
            looker = _Looker(play, Path(store))
            try:
                looker.look_now_and_then()
                yield
                looker.conclude(play.collector.table.store)
                looker.check_clients()
            finally:
                looker.close()


def _named(play: Moves) -> Iterator[tuple[str, Collector]]:
    yield from ((each.name, each) for each in play.collectors)


Truth = dict[tuple[int, int], Spans]
"""By program and stream, the events that are missing."""


class _Table:
    """The rows of all collectors, and the program of each session."""

    def __init__(self, play: Moves) -> None:
        self.rows = list(play.collector.table.store)
        self.spans = [(row["session"], event_of(row)) for row in of(self.rows, "span")]
        known = dict(announced(play, self.rows))
        for row in of(self.rows, "session"):
            closed = attributes(row).get("closed", "")
            if closed.startswith("resumes "):  # These two sessions count as one.
                pair = {row["session"], closed.removeprefix("resumes ")}
                known |= {each: known[other] for each in pair for other in pair & known.keys()}
        self.owners = {session: event.program for session, event in self.spans} | known
        """By session, the program whose client announced it, or whose events it contains."""
        datagrams = {row["session"] for row in of(self.rows, "span") if row["source"] == "udp"}
        self.strays = {each for each in datagrams - known.keys() if stays_in_doubt(self.rows, each)}
        """Sessions of datagrams without an announcement, or with an announcement that came alone.

        Readers cannot link them to a client that has moved (ARCHITECTURE.md, "Blind spots"). So they show the events
        twice, and report earlier ones as missing.
        """


class _Looker(Reader):
    def __init__(self, play: Moves, store: Path) -> None:
        super().__init__(play, store)
        self._moves = play

    def look_now_and_then(self) -> None:
        """Look at the table a few times during the play."""
        world = self._moves.world
        last = max((fact.at for fact in self._moves.scenario.facts), default=0)
        random = world.random("looker")
        for _ in range(SNAPSHOTS):
            world.at(random.randrange(last + 1), self._look_now)

    def _look_now(self) -> None:
        rows = list(self._moves.collector.table.store)
        self.write(rows)
        self._engine.refresh()
        self.look(rows, beside(self._engine, partial(_live, self._moves)))
        self._check_shown(_Table(self._moves))

    # Checks at the end of a play

    def check_clients(self) -> None:
        """Compare the views of each client with the events that the client emitted. Raise Violation if they differ."""
        play = self._moves
        table = _Table(play)
        stored = self._check_shown(table)
        for number, program in play.programs.items():
            lacking = [each for each in program.sent[: program.delivered] if each not in stored]
            demand(len(lacking) <= program.excused, "delivered and lost", (number, lacking[:9]))
        told = {event for session, event in table.spans if session not in table.strays}
        truth = {
            (number, stream): _lacking(play, number, stream, emitted, told)
            for number, program in play.programs.items()
            for stream, emitted in program.numbers.items()
        }
        self._check_streams(truth, table)
        unknown = self._check_gaps(truth, table)
        for number, program in play.programs.items():
            self._check_end(number, program, unknown[number], table)

    def _check_shown(self, table: _Table) -> set[Event]:
        """Check that each event of the table is shown once. Return the events."""
        shown = Counter(
            event_of({"name": name, "attributes": about})
            for name, about in self._engine.rows(_SHOWN)
        )
        stray = Counter(event for session, event in table.spans if session in table.strays)
        none("shown twice", [event for event, times in (shown - stray).items() if times > 1])
        stored = {event for _, event in table.spans}
        none("stored and not shown", sorted(stored - shown.keys()))
        none("shown and not stored", sorted(shown.keys() - stored))
        return stored

    def _check_streams(self, truth: Truth, table: _Table) -> None:
        said = Counter[tuple[int, int]]()
        for stream in self._streams():
            program = table.owners.get(stream.session)
            if program is not None and stream.stream and stream.session not in table.strays:
                said[program, int(stream.stream)] += stream.missing
        for key, lacking in truth.items():
            events = sum(end - first for first, end in lacking.ranges())
            about = (key, said[key], events, list(lacking.ranges())[:9])
            demand(said[key] == events, "another sum of the missing", about)

    def _check_gaps(self, truth: Truth, table: _Table) -> Counter[int]:
        """Check that gaps name what is missing. Return for each program how many of its ends are missing."""
        ends, named = Counter[int](), defaultdict[tuple[int, int], Spans](Spans)
        for session, stream, reason, first, last, remaining, about in self._engine.rows(_GAPS):
            row = (session, stream, reason, first, last, remaining, about)
            program = table.owners.get(session)
            if session in table.strays:
                continue
            if remaining is None:
                if program is not None and '"no_goodbye"' in about:
                    ends[program] += 1
                continue
            if first is None:
                continue  # This gap stands for discarded events without numbers.
            demand(program is not None, "a gap of nobody", row)
            assert program is not None
            lacking = truth[program, int(stream)]
            within = last + 1 - first - sum(e - f for f, e in lacking.missing(first, last + 1))
            demand(0 < remaining <= within, "a gap of what is there", row)
            demand(reason != "elsewhere", "acknowledged and in no collector's rows", row)
            named[program, int(stream)].add(first, last + 1)
        for key, lacking in truth.items():
            for span in lacking.ranges():
                nowhere = list(named[key].missing(*span))
                demand(not nowhere, "missing and in no gap", (key, nowhere))
        return ends

    def _check_end(self, number: int, program: Program, unknown: int, table: _Table) -> None:
        """Check that a goodbye closes one of the client's sessions, or that one gap names the end as missing."""
        sessions = {each for each, owner in table.owners.items() if owner == number} - table.strays
        rows = [row for row in of(table.rows, "session") if row["session"] in sessions]
        left = any(Facts(each).took_leave(number) for each in self._moves.alone())
        demand(not (program.ended and not left), "a goodbye of which no log knows", number)
        closed = {attributes(row)["closed"] for row in rows if row["name"] == "close"}
        demand(left == ("goodbye" in closed), "a goodbye that closes nothing", (number, closed))
        demand(unknown == (bool(sessions) and not left), "another end", (number, unknown, closed))

    def _known(self, rows: Sequence[Row]) -> Rows:
        return Rows(rows, _Table(self._moves).strays)

    def _owners(self, session: str, known: Rows) -> set[int]:
        # A client may have announced its session to a collector that got none of its events.
        return set[int]().union(*(known.owners.get(each, ()) for each in known.together(session)))

    def _lives(self, owner: int, known: Rows) -> int:
        return len({known.together(each) for each, some in known.owners.items() if owner in some})


def _lacking(play: Moves, program: int, stream: int, emitted: int, stored: set[Event]) -> Spans:
    """Return the events of a stream that no collector has, up to the last number that an event, a report or a goodbye
    has shown to any collector.
    """
    address = play.programs[program].begin.address
    below = max([e.number + 1 for e in stored if e[:2] == (program, stream)], default=0)
    for watch in play.watches:
        below = max([below, *(end for _, end in watch.heard[address, stream].ranges())])
        said = (each["streams"].get(str(stream), 0) for each in watch.goodbyes_of(address))
        below = max([below, *said])
    assert below <= emitted, "known and not emitted"
    found = Spans()
    for number in range(below):
        if Event(program, stream, number) not in stored:
            found.put(number)
    return found


def _live(play: Moves) -> Live:
    """Return the events that the collectors still await, as `tailrace.query.live.look` does."""
    awaited, unasked = [], []
    for name, each in _named(play):
        if not each.works:
            unasked.append(name)
            continue
        assert each.life is not None
        ingest, committing = each.life.ingest, each.life.loops.committing
        awaited += live(ingest).awaited
        for source in SOURCES:
            said = ingest.tally(source).said_missing - committing.said_missing.get(source, 0)
            if said > 0:
                awaited.append(AwaitedEvents(source, "heph", None, None, said))
    return Live(frozenset(SOURCES), tuple(awaited), "; ".join(unasked))
