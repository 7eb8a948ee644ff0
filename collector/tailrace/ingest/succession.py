"""Assign each record of a session to an incarnation (run) of the producer.

If two incarnations may have sent the record, the tables of `lives` decide. If a host exceeds its number of sessions
per second (see `limits.Beginnings`), the following bytes of its datagram or connection are stored as unreadable, and
the connection is closed. A refused datagram has the same effect on the session as a lost one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.ingest.announced import Announced
from tailrace.ingest.generations import Generations
from tailrace.ingest.incarnation import Incarnation
from tailrace.ingest.limits import TOO_MANY_SESSIONS, host_of, whose
from tailrace.ingest.lives import (
    BEGINS,
    INTRODUCTIONS,
    STATEMENTS,
    WHY,
    Course,
    SessionStatement,
    Standing,
    candidates,
    owns,
)
from tailrace.ingest.shared import Shared
from tailrace.ingest.state import SessionState
from tailrace.model.record import Announcement, Kind, Record, SessionFacts, malformed
from tailrace.rows.records import Chunk, ListRecords, Numbered, joined, numbered

_PIECE = 64
"""Maximum number of rows per call of the ledger after a restart of the producer. If these rows show a further restart,
they are divided again; the limit keeps this work small."""


class InputBytes(NamedTuple):
    """A part of a decoder's input. `begin` is the offset of its first byte."""

    begin: int
    data: bytes

    def of(self, offset: int, size: int) -> bytes:
        return self.data[max(0, offset - self.begin) : max(0, offset - self.begin + size)]


_NO_BYTES = InputBytes(0, b"")


class RecordPlace(NamedTuple):
    """Position of a record in a chunk: the index of a part of the chunk, and the row in this part."""

    chunk: Chunk
    part: int
    row: int

    @property
    def record(self) -> Record:
        return self.chunk[self.part].record(self.row)

    def announcement_after(self) -> Announcement | None:
        """Return what the next record states about its session if it announces the session (states its id); otherwise
        None."""
        behind = self.chunk[self.part].behind(self.row)
        facts = behind.detail if behind else None
        return facts.announces if isinstance(facts, SessionFacts) else None

    def event_after(self) -> Numbered | None:
        """Return the first numbered event after this record in the chunk; None if there is none."""
        row = self.row + 1
        for records in islice(self.chunk, self.part, None):
            if event := records.event_from(row):
                return event
            row = 0
        return None


