"""Decode DFTracer: one JSON object a line, with the complete events, counters and metadata of one process. Merged files
have several processes.

| record                | kind    | columns                                                          |
|-----------------------|---------|------------------------------------------------------------------|
| complete event        | span    | stream `PID/TID`, name, category (cat), start (ts), end (ts+dur)  |
| counter, aggregate    | counter | stream, name, category, start (ts)                               |
| FH, HH, SH            | name    | the name of a file, host or other string, key `FH:HASH`          |
| other metadata        | session | name (CM, PR, thread_name, …)                                    |
| `start`, `end`        | session | name, start, end                                                 |
| `[`, `]`, lone commas | session | name "bracket"; also for the two blanks that begin a file (1.0) |
| any other phase       | session | name                                                             |

The decoder reads the dialects of the releases 0.x to 2.2. Times have the producer's exact values, in microseconds or
the unit of a CM time_metric. A session record "clock" of size 0 states the unit before the first time, unless `start`
or the time_metric has stated it. Names replace the record's hashes, or keys under `$late` while the names are unknown.
Unknown fields and `args` keep the producer's own text, and metadata about the process is under `producer`. A record
with a repeated key, or a key that begins with "$", keeps its whole text (`$line`).

An invalid JSON record is repaired if its meaning is certain (`salvage`): a newline in a string has split the record
into several lines, or the tracer has truncated a long record and written the next one directly after it. A record gets
only the first of its flaws in this order: glued, split_line, invalid_utf8, unescaped, bare_nan, trailing_comma,
backslash, duplicate_key, flaws of single fields. A session record "process" of size 0 precedes the records of another
process. The module `run` finds the missing events of each process."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from tailrace import kernels
from tailrace.decoding.formats.dftracer.elements import Element, whole_elements
from tailrace.decoding.formats.dftracer.line import (
    RefusedError,
    bracket,
    clock_of,
    id_of,
    phase_of,
    read_fields,
    to_record,
)
from tailrace.decoding.formats.dftracer.names import HashNames
from tailrace.decoding.formats.dftracer.processes import Processes, ProcessesState
from tailrace.decoding.formats.dftracer.run import NO_END, TracedRun
from tailrace.decoding.formats.dftracer.salvage import (
    COMMA,
    RECORD_MAX,
    START,
    FoundFields,
    find_fields,
)
from tailrace.decoding.formats.dftracer.usual import find_usual, read_usual, turned
from tailrace.decoding.json_object import as_object, with_member
from tailrace.decoding.lines import (
    BLOCK,
    BYTE_ORDER_MARK,
    CTRL_Z,
    WHITE,
    Lines,
    LinesState,
    Piece,
)
from tailrace.model.holding import Holding
from tailrace.model.record import Record, RunPiece, malformed, session_record
from tailrace.rows.block import ROWS_MIN, Block

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.dftracer._kernel import Scanner, ranges

    _scan = Scanner().scan
    """The compiled kernel's scanner, which all decoders share. Its caches never change the results."""
JOINS_MAX = 4
"""Maximum number of attempts to join lines to one record. Newlines in a string split a record into several lines."""

_BEFORE, _BEHIND = b"[]," + WHITE, b"]," + WHITE
"""The bytes that may stand before a record, and those that may stand after it, in a JSON array."""

_NO_EVENT = re.compile(
    rb"""[\s\[\],]*\{\s*(?:"id"\s*:\s*\d{1,18}\s*,\s*)?"name"\s*:\s*"(start|end|[FHS]H|CM|PR|thread_name|process_name)"\s*,"""
    rb"""\s*"cat"\s*:\s*"dftracer"(?!.*"cat")""",
    re.DOTALL,
)
"""The name in an unreadable record that describes the run or a hash. No field of another record may follow."""

_JOINT = re.compile(rb"((?:\A|(?<=[\s\[\]},]))\x1a+(?=[\s\[\]{,]|\Z))")
"""Ctrl-Zs between records or brackets."""


