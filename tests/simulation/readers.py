"""Read the table during a play and after it. Check that everything that the real views show is true.

The rows go into a real table, commit by commit. A reader asks the real views, their completeness, and the evidence for
a certificate. All answers are compared with what programs emitted and what the collector received.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tailrace.ingest.machine import Ingest
from tailrace.query.completeness import Scope, completeness
from tailrace.query.engine import Engine
from tailrace.query.filters import Selection
from tailrace.query.live import NOBODY, AwaitedEvents, Live, beside
from tailrace.run.certificate import stream_evidence, total
from tests.query import tables
from tests.simulation.book import Row
from tests.simulation.limits import forgets_connections
from tests.simulation.play import Play
from tests.simulation.reasons import Facts, may_be_forgotten
from tests.simulation.spans import Spans
from tests.simulation.violation import demand
from tests.simulation.watch import SOURCES
from tests.simulation.words import event_of

EVERY = 20
"""The table is read for one seed in this number."""
SNAPSHOTS = 3
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own in it


def is_read(seed: int) -> bool:
    """Return whether readers look at the table in a play of this seed."""
    return seed % EVERY == 7


class Rows:
    """The contents of rows about events, computed without views."""

    def __init__(self, rows: Sequence[Row], strays: Container[str] = ()) -> None:
        """`strays` are the sessions that readers cannot assign to a client: of its events, only those in other sessions
        prove anything.
        """
        self._clients = _clients(rows)
        rows = self._once(rows)
        self.owners: defaultdict[str, set[int]] = defaultdict(set)
        """By session, the programs whose events it contains."""
        self.stored: defaultdict[tuple[int, int], Spans] = defaultdict(Spans)
        """By program and stream, the numbers of the stored events."""
        self.events = Counter[tuple[str, str]]()
        """By session and stream, the number of events."""
        self.counted: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """By session and stream, the numbers of those events that the collector numbered."""
        self.unknown = Counter[str]()
        """By session, the gaps which state that a stream had no place or that a packet was incomplete.

        A session with all its events may have such gaps. `reasons.py` checks whether they are true.
        """
        self.ended: dict[str, str] = {}
        """By session, the reason for which it ended."""
        self._unnamed: defaultdict[tuple[str, str], Spans] = defaultdict(Spans)
        """By session and stream, the numbers of the events that came before the session was announced."""
        self._gaps: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """By session and stream, the ranges in which gaps lie."""
        announced = set[str]()
        for row in rows:
            if row["kind"] == "gap" and row["seq"] is not None:
                about = json.loads(row["attributes"])
                end = about["last"] + 1 if "last" in about else row["seq"] + about["count"]
                self._gaps[row["session"], row["stream"]].append((row["seq"], end))
            if row["kind"] == "span" and row["source"] in SOURCES:
                event = event_of(row)
                if row["session"] not in strays:
                    self.owners[row["session"]].add(event.program)
                    self.stored[event.program, event.stream].put(event.number)
                self.events[row["session"], row["stream"]] += 1
                if row["seq"] is not None:
                    self.counted[row["session"], row["stream"]].append(event.number)
                    if row["session"] not in announced:
                        self._unnamed[row["session"], row["stream"]].put(row["seq"])
            elif row["kind"] == "gap" and (
                row["name"] == "uncounted"
                or (row["name"] == "truncated" and "quarantine" in row["attributes"])
            ):
                self.unknown[row["session"]] += 1
            elif (row["kind"], row["name"]) == ("session", "close"):
                self.ended[row["session"]] = json.loads(row["attributes"])["closed"]
            elif (row["kind"], row["name"]) == ("session", "tailrace.session"):
                announced.add(row["session"])

    def together(self, session: str) -> tuple[str, ...]:
        """Return the sessions of the same client. Readers count them as one."""
        client = self._clients.get(session)
        others = (each for each, its in self._clients.items() if its == client)
        return tuple(others) if client else (session,)

    def _once(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows without those events that an earlier session of the same client has, too."""
        first: dict[tuple[object, ...], str] = {}
        keys = []
        for row in rows:
            client = self._clients.get(row["session"]) if row["kind"] == "span" else None
            key = (
                (client, *(row[name] for name in _SAME))
                if client and row["seq"] is not None
                else ()
            )
            first[key] = min(first.get(key, row["session"]), row["session"])
            keys.append(key)
        return [
            row
            for row, key in zip(rows, keys, strict=True)
            if not key or first[key] == row["session"]
        ]

    def stored_in_gaps(self, session: str, stream: str) -> int:
        """Return how many events of a stream are stored although a gap may name them: they came from a forgotten gap,
        before the session was announced (ARCHITECTURE.md, "Blind spots").
        """
        key = session, stream
        gaps, stored = Spans(), self._unnamed[key]
        for span in self._gaps[key]:
            gaps.add(*span)
        return sum(
            following - first - sum(end - begin for begin, end in stored.missing(first, following))
            for first, following in gaps.ranges()
        )