class _TooManySessionsError(Exception):
    """Raised when the record at `offset` would begin a session, but the host has used its quota of sessions."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Succession:
    """Passes the records of one session to the incarnations (producer runs) that `generations` holds."""

    def __init__(self, state: SessionState, shared: Shared, generations: Generations) -> None:
        source = state.info.source
        self._state = state
        self._tally = shared.tally(source)
        self._announcements = shared.announced[source]
        self._generations = generations
        self._unordered = generations.unordered
        self._beginnings = shared.beginnings[source]
        self._host = whose(host_of(state.info.peer))
        self._rate = max(1, state.info.ledger.new_sessions_rate)
        self._refused: list[Record] = []
        """Byte ranges of the current spool entry that were refused because the host began too many sessions."""
        self._speaker: Incarnation | None = None
        """The incarnation (producer run) that receives all further records of the current datagram."""

    def take(self, chunk: Chunk, now: int, raw: InputBytes = _NO_BYTES) -> None:
        """Process the records of a chunk, in order."""
        for _ in self.steps(chunk, now, raw):
            pass
        self.report_refused()

    def steps(self, chunk: Chunk, now: int, raw: InputBytes) -> Iterator[None]:
        """Process the records of a chunk; yield between steps. `raw` has their bytes, which are stored as unreadable if
        the host may begin no further session."""
        if self._state.refusing:
            self._refuse(_begin(chunk), _length(chunk), raw)
            return
        waiting: Chunk = []
        try:
            for at, records in enumerate(chunk):
                if alone := records.alone:
                    waiting = yield from self._mixed(chunk, at, alone, waiting, now)
                else:
                    waiting.append(records)
            yield from self._events(waiting, now)
        except _TooManySessionsError as refused:
            self._state.refusing = True
            self._refuse(refused.offset, _begin(chunk) + _length(chunk) - refused.offset, raw)

    def _mixed(
        self, chunk: Chunk, at: int, alone: Sequence[int], before: Chunk, now: int
    ) -> Generator[None, None, Chunk]:
        """Process the events in `before`, and then the records of `chunk[at]`. `alone` has the indexes of the records
        that are not events. Return the remaining events of `chunk[at]`, which the caller must still process."""
        records = chunk[at].lists()
        begin = 0
        pieces: list[Record] = []
        # Indices of the rows that are not passed on yet, by the number of the process that wrote them.
        waiting: dict[int, list[int]] = {}
        for i in alone:
            record, behind = records.record(i), records.behind(i)
            waiting.setdefault(self._state.process, []).extend(range(begin, i))
            begin = i + 1
            facts = record.detail if isinstance(record.detail, SessionFacts) else None
            if record.kind == Kind.SESSION and facts and facts.process is not None:
                yield from self._events(before, now)
                before = []
                self._generations.turn(facts.process, now)
                continue
            yield from self._waiting(before, records, waiting, now)
            before = []
            if record.kind == Kind.SESSION or (record.kind == Kind.MALFORMED and not pieces):
                yield
            if record.kind == Kind.SESSION:
                # The record may begin or end a producer run.
                owner = self._owner(facts or SessionFacts(), RecordPlace(chunk, at, i), now)
                self.readable(record.size)
                owner.note(self._placed(record), now)
            elif record.kind == Kind.MALFORMED:
                pieces.append(self._placed(record))
                if behind is None or behind.kind != Kind.MALFORMED:
                    self._generations.current.unreadable.take(self._state, pieces)
                    pieces = []
            else:
                self._generations.current.claim(self._placed(record), now)
        rows = [*waiting.pop(self._state.process, []), *range(begin, records.rows)]
        yield from self._waiting([], records, waiting, now)
        return records.pick(rows)

    def _waiting(
        self, before: Chunk, records: ListRecords, waiting: dict[int, list[int]], now: int
    ) -> Iterator[None]:
        """Process the events in `before`, and then those rows of `records` that `waiting` lists for each process that
        wrote them. If `before` has events, `waiting` has rows of only one process, which also wrote these events."""
        here = self._state.process
        for process, rows in waiting.items():
            if events := [*before, *records.pick(rows)]:
                self._generations.turn(process, now)
                yield from self._events(events, now)
        waiting.clear()
        self._generations.turn(here, now)

    def datagram_over(self) -> None:
        """Record the end of a datagram: the next records may belong to another incarnation (producer run)."""
        if self._speaker and self._speaker.state.id in self._announcements:
            self._announcements.heard(self._speaker.state.id)
        self._speaker = None
        self._state.refusing = False

    # Methods that limit the number of new sessions

    def may_refuse(self, now: int) -> bool:
        """Return whether the next record may have to be refused, because the host has used its quota of sessions."""
        state = self._state
        return state.refusing or (
            not state.file and self._beginnings.exhausted(self._host, self._rate, now)
        )

    def refuse(self, raw: InputBytes) -> None:
        """Store bytes of a connection as unreadable, because the host began too many sessions."""
        self._refuse(raw.begin, len(raw.data), raw)
        self.report_refused()

    def report_refused(self) -> None:
        """Write a gap row about the bytes of the current spool entry that were refused."""
        if self._refused:
            pieces = [[piece] for piece in self._refused]
            self._generations.current.own.malformed(self._state, pieces, 0)
            self._refused = []

    def _admit(self, offset: int, now: int) -> None:
        """Count a session that begins at `offset` against the host's quota. Call this before any state changes for the
        session. Raise _TooManySessionsError if the host has used its quota."""
        if not self._state.file and not self._beginnings.admit(self._host, self._rate, now):
            raise _TooManySessionsError(offset)

    def _refuse(self, offset: int, size: int, raw: InputBytes) -> None:
        """Store `size` bytes of refused records as unreadable. `offset` refers to the decoder's input."""
        if size:
            piece = malformed(offset, raw.of(offset, size), TOO_MANY_SESSIONS)._replace(size=size)
            self._refused.append(self._placed(piece))

    # Methods that process records

    def _events(self, chunk: Chunk, now: int) -> Iterator[None]:
        """Process events, and begin a new incarnation at each event whose number shows a restart of the producer."""
        if not chunk:
            return
        shift = self._shift
        if shift:
            chunk = [records.moved(shift) for records in chunk]
        generations = self._generations
        previous = generations.previous
        if generations.doubt and previous and self._speaker in (None, generations.current):
            events = numbered(chunk)
            if any(count is not None for _, count, _ in events):
                self._decide(anew=previous.denies(events), now=now)
        if self._speaker:
            self.readable(_length(chunk))
            self._speaker.take(chunk, now)
            return
        while chunk:
            if generations.previous:
                taken = yield from self._take_apart(generations.previous, joined(chunk), now)
            else:
                taken = generations.current.take(chunk, now)
            self._beginnings.pay(self._host, self._rate, taken)
            before, chunk = _split(chunk, taken)
            self.readable(_length(before))
            if chunk:
                yield
                self._admit(chunk[0].begin - shift, now)
                generations.restart("counter", now)

    def _take_apart(
        self, previous: Incarnation, records: ListRecords, now: int
    ) -> Generator[None, None, int]:
        """Process records of the current or the previous producer run. Return the number of processed records. If any
        records are left, the first of them shows another restart."""
        current = self._generations.current
        epoch = current.state.epoch
        done = 0
        found = candidates(previous, records, epoch)
        while done < records.rows:
            yield
            at = next(found, records.rows)
            done += current.take(first, now) if (first := records.slice(done, at)) else 0
            if done < at:
                return done
            if done < records.rows:
                one = records.slice(at, at + 1)
                linger = self._generations.linger
                repeats = not previous.silent(previous.state.ended_at - linger)
                is_late = owns(previous, joined(one), current, now, repeats=repeats)
                owner = previous if is_late else current
                if not owner.take(one, now):
                    return done
                done += 1
        return done

    def _placed(self, record: Record) -> Record:
        """Return the record with its offset in the bytes of the producer run, over all its connections."""
        shift = self._shift
        return record._replace(offset=record.offset + shift) if shift else record

    @property
    def _shift(self) -> int:
        """Return the number to add to an offset in the decoder's input to get the offset in the producer run's
        bytes."""
        return self._state.skipped + self._state.base

    def readable(self, size: int) -> None:
        """Count decoded bytes, and reset the count of unreadable bytes since the last readable record."""
        self._tally.decoded += size
        self._state.garbage = 0

    # Methods that process epochs, headers, reports of discarded events, and goodbyes (reports that a session ends)

    def _owner(self, facts: SessionFacts, place: RecordPlace, now: int) -> Incarnation:
        """Return the incarnation (producer run) that receives the record at `place`, which states `facts` about its
        session."""
        generations = self._generations
        if facts.announces:
            announced = self._announced(facts.announces, place, now)
            self._speaker = announced if self._unordered else None
            return announced
        passed = self._speaker is not None and self._speaker is not generations.current
        statement = self._statement(facts, place, now)
        course = STATEMENTS[statement][self._standing(statement, place, passed=passed)]
        owner = self._carry_out(course, statement, facts.epoch or 0, place, now)
        if owner is not generations.current or passed:
            return owner
        if facts.epoch is not None and statement is not SessionStatement.HEADER:
            generations.know(facts.epoch, owner.state.name)
        previous = generations.previous
        if generations.doubt and previous and (facts.discarded or facts.goodbye):
            self._decide(anew=previous.denies_statement(facts), now=now)
        return generations.current

    def _statement(self, facts: SessionFacts, place: RecordPlace, now: int) -> SessionStatement:
        """Return the kind of a record that announces no session id, from its facts and the records before it."""
        generations, epoch = self._generations, facts.epoch
        current = generations.current.state
        if epoch is not None and self._unordered:
            name = generations.name_of(epoch)
            if name and name != current.name:
                lingers = generations.previous and generations.previous.state.name == name
                return SessionStatement.PREVIOUS_EPOCH if lingers else SessionStatement.OVER_EPOCH
            if self._is_late(epoch, place, now):
                return SessionStatement.LATE_EPOCH
        if facts.starts and current.records and not self._lacks_header(now):
            return SessionStatement.HEADER
        if epoch is None:
            return SessionStatement.NONE
        if current.epoch is None:
            return SessionStatement.FIRST_EPOCH
        return (
            SessionStatement.SAME_EPOCH if current.epoch == epoch else SessionStatement.OTHER_EPOCH
        )

    def _standing(
        self, statement: SessionStatement, place: RecordPlace, *, passed: bool
    ) -> Standing:
        """Return the `Standing` of the current producer run: whether this run can have sent the record. `passed` states
        that an earlier record has shown that the datagram belongs to another run."""
        current = self._generations.current
        if passed:
            return Standing.PASSED
        if self._generations.doubt:
            return Standing.DOUBT
        if current.empty:
            return Standing.EMPTY
        if statement not in INTRODUCTIONS or (
            statement is SessionStatement.FIRST_ID and not self._unordered
        ):
            return Standing.FITS
        event = place.event_after()
        if event is not None:
            return Standing.DENIED if current.denies([event]) else Standing.FITS
        return Standing.OPEN if self._unordered and not current.state.id else Standing.FITS

    def _carry_out(
        self, course: Course, statement: SessionStatement, epoch: int, place: RecordPlace, now: int
    ) -> Incarnation:
        """Execute the action `course`, which may begin an incarnation (producer run). Return the incarnation that
        receives the record. `epoch` is the stated epoch, or 0. Raise _TooManySessionsError if an incarnation must
        begin and the host has used its quota of sessions."""
        generations = self._generations
        if course in BEGINS:
            self._admit(place.record.offset, now)
        why = WHY.get(statement, "")
        if course is Course.OF_DATAGRAM:
            return self._speaker or generations.current
        if course in (Course.EARLIER, Course.OVER):
            return generations.earlier(epoch)
        if course is Course.LATE:
            late = self._speaker = generations.begin_late(why, now)
            generations.know(epoch, late.state.name)
            return late
        if course is Course.CLOCKED_RESTART:
            before, known = generations.current.lead, generations.current.state.epoch or 0
            generations.restart(why, now, clocked=True)
            generations.current.lead.go_on(before, epoch - known, now, generations.linger)
        elif course is Course.RESTART:
            generations.restart(why, now)
        elif course is Course.DOUBT:
            generations.begin(why, now, in_doubt=True)
        return generations.current

    def _lacks_header(self, now: int) -> bool:
        """Return whether a header may belong to the current producer run, because the run's other datagrams may have
        overtaken the header."""
        current = self._generations.current.state
        overtaken = self._state.info.transport == "udp" and current.clock is None
        return overtaken and current.began > now - self._generations.linger

    def _is_late(self, epoch: int, place: RecordPlace, now: int) -> bool:
        """Return whether an unknown epoch belongs to a producer run that ended before the current one began: the epoch
        is earlier than the current one, and the record's datagram was sent during the last `linger` ns. If the datagram
        was sent earlier, a new run has begun after somebody set the producer's clock back. An announcement (record with
        a session id) states when it was sent; without an announcement, the epoch serves as this time."""
        current = self._generations.current
        known, lead = current.state.epoch, current.lead.at(now)
        if known is None or lead is None or epoch >= known:
            return False
        announcement = place.announcement_after()
        if announcement and announcement.id in self._announcements:
            return False  # the id belongs to a known session, so the client continues it from another address
        apart = known - epoch
        if announcement:
            # Clients repeat their session ids, so a record with an id but without a time may have been sent just before
            # the current run began.
            apart = 0 if announcement.now is None else max(0, apart - announcement.now)
        return now + lead + apart <= self._generations.linger

    # Methods that process announcements: records in which clients state a session's id

    def _announced(self, announcement: Announcement, place: RecordPlace, now: int) -> Incarnation:
        """Return the producer run of the session whose id a record states. Unless the record is late, assign the
        connection to this session."""
        generations, number = self._generations, self._state.number
        known = self._announcements.find(announcement.id, now)
        passed = self._speaker is not None and not self._speaker.state.id
        statement = self._announcement(known, now)
        course = STATEMENTS[statement][self._standing(statement, place, passed=passed)]
        if known is None:
            owner = self._carry_out(course, statement, 0, place, now)
            known = self._announcements.add(announcement.id, owner, self._state.info, number)
        elif course is Course.RESUME:
            if generations.current.state.id:
                self._admit(place.record.offset, now)
            generations.resume(known, place.record.offset, now)
        goes_on = course not in (Course.EARLIER, Course.OF_DATAGRAM)
        known.hear(announcement, number if goes_on else None)
        return known.incarnation

    def _announcement(self, known: Announced | None, now: int) -> SessionStatement:
        """Return the kind of a record that announces a session id. `known` is the session with this id, or None if the
        id is new."""
        generations = self._generations
        if known is None:
            named = generations.current.state.id
            return SessionStatement.OTHER_ID if named else SessionStatement.FIRST_ID
        if known.incarnation is generations.previous or self._was_before(known.incarnation, now):
            return SessionStatement.EARLIER_ID
        same = known.incarnation is generations.current
        return SessionStatement.SAME_ID if same else SessionStatement.KNOWN_ID

    def _was_before(self, incarnation: Incarnation, now: int) -> bool:
        """Return whether an incarnation came before the current one, and its datagrams may still arrive."""
        current = self._generations.current
        return (
            self._unordered
            and f"{incarnation.state.name}.".startswith(f"{self._state.info.session}.")
            and incarnation is not current
            and not current.silent(now - self._generations.linger)
        )

    def _decide(self, *, anew: bool, now: int) -> None:
        """Decide whether the producer has restarted (`anew`) or its previous run continues."""
        self._generations.decide(anew=anew, now=now)
        self._speaker = self._speaker and self._generations.current


def _begin(chunk: Chunk) -> int:
    return chunk[0].begin if chunk else 0


def _length(chunk: Chunk) -> int:
    return sum(records.length for records in chunk)


def _split(chunk: Chunk, rows: int) -> tuple[Chunk, Chunk]:
    """Return the first `rows` rows of a chunk, and the remaining rows. Divide the remaining records into parts of at
    most `_PIECE` rows: each further restart of the producer divides one part again, and short parts limit this work."""
    for at, records in enumerate(chunk):
        if rows < records.rows:
            pieces = [
                piece
                for begin in range(rows, records.rows, _PIECE)
                for piece in records.slice(begin, min(begin + _PIECE, records.rows))
            ]
            return [*chunk[:at], *records.slice(0, rows)], [*pieces, *chunk[at + 1 :]]
        rows -= records.rows
    return chunk, []
