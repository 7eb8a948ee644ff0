"""Turn ET3 records back into lines (the inverse of the module `events`), and write the documents with names.

The table has all fields of a line, but not white space and leading zeros. With `repair`, the encoder writes an exit for
each call that is still open at the end, the innermost call first."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import msgspec

from tailrace.decoding.formats.et3.form import SPECIFICATION
from tailrace.decoding.formats.et3.line import ET1_SHAPES
from tailrace.decoding.formats.et3.maps import DOCUMENTS, FILES
from tailrace.decoding.lines import without_content
from tailrace.model.record import BEGIN_WORDS, KEY, Kind, Record

LineMembers = dict[str, Any]

OF_ET1 = [(name, letter, keys) for (letter, _), (name, keys) in ET1_SHAPES.items()]

_ALLOCATIONS = {"allocation": "N", "array_allocation": "A"}


class OpenCall(NamedTuple):
    """A call whose exit the encoder has not written: its number, method and receiver."""

    id: int
    method: int
    receiver: int


class LineForm(NamedTuple):
    agent: bool  # Whether the last field is the thread instead of the clock.
    hexadecimal: bool = False  # Whether numbers are hexadecimal.

    def leave(self, frame: OpenCall, thread: str, time: int) -> str:
        fields = [frame.method, frame.receiver] if self.hexadecimal else [frame.method]
        last = int(thread) if self.agent else time
        return self.line("E", [*fields, last])

    def line(self, letter: str, fields: list[int], *, hexadecimal: bool | None = None) -> str:
        in_hex = self.hexadecimal if hexadecimal is None else hexadecimal
        return " ".join([letter, *(f"{each:x}" if in_hex else str(each) for each in fields)])


def line_of(
    record: Record, members: LineMembers, numbers: LineForm
) -> tuple[str, bool, OpenCall | None]:
    """Return the line from which a decoder would read this record. `members` has the record's attributes. Also return
    whether the line shows an ET1 trace, and the call that the line opens, or None."""
    et1, frame = False, None
    comment = members.get("comment") if _has_comment(record, members) else None
    if record.kind == Kind.BEGIN:
        comment = members.get(BEGIN_WORDS, {}).get("comment", comment)
        text, frame = _enter(record, members, numbers)
    elif record.kind == Kind.END:
        text, et1 = _leave(record, members, numbers)
    elif record.kind == Kind.ANNOTATION:
        text, comment = "", members["text"]
    elif record.kind == Kind.SESSION:
        text = " ".join([str(record.name), *members["fields"]])
    elif record.flaw == "et1_shape":
        letter = next(
            letter
            for (letter, count), (name, _) in ET1_SHAPES.items()
            if name == record.name and count == len(members["fields"])
        )
        text = " ".join([letter, *members["fields"]])
    elif record.name == "counters":
        text = " ".join(["C", *map(str, members["counters"])])
    else:
        found = _of_object(record, members, numbers)
        text, et1 = found or "", found is None
        if et1:
            letter, keys = next(each[1:] for each in OF_ET1 if each[0] == record.name)
            values = members | {"object": _object(record), "thread": int(record.stream or 0)}
            fields = [f"{v:x}" if isinstance(v := values[key], int) else v for key in keys]
            text = " ".join([letter, *fields])
    return text if comment is None else f"{text} # {comment}".strip(), et1, frame


def _enter(record: Record, members: LineMembers, numbers: LineForm) -> tuple[str, OpenCall | None]:
    changed = members.get(BEGIN_WORDS, {})
    method, receiver = ((members | changed)[key] for key in ("method_id", "receiver"))
    hexadecimal = numbers.hexadecimal or _flawed(record, members, begins=True)
    last = _last(record, record.start, numbers)
    if members.get("$begun") == "decimal":
        # The decoder first read the thread in the begin line as a decimal number. When the trace turned out to be
        # hexadecimal, the record got the hexadecimal value of the same digits. Restore these digits.
        last = int(f"{last:x}")
    text = numbers.line("M", [method, receiver, last], hexadecimal=hexadecimal)
    return text, None if record.id is None else OpenCall(record.id, method, receiver)


def _leave(record: Record, members: LineMembers, numbers: LineForm) -> tuple[str, bool]:
    fields = [members["method_id"]]
    letter, et1 = "E", False
    if "exception" in members:
        letter, fields = "X", [*fields, members["receiver"], members["exception"]]
    elif "receiver" in members and numbers.agent:
        # An exit has a receiver only in ET1. The attribute `receiver` of a span may come from the begin line instead.
        keys = list(members)
        behind = "comment" in keys and keys.index("comment") < keys.index("receiver")
        et1 = record.start is None or members.get("$begun") == "decimal"
        if et1 or (numbers.hexadecimal and not behind):
            fields = [*fields, members["receiver"]]
    hexadecimal = numbers.hexadecimal or et1 or _flawed(record, members, begins=False)
    fields.append(_last(record, record.end, numbers))
    return numbers.line(letter, fields, hexadecimal=hexadecimal), et1


def _of_object(record: Record, members: LineMembers, numbers: LineForm) -> str | None:
    """Return the line of an event about an object, such as an allocation. Return None if only ET1 has this event."""
    name, last = str(record.name), _last(record, record.start, numbers)
    fields: list[Any]
    if name in _ALLOCATIONS and "class_id" in members:
        letter = _ALLOCATIONS[name]
        fields = [
            members["size"],
            members["class_id"],
            members["site_id"],
            members.get("length", 0),
        ]
    elif name == "update" and "old" not in members:
        letter, fields = "U", [members["value"], members["field_id"]]
    elif name == "witness":
        letter, fields = "W", [members["class_id"]]
    elif name == "death" and not record.stream:
        letter, fields, last = "D", [members["thread"]], _time(record.start, numbers)
    else:
        return None
    hexadecimal = numbers.hexadecimal or record.flaw == "hex_numbers"
    return numbers.line(letter, [_object(record), *fields, last], hexadecimal=hexadecimal)


def _last(record: Record, time: int | None, numbers: LineForm) -> int:
    """Return the last field of a line: the thread if `numbers.agent` is true, and the clock otherwise."""
    return int(record.stream or 0) if numbers.agent else _time(time, numbers)


def _time(time: int | None, numbers: LineForm) -> int:
    """Return the number for a time in a line. In the specification's 32-bit clock, times from 2**31 on are negative."""
    at = time or 0
    return at - 2**32 if not numbers.agent and 2**31 <= at < 2**32 else at


