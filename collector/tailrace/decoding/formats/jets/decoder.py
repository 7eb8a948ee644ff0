"""Decode JETS 2.0: one JSON object a line, for spans (records that begin and end), their events and their annotations.

| type       | kind       | columns                                                      |
|------------|------------|--------------------------------------------------------------|
| header     | session    | name "header"                                                |
| record     | begin      | name, category (record_type), id, parent (parent_id), start  |
| record_end | end        | id (record_id), end                                          |
| event      | instant    | name, parent (record_id), start                              |
| annotation | annotation | name, parent (record_id)                                     |
| footer     | session    | name "footer"                                                |
| any other  | session    | name (the type), start (clk)                                 |

`start` and `end` are ticks of the simulated clock (`clk`). Each line may have any of three dialects that call
themselves 2.0 (docs/formats/jets.md). For an id that is a string, the column has 63 bits of its BLAKE2b. Attributes
have the other fields, as the producer's own text. A line with a repeated or reserved key is stored whole (`$line`).

A readable line that breaks a rule becomes a record with a flaw. A line of an unknown type is such a line, because later
versions may add types. A record gets only the first of its flaws in this order: byte_order_mark, duplicate_key, flaws
of single fields, flaws of the line's position. NULs at the beginning of a line are malformed: a log rotation emptied
the file while the producer continued to write. A file with a readable line but no footer gets a `truncated` gap of
unknown size at its end, or before the header of the next producer. Connections and datagrams may lack a footer. A file
whose first readable line is not a header may be the rest of a split file: it gets a `late_join` gap of unknown size. If
this line is the footer, and the header comes behind other lines, the file was reversed.

A header behind lines without a header, or behind lines that follow a footer, may stand in a file that was sorted or
shuffled. Lines before the header may be of its run, so a `late_join` gap follows the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tailrace import kernels
from tailrace.decoding.formats.jets.line import read_line, read_usual
from tailrace.decoding.json_object import is_whole
from tailrace.decoding.lines import BLOCK, WHITE, Lines, LinesState, Piece, marks_before
from tailrace.model.gap import Reason
from tailrace.model.record import Kind, Record, SessionFacts, malformed, missing, session_record
from tailrace.rows.block import ROWS_MIN, Block

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.jets._kernel import Scanner

    _scan = Scanner().scan
    """The compiled kernel's scanner, which all decoders share. Its caches never change the results."""

IN_SESSION = frozenset({"headless", "open"})
"""Values of `JetsState.stage` between header and footer. A file that ends in one of these stages lacks its footer."""

NO_END, NO_START = "no_end", "no_start"
"""Details of the gap records for a missing footer and for a missing header."""


class JetsState(msgspec.Struct):
    lines: LinesState = msgspec.field(default_factory=LinesState)
    # "start", "headless" (lines without a header), "open" (after a header) or "closed" (after a footer). A file that
    # begins with a footer is a part of a trace or was reversed: "footer", and "reversed" after a line that is not a
    # header.
    stage: str = "start"
    file: bool = False  # Whether the input is a file whose end was not yet reached.
    totals: dict[str, int] = {}  # Totals of the footer with which the file begins.
    unordered: bool = False  # Whether lines of the file may stand before the header of their run.