class DFTracerState(msgspec.Struct):
    """The state of a DFTracer decoder between calls of `feed`."""

    lines: LinesState = msgspec.field(default_factory=LinesState)
    held: bytes = b""  # First lines of a record that newlines in a string have split.
    tried: int = 0  # Number of attempts to join these lines.
    names: dict[str, str] = {}  # Names of files, hosts and other strings, by key of the hash.
    processes: ProcessesState = msgspec.field(default_factory=ProcessesState)
    # Keys of hashes whose names are not known (see `AskedNames`).
    asked: dict[str, bool | None] = {}
    marked: bool = False  # Whether the file begins with a byte order mark.
    element: Element = msgspec.field(default_factory=Element)  # The unfinished line or element.


class DFTracerDecoder:
    """Decodes one DFTracer file. `limit` is the maximum size (bytes) of a line or element, with the newline."""

    def __init__(self, limit: int, state: DFTracerState | None = None) -> None:
        state = state or DFTracerState()
        self._lines = Lines(limit, state.lines)
        self._offset = state.lines.offset - len(state.held)
        self._held = state.held
        self._tried = state.tried
        self._hold_max = min(limit, RECORD_MAX)
        self._names = HashNames(dict(state.names), dict(state.asked))
        self._processes = Processes(state.processes)
        self._records: list[Record] = []
        self._marked = state.marked
        self._element = msgspec.structs.replace(state.element)
        self._slow = 0

    @property
    def state(self) -> DFTracerState:
        return DFTracerState(
            self._lines.state, self._held, self._tried, self._names.known, self._processes.state,
            self._names.asked.keys, self._marked, msgspec.structs.replace(self._element),
        )  # fmt: skip

    @property
    def pending(self) -> int:
        return len(self._held) + self._lines.pending

    def take_slow(self) -> int:
        slow, self._slow = self._slow, 0
        return slow

    @property
    def holdings(self) -> tuple[Holding, ...]:
        return self._names, self._processes

    @property
    def asked(self) -> Collection[str]:
        """Keys of hashes, such as `FH:17`, whose names the file has not defined; without hosts if all PIDs are 0.

        DFTracer's node service, which has the PID 0, never defines the name of its host."""
        asked = self._names.asked.missing
        if all(run.pid == "0" for run in self._processes.runs.values()):
            return [key for key in asked if not key.startswith("HH:")]
        return asked

    @property
    def processes(self) -> list[int]:
        return self._processes.numbers

    @property
    def pieces(self) -> dict[int, RunPiece | None]:
        return self._processes.pieces

    @property
    def stream(self) -> str:
        return ""

    @property
    def lacking(self) -> str | None:
        found = [run.lacking for run in self._processes.runs.values()]
        return next((word for word in (NO_END, "") if word in found), None)

    def lacking_of(self, process: int) -> str | None:
        run = self._processes.runs.get(process)
        return run.lacking if run else None

    @property
    def _run(self) -> TracedRun:
        return self._processes.current

    def feed(self, data: bytes) -> list[Record]:
        at = 0
        while at < len(data):
            at = self._read(data, at, BLOCK)
        return self._taken()

    def end(self) -> list[Record]:
        """Decode the waiting bytes at the end of the input. An unreadable last line is `truncated`."""
        self._element = Element()
        for piece in self._lines.end():
            self._piece(piece)
        self._let_go("truncated")
        self._of(self._processes.numbers, TracedRun.over)
        return self._taken()

    def settle(self) -> list[Record]:
        if not self._held:
            for piece in self._lines.settle(_is_whole):
                self._element = Element()
                self._piece(piece)
        return self._taken()

    def give_up(self) -> list[Record]:
        for piece in self._lines.give_up():
            self._piece(piece)
        self._let_go("bad_json")
        return self._taken()

    def _taken(self) -> list[Record]:
        records, self._records = self._records, []
        return records

    # Methods that read lines, and decide whether a record is usual (of a frequent shape), unusual or split into several
    # lines

    def _feed(self, data: bytes) -> None:
        for piece in self._lines.feed(data):
            self._piece(piece)

    def _read(self, data: bytes, at: int, size: int) -> int:
        """Read whole lines or elements, at most `size` bytes from `at` on. If no line or element ends there, or an
        unfinished one waits, read a part of a single line or element, up to its end if possible.

        Return the position after the bytes that were read."""
        lines, stop = self._lines, 0
        if lines.between or (lines.pending and lines.after_blank):
            # No bytes wait, or only blank lines.
            window = at + min(size, lines.limit - lines.pending)
            if stop := data.rfind(b"\n", at, window) + 1:
                self._feed(data[at:stop])
            elif lines.between and (elements := whole_elements(data, at, window)):
                stop = at + sum(map(len, elements))
                lines.skip(stop - at)
                self._read_lines(data[at:stop], elements)
        if not stop:
            newline = data.find(b"\n", at, at + BLOCK) + 1
            most = newline or min(at + BLOCK, len(data))
            stop = self._element.next(data, at, most)
            self._feed(data[at:stop])
            if stop < most:
                for piece in lines.cut():
                    self._piece(piece)
            elif newline:
                self._element = Element()
        if self._held and len(self._held) + lines.pending > self._hold_max:
            self._let_go("bad_json")
        return stop

    def _piece(self, piece: Piece) -> None:
        if piece.kind == "lines":
            whole = piece.data.endswith(b"\n")
            self._read_lines(piece.data, None if whole else [piece.data])
        elif piece.kind == "tail":
            self._line(piece.data, "truncated")
        else:
            mark = piece.data if piece.kind == "mark" else b""
            self._let_go("truncated" if mark.startswith(CTRL_Z) else "bad_json")
            self._marked = self._marked or mark == BYTE_ORDER_MARK
            if piece.kind in {"blank", "mark"}:
                self._add(session_record(self._offset, len(piece.data), piece.name))
            else:
                self._malformed(piece.data, piece.kind)

    def _read_lines(self, data: bytes, elements: list[bytes] | None = None) -> None:
        """Read whole lines, or the whole `elements` that `data` consists of."""
        stop = self._offset + len(self._held) + len(data)
        read_usual(
            stop - len(data), find_usual(data, elements), self._names, self._processes, self._records, self._read_other,
            bool(self._held),
        )  # fmt: skip
        self._offset = stop - len(self._held)

    def _read_other(self, offset: int, line: bytes) -> bool:
        """Read a line or element that `read_usual` cannot read. Return whether newlines have split a record whose end
        is still missing."""
        self._offset = offset - len(self._held)
        self._line(line, "bad_json" if line.endswith(b"\n") else "cut")
        return bool(self._held)

    def _line(self, line: bytes, unreadable: str) -> None:
        """Read a line. If lines of a split record wait, try to read these lines and the new line together as one
        record."""
        if not self._held:
            self._fresh(line, unreadable)
            return
        if (
            len(self._held) + len(line) > self._hold_max
            or line.strip(WHITE)[:1] in {b"{", b"[", b"]", CTRL_Z}
            or START.search(line)
        ):
            self._let_go("bad_json")
            self._fresh(line, unreadable)
            return
        self._held += line
        record = _record_of(self._held)
        if record.endswith(b"}"):
            self._tried += 1
            found = find_fields(record)
            if not isinstance(found, str):
                line, self._held, self._tried = self._held, b"", 0
                self._before_bracket(line, record, found)
                return
        if self._tried == JOINS_MAX or unreadable == "truncated":
            self._let_go(unreadable)

    def _fresh(self, line: bytes, unreadable: str) -> None:
        """Read a line while no split record waits. Keep invalid JSON as a possible first line of a split record."""
        self._slow += 1
        if self._read_joined(line):
            return
        record = _record_of(line)
        if self._offset == len(BYTE_ORDER_MARK) * self._marked and line.startswith(b"  {"):
            self._run.stored.blanks = True
            self._processes.await_settling()
            self._bracket(line[:2])
            line = line[2:]
        if not record:
            self._bracket(line)
            return
        before = line[: line.index(record)]
        opened = max(before.rfind(b"["), before.rfind(b"]")) + 1
        if opened:
            self._bracket(line[:opened])
            line = line[opened:]
        found = find_fields(record)
        if not isinstance(found, str):
            self._before_bracket(line, record, found)
            return
        begin = line.index(record)
        starts = [match.start() for match in START.finditer(line)]
        if found != "bad_json":
            self._malformed(line, found)
        elif starts == [begin] and len(line) <= self._hold_max and unreadable == "bad_json":
            self._held = line
        else:
            self._pieces(line, [0, *(at for at in starts if at > begin), len(line)], unreadable)

    def _read_joined(self, line: bytes) -> bool:
        """Read a line with Ctrl-Zs between records or brackets, where files were joined. If the line has no Ctrl-Z, or
        an unreadable record, read nothing and return False."""
        parts = _JOINT.split(line)
        given = filter(None, map(_record_of, parts[::2]))
        if len(parts) == 1 or any(isinstance(find_fields(record), str) for record in given):
            return False
        for number, part in enumerate(parts):
            if number % 2:
                self._add(session_record(self._offset, len(part), "ctrl_z"))
            elif part.strip(WHITE):
                self._fresh(part, "bad_json")
            elif part:
                self._add(session_record(self._offset, len(part), "blank_lines"))
        return True

    def _pieces(self, line: bytes, cuts: list[int], unreadable: str) -> None:
        """Read in parts a line that is not one record. Each part ends where the next one begins: at a position in
        `cuts`."""
        member = True  # whether the next part of the line continues a JSON array after a comma
        for begin, stop in itertools.pairwise(cuts):
            why = unreadable if stop == len(line) else "cut"
            part, rest = line[begin:stop], b""
            record = _record_of(part)
            found = find_fields(record)
            if isinstance(found, str) and b"}" in part:
                behind = line[begin + part.rindex(b"}") + 1 : stop]
                at = stop - len(behind.lstrip(_BEHIND))
                part, rest = line[begin:at], line[at:stop]
                record = _record_of(part)
                found = find_fields(record)
            if isinstance(found, str):
                self._malformed(part + rest, why)
                member = False
                continue
            self._before_bracket(part, record, found if member else found._replace(flaw="glued"))
            member = not rest and part.rstrip(WHITE).endswith(b",")
            if rest:
                self._malformed(rest, why)

    def _let_go(self, reason: str) -> None:
        if self._held:
            line, self._held, self._tried = self._held, b"", 0
            self._malformed(line, reason)

    # Methods that turn the fields of a line into records

    def _before_bracket(self, line: bytes, record: bytes, found: FoundFields) -> None:
        """Add the record of a line, and a separate record for a closing bracket after it."""
        closing = line.find(b"]", line.index(record) + len(record))
        stop = len(line) if closing < 0 else closing
        self._readable(line[:stop], found)
        if line[stop:]:
            self._bracket(line[stop:])

    def _bracket(self, text: bytes) -> None:
        self._add(bracket(self._offset, text))
        if b"]" in text:
            self._of(self._processes.take_due(), TracedRun.settle)

    def _readable(self, line: bytes, found: FoundFields) -> None:
        """Add the record of a line with valid or repaired JSON, and the clock and gap records that follow from it."""
        try:
            reading = read_fields(found.fields)
        except RefusedError as refused:
            self._malformed(line, str(refused), id_of(found.fields))
            return
        if self._processes.turn(reading.stream.partition("/")[0], reading.host):
            self._turned()
        facts, phase = None, "" if "ph" in reading.before else phase_of(found)
        if begun := self._run.begins(self._offset, reading):
            gaps, facts = begun
            self._records += gaps
        elif reading.role == "unit":
            facts = self._run.measured(reading)
        if reading.start is not None and not self._run.stored.told:
            clock = self._run.clock()
            about = as_object(clock_of(clock))
            record = session_record(self._offset, 0, "clock", about, facts=clock)
            self._add(self._spelling(record, phase))
        names = self._names.resolve(reading.wanted)
        record = to_record(self._offset, len(line), found, reading, names, facts)
        if facts:
            record = self._spelling(record, phase)
        elif reading.phase and self._run.other_phase == reading.phase:
            record = record._replace(attributes=with_member(record.attributes, "ph", phase))
        self._add(record)
        if reading.given:
            self._names.define(reading.given.key, reading.given.name)
        if reading.role == "end":
            self._records += self._run.ends(self._offset, reading)
            self._processes.await_settling()
        elif reading.role != "start":
            self._run.saw(reading)
            number = reading.id if reading.role in {"event", "other"} else None
            self._records += self._run.heals(self._offset, number)

    def _spelling(self, record: Record, phase: str) -> Record:
        """Return the record that states the unit of time. Add its `ph` (the JSON text `phase`) if this text is a JSON
        string and not a number."""
        as_text = phase.startswith('"')
        self._run.stored.phase = "X" if as_text else "1"
        about = with_member(record.attributes, "ph", phase) if as_text else record.attributes
        return record._replace(attributes=about)

    def _of(self, numbers: list[int], finds: Callable[[TracedRun, int], list[Record]]) -> None:
        """Call `finds` with the run of each process whose number is in `numbers`. Add the records that the calls
        return."""
        for number in numbers:
            found = finds(self._processes.runs[number], self._offset)
            if found and self._processes.go(number):
                self._turned()
            self._records += found

    def _turned(self) -> None:
        self._records.append(turned(self._offset, self._processes))

    def _malformed(self, data: bytes, reason: str, number: int | None = None) -> None:
        if self._processes.find(data):
            self._turned()
        heals = self._run.lost(self._offset + len(data), data, number)
        other = _NO_EVENT.match(data)
        self._add(malformed(self._offset, data, reason)._replace(name=other and other[1].decode()))
        self._records += heals

    def _add(self, record: Record) -> None:
        self._records.append(record)
        self._offset += record.size


