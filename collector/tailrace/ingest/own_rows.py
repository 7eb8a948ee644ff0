"""Write the rows of a session that do not come from records: its beginning and end, missing events, and unreadable bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

from tailrace.decoding.foreign import FOREIGN
from tailrace.ingest.state import IncarnationState, SessionState, Tally
from tailrace.ledger.findings import Account, Finding
from tailrace.ledger.references import References
from tailrace.ledger.split_runs import FoundRuns
from tailrace.model.gap import Reason
from tailrace.model.quarantine import frame
from tailrace.model.record import Kind, Record
from tailrace.rows.batch import Emitted
from tailrace.rows.schema import Row
from tailrace.spool.payloads import FileLoss

Emit = Callable[[str, Emitted, int], None]
"""Function that receives an incarnation's name, rows (see `Batch.extend`) and the approximate size of the rows in bytes."""

KeepPiece = Callable[[str, int, bytes], None]
"""Function that receives the name of a quarantine file, a position in the file and a frame."""


class Sink(NamedTuple):
    """Destination of a session's rows. `wall` converts a time of the log to wall time. `at_last` schedules a function
    call for the next commit of rows."""

    emit: Emit
    quarantine: KeepPiece
    wall: Callable[[int], int]
    at_last: Callable[[Callable[[], None]], None]


ROW_BYTES = 600
"""Approximate memory (bytes) of a row of Python values beyond the bytes of its record: in the batch, and during the write."""

PACKED_ROW_BYTES = 96
"""Approximate memory (bytes) of a row in a block beyond the bytes of its record."""


_CUT = Finding(Kind.GAP, "", None, 0, Reason.TRUNCATED, detail="cut")

_json = json.JSONEncoder(separators=(",", ":")).encode


class OwnRows:
    """Writes the rows of one incarnation, and counts their contents in the tally."""

    def __init__(
        self,
        incarnation: IncarnationState,
        tally: Tally,
        sink: Sink,
    ) -> None:
        self.wall = sink.wall
        """Function that converts a time of the log to wall time, as written in rows."""
        self._incarnation = incarnation
        self._tally = tally
        self._emit, self._quarantine = sink.emit, sink.quarantine

    @property
    def said_goodbye(self) -> bool:
        """Return whether the producer has stated the incarnation's end, by a goodbye or a footer."""
        return bool(self._incarnation.goodbye_at)

    def session(self, name: str, about: dict[str, object], now: int) -> None:
        self._row(Kind.SESSION, name, about, time=self.wall(now))

    def finding(self, finding: Finding, session: str = "") -> None:
        """Write the row of a finding; `session` names an earlier session if the finding concerns one."""
        sums = self._tally.gaps if finding.kind == Kind.GAP else self._tally.heals
        sums[finding.reason] = sums.get(finding.reason, 0) + finding.events
        about: dict[str, object] = {"count": finding.events}
        if finding.of:
            about["of"] = finding.of
        detail, elsewhere = finding.detail, self._incarnation.elsewhere
        if finding.reason == Reason.LATE_JOIN and finding.stream in elsewhere:
            detail = f"maybe in {elsewhere[finding.stream]}"
        if detail:
            about["detail"] = detail
        if finding.last is not None:
            about |= {"of_range": True, "last": finding.last}
        if finding.estimate:
            about["estimate"] = True
        self._row(
            finding.kind, finding.reason, about, finding.events or None, stream=finding.stream,
            seq=finding.seq, id_=finding.id, offset=finding.offset, session=session,
        )  # fmt: skip

    def of_pieces(self, found: FoundRuns) -> None:
        """Write the rows of findings about the pieces of a run, whose sessions may be over."""
        for session, finding in found:
            self.finding(finding, session)
            more = finding.events if finding.kind == Kind.GAP else -finding.events
            self._tally.events.add(Account(expected=more, missing=more))
            self._tally.unknown_gaps -= finding.kind == Kind.HEAL and not finding.events

    def cut(self) -> None:
        """Write a gap of unknown size: the connection ended before the producer's last byte."""
        self.finding(_CUT)

    def heal_cut(self, session: str) -> None:
        """Heal the gap of an earlier session whose connection was cut: other sessions continue all its streams."""
        self._tally.unknown_gaps -= 1
        self.finding(_CUT._replace(kind=Kind.HEAL), session)

    def malformed(
        self,
        session: SessionState,
        parts: Sequence[Sequence[Record]],
        count: int,
        *,
        go_on: bool = False,
    ) -> None:
        """Write a gap row for unreadable pieces with one reason, and store each part in the quarantine.

        A part consists of adjacent pieces. The pieces represent `count` events, as far as known. With `go_on`, the
        pieces continue an earlier piece that already has a gap row, and represent no further event."""
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
        self._missing(reason, count)
        missing = 0 if go_on else count or None
        self._row(Kind.GAP, reason, about, missing, stream=first.stream, offset=first.offset)

    def loss(self, session: SessionState, loss: FileLoss) -> None:
        """Write a gap row for bytes that the session lacks, with an unknown number of events."""
        about: dict[str, object] = {"count": 0, "bytes": loss.size, "detail": loss.detail}
        if loss.data:
            session.received += len(loss.data)
            self._tally.received += len(loss.data)
            about |= self._unreadable(
                session, loss.detail, 1, len(loss.data), loss.data, self._incarnation.reached
            )
        self._missing(loss.reason, 0)
        self._row(Kind.GAP, loss.reason, about)

    def damaged(self, size: int) -> None:
        """Write that up to `size` unreadable bytes of the spool may have belonged to this session."""
        about = {"count": 0, "bytes": size, "detail": "spool_damaged"}
        self._row(Kind.GAP, Reason.MALFORMED, about)

    def _missing(self, reason: str, count: int) -> None:
        self._tally.gaps[reason] = self._tally.gaps.get(reason, 0) + count

    def _unreadable(
        self, session: SessionState, why: str, records: int, size: int, data: bytes, offset: int
    ) -> dict[str, Any]:
        """Store bytes in the quarantine. Return the attributes of their row."""
        tally, name = self._tally, session.info.session
        tally.malformed += size
        tally.malformed_records[why] = tally.malformed_records.get(why, 0) + records
        session.garbage += size
        at = session.quarantined
        packed = frame(offset, why, data)
        self._quarantine(name, at, packed)
        session.quarantined += len(packed)
        about = {"count": 0, "bytes": size, "detail": why, "quarantine": at}
        if self._incarnation.name.partition(".")[0] != name:
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
        """Write a row of this incarnation, or of another session if `session` is given. A gap row has the number of
        `missing` events, or None for an unknown number."""
        if kind == Kind.GAP and missing is None:
            self._tally.unknown_gaps += 1
        text = _json(attributes)
        at = self._incarnation.reached if offset is None else offset
        row = Row(
            stream, None, seq, kind, name, None, id_, None, None, None, None, time, missing, text, at, None
        )  # fmt: skip
        self._emit(session or self._incarnation.name, row, ROW_BYTES + len(text))


