"""One run of a producer within a session: its records to rows, held against its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, groupby
from operator import add, attrgetter
from typing import Any

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.departures import Departures
from tailrace.ingest.lead import Lead
from tailrace.ingest.own_rows import ROW_BYTES, Emit, OwnRows, Quarantine
from tailrace.ingest.pace import Paces
from tailrace.ingest.siblings import Siblings
from tailrace.ingest.state import RunState, SessionState, Tally
from tailrace.ledger.commons import Commons
from tailrace.ledger.counters import DUPLICATE, Counters
from tailrace.ledger.findings import Account, Finding
from tailrace.ledger.gap_rows import GapRows
from tailrace.ledger.references import References
from tailrace.ledger.statements import Statements
from tailrace.model.gap import Reason
from tailrace.model.holding import Holding
from tailrace.model.record import Kind, Missing, Record, SessionFacts
from tailrace.normalize import (
    ATTRIBUTES,
    CATEGORY,
    COUNT,
    END,
    FLAW,
    ID,
    KIND,
    NAME,
    OFFSET,
    PARENT,
    SIZE,
    START,
    STREAM,
    SUBSTREAM,
    Columns,
    Spans,
    wall_times,
    write_flaws,
)  # fmt: skip

_PARTS_MAX = 16
"""Unreadable parts of one chunk that have a row each: noise is to have few."""

_IN_PIECES = frozenset({"nul_bytes", "too_long"})
"""Why a line, or a hole, may be unreadable that comes in more than one piece."""

_flaw = attrgetter("flaw")


class Run:
    """A run in being. What outlives the process is in `state`."""

    def __init__(
        self,
        state: RunState,
        limits: LedgerConfig,
        tally: Tally,
        commons: Commons,
        *,
        source: str,
        paces: Paces,
        bits: int | None,
        datagrams: bool = False,
        host: str = "",
        departures: Departures | None = None,
        emit: Emit,
        quarantine: Quarantine,
        wall: Callable[[int], int],
    ) -> None:
        """`bits` is the width of the producer's counters, None where it has none; `datagrams` tells
        that events may come after those of the next run; `departures` are the sessions that went
        before, from this `host` among others; `wall` turns a time of the log into wall time."""
        self.state = state
        self._datagrams = datagrams and bits is not None
        self._source = source
        self._paces = paces
        self.own = OwnRows(state, tally, emit, quarantine, wall)
        self._tally = tally
        self._emit = emit
        self.lead = Lead(state)
        self._references = References(limits, "", state.references)
        self._spans = Spans(limits, self._references, state.spans, state.forgotten_spans)
        self._gap_rows = GapRows(limits, state.gap_rows)
        self._counters: Counters | None = None
        self._statements: Statements | None = None
        self._siblings: Siblings | None = None
        if bits:
            self._counters = Counters(
                limits, bits, state.counters, commons, name=state.name, report=self.report
            )
            self._counters.announced = bool(state.id)
            self._statements = Statements(self._counters, bits, commons)
            if departures is not None:
                self._siblings = Siblings(
                    state, self._counters, departures, limits,
                    host=host, bits=bits, ordered=not datagrams, own=self.own, report=self.report,
                )  # fmt: skip
                self._counters.earlier = self._siblings.earlier

    @property
    def holdings(self) -> list[Holding]:
        """Return what it holds of its producer's making."""
        if self._counters:
            return [self._counters, self._counters.windows, self._references]
        return [self._spans, self._references]

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Say what was given up, after what came of that."""
        self.report(now)
        _add(self._tally.evicted, what)
        self.own.session("evicted", {"evicted": what}, now)

    @property
    def waiting(self) -> bool:
        """Whether a window is open that time alone can close."""
        counters = self._counters
        holes = counters is not None and counters.windows.waiting
        return holes or self._references.waiting or self._gap_rows.waiting

    def awaited(self) -> Counter[str]:
        """Count by stream the events that may still come and are in no gap row yet."""
        found: Counter[str] = Counter()
        windows = self._counters.windows.awaited() if self._counters else ()
        for stream, events in (*windows, *self._references.awaited(), *self._gap_rows.awaited()):
            found[stream] += events
        return found

    @property
    def empty(self) -> bool:
        """Whether no event of it came."""
        return not self.state.counters.streams and not self.state.references.seen

    @property
    def counters(self) -> Counters | None:
        return self._counters

    @property
    def account(self) -> Account:
        return self._counters.account if self._counters else self._references.account

    # What it takes

    def take(self, columns: Sequence[Sequence[Any]], now: int) -> int:
        """Take records that are neither session nor malformed nor gap ones; give how many: the one
        after these is of another run."""
        taken = len(columns[KIND])
        if self._counters:
            taken = self._counted(self._counters, columns, now)
            columns = [column[:taken] for column in columns]
        else:
            changing: Columns = [list(column) for column in columns]
            self._spans.take(changing, now)
            self._rows(changing, [None] * taken)
        if self._datagrams and taken:
            self.lead.hear(columns[END], now)
        state = self.state
        self._paces.take(self._source, state.name, columns, state.ticks_per_second, now)
        self._count(columns[KIND], now)
        self.report(now)
        if self._siblings:
            self._siblings.tell(columns[STREAM], now)
        return taken

    def note(self, record: Record, now: int) -> None:
        """A record about the run itself: an epoch, a header, a footer, an option."""
        facts = record.detail if isinstance(record.detail, SessionFacts) else SessionFacts()
        state = self.state
        if facts.epoch is not None:
            self._hear_epoch(facts.epoch)
        state.clock = facts.clock or state.clock
        state.ticks_per_second = facts.ticks_per_second or state.ticks_per_second
        if facts.epoch is not None and self._datagrams:
            self.lead.hear([0], now)  # whoever says when the clock began has begun
        self._count([record.kind], now)
        # What a document says stands where the stream stood: only when tells what was said last.
        self._rows(
            [(value,) for value in record], [None], None if record.size else [self.own.wall(now)]
        )
        if facts.totals:
            self._references.total(facts.totals)
        if self._statements:
            self._statements.discarded(facts.discarded, now)
            if facts.goodbye:
                self._statements.goodbye(facts.goodbye.streams, now)
        if self._siblings:
            finals = facts.goodbye.streams if facts.goodbye else ()
            self._siblings.tell([*finals, *(name for name, _, _ in facts.discarded)], now)
        if facts.goodbye and not facts.goodbye.more:
            state.goodbye_at = now
        self.report(now)

    def _hear_epoch(self, epoch: int) -> None:
        if self._siblings:
            self._siblings.go()
        self.state.epoch = epoch
        if self._siblings:
            self._siblings.come()

    def malformed(self, session: SessionState, pieces: list[Record]) -> None:
        """Adjacent unreadable pieces: one gap row for those with one reason that follow one another
        or, when these are many, for each reason; the bytes to the quarantine."""
        begins = {id(piece): self._is_missing(piece) for piece in pieces}
        parts = [list(same) for _, same in groupby(pieces, key=_flaw)]
        rows = [[part] for part in parts]
        if len(parts) > _PARTS_MAX:
            parts.sort(key=lambda part: _flaw(part[0]))
            rows = [list(same) for _, same in groupby(parts, key=lambda part: _flaw(part[0]))]
        for row in rows:
            count = sum(begins[id(piece)] for part in row for piece in part)
            self.own.malformed(session, row, count)
            self._references.add_malformed(count)

    def _is_missing(self, piece: Record) -> bool:
        """Whether an unreadable piece stands for a missing event: where the producer counts, its
        counters say what is missing, and what goes on with the line of the piece before it is no
        other event."""
        state, flaw = self.state, piece.flaw or ""
        goes_on = state.unended == (piece.offset, flaw)
        ended = (
            flaw not in _IN_PIECES
            or not isinstance(piece.detail, bytes)
            or piece.detail.endswith(b"\n")
        )
        state.unended = None if ended else (piece.offset + piece.size, flaw)
        return not self._counters and not goes_on

    def claim(self, record: Record, now: int) -> None:
        """What a decoder knows to be missing, or to have come after all."""
        about = record.detail
        if isinstance(about, Missing):
            self._references.claim(
                Finding(
                    record.kind,
                    record.stream,
                    record.count,
                    about.count,
                    record.name or Reason.NETWORK,
                    of=about.of,
                    detail=about.detail,
                    offset=record.offset,
                )
            )
            self.report(now)

    def announce(self, id_: str) -> None:
        """Its client names it."""
        if self._siblings:
            self._siblings.go()
        self.state.id = id_
        if self._counters:
            self._counters.announced = True

    def forget_marks(self) -> None:
        """Nobody sends its events but, perhaps, again: their numbers tell that."""
        if self._counters:
            self._counters.forget_marks()

    def inherit(self, other: Run, now: int) -> None:
        """Count the events of another run as this run's, though their rows have the other's name. Where
        one of them cannot be this run's, none is."""
        mine, its = self._counters, other.counters
        if mine and its and not self.denies(its.remembered()) and (events := its.hand_over()):
            streams, counts, marks = zip(*events, strict=True)
            mine.observe(streams, counts, marks, now)
            self.report(now)

    def copies(self, records: int) -> None:
        """Count records of a datagram that came before."""
        self._references.add_copies(records)

    def datagrams(self, count: int) -> None:
        """So many datagrams came, which have been taken."""
        self.state.counters.datagrams += count

    # Whose an event is, when two runs are possible

    def begins_anew(self, stream: str, count: int | None, mark: int) -> bool:
        """Whether an event shows that this run is over."""
        return bool(
            self._counters and count is not None and self._counters.begins_anew(stream, count, mark)
        )

    def contradicts(self, stream: str, count: int | None, mark: int) -> bool:
        """Whether it has another event under this one's number."""
        return bool(
            self._counters and count is not None and self._counters.contradicts(stream, count, mark)
        )

    def denies(self, events: Iterable[tuple[str, int | None, int]]) -> bool:
        """Return whether some event (stream, number on the wire, mark) cannot be of this run."""
        return any(self.begins_anew(*event) or self.contradicts(*event) for event in events)

    def denies_statement(self, facts: SessionFacts) -> bool:
        """Return whether a report or a goodbye cannot be of this run: it speaks of a number as thrown
        away, or as not reached, that came."""
        statements = self._statements
        if statements is None:
            return False
        finals = facts.goodbye.streams if facts.goodbye else {}
        return statements.deny(facts.discarded, finals)

    def silent(self, since: int) -> bool:
        """Whether no event of it came after that (Unix ns), as far as is remembered."""
        state = self.state.counters
        return not state.uncounted and all(s.heard <= since for s in state.streams.values())

    def depart(self, now: int) -> None:
        """Leave behind how far its streams went: its producer may come back without a word."""
        if self._siblings:
            self._siblings.depart(now)

    # Its course

    def expire(self, now: int) -> None:
        """Close the windows whose time has passed."""
        if self._counters:
            self._counters.windows.expire(now)
        self._references.expire(now)
        self.report(now)
        self._write(self._gap_rows.expire(now))

    def settle(self, now: int) -> None:
        """Close all windows now: nobody waits any longer."""
        if self._counters:
            self._counters.windows.close()
        self._references.close()
        self.report(now)
        self._write(self._gap_rows.close())

    def finish(self, reason: str, about: dict[str, object], now: int) -> None:
        """It is over, and nobody asks for it any more."""
        self.end(reason, about, now)
        self.release(now)

    def end(self, reason: str, about: dict[str, object], now: int) -> None:
        """It is over, though something late may still come. A client that announced itself and took
        no leave may have had more to send."""
        if self._statements and not self.state.goodbye_at:
            self._statements.over(now)
            if self.state.id:
                self.own.finding(
                    Finding(Kind.GAP, "", None, 0, Reason.TRUNCATED, detail="no_goodbye")
                )
        self.settle(now)
        state, closed_at = self.state, self.own.wall(now)
        closed = {"closed": reason, "closed_at": closed_at, "open_spans": len(state.spans)}
        if state.forgotten_spans.count:
            closed["forgotten_spans"] = state.forgotten_spans.count
        self.own.session("close", closed | about, now)
        self._paces.over(self.state.name)

    def release(self, now: int) -> None:
        """Nothing more comes: its events go to the source's sums."""
        self.settle(now)
        self._paces.over(self.state.name)
        self._tally.events.add(self.account)
        if self._siblings:
            self._siblings.go()
        if self._counters:
            self._counters.release()

    # Rows

    def _counted(self, counters: Counters, columns: Sequence[Sequence[Any]], now: int) -> int:
        """Events with a counter: in order, late, duplicate; or of another run, which ends it."""
        seqs, restart = counters.observe(columns[STREAM], columns[COUNT], marks_of(columns), now)
        taken = len(seqs)
        if restart:
            columns = [column[:taken] for column in columns]
        if DUPLICATE in seqs:
            keep = [seq != DUPLICATE for seq in seqs]
            columns = [list(compress(column, keep)) for column in columns]
            seqs = list(compress(seqs, keep))
        self._rows(columns, seqs)
        return taken

    def _rows(
        self,
        columns: Sequence[Sequence[Any]],
        seqs: list[int | None],
        times: list[int | None] | None = None,
    ) -> None:
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            _add(self._tally.flaws, flaws)
        state = self.state
        times = times or wall_times(columns[START], state.epoch, state.ticks_per_second)
        size = sum(columns[SIZE]) + ROW_BYTES * len(seqs)
        self._emit(
            state.name,
            [
                columns[STREAM], columns[SUBSTREAM], seqs, columns[KIND], columns[NAME],
                columns[CATEGORY], columns[ID], columns[PARENT], columns[START], columns[END],
                times, attributes, columns[OFFSET],
            ],
            size,
        )  # fmt: skip

    def _count(self, kinds: Sequence[str], now: int) -> None:
        if not self.state.records:
            self.state.began = now
        self.state.records += len(kinds)
        records = self._tally.records
        spans = kinds.count(Kind.SPAN)
        if spans == len(kinds):
            records[Kind.SPAN] = records.get(Kind.SPAN, 0) + spans
        else:
            _add(records, Counter(kinds))

    def report(self, now: int) -> None:
        """Make rows of what was found."""
        findings = self._references.findings
        if self._counters:
            findings = findings + self._counters.findings
            self._counters.findings.clear()
        self._references.findings = []
        if findings:
            self._write(self._gap_rows.write(findings, now))

    def _write(self, findings: Iterable[Finding]) -> None:
        elsewhere = self.state.elsewhere
        for finding in findings:
            if finding.reason == Reason.LATE_JOIN and finding.stream in elsewhere:
                detail = f"maybe in {elsewhere[finding.stream]}"
                self.own.finding(finding._replace(detail=detail))
            else:
                self.own.finding(finding)


def marks_of(columns: Sequence[Sequence[Any]]) -> list[int]:
    """What tells events apart and grows with their times."""
    try:
        return list(map(add, map(add, columns[START], columns[END]), columns[SIZE]))
    except TypeError:
        times = zip(columns[START], columns[END], columns[SIZE], strict=True)
        return [(start or 0) + (end or 0) + size for start, end, size in times]


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count
