"""Run the ingest as a state machine: spool entries are the input, and a batch of rows is the output.

`apply` and `steps` process entries. An ingest that is restored from a snapshot and processes the entries after it
produces the same rows as the ingest that made the snapshot. `Damage` writes gap rows if the disk has lost parts
of the log. `Ahead` computes the open sessions at the end of the log while the daemon still decodes an older part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

from tailrace.decoding.contract import asked_names
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announced import ClientAnswer, answers
from tailrace.ingest.clocks import Paces
from tailrace.ingest.heartbeats import COUNTER_BITS, INFO, HeartbeatSession
from tailrace.ingest.incarnation_rows import OwnRows
from tailrace.ingest.session import Session
from tailrace.ingest.shared import Shared
from tailrace.ingest.state import (
    DamageState,
    IncarnationState,
    IngestState,
    SessionState,
    Tally,
    decode,
    encode,
    upgraded,
)
from tailrace.ingest.unfinished import Unfinished, UnfinishedSnapshot, since
from tailrace.ledger.bounds import Commons
from tailrace.model.gap import Account
from tailrace.rows.batch import Batch
from tailrace.spool.entry import LAST, Datagrams, Entry, EntryKind, unpack_document
from tailrace.spool.payloads import DropCount, FileFacts, FileLoss, FileState, Heartbeat, OpenInfo

DAY_NS = 86_400 * 10**9

# Constants for enum members, because Python takes 0.1 µs to look up an enum member
_DATA, _DATAGRAMS, _CLOSE = EntryKind.DATA, EntryKind.DATAGRAMS, EntryKind.CLOSE
_OF_SESSION = (
    _DATA, _DATAGRAMS, _CLOSE, EntryKind.DOCUMENT, EntryKind.FILE, EntryKind.LOSS
)  # fmt: skip


def read_state(snapshot: bytes) -> IngestState:
    """Decode and upgrade the state in a snapshot. Raise KeyError for a version that `can_upgrade` rejects."""
    return decode(upgraded(snapshot), IngestState)


class Rejected(NamedTuple):
    """A session whose peer the daemon should disconnect, and the reason."""

    number: int
    why: Literal["garbage", "too many pending bytes", "too many new sessions"]


class Ingest:
    """Processes the sessions of all sources, and the daemon's own session."""

    def __init__(
        self, state: IngestState | None = None, lacking: Mapping[int, int] | None = None
    ) -> None:
        """Continue from `state`, or begin at the start of the log. `lacking` has, by session number, the number of
        bytes that the spool has lost."""
        self.state = state or IngestState()
        self.rejected: list[Rejected] = []
        self.batch = Batch()
        self.shared = Shared(self.state, self.batch)
        self.paces, self.budget = self.shared.paces, self.shared.budget
        self._sessions: dict[int, Session] = {}
        self._waiting: set[int] = set()
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(Unfinished)
        self._halfway = ""
        """Source of the spool entry that `steps` is processing; empty between two entries."""
        for number, saved in self.state.sessions.items():
            session = self._sessions[number] = Session(saved, self.shared)
            self._unfinished[saved.info.source].hold(number, session.decoder.pending)
            self.budget.look(session)
            if session.generations.waiting:
                self._waiting.add(number)
        attach = partial(self.shared.attach_with, INFO, COUNTER_BITS, Paces(0))
        self.heartbeats = HeartbeatSession(self.state, self.tally(INFO.source), attach)
        self._damage = Damage(
            self.state.damage, self._sessions, self.shared, self.heartbeats, lacking or {}
        )

    @classmethod
    def restore(cls, snapshot: bytes) -> Ingest:
        """Return an ingest that continues from a snapshot. Raise KeyError for a version that `can_upgrade` rejects."""
        return cls(read_state(snapshot))

    def snapshot(self) -> bytes:
        """Encode the ingest's complete state, including the bytes of unfinished records."""
        return self.checkpoint(self.position + 1).state

    def checkpoint(self, named_from: int) -> UnfinishedSnapshot:
        """Return the encoded state for a checkpoint. Leave out long unfinished records that begin at or after the
        spool position `named_from`."""
        for number, session in self._sessions.items():
            self.state.sessions[number] = session.save(named_from)
        snapshot = UnfinishedSnapshot(encode(self.state), since(self.state))
        for session in self._sessions.values():
            session.saved()
        return snapshot

    # Methods that return figures about the sessions

    @property
    def position(self) -> int:
        return self.state.position

    @property
    def now(self) -> int:
        """Return the time (Unix ns) of the last processed spool entry."""
        return self.state.now

    def wall(self, time: int) -> int:
        return time + self.state.ahead

    @property
    def waiting(self) -> bool:
        """Return whether missing events may still arrive late. A later timer entry (tick) in the spool ends the
        wait."""
        announced = any(a.waiting for a in self.shared.announced.values())
        return bool(self._waiting) or announced or self.heartbeats.waiting

    def open_windows(self, source: str) -> int:
        connections = sum(self._sessions[n].state.info.source == source for n in self._waiting)
        return connections + self.shared.announced[source].open_windows

    def awaited(self, source: str) -> Iterator[tuple[str, str, int]]:
        """Yield session, stream and count of the missing events that may still arrive late and have no gap row."""
        waiting = (self._sessions[number] for number in sorted(self._waiting))
        mine = (session for session in waiting if session.state.info.source == source)
        unannounced = (each for session in mine for each in session.generations.awaited)
        for each in (*unannounced, *self.shared.announced[source].awaited()):
            for stream, events in each.awaited().items():
                yield each.state.name, stream, events

    def open_sessions(self) -> dict[int, OpenInfo]:
        """Return the payload of each open session's OPEN entry, by session number."""
        return {number: session.state.info for number, session in self._sessions.items()}

    def files(self, numbers: Iterable[int]) -> dict[int, FileState]:
        """Return the file of each given session that reads a file, by session number."""
        found = ((number, self._sessions.get(number)) for number in numbers)
        return {n: session.state.file for n, session in found if session and session.state.file}

    def account(self, source: str) -> Account:
        """Return the counts of a source's expected, seen, missing and duplicate events, over all its sessions."""
        total = Account()
        total.add(self.tally(source).events)
        for session in self._sessions.values():
            if session.source == source:
                for each in session.generations.unannounced:
                    total.add(each.account)
        total.add(self.shared.announced[source].account)
        if source == INFO.source:
            total.add(self.heartbeats.account)
        return total

    def asked_names(self, source: str) -> int:
        """Return the number of names to which the events of a source refer and which their sessions do not define."""
        mine = (each.decoder for each in self._sessions.values() if each.source == source)
        return self.tally(source).asked + sum(len(asked_names(decoder)) for decoder in mine)

    def pending(self, source: str) -> int:
        """Return how many received bytes are not decoded yet, including those of the entry in progress."""
        if source == self._halfway:
            tally = self.tally(source)
            return tally.received - tally.decoded - tally.malformed
        return self._unfinished[source].total

    def tally(self, source: str) -> Tally:
        return self.shared.tally(source)

    def common(self, source: str) -> Commons:
        return self.shared.common[source]

    def source_of(self, number: int) -> str:
        """Return the name of a session's source; "" if the session is not open."""
        session = self._sessions.get(number)
        return session.state.info.source if session else ""

    def slow(self, before: int) -> list[int]:
        """Return the sessions whose unfinished record began to arrive before the time `before` (Unix ns)."""
        states = (session.state for session in self._sessions.values())
        return [s.number for s in states if s.record_since and s.record_since < before]

    @property
    def has_news(self) -> bool:
        """Return whether an acknowledgement may be due for some client. The result becomes true only while an entry is
        processed."""
        return any(each.news for each in self.shared.announced.values())

    def acknowledgements(self, can_reply: Callable[[int], bool]) -> Iterator[ClientAnswer]:
        """Yield acknowledgements for clients, of at most 1200 bytes each. The caller may process spool entries between
        two acknowledgements. `can_reply` returns whether a session's client can be reached now. Checkpoints do not
        record what was acknowledged: after a restart, all streams are acknowledged anew."""
        for announcements in list(self.shared.announced.values()):
            for known in announcements.tell(can_reply):
                pack, voice = FORMATS[known.state.info.format].acknowledge, known.state.voice
                if pack and voice is not None:
                    yield from answers(known, voice, pack, self.state.now)

    # Methods that process spool entries

    def apply(self, entry: Entry) -> None:
        for _ in self.steps(entry):
            pass

    def steps(self, entry: Entry) -> Iterator[None]:
        """Process the next entry, and yield between two steps so that other work can run. Skip data of a session
        that is not open. Between two steps, the state corresponds to no position of the log, so no rows may be taken
        and no state saved."""
        before, now, kind = self.state.now, entry.time_ns, entry.kind
        self.state.now = now
        self.batch.day = self.wall(now) // DAY_NS
        if self._damage.due:
            self._damage.tell()
        session = self._sessions.get(entry.session)
        if kind not in _OF_SESSION:
            self._of_log(entry, before, now)
        elif session and kind == _CLOSE:
            self._close(entry.session, entry.payload.decode(), now)
        elif session:
            self._halfway = session.source
            if kind == _DATA:
                yield from session.data(entry.payload, now, entry.position)
                self._hold(session, now)
            elif kind == _DATAGRAMS:
                yield from session.datagrams(Datagrams(entry.payload), now)
            elif kind == EntryKind.DOCUMENT:
                name, part, more = unpack_document(entry.payload)
                session.document(name, part, now, more=more)
            elif kind == EntryKind.FILE:
                session.file(decode(entry.payload, FileFacts) if entry.payload else None, now)
                self._hold(session, now)
            else:
                session.loss(decode(entry.payload, FileLoss))
            self._limit(session, now)
            self._halfway = ""
        self.state.position = entry.end

    def _of_log(self, entry: Entry, before: int, now: int) -> None:
        """Process an entry that opens a session or concerns no single session. `before` is the previous entry's
        time."""
        kind = entry.kind
        if kind == EntryKind.OPEN:
            self._open(entry)
        elif kind == EntryKind.START:
            self._started(before, now)
        elif kind in (EntryKind.TICK, EntryKind.STOP):
            self._of_all(kind, now)
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

    def _started(self, before: int, now: int) -> None:
        """Process the start of a daemon. No daemon has run since the time `before`."""
        for _, announcements in sorted(self.shared.announced.items()):
            announcements.started(before, now)
        for source in self.state.departures:
            self.shared.departed[source].stood_still(now - before)
        self.heartbeats.end("collector restart", now)

    def _of_all(self, kind: EntryKind, now: int) -> None:
        """Process a tick of the spool (timer entry), or the stop of a daemon."""
        if kind == EntryKind.STOP:
            files = [n for n in sorted(self._sessions) if self._sessions[n].state.file]
            for number in files:
                self._sessions[number].settle(now)
                self._hold(self._sessions[number], now)
            contents = {number: self._sessions[number].content for number in files}
            alike = Counter(contents.values())
            for number in files:
                self._sessions[number].stopped(now, is_alike=alike[contents[number]] > 1)
        for number in sorted(self._waiting):
            generations = self._sessions[number].generations
            generations.expire(now) if kind == EntryKind.TICK else generations.settle(now)
            self._watch(number)
            self.budget.weigh(self._sessions[number], now)
        for _, announcements in sorted(self.shared.announced.items()):
            announcements.expire(now) if kind == EntryKind.TICK else announcements.settle(now)
            announcements.weigh(now)
        self.heartbeats.expire(now) if kind == EntryKind.TICK else self.heartbeats.end("stop", now)

    def _end_all(self, now: int) -> None:
        """End all sessions except those of files, which a later run of the daemon may continue."""
        for number in sorted(n for n, s in self._sessions.items() if not s.state.file):
            self._close(number, "collector ended", now)
        for _, announcements in sorted(self.shared.announced.items()):
            announcements.forget_all("collector ended", now)

    def _open(self, entry: Entry) -> None:
        info = decode(entry.payload, OpenInfo)
        self.tally(info.source).opened += 1
        file = FileState(info.file, crc=0) if info.file else None
        first = IncarnationState(info.session)
        head = None if info.transport == "udp" else b""
        state = SessionState(entry.session, info, first, last=entry.time_ns, file=file, head=head)
        for name in info.replaces if FORMATS[info.format].files.pieces else ():
            self.shared.pieces[info.source].replaced(name)
        session = self._sessions[entry.session] = Session(state, self.shared)
        session.generations.opened(entry.time_ns)

    def _limit(self, session: Session, now: int) -> None:
        """Enforce the memory limits, and reject peers with too many new sessions or unreadable bytes."""
        self.budget.weigh(session, now)
        self.shared.announced[session.source].weigh(now)
        number, info = session.state.number, session.state.info
        if session.state.refusing and info.connected:
            self.rejected.append(Rejected(number, "too many new sessions"))
        if info.garbage_max and session.state.garbage > info.garbage_max:
            self.rejected.append(Rejected(number, "garbage"))
        self._watch(number)

    def _hold(self, session: Session, now: int) -> None:
        """Count the bytes of an unfinished record. While the source exceeds `pending_max`, drop the source's largest
        unfinished record."""
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
        self.shared.announced[session.source].weigh(now)
        self.tally(session.state.info.source).closed += 1
        self._waiting.discard(number)
        self.state.sessions.pop(number, None)

    def _watch(self, number: int) -> None:
        if self._sessions[number].generations.waiting:
            self._waiting.add(number)
        else:
            self._waiting.discard(number)

    # Methods for spool entries that the disk has lost

    def pass_over(self, position: int, *, replayed: bool = False) -> None:
        """Continue at `position`, because the disk has lost the entries before it. Write a gap row for each session,
        because any session may lack these bytes. If `replayed`, the daemon reads entries again at its start: count
        the lost bytes, and let `tell_lacking` schedule the rows later."""
        self._damage.passed_over(position - self.state.position, replayed=replayed)
        self.state.position = position

    def tell_lacking(self) -> int:
        """Schedule gap rows for the bytes that this start of the daemon could not read, and return the number of these
        bytes. Also report again the failures of plug-ins during the replay, because the rows that the replay made
        about them were discarded."""
        for session in self._sessions.values():
            session.replayed()
        return self._damage.replayed()