_SAME = ("stream", "seq", "substream", "name", "start", "end", "attributes")


def _clients(rows: Sequence[Row]) -> dict[str, str]:
    """Return for each session the name of the client that announced it, even if the announcement came alone."""
    said: defaultdict[str, set[str]] = defaultdict(set)
    resumed: dict[str, str] = {}
    for row in rows:
        if (row["kind"], row["name"]) == ("session", "tailrace.session"):
            said[row["session"]].add(json.loads(row["attributes"])["session"])
        elif (row["kind"], row["name"]) == ("session", "close"):
            resumed[row["session"]] = json.loads(row["attributes"])["closed"]
    for session in list(said):
        former = resumed.get(session, "").removeprefix("resumes ")
        if former != resumed.get(session, "") and former not in said:
            said[former] = said.pop(session)
    return {session: name for session, names in said.items() if len(names) == 1 for name in names}


class Stream(NamedTuple):
    """A stream, as the view `streams` shows it."""

    session: str
    stream: str
    first: int | None
    last: int | None
    events: int
    missing: int
    completeness: float | None


_STREAMS = """
SELECT session, stream, first_seq, last_seq, events, missing, completeness FROM streams
WHERE source IN ('udp', 'tcp')"""
_SESSIONS = "SELECT session, missing, unknown::INT FROM sessions WHERE source IN ('udp', 'tcp')"


