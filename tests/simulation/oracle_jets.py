"""Check JETS after a play: its lines have no numbers, but ids, references and totals.

- Each run in the table is one life of a program, and each life is one run. There are two exceptions: its session ended,
  or its header (or a copy of it) came late, which looks like the header of another life (ARCHITECTURE.md, "Blind
  spots").
- Each line is stored at most once, except for copies that the collector cannot recognise (see `copies`).
- Each record to which a stored line refers is either stored or one gap (`unresolved`), and there are no other such
  gaps. A line that cannot be read may show the id of its record, which then has no such gap. If a session states that it evicted some references, it may keep this number of gaps for records that arrived,
  and for records that it names twice. Below the highest id that it knew then, it may miss no record.
- If the totals are stored, all gaps together are exactly the lines that are not stored. A line that cannot be read may
  be one of these, or none, so the sum may differ by the number of such lines. A copy that the collector cannot
  recognise hides a lost line (ARCHITECTURE.md, "Blind spots").
- Without totals, only references and unreadable lines show that anything is missing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import chain
from typing import Any, NamedTuple

from tailrace.spool.entry import Datagrams, EntryKind
from tests.ingest.log import as_seen
from tests.ingest.test_machine import attributes, of
from tests.simulation.jets import Jets, Life
from tests.simulation.play import Play
from tests.simulation.violation import demand, none

Row = dict[str, Any]

BEGUN = {"begin", "span"}
"""Kinds of rows that the begin of a record makes: the row of an open record, and the row at its end."""
NAMED = {*BEGUN, "instant", "annotation"}
"""Kinds of rows whose lines have a name and may refer to another record."""


class Of(NamedTuple):
    """The life of a program to which lines belong."""

    program: int
    life: int


def check(play: Play) -> None:
    """Raise Violation for the first rule that does not hold."""
    sessions = _sessions(play)
    lives = _lives(play, sessions)
    none("two lives in a session", [s for s, some in lives.items() if len(some) > 1])
    runs: dict[Of, list[str]] = defaultdict(list)
    for session, some in lives.items():
        for life in some:
            runs[life].append(session)
    if not _takes_sources_away(play):
        headed = {session for session, rows in sessions.items() if _has(rows, "header")}
        late = _headed_late(play)
        torn = [
            life
            for life, some in runs.items()
            if len(some) > 1 and len(set(some) - headed) > (life in late)
        ]
        none("a life in two sessions", torn)
    for life, some in runs.items():
        if len(some) == 1:
            Run(life, _life(play, life), sessions[some[0]]).check()


def stored(play: Play) -> Counter[str]:
    """Return by event how many times its JETS line is stored."""
    found: Counter[str] = Counter()
    sessions = _sessions(play)
    for session, some in _lives(play, sessions).items():
        for each in some:
            found += _stored(_life(play, each), sessions[session])
    return found


class Run:
    """The stored records of one life."""

    def __init__(self, of_: Of, life: Life, rows: list[Row]) -> None:
        self._of = of_
        self._life = life
        self._rows = rows
        self._stored = _stored(life, rows)
        self._copies = sum(times - 1 for times in self._stored.values())
        self._gaps: Counter[str] = Counter()
        self._unresolved: Counter[int] = Counter()
        for row in of(rows, "gap") + of(rows, "heal"):
            count = attributes(row)["count"] * (1 if row["kind"] == "gap" else -1)
            self._gaps[row["name"]] += count
            if row["name"] == "unresolved":
                self._unresolved[row["id"]] += count
        self._forgotten, self._joined = _given_up(rows)

    def check(self) -> None:
        begun = {row["id"] for row in self._rows if row["kind"] in BEGUN}
        referred = {row["parent"] for row in self._rows if row["kind"] in NAMED}
        referred |= {row["id"] for row in of(self._rows, "end")}
        lacking = referred - begun - {None}
        named = {record for record, times in self._unresolved.items() if times}
        about_ids = (self._of, sorted(named ^ lacking)[:9])
        said = self._unresolved.total()
        false, unsaid = said - len(named & lacking), lacking - named
        demand(false <= self._forgotten, "another reference", about_ids)
        unreadable = self._gaps["malformed"] + self._gaps["truncated"]
        unsaid = {record for record in unsaid if record > self._joined}
        demand(len(unsaid) <= unreadable, "another reference", about_ids)
        most = 1 + self._forgotten
        none("in two gaps", [r for r, times in self._unresolved.items() if not 0 <= times <= most])
        missing = sum(self._gaps.values())
        about = (self._of, dict(self._gaps))
        if _has(self._rows, "footer"):
            lost = sum(event not in self._stored for event in self._life.kinds)
            demand(
                lost - self._copies <= missing <= lost + unreadable + self._forgotten,
                "another total",
                (*about, lost),
            )
        else:
            demand(missing == said + unreadable, "missing without totals", about)


def _given_up(rows: list[Row]) -> tuple[int, int]:
    """Return how many references a session states that it evicted, and the highest id that it knew then."""
    count = joined = 0
    for row in of(rows, "session"):
        if row["name"] == "evicted" and (some := attributes(row)["evicted"].get("references", 0)):
            before = (r["id"] for r in rows if r["kind"] in BEGUN and r["offset"] < row["offset"])
            count, joined = count + some, max(before, default=0)
    return count, joined


def _has(rows: list[Row], name: str) -> bool:
    return any(row["name"] == name for row in of(rows, "session"))


def _stored(life: Life, rows: list[Row]) -> Counter[str]:
    named = (row["name"] for row in rows if row["kind"] in NAMED)
    ends = (life.ends.get(row["id"], "") for row in rows if row["kind"] in {"span", "end"})
    return Counter(named) + Counter(ends)


def _sessions(play: Play) -> dict[str, list[Row]]:
    sessions: dict[str, list[Row]] = defaultdict(list)
    for row in play.collector.rows:
        if row["format"] == "jets":
            sessions[row["session"]].append(row)
    return {session: as_seen(rows) for session, rows in sessions.items()}


def _lives(play: Play, sessions: dict[str, list[Row]]) -> dict[str, set[Of]]:
    """Return for each session the lives whose lines it contains."""
    of_line = _of_line(play)
    found: dict[str, set[Of]] = {}
    for session, rows in sessions.items():
        some = {of_line[row["name"]] for row in rows if row["name"] in of_line}
        for row in of(rows, "session"):
            if row["name"] == "header":
                some.add(_announced(attributes(row)["producer"]))
        found[session] = some or _of_ends(play, rows)
    return found


def _of_ends(play: Play, rows: list[Row]) -> set[Of]:
    """Return the life of a session that contains only ends of records, which have no names.

    Return None if several lives at its address ended such records.
    """
    ids = {row["id"] for row in of(rows, "end")}
    peers = {attributes(row)["peer"] for row in of(rows, "session") if row["name"] == "open"}
    lives = {
        Of(number, life.number)
        for number, program in play.programs.items()
        if isinstance(program.producer, Jets) and program.begin.address in peers
        for life in program.producer.lives
        if ids and ids <= life.ends.keys()
    }
    return lives if len(lives) == 1 else set()


def _of_line(play: Play) -> dict[object, Of]:
    """Return for each event the life to which its line belongs."""
    return {
        event: Of(number, life.number)
        for number, program in play.programs.items()
        if isinstance(program.producer, Jets)
        for life in program.producer.lives
        for event in life.kinds
    }


def _announced(header: Row) -> Of:
    """Return the life to which a header belongs."""
    return Of(*map(int, header["metadata"]["life"].split("/")))


def _headed_late(play: Play) -> set[Of]:
    """Return the lives of which a line arrived in a datagram more than `reorder_time` before their header."""
    of_line, book = _of_line(play), play.collector.book
    first: dict[Of, int] = {}
    headed: dict[Of, bool] = {}
    for entry in sorted(book.entries.values()):
        if entry.kind != EntryKind.DATAGRAMS:
            continue
        late = entry.time_ns - book.opened[entry.session].limits.reorder_time.ns
        datagrams = list(Datagrams(entry.payload))
        for part in chain.from_iterable(play.sent.datagrams.get(each, ()) for each in datagrams):
            if part.event in of_line:
                first.setdefault(of_line[part.event], entry.time_ns)
            elif part.good and b'"type":"header"' in part.data:
                life = _announced(json.loads(part.data))
                headed.setdefault(life, first.get(life, entry.time_ns) <= late)
    return {life for life, is_late in headed.items() if is_late}


def _life(play: Play, of_: Of) -> Life:
    producer = play.programs[of_.program].producer
    assert isinstance(producer, Jets)
    return producer.lives[of_.life]


def _takes_sources_away(play: Play) -> bool:
    return any(getattr(fact, "without", "") for fact in play.scenario.facts)