class Damage:
    """Counts the bytes of the log that the disk has lost and that no gap row reports yet. `state` contains the
    losses to report before the next entry; the other attributes contain those that this start of the daemon has
    found."""

    def __init__(
        self,
        state: DamageState,
        sessions: Mapping[int, Session],
        shared: Shared,
        heartbeats: HeartbeatSession,
        lacking: Mapping[int, int],
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._shared = shared
        self._heartbeats = heartbeats
        self._replayed = DamageState({str(number): size for number, size in lacking.items()})
        self._bytes = sum(lacking.values())
        self.due = bool(state.lacking or state.of_heartbeats or state.unsaid)
        """Whether gap rows about lost parts of the log must be written before the next entry is processed."""

    def passed_over(self, size: int, *, replayed: bool) -> None:
        """Write a gap row for each session, because any session may lack `size` bytes. If no session is open, the next
        one to open gets the row. During a replay, only remember the bytes."""
        if replayed:
            self._replayed.add(DamageState(dict.fromkeys(self._concerned(), size), size))
            self._bytes += size
        elif not self._say_of_all(size):
            self._state.unsaid += size
            self.due = True

    def replayed(self) -> int:
        """Schedule gap rows for the losses that this start of the daemon has found. Return the number of lost bytes."""
        lost, self._bytes = self._bytes, 0
        self._state.add(self._replayed)
        self._replayed = DamageState()
        self.due |= lost > 0
        return lost

    def tell(self) -> None:
        """Write gap rows for the losses in the affected sessions or, if none of these is open, in all open sessions.
        Without any open session, keep the losses for the next one."""
        state = self._state
        lacking, state.lacking = state.lacking, {}
        lost, state.of_heartbeats = state.of_heartbeats, 0
        said = bool(lost) and self._heartbeats.damaged(lost)
        told: dict[OwnRows, int] = {}
        for key, own in self._concerned().items():
            if size := lacking.get(key):
                told.setdefault(own, size)
        for own, size in told.items():
            own.damaged(size)
        if not (said or told):
            state.unsaid += max(lost, *lacking.values(), 0)
        if state.unsaid and self._say_of_all(state.unsaid):
            state.unsaid = 0
        self.due = state.unsaid > 0

    def _say_of_all(self, size: int) -> bool:
        """Write a gap row about `size` lost bytes for each open session. Return whether any session was open."""
        concerned = dict.fromkeys(self._concerned().values())
        for own in concerned:
            own.damaged(size)
        return self._heartbeats.damaged(size) or bool(concerned)

    def _concerned(self) -> dict[str, OwnRows]:
        """Return the row writer of each open session, by key of `DamageState.lacking` (number or `source/id`)."""
        found: dict[str, OwnRows] = {}
        for number in sorted(self._sessions):
            found[str(number)] = self._sessions[number].generations.current.own
        for source, announced in sorted(self._shared.announced.items()):
            for id_, incarnation in announced.incarnations():
                found[f"{source}/{id_}"] = incarnation.own
        return found


class Ahead:
    """Computes the open sessions at the end of the log, without decoding the data after the ingest's position. Sources
    of files cannot use this result: they wait for the decoder, because the offset of a file depends on all entries."""

    def __init__(self, ingest: Ingest) -> None:
        self.sessions: dict[int, OpenInfo] = ingest.open_sessions()
        self.now = ingest.now
        """Time (Unix ns) of the last processed spool entry."""
        self.clock = ingest.state.ahead
        """Number of nanoseconds to add to the time of a spool entry, to get wall time."""
        self._ingest = ingest
        self._told: dict[str, DropCount] = {}

    def apply(self, entry: Entry) -> None:
        self.now = entry.time_ns
        if entry.kind == EntryKind.OPEN:
            self.sessions[entry.session] = decode(entry.payload, OpenInfo)
        elif entry.kind == EntryKind.CLOSE:
            self.sessions.pop(entry.session, None)
        elif entry.kind == EntryKind.STOP and entry.payload == LAST:
            self.sessions = {number: info for number, info in self.sessions.items() if info.file}
        elif entry.kind == EntryKind.CLOCK:
            self.clock = decode(entry.payload, int)
        elif entry.kind == EntryKind.DROPS:
            dropped = decode(entry.payload, DropCount)
            self._told[dropped.source] = dropped

    def drops_told(self, source: str, socket: int) -> int:
        """Return how many dropped datagrams of a socket the log has reported. `socket` is the kernel's identifier of
        the socket."""
        last = self._told.get(source)
        if last is None:
            return self._ingest.common(source).drops.told(socket)
        return last.total if last.socket == socket else 0
