"""The ingest as a machine: spool entries go in, a batch of rows comes out.

`apply` is the only thing that changes its state, and a snapshot of the state at some position plus
the entries from there on give what the original gave: a start relies on that (ARCHITECTURE,
"The life of a byte").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announced import Announcements
from tailrace.ingest.answers import Answer, answers
from tailrace.ingest.budget import Budget
from tailrace.ingest.departures import Departures, host_of
from tailrace.ingest.heartbeats import COUNTER_BITS, INFO, Heartbeats
from tailrace.ingest.pace import Paces
from tailrace.ingest.run import Run
from tailrace.ingest.session import Session
from tailrace.ingest.state import (
    DropCount,
    FileFacts,
    FileState,
    Heartbeat,
    IngestState,
    Loss,
    OpenInfo,
    RunState,
    SessionState,
    Tally,
    decode,
    encode,
)
from tailrace.ingest.unfinished import Snapshot, Unfinished, since
from tailrace.ingest.upgrade import upgraded
from tailrace.ledger.commons import Commons, CommonsState
from tailrace.ledger.findings import Account
from tailrace.model.columns import Batch
from tailrace.spool.entry import LAST, Entry, EntryKind, unpack_datagrams, unpack_document

DAY_NS = 86_400 * 10**9

_OF_ALL = frozenset({EntryKind.START, EntryKind.TICK, EntryKind.STOP})


def read_state(snapshot: bytes) -> IngestState:
    """Return the state in a snapshot of this version or of one that `can_upgrade`."""
    return decode(upgraded(snapshot), IngestState)


class Quarantined(NamedTuple):
    """A frame for the quarantine: which file, where in it, what."""

    session: str
    at: int
    frame: bytes


class Rejected(NamedTuple):
    """A session whose peer should be cut off, and why."""

    number: int
    why: Literal["garbage", "too many pending bytes"]


class Ingest:
    """The sessions of all sources, and the daemon's own.

    `batch` and `quarantined` collect what `apply` yields until `take` is called; `rejected` the
    sessions whose peer sends nothing readable, or held the most of too many pending bytes.
    """

    def __init__(
        self, state: IngestState | None = None, lacking: Mapping[int, int] | None = None
    ) -> None:
        """`lacking` are the bytes, by session, that a state left to the spool and that are not there."""
        self.state = state or IngestState()
        self._lacking = dict(lacking or {})
        self._passed_over = 0
        """Replayed bytes that heartbeats may lack."""
        self.batch = Batch()
        self.quarantined: list[Quarantined] = []
        self.rejected: list[Rejected] = []
        self.paces = Paces()
        """How fast the clocks of producers' sessions go."""
        self._day = 0
        self._commons: dict[str, Commons] = {}
        self._announcements: dict[str, Announcements] = {}
        self._departures: dict[str, Departures] = {}
        self._sessions: dict[int, Session] = {}
        self.budget = Budget()
        """What sessions hold of their producers' making."""
        self._waiting: set[int] = set()
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(Unfinished)
        """By source, the bytes of records that are not whole yet."""
        for source in self.state.announced:
            self._announced(source)
        for number, saved in self.state.sessions.items():
            session = self._sessions[number] = self._session(saved)
            self._unfinished[saved.info.source].hold(number, session.decoder.pending)
            self.budget.add(session)
            if session.course.waiting:
                self._waiting.add(number)
        attach = partial(self._run, INFO, bits=COUNTER_BITS, paces=Paces(0))
        self.heartbeats = Heartbeats(self.state, self.tally(INFO.source), attach)

    @classmethod
    def restore(cls, snapshot: bytes) -> Ingest:
        """Go on from a snapshot, of this version or one that `can_upgrade`."""
        return cls(read_state(snapshot))

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return self.checkpoint(self.position + 1).state

    def checkpoint(self, named_from: int) -> Snapshot:
        """Return the state without the bytes of unfinished records that the spool has from this
        position on, except short ones."""
        for number, session in self._sessions.items():
            self.state.sessions[number] = session.save(named_from)
        snapshot = Snapshot(encode(self.state), since(self.state))
        for session in self._sessions.values():
            session.saved()
        return snapshot

    @property
    def position(self) -> int:
        return self.state.position

    @property
    def now(self) -> int:
        """The time of the last entry (Unix ns)."""
        return self.state.now

    def wall(self, time: int) -> int:
        """Return the wall time (Unix ns) of a time of the log."""
        return time + self.state.ahead

    @property
    def waiting(self) -> bool:
        """Whether time alone has something to bring: then ticks are wanted."""
        announced = any(a.waiting for a in self._announcements.values())
        return bool(self._waiting) or announced or self.heartbeats.waiting

    def open_windows(self, source: str) -> int:
        """How many sessions of a source wait for what may come late."""
        connections = sum(self._sessions[n].state.info.source == source for n in self._waiting)
        return connections + self._announced(source).open_windows

    def awaited(self, source: str) -> Iterator[tuple[str, str, int]]:
        """Yield session, stream and number of a source's events that may still come and are in no gap
        row yet."""
        waiting = (self._sessions[number] for number in sorted(self._waiting))
        mine = (session for session in waiting if session.state.info.source == source)
        runs = (run for session in mine for run in session.course.awaited)
        for run in (*runs, *self._announced(source).awaited()):
            for stream, events in run.awaited().items():
                yield run.state.name, stream, events

    def apply(self, entry: Entry) -> None:
        """Take the next entry. Entries of sessions that are not open are passed over: they are
        what a peer sent after it was cut off."""
        before, now = self.state.now, entry.time_ns
        self.state.now = now
        kind = entry.kind
        self._day = self.wall(now) // DAY_NS
        if kind == EntryKind.OPEN:
            self._open(entry)
        elif kind in _OF_ALL:
            self._of_all(kind, before, now)
            if kind == EntryKind.STOP and entry.payload == LAST:
                self._end_all(now)
        elif kind == EntryKind.CLOCK:
            self.state.ahead = decode(entry.payload, int)
        elif kind == EntryKind.DROPS:
            dropped = decode(entry.payload, DropCount)
            drops = self.common(dropped.source).drops
            drops.add(dropped.since, now, dropped.count)
            drops.tell(dropped.socket, dropped.total)
        elif kind == EntryKind.HEARTBEAT:
            self.heartbeats.beat(decode(entry.payload, Heartbeat), len(entry.payload), now)
        elif session := self._sessions.get(entry.session):
            self._feed(session, entry)
        self.state.position = entry.end

    def _of_all(self, kind: EntryKind, before: int, now: int) -> None:
        """What concerns the sessions of all sources; `before` is when the last entry came."""
        sources = [self._announcements[source] for source in sorted(self._announcements)]
        if kind == EntryKind.START:
            for announcements in sources:
                announcements.started(before, now)
            for source in self.state.departures:
                self._departed(source).stood_still(now - before)
            self.heartbeats.end("collector restart", now)
            return
        if kind == EntryKind.STOP:
            for number in sorted(self._sessions):
                self._sessions[number].stopped(now)
        for number in sorted(self._waiting):
            course = self._sessions[number].course
            course.expire(now) if kind == EntryKind.TICK else course.settle(now)
            self._watch(number)
            self.budget.weigh(self._sessions[number], now)
        for announcements in sources:
            announcements.expire(now) if kind == EntryKind.TICK else announcements.settle(now)
            announcements.weigh(now)
        self.heartbeats.expire(now) if kind == EntryKind.TICK else self.heartbeats.end("stop", now)

    def _end_all(self, now: int) -> None:
        """Nobody comes back. Files may: they are read on by another life of the daemon."""
        for number in sorted(n for n, s in self._sessions.items() if not s.state.file):
            self._close(number, "collector ended", now)
        for source in sorted(self._announcements):
            self._announcements[source].forget_all("collector ended", now)

    def pass_over(self, position: int, *, replayed: bool = False) -> None:
        """Entries up to a position are lost to the disk: every session says that it may lack some.
        What its counters then miss is found as ever.

        When entries are `replayed`, whose rows are in the table, sessions say so in `tell_lacking`: rows
        made until then are dropped, and what the counters do not know any more they will call missing."""
        size = position - self.state.position
        if replayed:
            for number in self._sessions:
                self._lacking[number] = self._lacking.get(number, 0) + size
            self._passed_over += size
        else:
            for number in sorted(self._sessions):
                self._sessions[number].damaged(size)
            self.heartbeats.damaged(size)
        self.state.position = position

    def tell_lacking(self) -> int:
        """Say in rows which sessions lack bytes since the start; return how many bytes.

        They are of unfinished records that the state left to the spool, or were passed over."""
        lacking, self._lacking = self._lacking, {}
        if self._passed_over:
            self.heartbeats.damaged(self._passed_over)
            self._passed_over = 0
        for number in sorted(self._sessions.keys() & lacking.keys()):
            self._sessions[number].damaged(lacking[number])
        return sum(lacking.values())

    def take(self) -> tuple[Batch, list[Quarantined]]:
        """What has come since the last call."""
        batch, quarantined = self.batch, self.quarantined
        self.batch, self.quarantined = Batch(), []
        return batch, quarantined

    def open_sessions(self) -> dict[int, OpenInfo]:
        """The sessions in being, by number."""
        return {number: session.state.info for number, session in self._sessions.items()}

    def files(self, source: str) -> dict[int, FileState]:
        """The files of a source's sessions in being, by number."""
        states = (session.state for session in self._sessions.values())
        return {s.number: s.file for s in states if s.file and s.info.source == source}

    def account(self, source: str) -> Account:
        """A source's events: of ended sessions and of those in being."""
        total = Account()
        total.add(self.tally(source).events)
        for session in self._sessions.values():
            if session.state.info.source == source:
                total.add(session.course.account)
        total.add(self._announced(source).account)
        if source == INFO.source:
            total.add(self.heartbeats.account)
        return total

    def pending(self, source: str) -> int:
        """Bytes that decoders of a source hold and no record covers yet."""
        return self._unfinished[source].total

    def tally(self, source: str) -> Tally:
        return self.state.tallies.setdefault(source, Tally())

    def common(self, source: str) -> Commons:
        """What the sessions of a source share."""
        if source not in self._commons:
            state = self.state.commons.setdefault(source, CommonsState())
            self._commons[source] = Commons(state, partial(self._forget_first, source))
        return self._commons[source]

    def _announced(self, source: str) -> Announcements:
        """The sessions of a source that clients announced."""
        if source not in self._announcements:
            states = self.state.announced.setdefault(source, {})
            self._announcements[source] = Announcements(states, self._attach, self.budget)
        return self._announcements[source]

    def _forget_first(self, source: str) -> bool:
        """Let go of a session for the sake of a new stream; whether there was one."""
        return self._announced(source).forget_first(self.state.now, "too many streams")

    def acknowledgements(self, hears: Callable[[int], bool]) -> Iterator[Answer]:
        """What there is to tell clients since the last call, in answers of at most 1200 bytes. `hears`
        says whether a session's peer might take one; what is for others waits, as does what was not
        taken and what is much for one call. Entries may be applied between two of them. No part of
        the state: after a restart everything is news."""
        for announcements in list(self._announcements.values()):
            for known in announcements.tell(hears):
                pack, voice = FORMATS[known.state.info.format].acknowledge, known.state.voice
                if pack and voice is not None:
                    yield from answers(known, voice, pack, self.state.now)

    def source_of(self, number: int) -> str:
        """The name of a session's source; empty for a session that is over."""
        session = self._sessions.get(number)
        return session.state.info.source if session else ""

    def slow(self, before: int) -> list[int]:
        """Sessions whose unfinished record began to come before a time (Unix ns)."""
        states = (session.state for session in self._sessions.values())
        return [s.number for s in states if s.record_since and s.record_since < before]

    def _open(self, entry: Entry) -> None:
        info = decode(entry.payload, OpenInfo)
        self.tally(info.source).opened += 1
        file = FileState(info.file, crc=0) if info.file else None
        run = RunState(info.session)
        state = SessionState(entry.session, info, run, last=entry.time_ns, file=file)
        session = self._sessions[entry.session] = self._session(state)
        session.course.opened(entry.time_ns)

    def _feed(self, session: Session, entry: Entry) -> None:
        number, now = entry.session, entry.time_ns
        if entry.kind == EntryKind.DATAGRAMS:
            session.datagrams(unpack_datagrams(entry.payload), now)
        elif entry.kind == EntryKind.DATA:
            session.data(entry.payload, now, entry.position)
            self._hold(session, now)
        elif entry.kind == EntryKind.DOCUMENT:
            name, part, more = unpack_document(entry.payload)
            session.document(name, part, now, more=more)
        elif entry.kind == EntryKind.FILE:
            session.file(decode(entry.payload, FileFacts), now)
        elif entry.kind == EntryKind.LOSS:
            session.loss(decode(entry.payload, Loss))
        else:
            self._close(number, entry.payload.decode(), now)
            return
        self.budget.weigh(session, now)
        self._announced(session.source).weigh(now)
        limit = session.state.info.garbage_max
        if limit and session.state.garbage > limit:
            self.rejected.append(Rejected(number, "garbage"))
        self._watch(number)

    def _hold(self, session: Session, now: int) -> None:
        """Count what is unfinished. Above the limit, the session that holds the most gives way."""
        info = session.state.info
        unfinished = self._unfinished[info.source]
        unfinished.hold(session.state.number, session.decoder.pending)
        while info.pending_max and unfinished.total > info.pending_max:
            number = unfinished.largest()
            largest = self._sessions[number]
            largest.give_way(now)
            unfinished.hold(number, 0)
            if not largest.state.file:
                self.rejected.append(Rejected(number, "too many pending bytes"))
            self._watch(number)

    def _close(self, number: int, reason: str, now: int) -> None:
        session = self._sessions.pop(number)
        self._unfinished[session.state.info.source].hold(number, 0)
        session.closed(reason, now)
        self.budget.drop(session)
        self._announced(session.source).weigh(now)
        self.tally(session.state.info.source).closed += 1
        self._waiting.discard(number)
        self.state.sessions.pop(number, None)

    def _watch(self, number: int) -> None:
        if self._sessions[number].course.waiting:
            self._waiting.add(number)
        else:
            self._waiting.discard(number)

    def _session(self, state: SessionState) -> Session:
        info = state.info
        return Session(
            state, self.tally(info.source), self.common(info.source),
            self._announced(info.source), self._attach,
        )  # fmt: skip

    def _attach(self, info: OpenInfo, state: RunState) -> Run:
        bits = FORMATS[info.format].counter_bits
        departures = None if info.file else self._departed(info.source)
        return self._run(info, state, bits=bits, paces=self.paces, departures=departures)

    def _departed(self, source: str) -> Departures:
        if source not in self._departures:
            self._departures[source] = Departures(self.state.departures.setdefault(source, []))
        return self._departures[source]

    def _run(
        self,
        info: OpenInfo,
        state: RunState,
        *,
        bits: int | None,
        paces: Paces,
        departures: Departures | None = None,
    ) -> Run:
        return Run(
            state, info.ledger, self.tally(info.source), self.common(info.source),
            source=info.source, paces=paces, bits=bits, datagrams=info.transport == "udp",
            host=host_of(info.peer), departures=departures,
            emit=partial(self._emit, info), quarantine=self._keep, wall=self.wall,
        )  # fmt: skip

    def _emit(self, info: OpenInfo, name: str, columns: Sequence[Sequence[Any]], size: int) -> None:
        self.batch.extend(self._day, info.source, info.format, name, columns, size)
        self.tally(info.source).rows += len(columns[0])

    def _keep(self, session: str, at: int, frame: bytes) -> None:
        self.quarantined.append(Quarantined(session, at, frame))