def _object(record: Record) -> int:
    """Return the number of an object as an unsigned number, from the signed column `id`."""
    return (record.id or 0) % 2**64


def _flawed(record: Record, members: LineMembers, *, begins: bool) -> bool:
    """Return whether a record's begin line (with `begins`) or end line had hexadecimal numbers in a decimal trace."""
    if None in {record.start, record.end}:
        return record.flaw == "hex_numbers"
    keys = list(members)
    changed = members.get(BEGIN_WORDS, {}).get("$flaw")
    if begins and changed is not None:
        return bool(changed == "hex_numbers")
    at_front = keys[0] == "$flaw"
    flaw: object = members.get("$flaw")
    return flaw == "hex_numbers" and (begins or at_front)


def _has_comment(record: Record, members: LineMembers) -> bool:
    """Return whether the line of `record` gets the comment in `members`.

    A begin and an end that share `members` may have only one comment. This comment belongs to the end line if the span
    has an exception, or if `comment` precedes `receiver` in `members`. Otherwise it belongs to the begin line."""
    if None in {record.start, record.end} or "comment" not in members:
        return True
    if "comment" in members.get(BEGIN_WORDS, {}):
        return True
    keys = list(members)
    of_end = "exception" in members or keys.index("comment") < keys.index("receiver")
    return of_end == (record.kind == Kind.END)


_read = msgspec.json.Decoder(dict[str, Any]).decode


class Et3Encoder:
    def __init__(self, repair: bool) -> None:
        self.added: Counter[str] = Counter()
        self._repair = repair
        self._path = ""
        self._numbers = LineForm(agent=True)
        self._names: dict[str, str] = {}
        self._open: defaultdict[str, list[OpenCall]] = defaultdict(list)
        self._time = 0

    def begin(self, path: str, run: dict[str, Any]) -> None:  # noqa: ARG002 - traces share nothing
        self._path = path

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:  # noqa: ARG002 - a line stands alone
        members = _read(record.attributes or "{}")
        if record.kind == Kind.NAME:
            self._names[members[KEY]] = str(record.name)
            return b""
        if record.kind == Kind.SESSION and record.flaw is None:
            if record.name == "trace" and "form" in members:
                self._numbers = LineForm(agent=members["form"] != SPECIFICATION)
                self._open.clear()
            return without_content(record.name or "", record.size) or b""
        line, et1, frame = line_of(record, members, self._numbers)
        if et1:
            self._numbers = self._numbers._replace(hexadecimal=True)
        if self._repair:
            self._time = max(self._time, record.start or 0, record.end or 0)
            frames = self._open[record.stream] if record.id is not None else []
            if frame is not None:
                frames.append(frame)
            elif record.kind == Kind.END:
                at = next((i for i, each in enumerate(frames) if each.id == record.id), len(frames))
                del frames[at:]
        return f"{line}\n".encode()

    def close(self) -> bytes:
        if not self._repair:
            return b""
        lines = []
        for thread, frames in self._open.items():
            for frame in reversed(frames):
                self._time += 1
                lines.append(self._numbers.leave(frame, thread, self._time))
        if lines:
            self.added["E"] = len(lines)
        return "".join(f"{line}\n" for line in lines).encode()

    def documents(self) -> dict[str, bytes]:
        known = FILES.documents(self._path)
        found: dict[str, bytes] = {}
        for document, sort in DOCUMENTS.items():
            name_first = document.endswith(".list")
            names = [
                (key.partition(":")[2], n)
                for key, n in self._names.items()
                if key.startswith(f"{sort}:")
            ]
            if names and name_first == self._numbers.agent:
                place = next(each for each in reversed(known) if each.endswith(document))
                lines = (f"{n},{id_}\n" if name_first else f"{id_},{n}\n" for id_, n in names)
                found[place] = "".join(lines).encode()
        return found
