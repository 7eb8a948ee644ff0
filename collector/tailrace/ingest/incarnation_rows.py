"""Write the rows of an incarnation (producer run): its records, and the collector's own rows about its begin and
end, missing events and unreadable bytes.

A gap in a stream begins a period of `reorder_time`. The first `gap_rows_max` gaps of the period get one row each;
further gaps are merged into one row for each reason. Merged rows with the same reason never overlap. Gaps of numbers
that the client discarded are not merged, because the client may give the reason of any number later.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.guard import DECODER_FAILED
from tailrace.ingest.spans import END_OFFSET, OpenSpan
from tailrace.ingest.state import IncarnationState, RowRange, SessionState, StreamRows, Tally
from tailrace.kernels import active
from tailrace.ledger.references import References
from tailrace.ledger.split_runs import FoundRuns
from tailrace.model.gap import OF_CLIENTS, Account, Finding, Reason
from tailrace.model.quarantine import frame
from tailrace.model.record import Kind, Record
from tailrace.rows.batch import BlockRows, Emitted
from tailrace.rows.block import Block, Integers, Values
from tailrace.rows.fields import (
    ATTRIBUTES,
    CATEGORY,
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
    write_flaws,
)
from tailrace.rows.schema import OwnRow, Row
from tailrace.spool.payloads import FileLoss

if TYPE_CHECKING or active():
    from tailrace.rows._columns import shifted

Emit = Callable[[str, Emitted, int], None]
"""Function that receives the name of an incarnation, its rows (see `Batch.extend`) and their memory (bytes)."""


class Sink(NamedTuple):
    """The functions that receive a session's rows and unreadable bytes. `quarantine` appends bytes to a session's
    quarantine file, with the arguments session, position (bytes), bytes. `wall` converts the time of a spool entry to
    wall time; `at_last` schedules a call right before the next commit."""

    emit: Emit
    quarantine: Callable[[str, int, bytes], None]
    wall: Callable[[int], int]
    at_last: Callable[[Callable[[], None]], None]


ROW_BYTES = 600
"""Approximate memory (bytes) of a row of Python values in a batch and during a commit, without its record's bytes."""

PACKED_ROW_BYTES = 96
"""Approximate memory (bytes) of a row in a block, without its record's bytes."""


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

CUT = Finding(Kind.GAP, "", None, 0, Reason.TRUNCATED, detail="cut")
"""A gap of unknown size: the connection broke, and the producer may have sent further events."""

_json = json.JSONEncoder(separators=(",", ":")).encode


class RecordRows:
    """Writes the rows of an incarnation's records. For the source, counts the records and the rules that they break
    (flaws)."""

    def __init__(self, state: IncarnationState, tally: Tally, emit: Emit) -> None:
        self._state = state
        self._tally = tally
        self._emit = emit

    def write(
        self,
        columns: Sequence[Sequence[Any]],
        seqs: list[int | None],
        times: list[int | None] | None = None,
    ) -> None:
        """Write the rows of records. For spans, `columns` also has the columns `END_OFFSET` and `DEPTH`. `times` (Unix ns)
        replace the producer's times."""
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            add_counts(self._tally.flaws, flaws)
        state = self._state
        times = times or wall_times(columns[START], state.epoch, state.ticks_per_second)
        size = sum(columns[SIZE]) + ROW_BYTES * len(seqs)
        nothing = [None] * len(seqs)
        end_offsets, depths = columns[END_OFFSET:] or (nothing, nothing)
        self._emit(
            state.name,
            [
                columns[STREAM], columns[SUBSTREAM], seqs, columns[KIND], columns[NAME],
                columns[CATEGORY], columns[ID], columns[PARENT], depths, columns[START], columns[END],
                times, nothing, attributes, columns[OFFSET], end_offsets,
            ],
            size,
        )  # fmt: skip
        self._tally.rows += len(seqs)
        kinds = columns[KIND]
        state.rows += len(seqs) - kinds.count(Kind.BEGIN) - kinds.count(Kind.SESSION)

    def write_begins(self, begins: Sequence[tuple[int, OpenSpan]]) -> None:
        """Write rows of open spans. The source's count of rows leaves them out: a replay of the spool commits at other
        points, where other spans are open."""
        if not begins:
            return
        state, rows = self._state, len(begins)
        spans = [span for _, span in begins]
        starts = [span.start for span in spans]
        nothing = [None] * rows
        self._emit(
            state.name,
            [
                [s.stream for s in spans], [s.substream for s in spans], nothing, [Kind.BEGIN] * rows,
                [s.name for s in spans], [s.category for s in spans], [id_ for id_, _ in begins],
                [s.parent for s in spans], [s.depth for s in spans], starts, nothing,
                wall_times(starts, state.epoch, state.ticks_per_second), nothing,
                [s.attributes for s in spans], [s.offset for s in spans], nothing,
            ],
            sum(span.size for span in spans) + ROW_BYTES * rows,
        )  # fmt: skip

    def write_block(
        self,
        block: Block,
        *,
        seqs: Values = None,
        depths: Values = None,
        end_offsets: Values = None,
    ) -> None:
        if block.flaw is not None:
            flaws = Counter(block.flaw.list(block.rows))
            add_counts(self._tally.flaws, {flaw: n for flaw, n in flaws.items() if flaw})
        state = self._state
        times = block_times(block, state.epoch, state.ticks_per_second)
        size = block.length + PACKED_ROW_BYTES * block.rows
        self._emit(state.name, BlockRows(block, times, seqs, depths, end_offsets), size)
        self._tally.rows += block.rows
        state.rows += block.rows

    def count(self, kinds: Mapping[str, int], now: int) -> None:
        if not self._state.records:
            self._state.began = now
        self._state.records += sum(kinds.values())
        add_counts(self._tally.records, kinds)


