"""Decode Elephant Tracks 3: calls, allocations, stores and deaths of objects in Java programs, one line an event.

The module `events` describes the rows, `line` the lines, `form` the clock, threads and losses, and `maps` the documents
with names. A session is one file. The first record is the session record `trace`, which states the form of the lines:
they end with a clock or with a thread. Lines wait until the form is known: usually until the second entry or exit, or
up to `limit` bytes.

A last line without a newline is read if it is probably whole; otherwise it is `truncated`, and the gap `no_end` states
that further lines may be missing. NULs at the beginning of a
line are malformed (`nul_bytes`): a log rotation emptied the file while the producer continued to write. The lines after
the NULs are read as a trace whose beginning is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from tailrace import kernels
from tailrace.decoding.formats.et3.events import ET1, ET3, Events, begun, read_other
from tailrace.decoding.formats.et3.form import (
    AGENT,
    CLOCK_LIKELY,
    DOUBT,
    SPECIFICATION,
    TIME_MAX,
    TRUST,
    AgentForm,
    FormName,
    SpecificationForm,
    Votes,
)
from tailrace.decoding.formats.et3.line import Line, read_line
from tailrace.decoding.formats.et3.maps import MapNames, MapNamesState, deaths_were_added
from tailrace.decoding.formats.et3.stack import DEPTH_MAX, THREADS_MAX, EvictableStacks
from tailrace.decoding.lines import BLOCK, Lines, LinesState, Piece, marks_before, split_lines
from tailrace.model.gap import Reason
from tailrace.model.holding import Holding
from tailrace.model.record import Record, malformed, missing, named, session_record
from tailrace.rows.block import ROWS_MIN, Block

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.et3._kernel import Scanner

    _scan = Scanner(
        AGENT, depth=DEPTH_MAX, threads=THREADS_MAX, trust=TRUST, doubt=DOUBT, time=TIME_MAX,
        clock=CLOCK_LIKELY,
    ).scan  # fmt: skip
    """The compiled kernel's scanner, which all decoders share. Its caches never change the results."""

_NULS = re.compile(rb"\0*").match


class Et3State(msgspec.Struct):
    lines: LinesState = msgspec.field(default_factory=LinesState)
    nuls: int = 0  # Number of NULs that are in no record yet.
    hole: bool = False  # Whether NULs replace the removed beginning of the file.
    held: bytes = b""  # Whole lines that wait until their form is known.
    asked: FormName | None = None  # The form that the configuration sets.
    added: bool = False  # Whether the file name shows that a tool added deaths of objects later.
    version: str = ""  # "et3", "et1", or "" while it is unknown.
    form: SpecificationForm | AgentForm | None = None
    names: MapNamesState = msgspec.field(default_factory=MapNamesState)