class Reader:
    """A store in memory, and a snapshot of it that a reader keeps."""

    def __init__(self, play: Play, store: Path) -> None:
        self._play = play
        self._store = tables.make(store)
        self._written = 0
        self._engine = Engine(self._store)
        self._told = NOBODY
        """The collector's statement at the commit before."""
        last = max((fact.at for fact in play.scenario.facts), default=0)
        random = play.world.random("reader")
        self._due = sorted(random.randrange(last + 1) for _ in range(SNAPSHOTS))
        """The ages (ns) at which the reader looks at the table."""

    def close(self) -> None:
        self._engine.close()

    def write(self, rows: Sequence[Row]) -> None:
        """Add the new rows of the play's table to the store."""
        if len(rows) > self._written:
            tables.commit(self._store, rows[self._written :])
            self._written = len(rows)

    def committed(self, rows: Sequence[Row], now: Live) -> None:
        """The table has accepted a commit.

        Look at it, if it is time. The reader is slow: this commit comes after its first question to the collector.
        """
        told = self._told
        self._told = now
        if self._due and self._due[0] <= self._play.world.age:
            del self._due[0]
            answers = iter([told, now])

            def ask() -> Live:
                said = next(answers)
                self.write(rows)
                return said

            self.look(rows, beside(self._engine, ask))

    def look(self, rows: Sequence[Row], live: Live) -> None:
        """Compare a snapshot with the rows and with what was received.

        Raise Violation for anything that a reader must not see while the collector runs.
        """
        known = self._known(rows)
        seen = self._engine.count("SELECT * FROM stored")
        demand(seen == len(rows), "a snapshot of other rows", (seen, len(rows)))
        for stream in self._streams():
            self._check_stream(stream, known)
        several = len(self._play.collectors) > 1
        scopes = {known.together(each) if several else (each,): each for each in known.owners}
        for sessions, session in scopes.items():
            scope = Scope.of(Selection(sessions=sessions))
            if completeness(self._engine, scope, live).complete:
                self._check_complete(session, known)

    def _known(self, rows: Sequence[Row]) -> Rows:
        return Rows(rows)

    def _streams(self) -> Iterator[Stream]:
        return (Stream(*row) for row in self._engine.rows(_STREAMS))

    def _check_stream(self, stream: Stream, known: Rows) -> None:
        events = known.events[stream.session, stream.stream]
        numbers = known.counted[stream.session, stream.stream]
        demand(stream.events == events, "another number of events", (stream, events))
        ends = (min(numbers), max(numbers)) if numbers else (None, None)
        demand((stream.first, stream.last) == ends, "other ends of a stream", (stream, ends))
        if stream.completeness is not None:
            whole = stream.events / (stream.events + stream.missing)
            demand(stream.completeness == whole, "another completeness", stream)

    def _check_complete(self, session: str, known: Rows) -> None:
        """Check sessions that are called complete.

        They have all events below their last one, except those that were received and are not committed yet
        (ARCHITECTURE.md, "Blind spots").
        """
        for program in known.owners[session]:
            for (owner, stream), stored in known.stored.items():
                if owner != program:
                    continue
                below = stored.ranges()[-1][1]
                lacking = list(stored.missing(0, below))
                for watch in self._play.watches:
                    durable = watch.durable.of[owner, stream]
                    lacking = [part for span in lacking for part in durable.missing(*span)]
                about = (session, owner, stream, lacking)
                demand(not lacking, "called complete and lacks events", about)

    # Checks at the end of a play

    def conclude(self, rows: Sequence[Row]) -> None:
        """Compare what the views show after the play with what the programs emitted. Raise Violation if they differ."""
        self.write(rows)
        self._engine.refresh()
        self.look(rows, NOBODY)
        known = self._known(rows)
        self._check_sums(known)
        sessions = {session: row for session, *row in self._engine.rows(_SESSIONS)}
        for session, owners in known.owners.items():
            (owner,) = owners
            lacks, end_known = self._truth(owner, known)
            together = [each for each in known.together(session) if each in sessions]
            missing = sum(sessions[each][0] for each in together)
            unknown = any(sessions[each][1] for each in together)
            scope = Scope.of(Selection(sessions=tuple(together)))
            whole = completeness(self._engine, scope)
            about = (session, owner, whole, lacks, end_known, sessions[session])
            demand(not (whole.complete and (lacks or end_known is False)), "called complete", about)
            if sum(other.startswith(session) for other in sessions) > 1:
                # A selection is by the beginning of a name, so it contains other sessions, too.
                continue
            demand(whole.complete == (not missing and not unknown), "views that disagree", about)
            alone = all(each in together for each, other in known.owners.items() if owners == other)
            if alone and end_known and not lacks:
                short = whole.unknown - sum(known.unknown[each] for each in together)
                demand(not (whole.missing or short), "complete and not called so", about)
        self._check_evidence(known)

    def _truth(self, program: int, known: Rows) -> tuple[int, bool | None]:
        """Return the minimum number of missing events of a program, and whether its end is known:

        True if its goodbye arrived, None if this cannot be known.
        """
        play = self._play
        leaves = [Facts(each).took_leave(program) for each in play.alone()]
        left = None if None in leaves else any(leaves)
        lacks = 0
        for stream, emitted in play.programs[program].numbers.items():
            stored = known.stored[program, stream].ranges()
            end = emitted if left else (stored[-1][1] if stored else 0)
            lacks += end - sum(following - first for first, following in stored)
        return lacks, left

    def _check_sums(self, known: Rows) -> None:
        """Check that programs lack exactly the events that the view of streams shows as missing.

        If a session was forgotten, the next session of its program misses the events that the forgotten one has. A
        forgotten gap stays although its events arrive (ARCHITECTURE.md, "Blind spots").
        """
        missing: defaultdict[int, int] = defaultdict(int)
        standing: defaultdict[int, int] = defaultdict(int)
        forgets, uncounted = self._play.watch.forgets, set()
        for stream in self._streams():
            for owner in self._owners(stream.session, known):
                missing[owner] += stream.missing
                if forgets:
                    standing[owner] += known.stored_in_gaps(stream.session, stream.stream)
                if stream.completeness is None and stream.stream:
                    uncounted.add(owner)
        for owner in set().union(*known.owners.values()) - uncounted:
            lacks, _ = self._truth(owner, known)
            emitted = self._play.programs[owner].numbers.total()
            stored = sum(
                following - first
                for (program, _), spans in known.stored.items()
                if program == owner
                for first, following in spans.ranges()
            )
            most = self._lives(owner, known) * emitted - stored + standing[owner]
            about = (owner, missing[owner], lacks, most)
            demand(lacks <= missing[owner] <= most, "another sum of the missing", about)

    def _owners(self, session: str, known: Rows) -> set[int]:
        """Return the programs whose events a session contains, or may contain."""
        return known.owners.get(session, set())

    def _lives(self, owner: int, known: Rows) -> int:
        """Return the number of sessions of a program that each miss the events of the others.

        Sessions that its client announced count as one.
        """
        sessions = {
            known.together(session) for session, owners in known.owners.items() if owner in owners
        }
        begin, limits = self._play.programs[owner].begin, self._play.scenario.limits
        silently = begin.transport == "heph-tcp" and forgets_connections(limits)
        ends = [known.ended.get(session, "") for together in sessions for session in together]
        forgotten = any(may_be_forgotten(ended, limits) for ended in ends)
        return len(sessions) if silently or forgotten else 1

    def _check_evidence(self, known: Rows) -> None:
        """Check that a certificate states the same as the views."""
        sessions = {session for session, *_ in self._engine.rows(_SESSIONS)}
        totals = total(stream_evidence(self._engine, sessions))
        streams = list(self._streams())
        sums = sum(s.events for s in streams), sum(s.missing for s in streams)
        told = totals.stored, sum(totals.missing.values())
        demand(sums == told, "a certificate of other sums", (sums, told))
        demand(totals.expected == sum(told), "a certificate that does not add up", totals)
        stored = known.events.total()
        demand(totals.stored == stored, "a certificate of other events", (totals, stored))


def live(ingest: Ingest) -> Live:
    """Return what a running collector states about awaited events, as `/status` does, once all rows are in the table."""
    found = [
        AwaitedEvents(source, "heph", *each)
        for source in SOURCES
        for each in ingest.awaited(source)
    ]
    return Live(frozenset(SOURCES), tuple(found))


@contextmanager
def reading(play: Play) -> Iterator[None]:
    """Let a reader look at the table of the play within the `with` block, and of the checks after it, if the seed is
    chosen for this.
    """
    if not (is_read(play.scenario.seed) and play.watch.sees):
        yield
        return
    place: dict[str, Any] = {"dir": MEMORY} if MEMORY.is_dir() else {}
    with TemporaryDirectory(prefix="simulation-", **place) as store:
        reader = Reader(play, Path(store))
        play.watch.live, play.watch.committed_also = live, reader.committed
        try:
            yield
            reader.conclude(play.collector.rows)
        finally:
            reader.close()
