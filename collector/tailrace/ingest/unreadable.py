"""Pieces of a session that nobody can read: their gap rows, and whether each is a missing event."""

from __future__ import annotations

from itertools import chain, groupby
from operator import attrgetter

from tailrace.decoding.foreign import FOREIGN
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.state import IncarnationState, SessionState
from tailrace.ledger.references import References
from tailrace.model.record import Record

_PARTS_MAX = 16
"""Unreadable parts of one chunk that get a row each: noise must not make many rows."""

_IN_PIECES = frozenset({"nul_bytes", "too_long"})
"""Flaws of an unreadable line or hole that may come in several pieces, up to a newline."""

_REGIONS = FOREIGN.keys() | {"bad_event", "bad_header"}
"""Flaws of bytes that may come in several pieces and have no lines."""

_flaw = attrgetter("flaw")


class Unreadable:
    """Takes the unreadable pieces of one incarnation."""

    def __init__(
        self, state: IncarnationState, own: OwnRows, references: References, *, counted: bool
    ) -> None:
        """Take pieces of an incarnation. With `counted`, the producer's counters tell which events are
        missing."""
        self._state = state
        self._own = own
        self._references = references
        self._counted = counted

    def take(self, session: SessionState, pieces: list[Record]) -> None:
        """Keep adjacent pieces in the quarantine, and write a gap row for each series with one reason. If there
        are many series, write a row for each reason."""
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
        """Return whether a piece stands for a missing event.

        It does not where the producer counts, where it continues what the piece before began, or where nobody knows what
        it stands for."""
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
    """Return whether nobody knows how many events a piece stands for: a foreign content, or NULs. A log rotation that empties a
    file leaves NULs where there were lines, and a crash leaves them where lines should have come."""
    data = piece.detail
    return piece.flaw in FOREIGN or (isinstance(data, bytes) and not data.strip(b"\0"))
