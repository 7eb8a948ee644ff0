"""Which incarnation a record is of, where two are possible, and which record shows a new incarnation.

While the previous incarnation lingers (see `generations`), each event goes to the incarnation that it fits
(`owning`), and a repeated epoch or announcement to the incarnation that said it first. All of a datagram
that announces a session is of that session.

The first epoch or announcement may come alone, after events. Then it is in doubt whether the same
producer sent those events: they may be another producer's, whose own epoch or announcement was lost.
A new incarnation begins in doubt, and the next event, report or goodbye decides. If that fits the
previous incarnation, the previous incarnation goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.ingest.announced import Announcements
from tailrace.ingest.generations import Generations
from tailrace.ingest.incarnation import Incarnation
from tailrace.ingest.marks import event_after, numbered
from tailrace.ingest.owning import candidates, owns
from tailrace.ingest.state import SessionState, Tally
from tailrace.model.record import Announcement, Kind, Record, SessionFacts
from tailrace.normalize import COUNTER, KIND, OFFSET, SIZE

_APART = frozenset({Kind.SESSION, Kind.MALFORMED, Kind.GAP, Kind.HEAL})
"""Kinds of records that are taken one by one; all others are taken in blocks."""


class Succession:
    """Gives the records of one session to the incarnations of its generations."""

    def __init__(
        self,
        state: SessionState,
        tally: Tally,
        announcements: Announcements,
        generations: Generations,
        *,
        unordered: bool,
    ) -> None:
        """Give records to the incarnations of a session. With `unordered`, events, epochs and announcements may
        overtake each other."""
        self._state = state
        self._tally = tally
        self._announcements = announcements
        self._generations = generations
        self._unordered = unordered
        self._speaker: Incarnation | None = None
        """The incarnation of the session that the current datagram announces, if any."""

    def take(self, records: list[Record], now: int) -> None:
        """Take the records of a chunk, in order."""
        if not records:
            return
        columns = list(zip(*records, strict=True))
        kinds = columns[KIND]
        if _APART.isdisjoint(kinds):
            self._block(columns, now)
            return
        begin = 0
        pieces: list[Record] = []
        for i, kind in enumerate(kinds):
            if kind not in _APART:
                continue
            self._block([column[begin:i] for column in columns], now)
            begin = i + 1
            if kind == Kind.SESSION:
                self._note(records, i, now)
            elif kind == Kind.MALFORMED:
                pieces.append(self._placed(records[i]))
                if i + 1 == len(kinds) or kinds[i + 1] != Kind.MALFORMED:
                    self._generations.current.malformed(self._state, pieces)
                    pieces = []
            else:
                self._generations.current.claim(self._placed(records[i]), now)
        self._block([column[begin:] for column in columns], now)

    def datagram_over(self) -> None:
        """Note that the next records may be of another incarnation than the last ones."""
        if self._speaker and self._speaker.state.id in self._announcements:
            self._announcements.heard(self._speaker.state.id)
        self._speaker = None

    # Records

    def _block(self, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Take records of events and other rows, given as columns."""
        if not columns[KIND]:
            return
        self.readable(sum(columns[SIZE]))
        if shift := self._shift:
            columns = list(columns)
            columns[OFFSET] = [offset + shift for offset in columns[OFFSET]]
        generations = self._generations
        if generations.doubt and self._speaker in (None, generations.current):
            self._ask_events(columns, now)
        if self._speaker:
            self._speaker.take(columns, now)
            return
        while columns[KIND]:
            if generations.previous:
                taken = self._take_apart(generations.previous, columns, now)
            else:
                taken = generations.current.take(columns, now)
            columns = [column[taken:] for column in columns]
            if columns[KIND]:
                generations.restart("counter", now)

    def _take_apart(self, previous: Incarnation, columns: Sequence[Sequence[Any]], now: int) -> int:
        """Take records of two incarnations. Return how many were taken: the next record is of a
        third."""
        current = self._generations.current
        size = len(columns[KIND])
        epoch = current.state.epoch
        done = 0
        while done < size:
            rest = [column[done:] for column in columns]
            at = next(candidates(previous, rest, epoch), size - done)
            taken = current.take([column[:at] for column in rest], now) if at else 0
            done += taken
            if taken < at:
                return done
            if done < size:
                one = [column[at : at + 1] for column in rest]
                linger = self._generations.linger
                repeats = not previous.silent(previous.state.ended_at - linger)
                is_late = owns(previous, one, current, now, repeats=repeats)
                owner = previous if is_late else current
                if not owner.take(one, now):
                    return done
                done += 1
        return done

    def _note(self, records: list[Record], index: int, now: int) -> None:
        """Take the record at an index, which is about the session: an epoch, a header, a footer, an
        option."""
        record = records[index]
        facts = record.detail if isinstance(record.detail, SessionFacts) else SessionFacts()
        owner = self._owner(facts, records, index, now)
        self.readable(record.size)
        owner.note(self._placed(record), now)

    def _placed(self, record: Record) -> Record:
        """Return a record with its place in its incarnation's bytes."""
        return record._replace(offset=record.offset + self._shift)

    @property
    def _shift(self) -> int:
        """Return the difference from a place in the decoder's bytes to that in the incarnation's."""
        return self._state.skipped + self._state.base

    def readable(self, size: int) -> None:
        """Count bytes of readable records."""
        self._tally.decoded += size
        self._state.garbage = 0

    # Epochs, headers, reports and goodbyes

    def _owner(
        self, facts: SessionFacts, records: list[Record], index: int, now: int
    ) -> Incarnation:
        """Return the incarnation of the record at an index, which states facts about the session."""
        generations = self._generations
        if facts.announces:
            announced = self._announced(facts.announces, records, index, now)
            self._speaker = announced if self._unordered else None
            return announced
        if self._speaker and self._speaker is not generations.current:
            return self._speaker
        if earlier := generations.earlier(facts.epoch):
            return earlier
        if facts.starts and generations.current.state.records and not self._lacks_header(now):
            generations.restart("header", now)
        elif facts.epoch is not None:
            self._hear_epoch(facts.epoch, records, index, now)
        if generations.doubt:
            self._ask_statement(facts, now)
        return generations.current

    def _lacks_header(self, now: int) -> bool:
        """Return whether a header that comes now may be that of the current incarnation: datagrams have
        overtaken it."""
        current = self._generations.current.state
        overtaken = self._state.info.transport == "udp" and current.clock is None
        return overtaken and current.began > now - self._generations.linger

    def _hear_epoch(self, epoch: int, records: list[Record], index: int, now: int) -> None:
        """Begin a new incarnation where an epoch is not that of the current incarnation."""
        generations = self._generations
        known = generations.current.state.epoch
        if known is None:
            self._introduced("epoch", records, index, now)
        elif known != epoch:
            generations.restart("epoch", now, clocked=True)
        generations.know(epoch, generations.current.state.name)

    def _introduced(self, why: str, records: list[Record], index: int, now: int) -> None:
        """Hear the first epoch or announcement of an incarnation that has events already.

        The events may be another producer's. The event that follows in the same chunk decides. Where
        no event follows, a new incarnation begins in doubt."""
        generations = self._generations
        current = generations.current
        event = event_after(records, index)
        if generations.doubt or current.empty:
            return
        if event is not None:
            if current.denies([event]):
                generations.restart(why, now)
        elif self._unordered and not current.state.id:
            generations.begin(why, now, in_doubt=True)

    # Announcements

    def _announced(
        self, said: Announcement, records: list[Record], index: int, now: int
    ) -> Incarnation:
        """Return the incarnation of the session that the client announces. The connection continues that
        incarnation unless it came before the current one."""
        generations, number = self._generations, self._state.number
        known = self._announcements.find(said.id, now)
        if known and (
            known.incarnation is generations.previous or self._was_before(known.incarnation, now)
        ):
            known.hear(said, None)
            return known.incarnation
        if known is None:
            if generations.current.state.id:
                generations.restart("session", now)
            elif self._unordered:
                self._introduced("session", records, index, now)
            known = self._announcements.add(said.id, generations.current, self._state.info, number)
        elif known.incarnation is not generations.current:
            generations.resume(known, records[index].offset, now)
        known.hear(said, number)
        return known.incarnation

    def _was_before(self, incarnation: Incarnation, now: int) -> bool:
        """Return whether an incarnation came from this address before the current one, and datagrams of
        it may still come late."""
        current = self._generations.current
        return (
            self._unordered
            and f"{incarnation.state.name}.".startswith(f"{self._state.info.session}.")
            and incarnation is not current
            and not current.silent(now - self._generations.linger)
        )

    # The doubt

    def _ask_events(self, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Let events tell whether the current incarnation is the previous one."""
        previous = self._generations.previous
        if previous and any(counter is not None for counter in columns[COUNTER]):
            self._decide(anew=previous.denies(numbered(columns)), now=now)

    def _ask_statement(self, facts: SessionFacts, now: int) -> None:
        """Let a report or a goodbye tell whether the current incarnation is the previous one."""
        previous = self._generations.previous
        if previous and (facts.discarded or facts.goodbye):
            self._decide(anew=previous.denies_statement(facts), now=now)

    def _decide(self, *, anew: bool, now: int) -> None:
        self._generations.decide(anew=anew, now=now)
        self._speaker = self._speaker and self._generations.current
