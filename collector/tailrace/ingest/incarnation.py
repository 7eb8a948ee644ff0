"""Process one incarnation of a producer: convert its records to rows, and write gap rows for missing events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tailrace.ingest.clocks import Lead, Paces
from tailrace.ingest.incarnation_rows import (
    CUT,
    GapRows,
    OwnRows,
    RecordRows,
    Sink,
    Unreadable,
    add_counts,
)
from tailrace.ingest.returning import Departures, Sender, Siblings
from tailrace.ingest.spans import Spans
from tailrace.ingest.state import IncarnationState, Tally
from tailrace.ledger.bounds import Commons
from tailrace.ledger.counters import Counters, hand_over
from tailrace.ledger.references import References
from tailrace.ledger.split_runs import ANY_TIME, SplitRuns
from tailrace.ledger.statements import Statements
from tailrace.model.gap import Account, Finding, Reason
from tailrace.model.holding import Holding
from tailrace.model.record import Goodbye, Kind, Missing, Record, RunPiece, SessionFacts
from tailrace.rows.block import Block
from tailrace.rows.fields import KIND, RecordColumns
from tailrace.rows.records import Chunk, Numbered, Records

_NO_GOODBYE = Finding(Kind.GAP, "", None, 0, Reason.TRUNCATED, detail="no_goodbye")
_NO_START = Finding(Kind.GAP, "", None, 0, Reason.LATE_JOIN, detail="no_start")

Attach = Callable[[IncarnationState], "Incarnation"]
"""Function that creates an incarnation (producer run) of one session from a new or a restored state."""


class SourceShare(NamedTuple):
    """State and figures that the incarnations (producer runs) of all sessions of one source share."""

    name: str
    tally: Tally
    commons: Commons
    paces: Paces
    departures: Departures | None = None
    """Ended sessions of the source, whose producers may reconnect; None if the source's producers never reconnect."""
    pieces: SplitRuns | None = None
    """Runs whose records are spread over several inputs, such as files; None if the format does not divide a run."""


