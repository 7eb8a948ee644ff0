"""Check whether the reasons of gaps are true, by comparing each with what happened in the world.

If a reason has no check here, nothing in a play can cause it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tests.simulation import facts
from tests.simulation.book import Row
from tests.simulation.budgets import limits_of
from tests.simulation.limits import forgets_connections
from tests.simulation.play import Play
from tests.simulation.spans import Spans
from tests.simulation.violation import demand
from tests.simulation.words import Event, event_of

FORGOTTEN = ("not resumed", "too many sessions", "too many streams")
"""Reasons for which the collector forgets a session to which its client may come back."""


def may_be_forgotten(closed: str, limits: Mapping[str, float]) -> bool:
    """Return whether the collector may have forgotten a session that ended in this way before its client came back.

    A client that sent a goodbye and got no answer comes back, too. Until then, limits may leave no place for it.
    """
    return closed in FORGOTTEN or (closed == "goodbye" and forgets_connections(limits))


class Gap(NamedTuple):
    """The row of a gap. `owner` is the program of its session; None if no event of the session is stored."""

    row: Row
    about: dict[str, Any]
    owner: int | None

    @property
    def events(self) -> Iterator[Event]:
        """Yield the missing events, if the row names all of them."""
        first = self.row["seq"]
        if self.owner is None or first is None or self.about.get("of_range"):
            return
        stream = int(self.row["stream"])
        for number in range(first, first + self.about["count"]):
            yield Event(self.owner, stream, number)


class Facts:
    """The losses that happened in the world of a play."""

    def __init__(self, play: Play) -> None:
        watch = play.watch
        self.play = play
        self.watch = watch
        begins = [fact for fact in play.scenario.facts if isinstance(fact, facts.Begin)]
        uses = Counter(begin.address for begin in begins)
        self.alone = {begin.program: begin.address for begin in begins if uses[begin.address] == 1}
        """By program that had its address for itself, this address."""
        self.session_places = limits_of(play.scenario).streams_max

    def took_leave(self, program: int) -> bool | None:
        """Return whether a program's goodbye arrived.

        Return None if it is unknown whose goodbye arrived, or if the program has no client to send one.
        """
        address = self.alone.get(program)
        has_client = self.play.programs[program].client is not None
        return address in self.watch.goodbyes if has_client and address else None

    def kernel(self, gap: Gap) -> bool:
        """Return whether the collector's kernel dropped datagrams.

        If the row is no estimate, it must have dropped exactly these events.
        """
        if gap.row["source"] != "udp" or not self.play.collector.dropped:
            return False
        return bool(gap.about.get("estimate")) or all(e in self.watch.dropped for e in gap.events)

    def sender(self, gap: Gap) -> bool:
        """Return whether the client reported that it discarded the events."""
        reported = self.watch.reported
        return all(event.number in reported[event[:2]] for event in gap.events)

    def elsewhere(self, gap: Gap) -> bool:
        """Return whether the client had an acknowledgement for the events."""
        durable = [watch.durable for watch in self.play.watches]
        return all(any(event in each for each in durable) for event in gap.events)

    def network(self, gap: Gap) -> bool:
        """Return whether the events did not arrive and no report of the client named them as discarded.

        If the collector forgot the session, only reports to that session count. A gap that is forgotten keeps its
        reason.
        """
        if self.watch.forgets:
            return True
        address = self.alone.get(-1 if gap.owner is None else gap.owner, "")
        said = self.watch.heard[address, int(gap.row["stream"] or 0)]
        if self._was_forgotten(gap.row["session"]):
            said = self._reported[gap.row["session"], gap.row["stream"]]
        named = (event.number for event in gap.events if event.number in said)
        return all(self.watch.book.reason(gap.row, number) != "network" for number in named)

    @cached_property
    def _reported(self) -> defaultdict[tuple[str, str], Spans]:
        """By session and stream, the numbers in the reports that the session received."""
        found: defaultdict[tuple[str, str], Spans] = defaultdict(Spans)
        for row in self.play.collector.rows:
            if row["kind"] == "session" and row["name"] == "tailrace.report":
                for stream, first, count in json.loads(row["attributes"])["ranges"]:
                    found[row["session"], str(stream)].add(first, first + count)
        return found

    def late_join(self, gap: Gap) -> bool:
        """Return whether the first event of the stream that arrived has a higher number.

        For a client that came back to a collector which had forgotten its session, this is the first event that arrived
        then.
        """
        first = dict(self.watch.first)
        if gap.owner in self._forgotten:
            stream = gap.row["session"], gap.row["stream"]
            first |= {(gap.owner, int(stream[1])): self._began.get(stream, 0)}
        return all(event.number < first.get(event[:2], 0) for event in gap.events)

    @cached_property
    def _forgotten(self) -> set[int]:
        """The programs of which the collector forgot a session."""
        rows = self.play.collector.rows
        return {
            event_of(row).program
            for row in rows
            if row["kind"] == "span"
            and row["format"] == "heph"
            and self._was_forgotten(row["session"])
        }

    @cached_property
    def _began(self) -> dict[tuple[str, str], int]:
        """By session and stream, the number of the first event."""
        began: dict[tuple[str, str], int] = {}
        for row in self.play.collector.rows:
            if row["kind"] == "span":
                began.setdefault((row["session"], row["stream"]), row["seq"] or 0)
        return began

    def truncated(self, gap: Gap) -> bool:
        """Return whether the client sent no goodbye, or its connection was cut or ended within a packet."""
        if gap.about.get("detail") == "cut":
            return gap.row["session"] in self._cut
        if gap.about.get("detail") == "no_goodbye":
            took_leave = gap.owner is not None and self.took_leave(gap.owner)
            return not took_leave or self._was_forgotten(gap.row["session"])
        session = gap.about.get("quarantine_of", gap.row["session"])
        return session.partition(".")[0] in self.watch.torn

    def _was_forgotten(self, session: str) -> bool:
        """Return whether the collector may have forgotten a session before its client came back.

        The goodbye is then that of a later session.
        """
        return session in self._left

    @cached_property
    def _cut(self) -> set[str]:
        """The sessions of connections whose end was not read."""
        return {
            row["session"]
            for row in self.play.collector.rows
            if row["kind"] == "session"
            and row["name"] == "close"
            and json.loads(row["attributes"])["closed"] != "eof"
        }

    @cached_property
    def _streams(self) -> dict[int, set[int]]:
        """By program, the streams of which events or packets of its client arrived."""
        programs, named = self.play.programs, self.watch.named
        streams = {n: set(named[program.begin.address]) for n, program in programs.items()}
        for program, stream in self.watch.durable.of:
            streams[program].add(stream)
        return streams

    @cached_property
    def _left(self) -> set[str]:
        """The sessions to which their clients may have come back in vain."""
        limits = self.play.scenario.limits
        return {
            row["session"]
            for row in self.play.collector.rows
            if row["kind"] == "session"
            and row["name"] == "close"
            and may_be_forgotten(json.loads(row["attributes"])["closed"], limits)
        }

    def uncounted(self, gap: Gap) -> bool:
        """Return whether there were more streams than places, in the source or in the session."""
        streams = self._streams
        total = sum(map(len, streams.values()))
        came = total if gap.owner is None else len(streams[gap.owner])
        limits = {
            "streams_max": came > self.session_places,
            "source_streams_max": total > self.play.scenario.places,
        }
        return gap.about["count"] == 0 and limits.get(gap.about.get("detail", ""), False)


TRUE = {
    name: getattr(Facts, name)
    for name in ("kernel", "sender", "elsewhere", "network", "late_join", "truncated", "uncounted")
}


def check(play: Play, rows: Sequence[Row], programs: Mapping[str, set[int]]) -> None:
    """Raise Violation for the first gap whose reason is not true.

    `programs` has for each session the programs whose events it contains.
    """
    known, unknown_end = Facts(play), defaultdict[int, bool](bool)
    for row in rows:
        if row["kind"] != "gap":
            continue
        owners = programs.get(row["session"], set())
        gap = Gap(row, json.loads(row["attributes"]), next(iter(owners), None))
        reason = str(row["name"])
        holds = reason in TRUE and TRUE[reason](known, gap)
        demand(holds, f"the reason {reason} is not true", row)
        for owner in owners:
            unknown_end[owner] |= reason in ("truncated", "uncounted")
    stored = {event[0] for event in play.watch.book.stored.of}
    for number in stored & known.watch.announced:
        if known.took_leave(number) is False:
            demand(unknown_end[number], "an end that is not known, and no gap says so", number)