def _is_whole(line: bytes) -> bool:
    """Return whether later bytes cannot change a line: complete JSON, or only brackets, commas and white space."""
    record = _record_of(line)
    found = find_fields(record) if record else None
    return not found or (not isinstance(found, str) and found.flaw in {None, "backslash", COMMA})


def _record_of(line: bytes) -> bytes:
    """Return a line without the white space, brackets and commas around its record."""
    return line.rstrip(_BEHIND).lstrip(_BEFORE)


RECORD_MIN = 100
"""Approximate size (bytes) of the shortest record that the compiled kernel reads."""

STEP_MIN = 16
"""Minimum number of bytes that Python decodes after two lines that the kernel cannot read. Each further line that the
kernel cannot read doubles the number, because a call of the kernel takes time."""

WAITING_MAX = 16 * 1024
"""Maximum size (bytes) of an unfinished line that is joined with the next input for the kernel."""


class DFTracerBlockDecoder(DFTracerDecoder):
    @property
    def block_min(self) -> int:
        return ROWS_MIN * RECORD_MIN

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        if self._lines.pending <= WAITING_MAX and (waiting := self._lines.take_back()):
            data, self._element = waiting + data, Element()
        at, have, step = 0, len(data), 0
        while at < have:
            rows, stop = 0, at
            if have - at >= ROWS_MIN * RECORD_MIN and self._usual:
                rows, stop = self._scan(data, at, found)
            if rows:
                at = stop
                if rows >= ROWS_MIN:
                    step = 0
                continue
            # Decode in Python the line at `stop`, which the compiled kernel cannot read. After many such lines in
            # succession, decode more and more bytes at once.
            stop = max(stop, at + step)
            while at <= stop and at < have:
                at = self._read(data, at, stop - at)
            found += self._taken()
            step = min(2 * step + STEP_MIN, BLOCK)
        return found

    @property
    def _usual(self) -> bool:
        """Return whether the kernel may read from the next byte on. A line or an element must begin there, no split
        record may wait, and the run of the current process must be known and have the property `TracedRun.usual`."""
        return self._lines.between and not self._held and bool(self._run.pid) and self._run.usual

    def _scan(self, data: bytes, at: int, found: list[Block | Record]) -> tuple[int, int]:
        """Append the kernel's blocks of the lines from `at` on to `found`. Return the number of rows in the blocks, and
        the position in `data` at which the kernel stopped."""
        processes = self._processes.usual
        parts, stop = _scan(
            data, at, self._offset, self._lines.limit, ROWS_MIN, self._names,
            [
                (run.pid.encode(), run.host.encode(), run.ids.believed, run.other_phase.encode())
                for _, run in processes
            ],
        )  # fmt: skip
        for which, block, numbers, counts in parts:
            number, run = processes[which]
            if self._processes.go(number):
                found.append(turned(self._offset, self._processes))
            found.append(block)
            self._offset += block.length
            self._lines.skip(block.length)
            come = ranges(numbers)
            if come is None or not run.ids.add_ranges(*come):
                run.ids.add(memoryview(numbers).cast("q"))
            run.shown(numbered=bool(numbers), counts=counts)
        return sum(block.rows for _, block, _, _ in parts), stop