class Et3Decoder:
    """Decodes one ET3 trace. `limit` is the maximum size (bytes) of a line, including the newline.

    The property `state` returns no copy: the next call of `feed` changes the returned object."""

    def __init__(self, limit: int, state: Et3State | None = None) -> None:
        self._state = state = state or Et3State()
        self._limit = limit
        self._lines = Lines(limit, state.lines)
        self._names = MapNames(state.names)
        self._held = bytearray(state.held)
        self._held_at = state.lines.offset - len(self._held)
        self._votes = Votes(state.asked)
        self._events: Events | None = None
        self._frames: EvictableStacks | None = None
        if state.form:
            self._events = Events(state.form, self._names, state.version)
            self._frames = EvictableStacks(state.form.stacks)
        for data in split_lines(state.held):
            self._votes.add(read_line(data, et1=False))

    @property
    def state(self) -> Et3State:
        self._state.lines = self._lines.state
        self._state.held = bytes(self._held)
        self._state.version = self._events.version if self._events else ""
        return self._state

    @property
    def pending(self) -> int:
        return self._lines.pending + self._state.nuls + len(self._held)

    @property
    def holdings(self) -> list[Holding]:
        return [self._frames, self._names] if self._frames else [self._names]

    def begin(self, path: str, dialect: str) -> None:
        forms: dict[str, FormName] = {SPECIFICATION: SPECIFICATION, AGENT: AGENT}
        self._state.asked = forms.get(dialect)
        self._votes = Votes(self._state.asked)
        self._state.added = deaths_were_added(path)

    @property
    def asked(self) -> Collection[str]:
        """Keys to which events refer and for which no document has a name. In a trace of the form `SPECIFICATION`, the
        keys of fields are left out, because such a trace needs no names of fields."""
        asked = self._names.asked.missing
        if isinstance(self._state.form, SpecificationForm):
            return [key for key in asked if not key.startswith("field:")]
        return asked

    def document(self, name: str, data: bytes) -> list[Record]:
        """Read a document with names. Return a record of each new name. If there are bad lines, or names beyond
        `maps.READ_MAX`, also return a record with their number."""
        at = self._held_at if self._held else self._lines.state.offset
        new, bad, left_out = self._names.read(name, data)
        records = [named(at, 0, key, text) for key, text in new]
        for what, count in (("bad_map_lines", bad), ("map_names_left_out", left_out)):
            if count:
                about = msgspec.json.encode({"document": name, "count": count}).decode()
                records.append(session_record(at, 0, what, about))
        return records

    def feed(self, data: bytes) -> list[Record]:
        records: list[Record] = []
        at = 0
        while at < len(data):
            if stop := self._feed_nuls(data, at, records):
                at = stop
                continue
            # Read lines, up to one that begins with NUL.
            stop = data.find(b"\n\0", at) + 1 or len(data)
            for piece in self._lines.feed(data[at:stop]):
                self._take(piece, records)
            if len(self._held) + self._lines.pending > self._limit:
                self._settle(records)
            at = stop
        return records

    def end(self) -> list[Record]:
        records = self._stop(Lines.end)
        if records and records[-1].flaw == "truncated":
            # A trace has no end mark, but a torn line shows that the input was cut off: further lines may be missing.
            at = records[-1].offset + records[-1].size
            records.append(missing(at, Reason.TRUNCATED, 0, detail="no_end"))
        if self._events:
            self._events.settle(self._lines.state.offset, records, ended=True)
        return records

    def settle(self) -> list[Record]:
        records: list[Record] = []
        if self._events:
            self._events.settle(self._lines.state.offset, records, ended=False)
        return records

    def give_up(self) -> list[Record]:
        return self._stop(Lines.give_up)

    # Methods that cut the input into NULs and pieces (`Piece`: whole lines, or a part of a line)

    def _stop(self, rest: Callable[[Lines], list[Piece]]) -> list[Record]:
        """Return the records of all waiting bytes. `rest` is the method of `Lines` with which to get the bytes of the
        unfinished line."""
        records: list[Record] = []
        self._tell_nuls(self._state.nuls, records)
        pieces = rest(self._lines)
        self._settle(records)
        for piece in pieces:
            self._take(piece, records)
        return records

    def _feed_nuls(self, data: bytes, at: int, records: list[Record]) -> int:
        """Read NULs at the beginning of a line. Return the position after them, or 0 if there are none."""
        state = self._state
        if not state.nuls and (data[at] or not self._lines.after_blank):
            return 0
        self._settle(records)
        for blank in self._lines.end():
            self._take(blank, records)
        stop = _NULS(data, at).end()  # type: ignore[union-attr] # it matches everywhere
        state.nuls += stop - at
        while state.nuls >= self._limit:
            self._tell_nuls(self._limit, records)
        if stop < len(data):
            self._tell_nuls(state.nuls, records)
        return stop if stop > at else 0

    def _tell_nuls(self, size: int, records: list[Record]) -> None:
        if not size:
            return
        state = self._state
        at = self._lines.state.offset
        records.append(malformed(at, bytes(size), "nul_bytes"))
        self._lines = Lines(self._limit, LinesState(at + size))
        state.nuls -= size
        state.hole = True
        if state.form:
            state.form.hole()

    def _take(self, piece: Piece, records: list[Record]) -> None:
        offset, data = piece.offset, piece.data
        if piece.kind == "lines":
            self._read_lines(offset, data, records)
            return
        self._settle(records)
        if piece.kind in {"blank", "mark"}:
            records.append(session_record(offset, len(data), piece.name))
        elif piece.kind == "tail" and self._events:
            self._events.read_last(offset, data, records)
        elif piece.kind == "tail":
            line = read_line(data, et1=False)
            if isinstance(line, Line) and line.kind == "comment":
                records.append(read_other(offset, len(data), line))
            else:
                records.append(malformed(offset, data, "truncated"))
        else:
            records.append(malformed(offset, data, piece.kind))
            if self._state.form and data.endswith(b"\n"):
                self._state.form.unreadable()

    # Methods that read the lines of a `Piece` of the input

    def _read_lines(self, offset: int, data: bytes, records: list[Record]) -> None:
        read = 0
        lines = [] if self._events else split_lines(data)
        for line in lines:
            self._hold(offset + read, line, records)
            read += len(line)
            if self._events:
                break
        if self._events:
            self._events.read(offset + read, data[read:] if read else data, records)

    # Methods that determine the form of the trace from its first lines

    def _hold(self, offset: int, data: bytes, records: list[Record]) -> None:
        """Read a line while the form of the trace is unknown. Keep the line if its record may depend on the form."""
        line = read_line(data, et1=False)
        if not self._held:
            if isinstance(line, Line) and line.kind in {"comment", "unknown"}:
                records.append(read_other(offset, len(data), line))
                return
            # Keep a line that begins with Ctrl-Z characters, because an event may follow them.
            early = isinstance(line, str) and line in {"not_a_record", "invalid_utf8"}
            if early and not marks_before(data):
                records.append(malformed(offset, data, str(line)))
                return
            self._held_at = offset
        elif len(self._held) + len(data) > self._limit:
            self._settle(records)
            self._read_lines(offset, data, records)
            return
        self._held += data
        if form := AGENT if self._state.asked == AGENT else self._votes.add(line):
            self._decide(form, records)

    def _settle(self, records: list[Record]) -> None:
        """Choose the more likely form for the waiting lines, and read these lines."""
        if self._held:
            self._decide(self._votes.guess(), records)

    def _decide(self, name: FormName, records: list[Record]) -> None:
        state = self._state
        agent = name == AGENT
        state.form = form = AgentForm(trusted=state.added) if agent else SpecificationForm()
        if state.hole:
            form.hole()
        self._events = Events(form, self._names)
        self._frames = EvictableStacks(form.stacks)
        records.append(begun(self._held_at, name, again=False))
        self._events.read(self._held_at, bytes(self._held), records)
        self._held.clear()


