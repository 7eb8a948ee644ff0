"""Check what must be true at every step of a play: of the log, of each answer, of each commit, and of what a client
believes.

The watch sees the bytes that clients send, the synced log, the answers, and the committed rows. It decodes the bytes by
itself (`words`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import Entry, EntryKind
from tests.ingest.test_machine import assert_conserved
from tests.simulation import facts, words
from tests.simulation.book import Book, Numbers, Row
from tests.simulation.facts import Scenario
from tests.simulation.limits import forget_gaps
from tests.simulation.spans import Spans
from tests.simulation.violation import Violation, demand
from tests.simulation.words import Event

SOURCES = ("udp", "tcp")
ANSWER_MAX = 1200
"""Maximum size (bytes) of an answer, according to the protocol."""


class Taken(NamedTuple):
    """The state at the time when rows were taken for a commit: by source, how many events the collector stated to have
    and to lack; the number of different events in the log below the commit's position; and the result of `Watch.live`.
    """

    told: dict[str, tuple[int, int]]
    events: int
    live: object


class Watch:
    def __init__(self, scenario: Scenario) -> None:
        self.sees = _is_plain(scenario)
        """Whether the watch can decode everything that is sent: Heph from number 0 on, without noise."""
        self.forgets = bool(scenario.state) or forget_gaps(scenario.limits)
        """Whether the collector may take an event for a copy because it forgot the event's gap. The gap then stays."""
        self.book = Book(forgets=self.forgets)
        self.durable = Numbers()
        """The events in the synced log."""
        self.first: dict[tuple[int, int], int] = {}
        """By program and stream, the number of the first event that arrived."""
        self.reported: defaultdict[tuple[int, int], Spans] = defaultdict(Spans)
        """By program and stream, the events that its client has reported as discarded."""
        self.heard: defaultdict[tuple[str, int], Spans] = defaultdict(Spans)
        """By address and stream, the events in reports in the synced log."""
        self.named: defaultdict[str, set[int]] = defaultdict(set)
        """By address, the streams in reports and goodbyes in the synced log."""
        self.dropped: Counter[Event] = Counter()
        """By event, how many times the collector's kernel dropped it."""
        self.goodbyes: set[str] = set()
        """Addresses from which a complete goodbye is in the synced log."""
        self._parts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        """By address, the packets of goodbyes in the synced log."""
        self.announced: set[int] = set()
        """Programs of which an announcement is in the synced log."""
        self.torn: set[str] = set()
        """Sessions whose connection ended within a packet."""
        self.live: Callable[[Ingest], object] = lambda _: None
        """Function that returns what a reader may ask the collector; set if a reader looks at the table."""
        self.committed_also: Callable[[Sequence[Row], Any], None] = lambda *_: None
        """Function that is called with the rows of the table, and with the result of `live` when the newest rows were
        taken.
        """
        self._taken: dict[int, Taken] = {}
        """By position in the log, rows that were taken and are not committed.

        Two batches may be on their way to the table.
        """
        self._turns: Counter[int] = Counter()
        """By program, the turn of the newest answer."""
        self._programs: dict[str, tuple[int, str]] = {}
        """By announced session, its program and address."""
        self._seen = 0
        """Position in the log up to which entries were read."""
        self._events = {0: 0}
        """By position in the log, the number of different events in the entries below it."""
        self._opened: dict[int, dict[str, str]] = {}
        self._rests: dict[int, bytes] = {}
        """By connection, the packet that is not complete yet."""
        self._whole: dict[tuple[int, int], int] = {}
        """By program and stream, a number: all events below it are durable or reported."""

    def goodbyes_of(self, address: str) -> Sequence[dict[str, Any]]:
        """Return the packets of goodbyes from an address in the synced log."""
        return self._parts[address]

    # Calls for the client's side

    def introduced(self, session: str, program: int, address: str) -> None:
        """Record that a program's client will announce this session."""
        self._programs[session] = program, address

    def sent(self, program: int, data: bytes) -> None:
        """Check the bytes that a client offers to its kernel."""
        for report in words.reports(data):
            for stream, first, count in report["ranges"]:
                self.reported[program, stream].add(first, first + count)

    # Calls for the collector's side

    def lost(self, datagram: bytes) -> None:
        """Record that the collector's kernel dropped a datagram."""
        self.dropped.update(_words(datagram).events)

    def came(self, entry: Entry) -> None:
        """Check an entry of the log that the collector decodes. It decodes some entries again in its next life."""
        if self.sees and entry.position >= self._seen:
            self._seen = entry.end
            self._entry(entry)
            self._events[entry.end] = self.durable.count

    def _entry(self, entry: Entry) -> None:
        number, payload = entry.session, entry.payload
        if entry.kind == EntryKind.OPEN:
            info = msgspec.msgpack.decode(payload)
            if info["transport"] != "tail":
                self._opened[number] = {name: info[name] for name in ("peer", "session")}
        elif number and number not in self._opened:
            pass  # This is the session of a file.
        elif entry.kind == EntryKind.DATAGRAMS:
            count = int.from_bytes(payload[:4], "little")
            self._bytes(number, payload[4 + 4 * count :])
        elif entry.kind == EntryKind.DATA:
            rest = self._bytes(number, self._rests.pop(number, b"") + payload)
            if rest:
                self._rests[number] = rest
        elif entry.kind == EntryKind.CLOSE and self._rests.pop(number, b""):
            self.torn.add(self._opened[number]["session"])

    def _bytes(self, number: int, data: bytes) -> bytes:
        said = _words(data)
        for event in said.events:
            self.durable.add(event)
            self.first.setdefault(event[:2], event.number)
        for announcement in said.announcements:
            self.announced.add(self._programs[announcement["session"]][0])
        peer = self._opened[number]["peer"]
        for report in said.reports:
            for stream, first, count in report["ranges"]:
                self.heard[peer, stream].add(first, first + count)
                self.named[peer].add(stream)
        if said.goodbyes:
            self.named[peer].update(
                int(stream) for each in said.goodbyes for stream in each["streams"]
            )
            self._parts[peer] += said.goodbyes
            if words.is_whole(self._parts[peer]):
                self.goodbyes.add(peer)
        return said.rest

    def answered(self, data: bytes) -> None:
        """Check an answer of the collector. It may acknowledge only what is on its disk."""
        demand(len(data) <= ANSWER_MAX, "an answer that is too long", len(data))
        if not self.sees:
            return
        for answer in _words(data).answers:
            program, address = self._programs[answer["session"]]
            turn = answer["turn"]
            well = type(turn) is int and turn >= self._turns[program]
            demand(well, "an answer without its turn", (program, answer))
            self._turns[program] = turn
            if answer["goodbye"]:
                demand(address in self.goodbyes, "an answer to no goodbye", answer)
            holes: defaultdict[int, Spans] = defaultdict(Spans)
            for stream, first, count in answer["holes"]:
                holes[stream].add(first, first + count)
            given_up = answer.get("given_up", {})
            for stream, number in answer["streams"].items():
                lacking = self._lacking(program, int(stream), number, holes[int(stream)])
                about = (program, answer)
                demand(lacking <= given_up.get(stream, 0), "an answer before the disk", about)

    def _lacking(self, program: int, stream: int, below: int, holes: Spans) -> int:
        """Return how many events below a number are neither durable nor in a hole nor reported."""
        key = program, stream
        durable, reported = self.durable.of[key], self.reported[key]
        whole, before = self._whole.get(key, 0), -1
        while whole != before:
            whole, before = reported.beyond(durable.beyond(whole)), whole
        self._whole[key] = whole
        return sum(
            following - first
            for span in durable.missing(whole, below)
            for part in reported.missing(*span)
            for first, following in holes.missing(*part)
        )

    def taken(self, ingest: Ingest) -> None:
        """Record that the collector takes all rows up to the ingest's position, to commit them."""
        if not self.sees:
            return
        told = {}
        for source in SOURCES:
            try:
                assert_conserved(ingest, source)
            except AssertionError as error:
                raise Violation("out of balance", error) from error
            account = ingest.account(source)
            awaited = sum(events for _, _, events in ingest.awaited(source))
            told[source] = account.seen - account.duplicates, account.missing - awaited
        position = ingest.position
        self._taken[position] = Taken(told, self._events[position], self.live(ingest))

    def claimed(self, position: int) -> None:
        """Check the collector's statement that the table has every row below a position."""
        if self.sees and not self.forgets:
            events, stored = self._events[position], self.book.stored.count
            demand(events <= stored, "called committed, and not in the table", (events, stored))

    def committed(self, rows: Sequence[Row], position: int) -> None:
        """Check the table after the commit of the rows that were taken at a position."""
        if not self.sees:
            return
        book = self.book
        book.go_on(rows)
        taken = self._taken[position]
        self._taken = {at: each for at, each in self._taken.items() if at > position}
        for source, told in taken.told.items():
            sums = book.spans[source], book.missing[source]
            demand(sums == told, "the ledger and the rows disagree", (source, sums, told))
        if taken.events != book.stored.count and not self.forgets:
            self._compare()
        self.committed_also(rows, taken.live)

    def _compare(self) -> None:
        for (program, stream), spans in self.durable.of.items():
            stored = self.book.stored.of[program, stream]
            for span in spans.ranges():
                lacking = list(stored.missing(*span))
                demand(not lacking, "taken in and not stored", (program, stream, lacking[:9]))
        raise Violation("stored and never taken in", (self.durable.count, self.book.stored.count))


def _is_plain(scenario: Scenario) -> bool:
    transports = {f.transport for f in scenario.facts if isinstance(f, facts.Begin)}
    firsts = {f.first for f in scenario.facts if isinstance(f, facts.Begin)}
    other = any(
        isinstance(f, facts.Garble | facts.Flood | facts.Discard | facts.Reload | facts.Rot)
        or (isinstance(f, facts.LoseName) and f.is_for_good)
        for f in scenario.facts
    )
    return transports <= {"udp", "tcp", "raw"} and firsts <= {0} and not other


def _words(data: bytes) -> words.Words:
    """Return the contents of bytes; nothing if they are no packets."""
    try:
        return words.read(data)
    except ValueError:
        return words.Words([], [], [], [], [], b"")