_PARTS_MAX = 16
"""Maximum number of unreadable parts of one chunk that get a row each, so that noise does not cause many rows."""

_IN_PIECES = frozenset({"nul_bytes", "too_long"})
"""Flaws of an unreadable line or hole that may span several pieces, up to a newline."""

_REGIONS = FOREIGN.keys() | {"bad_event", "bad_header"}
"""Flaws of bytes without lines that may span several pieces."""

_flaw = attrgetter("flaw")


class Unreadable:
    """Processes the unreadable pieces of one incarnation."""

    def __init__(
        self, state: IncarnationState, own: OwnRows, references: References, *, counted: bool
    ) -> None:
        """Process pieces of an incarnation. With `counted`, the producer's counters show which events are missing."""
        self._state = state
        self._own = own
        self._references = references
        self._counted = counted

    def take(self, session: SessionState, pieces: list[Record]) -> None:
        """Store adjacent pieces in the quarantine, and write a gap row for each series of pieces with one reason. If
        there are many series, write one row for each reason."""
        goes_on = self._state.unended == (pieces[0].offset, _flaw(pieces[0]))
        begins = {id(piece): self._is_missing(piece) for piece in pieces}
        parts = [list(same) for _, same in groupby(pieces, key=_flaw)]
        rows = [[part] for part in parts]
        if len(parts) > _PARTS_MAX:
            parts.sort(key=lambda part: _flaw(part[0]))
            rows = [list(same) for _, same in groupby(parts, key=lambda part: _flaw(part[0]))]
        for row in rows:
            count = sum(begins[id(piece)] for part in row for piece in part)
            more = not (count or self._counted)
            if all(_is_unknown(piece) for part in row for piece in part):
                more = goes_on and row[0][0] is pieces[0]
            self._own.malformed(session, row, count, go_on=more)
            self._references.add_malformed(count)
            for piece in chain.from_iterable(row):
                if piece.id is not None:
                    self._references.define(piece.id)

    def _is_missing(self, piece: Record) -> bool:
        """Return whether a piece represents a missing event.

        A piece does not represent a missing event if the producer counts events, if the piece continues the previous
        piece, or if the content of the piece is unknown."""
        state, flaw = self._state, piece.flaw or ""
        goes_on = state.unended == (piece.offset, flaw)
        in_lines = not _is_unknown(piece) and flaw not in _REGIONS
        ended = in_lines and (
            flaw not in _IN_PIECES
            or not isinstance(piece.detail, bytes)
            or piece.detail.endswith(b"\n")
        )
        state.unended = None if ended else (piece.offset + piece.size, flaw)
        return not (self._counted or goes_on or _is_unknown(piece))


def _is_unknown(piece: Record) -> bool:
    """Return whether the number of events in a piece is unknown: the piece is foreign content, or NULs. A log rotation
    that truncates a file leaves NULs in place of lines, and a crash leaves NULs in place of lines that were not written
    yet."""
    data = piece.detail
    return piece.flaw in FOREIGN or (isinstance(data, bytes) and not data.strip(b"\0"))