LINE_MIN = 16
"""Approximate size (bytes) of the shortest line that the compiled kernel reads."""

STEP_MIN = 16
"""Minimum number of bytes that Python decodes after two successive lines that the kernel cannot read. The number
roughly doubles with each further such line, because a call of the kernel takes time."""


class Et3BlockDecoder(Et3Decoder):
    """An ET3 decoder whose compiled kernel packs the most frequent lines into blocks. Python reads all other lines."""

    @property
    def block_min(self) -> int:
        return ROWS_MIN * LINE_MIN

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        data = self._lines.take_back() + data
        at, have, step = 0, len(data), 0
        while at < have:
            block, stop = self._scan(data, at)
            if block is not None:
                found.append(block)
                at, step = stop, 0
                continue
            # Decode in Python the line at `stop`, which the compiled kernel cannot read. After many such lines in
            # succession, decode more and more bytes at once.
            stop = data.find(b"\n", min(max(stop, at + step), have)) + 1 or have
            found += super().feed(data[at:stop])
            at, step = stop, min(2 * step + STEP_MIN, BLOCK)
        return found

    def _scan(self, data: bytes, at: int) -> tuple[Block | None, int]:
        """Let the compiled kernel pack lines of `data`, from the position `at` on, into a block of rows. Return the
        block and the position after it. If there is no block, return None and the position of a line that Python must
        read."""
        events, state = self._events, self._state
        if not events or not state.form or state.nuls or not self._lines.between:
            return None, at
        if events.version == ET1:
            return None, at
        lines = self._lines
        block, stop, of_et3 = _scan(
            data, at, lines.offset, lines.limit, ROWS_MIN, state.form, self._names
        )
        if block is not None:
            lines.skip(block.length)
            if of_et3 and not events.version:
                events.version = ET3
        return block, stop