class Incarnation:
    """One incarnation of a producer: the part of a session between two restarts of the producer."""

    def __init__(
        self, state: IncarnationState, sender: Sender, share: SourceShare, sink: Sink
    ) -> None:
        limits, bits = sender.limits, sender.bits
        self._tally = share.tally
        self.state = state
        self._datagrams = sender.datagrams and bits is not None
        self._source, self._paces = share.name, share.paces
        self.own = OwnRows(state, self._tally, sink)
        self._rows = RecordRows(state, self._tally, sink.emit)
        self.lead = Lead(state)
        self._pieces = share.pieces
        self.references = References(limits, state.references)
        self._gap_rows = GapRows(limits, state.gap_rows)
        self.unreadable = Unreadable(state, self.own, self.references, counted=bool(bits))
        self.counters: Counters | None = None
        self._spans: SpanRows | None = None
        self._statements: Statements | None = None
        self._siblings: Siblings | None = None
        if not bits:
            spans = Spans(limits, self.references, state.spans, state.forgotten_spans)
            self._spans = SpanRows(spans, self._rows, self._tally, sink)
        else:
            self.counters = Counters(
                limits, bits, state.counters, share.commons, name=state.name, report=self.report
            )
            self.counters.announced = bool(state.id)
            self._statements = Statements(self.counters)
            if share.departures is not None:
                self._siblings = Siblings(state, self.counters, share.departures, sender, self.own)
                self.counters.earlier = self._siblings.earlier
            elif sender.in_file and "." not in state.name:
                self.counters.earlier = self._in_other_file

    @property
    def holdings(self) -> list[Holding]:
        """Return the containers whose memory grows with the producer's events, for the memory limits."""
        if self.counters:
            return [self.counters.marks, self.counters.windows, self.references]
        return [self._spans.spans, self.references] if self._spans else []

    def gave_up(self, what: dict[str, int], now: int) -> None:
        self.report(now)
        add_counts(self._tally.evicted, what)
        if self._spans:
            self._spans.watch_begins()
        self.own.session("evicted", {"evicted": what}, now)

    @property
    def waiting(self) -> bool:
        """Return whether missing events may still arrive late. A later timer entry (tick) in the spool ends the
        wait."""
        counters = self.counters
        holes = counters is not None and (counters.windows.waiting or self._unnamed > 0)
        return holes or self.references.waiting or self._gap_rows.waiting

    @property
    def _unnamed(self) -> int:
        """Return the number of events that the client discarded without giving them a number, and that no gap row
        reports yet."""
        counters = self.counters
        return max(0, counters.unnumbered - counters.state.unnumbered) if counters else 0

    def awaited(self) -> Counter[str]:
        """Count, by stream, the missing events that may still arrive late and that no gap row reports yet."""
        found: Counter[str] = Counter()
        windows = self.counters.windows.awaited() if self.counters else ()
        for stream, events in (*windows, *self.references.awaited(), *self._gap_rows.awaited()):
            found[stream] += events
        if unnamed := self._unnamed:
            found[""] += unnamed
        return found

    @property
    def empty(self) -> bool:
        return not self.state.counters.streams and not self.state.references.seen

    @property
    def account(self) -> Account:
        return self.counters.account if self.counters else self.references.account

    # Methods that count records of this incarnation (producer run) and write rows

    def take(self, chunk: Chunk, now: int) -> int:
        """Count the events of a chunk and write its rows. Return the number of processed rows. If rows are left, the
        first of them shows a restart of the producer and begins another incarnation."""
        taken, counters = chunk, self.counters
        if counters:
            # Count all events before the first row is written, because counting may write rows about other incarnations
            # (producer runs).
            taken, writing = [], list[Iterator[Records]]()
            for records in chunk:
                steps = records.process(counters, self._rows, now)
                taken.append(next(steps))
                writing.append(steps)
                if taken[-1].rows < records.rows:
                    break
            for records in chunk[: len(taken)]:
                records.hear(counters, now)
            names = chain.from_iterable(records.streams for records in chunk[: len(taken)])
            counters.note_seen(names, sum(records.rows for records in taken), now)
            for steps in writing:
                next(steps, None)
        if self._spans:
            # A record after a footer shows that the footer was not the end of the session.
            self.state.goodbye_at = 0
            self._spans.take(chunk, now)
        state = self.state
        for records in taken:
            if self._datagrams and records.rows:
                self.lead.hear(records.latest_end, now)
            latest, rate = records.latest_tick, state.ticks_per_second
            self._paces.take(self._source, state.name, latest, rate, now)
            if self._pieces and (times := records.times):
                self._note_span(*times)
            self._rows.count(records.kinds, now)
        self.report(now)
        if self._siblings:
            self._siblings.tell(chain.from_iterable(each.streams for each in taken), now)
        return sum(records.rows for records in taken)

    def _note_span(self, start: int, end: int) -> None:
        first, last = self.state.times or (start, end)
        self.state.times = min(first, start), max(last, end)

    def note(self, record: Record, now: int) -> None:
        """Process a record about the session: an epoch, a header, a footer, an option."""
        facts = record.detail if isinstance(record.detail, SessionFacts) else None
        if facts:
            self._hear_clock(facts, now)
        if self._pieces and record.start is not None:
            self._note_span(record.start, record.start if record.end is None else record.end)
        self._rows.count({record.kind: 1}, now)
        # The record of a document (such as a metadata file) has size 0. Several documents may have the same offset, so
        # the time of the record's row shows which document was read last.
        columns = [[value] for value in record]
        self._rows.write(columns, [None], None if record.size else [self.own.wall(now)])
        if facts:
            self._believe(facts, now)
        self.report(now)

    def _believe(self, facts: SessionFacts, now: int) -> None:
        """Apply what a record states about totals, discarded events, events that were never sent, and the end of the
        producer run."""
        state = self.state
        if facts.totals:
            self.references.total(facts.totals)
        if self._statements:
            reason = Reason.ELSEWHERE if facts.elsewhere else Reason.SENDER
            self._statements.discarded(facts.discarded, now, reason)
            self._statements.never_sent(facts.never_sent)
            if facts.goodbye:
                self._statements.goodbye(facts.goodbye.streams, now)
        if self._siblings and (facts.goodbye or facts.discarded):
            finals = facts.goodbye.streams if facts.goodbye else ()
            self._siblings.tell([*finals, *(name for name, _, _ in facts.discarded)], now)
        if facts.ends or (facts.goodbye and is_whole(state, facts.goodbye)):
            state.goodbye_at = now

    def _hear_clock(self, facts: SessionFacts, now: int) -> None:
        """Record the epoch, clock and tick rate that a record states."""
        state = self.state
        if facts.epoch is not None:
            if self._siblings:
                self._siblings.go()
            state.epoch = facts.epoch
            if self._siblings:
                self._siblings.come()
        state.clock = facts.clock or state.clock
        if facts.ticks_per_second:
            state.ticks_per_second = float(facts.ticks_per_second)
        if self._datagrams and facts.epoch is not None:
            # The epoch is the time 0 of the producer's clock. A producer that sends its epoch has started this clock.
            self.lead.hear(0, now)
        if self._datagrams and facts.announces and state.epoch is not None:
            self.lead.hear(facts.announces.now, now)

    def claim(self, record: Record, now: int) -> None:
        """Process a decoder's report that events are missing, or that missing events have arrived after all."""
        about = record.detail
        if not isinstance(about, Missing):
            return
        if self._pieces and record.kind == Kind.HEAL and about.piece:
            # No further heal row is needed: the ledger of the run's pieces takes back the gap of the decoder.
            self.piece(about.piece)
            return
        number, reason = record.counter, record.name or Reason.NETWORK
        claims = [(number, about.count)]
        if self._pieces and record.kind == Kind.HEAL and number is not None:
            # Another file of the run may have delivered some of these records before.
            found = self._pieces.take_back(self.state.name, number, number + about.count - 1)
            claims = [(each.first, each.last - each.first + 1) for each in found]
        for first, count in claims:
            said = Finding(record.kind, record.stream, first, count, reason, of=about.of)
            self.references.claim(
                said._replace(detail=about.detail, offset=record.offset, last=about.last)
            )
            self.report(now)
        if about.piece:
            self.piece(about.piece, reason)

    def piece(self, piece: RunPiece, said: str = "") -> None:
        """Record which part of a run this input contains. `said` is the reason that the decoder states for missing
        records."""
        if self._pieces:
            times = self.state.times or ANY_TIME
            self.own.of_pieces(self._pieces.take(self.state.name, piece, times, said))

    def announce(self, id_: str) -> None:
        if self._siblings:
            self._siblings.go()
        self.state.id = id_
        if self.counters:
            self.counters.announced = True

    def inherit(self, other: Incarnation, now: int) -> None:
        """Count the events of the incarnation `other` in this one, because the producer sent them before it
        announced its session. Do nothing if one of them cannot belong to this incarnation (producer run). The stored
        rows of these events keep the name of `other`."""
        mine, its = self.counters, other.counters
        if mine is None or its is None or self.denies(its.numbers.remembered()):
            return
        never_sent, before = its.state.never_sent, its.state.unnumbered_before
        if events := hand_over(its):
            mine.state.never_sent = max(mine.state.never_sent, never_sent)
            mine.state.unnumbered_before = max(mine.state.unnumbered_before, before)
            streams, counts, marks = zip(*events, strict=True)
            mine.observe(streams, counts, marks, now)
            self.report(now)

    # Methods that check whether an event belongs to this incarnation (producer run)

    def denies(self, events: Iterable[Numbered]) -> bool:
        """Return whether one of the events shows a restart, or has the number of a different event that has already
        arrived."""
        counters = self.counters
        if counters is None:
            return False
        numbered = ((stream, count, mark) for stream, count, mark in events if count is not None)
        return any(
            counters.begins_anew(*event) or counters.numbers.contradicts(*event)
            for event in numbered
        )

    def _in_other_file(self, stream: str, count: int, mark: int, now: int) -> int | None:  # noqa: ARG002
        """Return the number of a stream's first event, if the numbers below may lie in another file: a file that begins
        without the epoch may be a part of a longer file. Report once that the file's beginning is missing."""
        state, counters = self.state, self.counters
        if counters is None or not count or (state.epoch is not None and not counters.state.late):
            return None
        if not counters.state.late:
            counters.state.late = True
            counters.findings.append(_NO_START)
        return count

    def denies_statement(self, facts: SessionFacts) -> bool:
        """Return whether a report of discarded events, or a goodbye (a client's statement that its session ends),
        contradicts the events that have arrived."""
        said = facts.goodbye
        finals = said.streams if said and not said.at_least else {}
        statements = self._statements
        return statements is not None and statements.deny(facts.discarded, finals)

    def silent(self, since: int) -> bool:
        """Return whether no event has arrived after the time `since` (Unix ns); False if this is unknown."""
        state = self.state.counters
        return not state.uncounted and all(s.heard <= since for s in state.streams.values())

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember the next number of each stream, to recognise the producer when it reconnects."""
        if self._siblings:
            self._siblings.depart(now, cut=cut and not self.state.goodbye_at)

    # Methods that close gaps and end the incarnation (producer run)

    def expire(self, now: int) -> None:
        """Write gap rows for missing events that can no longer arrive late."""
        if self.counters and self._statements:
            self.counters.windows.expire(now)
            self._statements.name_unnumbered()
        self.references.expire(now)
        self.report(now)
        for gap in self._gap_rows.expire(now):
            self.own.finding(gap)

    def settle(self, now: int) -> None:
        """Write gap rows for all missing events that may still arrive late."""
        if self.counters and self._statements:
            self.counters.windows.close()
            self._statements.name_unnumbered()
        self.references.close()
        self.report(now)
        for gap in self._gap_rows.close():
            self.own.finding(gap)

    def finish(self, reason: str, about: dict[str, object], now: int, *, cut: bool = False) -> None:
        """Write the row of the end and close the incarnation (producer run), which accepts no further record."""
        self.end(reason, about, now, cut=cut)
        self.release()

    def end(self, reason: str, about: dict[str, object], now: int, *, cut: bool = False) -> None:
        """Write the row of the end of the incarnation (producer run). Late events may still arrive. Without a goodbye
        (a client's statement that its session ends), also write a gap of unknown size if the client announced the
        session, or if the connection broke (`cut`) and other connections do not continue all streams."""
        if not self.state.goodbye_at:
            if self._statements:
                self._statements.over(now, comes_back=bool(self.state.id))
            if self.state.id:
                self.own.finding(_NO_GOODBYE)
            elif cut and not (self._siblings and self._siblings.go_on()):
                self.own.finding(CUT)
        self.settle(now)
        if self._spans:
            self._spans.write_begins()
        state, closed_at = self.state, self.own.wall(now)
        closed = {"closed": reason, "closed_at": closed_at, "open_spans": len(state.spans)}
        if state.forgotten_spans.count:
            closed["forgotten_spans"] = state.forgotten_spans.count
        self.own.session("close", closed | self.own.account(self.account) | about, now)
        self._paces.over(self.state.name)

    @property
    def has_old_account(self) -> bool:
        """Return whether late events have added rows since the account (the counts of rows and events) was written."""
        return self.state.accounted not in (None, self.state.rows)

    def amend(self, now: int) -> None:
        """Write the account (counts of rows and events) again if late events have added rows, and no more can
        follow."""
        if self.has_old_account and not self.waiting:
            self.own.session("account", self.own.account(self.account), now)

    def release(self) -> None:
        """Add the counts of the finished incarnation (producer run) to the sums of the source."""
        self._paces.over(self.state.name)
        if self._pieces:
            self._pieces.over(self.state.name)
        self._tally.events.add(self.account)
        if self._siblings:
            self._siblings.go()
        if self.counters:
            self.counters.over()

    # Methods that write gap rows, and heal rows (which take a reported gap back)

    def report(self, now: int) -> None:
        """Write the gap and heal rows for those findings of the ledger that have no row yet."""
        findings, self.references.findings = self.references.findings, []
        if self.counters and self._statements:
            self._statements.heal_numbered()
            findings += self.counters.findings
            self.counters.findings.clear()
        for finding in self._gap_rows.write(findings, now):
            self.own.finding(finding)


class SpanRows:
    """Writes one row for each span whose begin and end records have the same id, and one row for each span that is open
    at a commit."""

    def __init__(self, spans: Spans, rows: RecordRows, tally: Tally, sink: Sink) -> None:
        self.spans = spans
        self._rows = rows
        self._tally = tally
        self._at_last = sink.at_last
        self.watch_begins()

    def take(self, chunk: Sequence[Records], now: int) -> None:
        """Match end records to begin records by id, and write the rows."""
        kinds: Counter[str] = Counter()
        for records in chunk:
            kinds.update(records.kinds)
        begins = chain.from_iterable(records.begin_ids() for records in chunk)
        self.spans.count(kinds, begins)
        for records in chunk:
            records.match(self, now)
        self.watch_begins()

    def watch_begins(self) -> None:
        """Before the next commit, write a row for each span that is still open then and has no row."""
        if self.spans.waiting:
            self._at_last(self.write_begins)

    def write_begins(self) -> None:
        self._rows.write_begins(self.spans.begins())

    def match_block(self, block: Block, now: int) -> None:
        """Match the begins and ends of spans in a block, and write the rows of the records."""
        for rows, others in self.spans.match_block(block):
            if rows:
                self._rows.write_block(rows.block, depths=rows.depths, end_offsets=rows.end_offsets)
            if others:
                self.match(others, now)

    def match(self, columns: RecordColumns, now: int) -> None:
        rows, flaws = self.spans.take(columns, now)
        add_counts(self._tally.flaws, flaws)
        self._rows.write(rows, [None] * len(rows[KIND]))


def is_whole(state: IncarnationState, said: Goodbye) -> bool:
    """Record a goodbye (the client's statement that its session ends) or a part of it. Return whether the goodbye is
    complete. A long goodbye arrives in numbered parts, and the last part is marked. Datagrams may overtake one another
    or get lost, so the last part may arrive first, or alone."""
    if said.part is None:
        return not said.more
    came = int.from_bytes(state.goodbye_parts, "little") | 1 << said.part
    state.goodbye_parts = came.to_bytes(-(-came.bit_length() // 8), "little")
    if not said.more:
        state.goodbye_last = said.part
    last = state.goodbye_last
    return last is not None and not ~came & ((2 << last) - 1)