def add_counts(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count


def wall_times(
    starts: Sequence[int | None], epoch: int | None, ticks_per_second: float | None
) -> list[int | None]:
    """Convert start times in ticks to Unix ns. A time is None if it is unknown or does not fit into 64 bits."""
    if epoch is None or not ticks_per_second:
        return [None] * len(starts)
    if ticks_per_second == 1e9:
        times = [None if start is None else epoch + start for start in starts]
    else:
        times = [_scale(start, epoch, ticks_per_second) for start in starts]
    known = times if None not in times else [time for time in times if time is not None]
    if known and (max(known) > INT64_MAX or min(known) < INT64_MIN):  # type: ignore[type-var, operator] # no None in it
        return [time if time is not None and _fits(time) else None for time in times]
    return times


def block_times(block: Block, epoch: int | None, ticks_per_second: float | None) -> Values:
    starts = block.start
    if epoch is None or not ticks_per_second or starts is None:
        return None
    if 1e9 % ticks_per_second == 0 and ticks_per_second.is_integer() and _fits(epoch):
        times = shifted(starts.values, block.rows, epoch, 10**9 // int(ticks_per_second))
        if times is not None:
            return Integers(times, starts.valid)
    return Integers.of(wall_times(starts.list(block.rows), epoch, ticks_per_second))


def _scale(start: int | None, epoch: int, ticks_per_second: float) -> int | None:
    if start is None:
        return None
    if ticks_per_second.is_integer():
        return epoch + start * 1_000_000_000 // int(ticks_per_second)
    nanoseconds = start * (1e9 / ticks_per_second)
    return epoch + round(nanoseconds) if isfinite(nanoseconds) else None


def _fits(time: int) -> bool:
    return INT64_MIN <= time <= INT64_MAX


class GapRows:
    """Selects the gaps that get a row of their own, and merges the other gaps of each stream and reason."""

    def __init__(self, limits: LedgerConfig, state: dict[str, StreamRows]) -> None:
        self.state = state
        self._most = limits.gap_rows_max
        self._window = limits.reorder_time.ns

    @property
    def waiting(self) -> bool:
        return bool(self.state) and any(rows.ranges for rows in self.state.values())

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with merged gaps that have no row yet, and the number of missing events in them."""
        for stream, rows in self.state.items():
            if rows.ranges:
                yield stream, sum(gathered.count for gathered in rows.ranges.values())

    def write(self, findings: Iterable[Finding], now: int) -> Iterator[Finding]:
        """Yield the findings to write as rows now; merged gaps follow when their period of `reorder_time` ends."""
        for finding in findings:
            stream, first, reason = finding.stream, finding.seq, finding.reason
            if first is None:
                yield finding
                continue
            if finding.kind == Kind.HEAL:
                yield from self._gather(stream, reason)
                yield finding
                continue
            rows = self.state.get(stream)
            if rows is not None and rows.since + self._window <= now:
                yield from self._end(stream)
                rows = None
            if rows is None:
                rows = self.state[stream] = StreamRows(now)
            last = first + finding.events - 1 if finding.last is None else finding.last
            before = rows.ranges.get(reason)
            if rows.written < self._most or reason in OF_CLIENTS:
                rows.written += 1
                yield finding
            elif before is None:
                rows.ranges[reason] = RowRange(first, last, finding.events, finding.estimate)
            elif before.last < first:
                before.last = last
                before.count += finding.events
                before.estimate |= finding.estimate
            else:
                yield finding

    def expire(self, now: int) -> Iterator[Finding]:
        for stream in [s for s, rows in self.state.items() if rows.since + self._window <= now]:
            yield from self._end(stream)

    def close(self) -> Iterator[Finding]:
        for stream in list(self.state):
            yield from self._end(stream)

    def _end(self, stream: str) -> Iterator[Finding]:
        for reason in list(self.state[stream].ranges):
            yield from self._gather(stream, reason)
        del self.state[stream]

    def _gather(self, stream: str, reason: str) -> Iterator[Finding]:
        rows = self.state.get(stream)
        gathered = rows.ranges.pop(reason, None) if rows else None
        if gathered:
            first, last, count, estimate = msgspec.structs.astuple(gathered)
            partly = None if count == last - first + 1 else last
            yield Finding(Kind.GAP, stream, first, count, reason, last=partly, estimate=estimate)


class OwnRows:
    """Writes the rows of an incarnation that do not come from its records, and counts them for the source."""

    def __init__(self, incarnation: IncarnationState, tally: Tally, sink: Sink) -> None:
        self.wall = sink.wall
        """Function that converts the time of a spool entry to wall time."""
        self.incarnation = incarnation
        self._tally = tally
        self._emit, self._quarantine = sink.emit, sink.quarantine

    def session(self, name: OwnRow, about: dict[str, object], now: int) -> None:
        self._row(Kind.SESSION, name, about, time=self.wall(now))

    def account(self, events: Account) -> dict[str, object]:
        """Return the attribute `account`, the counts of this incarnation's rows and events, by which a reader of the
        table can check that no row is absent. `events` has the counts of events."""
        state = self.incarnation
        state.accounted = state.rows
        return {
            "account": {
                "rows": state.rows,
                "expected": events.expected + state.of_pieces,
                "seen": events.seen,
                "missing": events.missing + state.of_pieces,
                "duplicates": events.duplicates,
            }
        }

    def finding(self, finding: Finding, session: str = "") -> None:
        """Write a gap row, or a heal row (which takes a gap back), for this or an earlier session."""
        sums = self._tally.gaps if finding.kind == Kind.GAP else self._tally.heals
        add_counts(sums, {finding.reason: finding.events})
        self._tally.unknown_gaps -= finding.kind == Kind.HEAL and not finding.events
        about: dict[str, object] = {"count": finding.events}
        if finding.of:
            about["of"] = finding.of
        detail, elsewhere = finding.detail, self.incarnation.elsewhere
        if finding.reason == Reason.LATE_JOIN and finding.stream in elsewhere:
            detail = f"maybe in {elsewhere[finding.stream]}"
        if detail:
            about["detail"] = detail
        if finding.last is not None:
            about |= {"of_range": True, "last": finding.last}
        if finding.estimate:
            about["estimate"] = True
        if session and session != self.incarnation.name:
            about["found_by"] = self.incarnation.name
        self._row(
            finding.kind, finding.reason, about, finding.events or None, stream=finding.stream,
            seq=finding.seq, id_=finding.id, offset=finding.offset, session=session,
        )  # fmt: skip

    def of_pieces(self, found: FoundRuns) -> None:
        """Write gap rows, and heal rows (which take gaps back), for sessions whose files contain parts of the same
        run."""
        for session, finding in found:
            self.finding(finding, session)
            more = finding.events if finding.kind == Kind.GAP else -finding.events
            self._tally.events.add(Account(expected=more, missing=more))
            if session == self.incarnation.name:
                self.incarnation.of_pieces += more

    def malformed(
        self,
        session: SessionState,
        parts: Sequence[Sequence[Record]],
        count: int,
        *,
        go_on: bool = False,
    ) -> None:
        """Write one gap row for unreadable bytes with the same reason, and store the bytes in the quarantine.

        Each of the `parts` is a list of adjacent unreadable records. `count` is the number of missing events, or 0 if
        it is unknown or no event is missing. `go_on` states that these bytes add no missing event, for example because
        an earlier gap row covers them.
        """
        first = parts[0][0]
        why = first.flaw or Reason.MALFORMED
        reason = Reason.TRUNCATED if why == "truncated" else Reason.MALFORMED
        abouts = []
        for part in parts:
            data = b"".join(r.detail for r in part if isinstance(r.detail, bytes))
            size = sum(record.size for record in part)
            abouts.append(self._unreadable(session, why, len(part), size, data, part[0].offset))
        about = abouts[0] | {"count": count}
        if len(parts) > 1:
            about |= {"bytes": sum(each["bytes"] for each in abouts), "frames": len(parts)}
        add_counts(self._tally.gaps, {reason: count})
        missing = 0 if go_on else count or None
        self._row(Kind.GAP, reason, about, missing, stream=first.stream, offset=first.offset)

    def loss(self, session: SessionState, loss: FileLoss) -> None:
        about: dict[str, object] = {"count": 0, "bytes": loss.size, "detail": loss.detail}
        if loss.data:
            session.received += len(loss.data)
            self._tally.received += len(loss.data)
            about |= self._unreadable(
                session, loss.detail, 1, len(loss.data), loss.data, self.incarnation.reached
            )
        add_counts(self._tally.gaps, {loss.reason: 0})
        self._row(Kind.GAP, loss.reason, about)

    def damaged(self, size: int) -> None:
        """Write a gap row, because up to `size` lost bytes of the spool may have belonged to this session."""
        about = {"count": 0, "bytes": size, "detail": "spool_damaged"}
        self._row(Kind.GAP, Reason.MALFORMED, about)

    def _unreadable(
        self, session: SessionState, why: str, records: int, size: int, data: bytes, offset: int
    ) -> dict[str, Any]:
        """Store unreadable bytes in the session's quarantine file. Return the attributes of the gap row about them."""
        tally, name = self._tally, session.info.session
        tally.malformed += size
        add_counts(tally.malformed_records, {why: records})
        session.garbage += size
        at = session.quarantined
        packed = frame(offset, why, data)
        self._quarantine(name, at, packed)
        session.quarantined += len(packed)
        about = {"count": 0, "bytes": size, "detail": why, "quarantine": at}
        if self.incarnation.name.partition(".")[0] != name:
            about["quarantine_of"] = name
        return about

    def _row(
        self,
        kind: str,
        name: str,
        attributes: Mapping[str, Any],
        missing: int | None = None,
        *,
        stream: str = "",
        seq: int | None = None,
        id_: int | None = None,
        time: int | None = None,
        offset: int | None = None,
        session: str = "",
    ) -> None:
        """Write a row of this incarnation, or of the session `session`. In a gap row, `missing` is the number of
        missing events, or None if it is unknown."""
        if kind == Kind.GAP and missing is None:
            self._tally.unknown_gaps += 1
        text = _json(attributes)
        at = self.incarnation.reached if offset is None else offset
        row = Row(
            stream, None, seq, kind, name, None, id_, None, None, None, None, time, missing, text, at, None
        )  # fmt: skip
        self._emit(session or self.incarnation.name, row, ROW_BYTES + len(text))
        self._tally.rows += 1
        if kind != Kind.SESSION and session in ("", self.incarnation.name):
            self.incarnation.rows += 1


_PARTS_MAX = 16
"""Maximum number of gap rows about unreadable parts of one chunk, so that noise does not cause many rows."""

_IN_PIECES = frozenset({"nul_bytes", "too_long"})
"""Reasons of unreadable bytes for which one line may arrive as several records. Only the last of these records ends
with a newline."""

_OF_JSON = frozenset({"bad_json", "not_an_object", "hex_number", "not_a_number"})
_OF_LINES = frozenset({"invalid_utf8", "too_long", "truncated"})
"""Reasons of unreadable lines that may not be records: in formats of JSON lines, and in any line-based format."""

_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[\s\[\],\0\x1a]*\{")
_LETTER = re.compile(rb"(?:\xef\xbb\xbf)?\s*[A-Z]\s")
"""Patterns of lines that resemble a record: by the beginning of a JSON object, or by the letter of an ET3 line."""

_BEHIND = b" \t\n\r\f\v],"
"""Bytes that may follow a JSON object in a line."""

_UNKNOWN = FOREIGN.keys() | {DECODER_FAILED}
"""Reasons of unreadable bytes that may contain any number of events."""

_REGIONS = _UNKNOWN | {"bad_event", "bad_header"}
"""Reasons of unreadable bytes that are not divided into lines. Adjacent records with the same reason count as one
record."""


class Unreadable:
    def __init__(
        self, state: IncarnationState, own: OwnRows, references: References, *, counted: bool
    ) -> None:
        """Prepare to write gap rows. `counted` states that the producer numbers its events."""
        self._state = state
        self._own = own
        self._references = references
        self._counted = counted

    def take(self, session: SessionState, pieces: list[Record]) -> None:
        """Store unreadable records in the quarantine. Write one gap row for each series of adjacent records with the
        same reason. A series contains either only records that are or may be no events, or no such record. Above
        `_PARTS_MAX` series, write one gap row for each reason."""
        goes_on = self._goes_on(pieces[0])
        is_text, judged = False, list[tuple[Record, bool, bool]]()
        for piece in pieces:
            is_text = is_text if self._goes_on(piece) else self._is_text(piece)
            judged.append((piece, is_text, self._is_missing(piece, is_text=is_text)))

        def reason(of: tuple[Record, bool, bool]) -> tuple[str, bool]:
            return of[0].flaw or "", of[1] or of[0].name is not None

        parts = [list(same) for _, same in groupby(judged, key=reason)]
        rows = [[part] for part in parts]
        if len(parts) > _PARTS_MAX:
            parts.sort(key=lambda part: reason(part[0]))
            rows = [list(same) for _, same in groupby(parts, key=lambda part: reason(part[0]))]
        for row in rows:
            of_row = [each for part in row for each in part]
            count = sum(missing for _, _, missing in of_row)
            more = not (count or self._counted)
            if all(
                is_text or _is_unknown(piece) or _may_hold_others(piece)
                for piece, is_text, _ in of_row
            ):
                more = goes_on and of_row[0][0] is pieces[0]
            series = [[piece for piece, _, _ in part] for part in row]
            self._own.malformed(session, series, count, go_on=more)
            self._references.add_malformed(count)
            for piece, _, _ in of_row:
                if piece.id is not None:
                    self._references.define(piece.id)

    def _goes_on(self, piece: Record) -> bool:
        return self._state.unended == (piece.offset, piece.flaw or "")

    def _is_missing(self, piece: Record, *, is_text: bool) -> bool:
        """Return whether an unreadable record counts as one missing event. It does not count if the producer numbers
        its events, if the record continues the previous unreadable record, if it is not just one event (as its name or text
        shows), or if its number of events is unknown."""
        state, flaw = self._state, piece.flaw or ""
        goes_on = self._goes_on(piece)
        in_lines = not _is_unknown(piece) and flaw not in _REGIONS
        ended = in_lines and (
            flaw not in _IN_PIECES
            or not isinstance(piece.detail, bytes)
            or piece.detail.endswith(b"\n")
        )
        state.unended = None if ended else (piece.offset + piece.size, flaw)
        return not (self._counted or goes_on or is_text or piece.name or _is_unknown(piece))

    def _is_text(self, piece: Record) -> bool:
        """Return whether an unreadable line resembles no record, and nothing before it shows that the input is a trace.
        Such a line may be text, for example of a log or a README."""
        seen = self._references.state
        if self._counted or self._state.clock or seen.ends or seen.seen.keys() - {Kind.ANNOTATION}:
            return False
        flaw, data = piece.flaw or "", piece.detail
        if flaw == "not_a_record":
            return True
        if flaw not in _OF_JSON | _OF_LINES or not isinstance(data, bytes):
            return False
        # Do not search for the end of an object with a pattern: it would search from each `":` of a long line.
        has_end = data.rstrip(_BEHIND).endswith(b"}") and b'":' in data
        # The input may begin in the middle of an object, which was counted where it begins.
        is_object = _BEGIN.match(data) or (has_end and piece.offset > 0)
        alike = is_object or (flaw in _OF_LINES and _LETTER.match(data))
        return not (alike or b"\0" in data)


def _may_hold_others(piece: Record) -> bool:
    """Return whether an unreadable record that is not just one event may contain events, or parts of them."""
    return piece.name is not None and piece.flaw in _OF_JSON | _OF_LINES - {"truncated"}


def _is_unknown(piece: Record) -> bool:
    """Return whether an unreadable record may contain any number of events: after a log rotation or a crash, NULs may
    replace any number of lines."""
    data = piece.detail
    return piece.flaw in _UNKNOWN or (isinstance(data, bytes) and not data.strip(b"\0"))