class JetsDecoder:
    """Decodes one session of JETS lines. `limit` is the maximum size (bytes) of a line, including the newline."""

    def __init__(self, limit: int, state: JetsState | None = None) -> None:
        state = state or JetsState()
        self._lines = Lines(limit, state.lines, marked=True)
        self._stage = state.stage
        self._in_file = state.file
        self._totals = state.totals
        self._unordered = state.unordered
        self._slow = 0

    @property
    def state(self) -> JetsState:
        return JetsState(
            self._lines.state, self._stage, self._in_file, self._totals, self._unordered
        )

    @property
    def pending(self) -> int:
        return self._lines.pending

    def take_slow(self) -> int:
        slow, self._slow = self._slow, 0
        return slow

    @property
    def stream(self) -> str:
        return ""

    @property
    def lacking(self) -> str | None:
        if not self._in_file or self._stage == "start":
            return None
        return NO_END if self._stage in IN_SESSION else ""

    def begin(self, path: str, dialect: str) -> None:  # noqa: ARG002 - any file is read alike
        self._in_file = True

    def document(self, name: str, data: bytes) -> list[Record]:  # noqa: ARG002 - there are none
        return []

    def feed(self, data: bytes) -> list[Record]:
        return self._read(self._lines.feed(data))

    def end(self) -> list[Record]:
        """Decode the waiting bytes, and report a missing footer. A last line that is not JSON is `truncated`."""
        records = self._read(self._lines.end())
        records += self._cut_off(self._lines.offset)
        self._in_file = False
        return records

    def settle(self) -> list[Record]:
        return self._read(self._lines.settle(is_whole))

    def give_up(self) -> list[Record]:
        return self._read(self._lines.give_up())

    def _cut_off(self, offset: int) -> list[Record]:
        return [missing(offset, Reason.TRUNCATED, 0, detail=NO_END)] if self.lacking else []

    def _read(self, pieces: list[Piece]) -> list[Record]:
        records: list[Record] = []
        for piece in pieces:
            if piece.kind == "lines":
                # Read the most frequent lines in bulk.
                at = 0
                for found in read_usual(piece.offset, piece.data):
                    size = found.size if isinstance(found, Record) else len(found)
                    if isinstance(found, Record) and self._stage in IN_SESSION:
                        records.append(found)
                    else:
                        line = piece.data[at : at + size]
                        self._read_after_nuls(piece.offset + at, line, records)
                    at += size
            elif piece.kind == "tail":
                self._read_after_nuls(piece.offset, piece.data, records)
                if records[-1].flaw in {"bad_json", "hex_number", "invalid_utf8"}:
                    records[-1] = records[-1]._replace(flaw="truncated")
            elif piece.kind in {"blank", "mark"}:
                records.append(session_record(piece.offset, len(piece.data), piece.name))
            else:
                records.append(malformed(piece.offset, piece.data, piece.kind))
        return records

    def _read_after_nuls(self, offset: int, line: bytes, records: list[Record]) -> None:
        """Read a line that may begin with NULs after a log rotation, or with Ctrl-Zs where files were joined."""
        rest = line.lstrip(b"\0")
        if not rest.strip(WHITE):
            rest = b""
        hole = len(line) - len(rest)
        if hole:
            records.append(malformed(offset, line[:hole], "nul_bytes"))
        if rest:
            found = self._read_line(offset + hole, rest)
            if found[0].kind == Kind.MALFORMED and (marks := marks_before(rest)):
                size = marks[-1].offset + len(marks[-1].data)
                behind = self._read_line(offset + hole + size, rest[size:])
                # Ctrl-Zs before an unreadable line stay in the line's malformed record.
                if behind[0].kind != Kind.MALFORMED:
                    at = offset + hole
                    records += [
                        session_record(at + each.offset, len(each.data), each.name)
                        for each in marks
                    ]
                    found = behind
            records += found

    def _read_line(self, offset: int, line: bytes) -> list[Record]:
        """Return the record of a line, and the gap records for a missing header or footer, before and behind this
        record."""
        self._slow += 1
        record = read_line(offset, line)
        gaps: list[Record] = []
        behind: list[Record] = []
        if record.kind == Kind.MALFORMED:
            return [record]
        facts = record.detail if isinstance(record.detail, SessionFacts) else None
        flaw = None
        if facts and record.name == "header" and self._stage != "reversed":
            gaps = self._cut_off(offset)
            flaw = None if self._stage == "start" else "header_not_first"
            self._unordered |= self._in_file and self._stage == "headless"
            if self._unordered:
                behind = [_no_start(offset + len(line))]
            self._stage = "open"
        elif self._stage == "start":
            flaw = "no_header"
            self._stage = "headless"
            if self._in_file:
                gaps = [_no_start(offset)]
        elif self._stage not in IN_SESSION:
            flaw = "after_footer"
            self._unordered |= self._in_file and self._stage == "closed"
            self._stage = "reversed" if self._stage == "footer" else self._stage
        if facts and record.name == "footer":
            begins = flaw == "no_header" and self._in_file
            self._stage, self._totals = ("footer", facts.totals or {}) if begins else ("closed", {})
        elif facts and self._stage == "reversed":
            # In a reversed file, the header comes last. No line is missing if the numbers of lines equal the footer's
            # totals.
            self._stage = "closed"
            record = record._replace(detail=replace(facts, starts=False, totals=self._totals))
        if flaw is not None and not record.flaw:
            record = record._replace(flaw=flaw)
        return [*gaps, record, *behind]


def _no_start(offset: int) -> Record:
    return missing(offset, Reason.LATE_JOIN, 0, detail=NO_START)


LINE_MIN = 40
"""Approximate size (bytes) of the shortest line that the compiled kernel reads."""


class JetsBlockDecoder(JetsDecoder):
    """A JETS decoder whose compiled kernel packs the most frequent lines into blocks. Python reads all other lines."""

    @property
    def block_min(self) -> int:
        return ROWS_MIN * LINE_MIN

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        lines, least = self._lines, self.block_min
        if len(data) >= least and b"\n" in data:
            # Join the unfinished line with `data`. If the line became a single record between two blocks, the later
            # stages would need more time than this copy.
            data = lines.take_back() + data
        at, have, left = 0, len(data), 0
        while at < have:
            stop = at
            if have - at < least:
                stop = have
            elif lines.between:
                if self._stage in IN_SESSION:
                    block, stop = _scan(data, at, lines.offset, lines.limit, ROWS_MIN)
                    if block is not None:
                        found.append(block)
                        lines.skip(block.length)
                        at, left = stop, 0
                        continue
                # After many lines that the compiled kernel cannot read, decode more and more bytes at once in Python.
                stop, left = min(stop + left, have), min(2 * left + 256, BLOCK)
            # Decode in Python the line at `stop`, which the compiled kernel cannot read.
            end = data.find(b"\n", stop) + 1 or have
            found += super().feed(data[at:end])
            at = end
        return found
