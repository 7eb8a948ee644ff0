"""The ways to write one line of ET3, given its record: what `events` reads, the other way round."""

from __future__ import annotations

from typing import Any, NamedTuple

from tailrace.decoding.formats.et3.line import ET1_SHAPES, INT64_MAX
from tailrace.model.record import BEGIN_WORDS, Kind, Record

Members = dict[str, Any]

LETTERS_OF_ET1 = {(name, keys): letter for (letter, _), (name, keys) in ET1_SHAPES.items()}
GAP_MAX = 65_536
"""No comment has more spaces in front."""

_ALLOCATIONS = {"allocation": "N", "array_allocation": "A"}


class OpenCall(NamedTuple):
    """An open call: its number, method and receiver."""

    id: int
    method: int
    receiver: int


class Ways(NamedTuple):
    """The ways to write a line, the likeliest first; whether it has a shape of ET1; and the call that it begins."""

    lines: list[str]
    et1: bool = False
    frame: OpenCall | None = None


class LineForm(NamedTuple):
    """How a trace ends its lines, with a thread (`agent`) or with a clock, and whether it is hexadecimal."""

    agent: bool
    hexadecimal: bool = False

    def leave(self, frame: OpenCall, thread: str, time: int) -> str:
        """Return a line that ends a call."""
        fields = [frame.method, frame.receiver] if self.hexadecimal else [frame.method]
        last = int(thread) if self.agent else time
        return self.line("E", [*fields, last])

    def line(self, letter: str, fields: list[int], *, hexadecimal: bool | None = None) -> str:
        in_hex = self.hexadecimal if hexadecimal is None else hexadecimal
        return " ".join([letter, *(f"{each:x}" if in_hex else str(each) for each in fields)])


def ways_of(record: Record, members: Members, numbers: LineForm) -> Ways:
    """Return the ways to write the line of a record."""
    if record.kind == Kind.BEGIN:
        return _enter(record, members, numbers)
    if record.kind == Kind.END:
        return _leave(record, members, numbers)
    if record.kind == Kind.INSTANT and record.flaw != "et1_shape" and record.name != "counters":
        return _instant(record, members, numbers)
    return _as_spelled(record, members)


def _as_spelled(record: Record, members: Members) -> Ways:
    """Return the ways to write a line whose fields the table has as they stand."""
    if record.kind == Kind.ANNOTATION:
        return Ways(_commented("", members["text"], record.size))
    if record.kind == Kind.SESSION:
        fields = [str(record.name), *members["fields"]]
    elif record.flaw == "et1_shape":
        fields = [_letter_of_et1(record, len(members["fields"])), *members["fields"]]
    else:
        fields = ["C", *map(str, members["counters"])]
    return Ways(_all_commented([" ".join(fields)], members, record))


def _enter(record: Record, members: Members, numbers: LineForm) -> Ways:
    changed = members.get(BEGIN_WORDS, {})
    method, receiver = ((members | changed)[key] for key in ("method_id", "receiver"))
    hexadecimal = numbers.hexadecimal or _flawed(record, members, begins=True)
    lasts = _lasts(record, record.start, numbers)
    if record.end is not None and numbers.agent and f"{lasts[0]:x}".isdecimal():
        lasts.append(int(f"{lasts[0]:x}"))  # the end was read in hexadecimal, the begin was not
    lines = [numbers.line("M", [method, receiver, last], hexadecimal=hexadecimal) for last in lasts]
    frame = None if record.id is None else OpenCall(record.id, method, receiver)
    return Ways(_all_commented(lines, members | changed, record), frame=frame)


def _leave(record: Record, members: Members, numbers: LineForm) -> Ways:
    method = members["method_id"]
    shapes = [("E", [method])]
    of_et1 = "receiver" in members and "exception" not in members and numbers.agent
    if "exception" in members:
        shapes = [("X", [method, members["receiver"], members["exception"]])]
    elif of_et1:
        with_receiver = ("E", [method, members["receiver"]])
        shapes = [with_receiver, *shapes] if numbers.hexadecimal else [*shapes, with_receiver]
        alone = record.start is None
        shapes = [with_receiver] if alone else shapes
    hexadecimal = numbers.hexadecimal or _flawed(record, members, begins=False)
    lines = [
        numbers.line(letter, [*fields, last], hexadecimal=hexadecimal or len(fields) == 2)
        for letter, fields in shapes
        for last in _lasts(record, record.end, numbers)
    ]
    et1 = record.start is None and len(shapes[0][1]) == 2
    return Ways(_all_commented(lines, members, record), et1=et1)


def _instant(record: Record, members: Members, numbers: LineForm) -> Ways:
    """Return the ways to write a line about an object."""
    name, objects = str(record.name), _numbers_of(record.id)
    hexadecimal = numbers.hexadecimal or record.flaw == "hex_numbers"
    et1 = False
    rows: list[tuple[str, list[Any]]] = []
    if "class_id" in members and name in _ALLOCATIONS:
        rest = [members["size"], members["class_id"], members["site_id"], members.get("length", 0)]
        rows = [(_ALLOCATIONS[name], [each, *rest]) for each in objects]
    elif name == "update" and "old" not in members:
        rows = [("U", [each, members["value"], members["field_id"]]) for each in objects]
    elif name == "witness":
        rows = [("W", [each, members["class_id"]]) for each in objects]
    elif name == "death" and not record.stream:
        times = _times(record.start, numbers)
        lines = [
            numbers.line("D", [each, members["thread"], time], hexadecimal=hexadecimal)
            for each in objects
            for time in times
        ]
        return Ways(_all_commented(lines, members, record))
    else:
        return _of_et1(record, members)
    lines = [
        numbers.line(letter, [*fields, last], hexadecimal=hexadecimal)
        for letter, fields in rows
        for last in _lasts(record, record.start, numbers)
    ]
    return Ways(_all_commented(lines, members, record), et1)


def _of_et1(record: Record, members: Members) -> Ways:
    """Return the spellings of a line that exists only in the ET1 form."""
    name = str(record.name)
    keys, letter = next((key[1], each) for key, each in LETTERS_OF_ET1.items() if key[0] == name)
    lines = []
    for object_ in _numbers_of(record.id) or [0]:
        said = members | {"object": object_, "thread": int(record.stream or 0)}
        fields = [f"{v:x}" if isinstance(v := said[key], int) else v for key in keys]
        lines.append(" ".join([letter, *fields]))
    return Ways(_all_commented(lines, members, record), et1=True)


def _letter_of_et1(record: Record, fields: int) -> str:
    return next(
        letter
        for (letter, count), (name, _) in ET1_SHAPES.items()
        if name == record.name and count == fields
    )


def _lasts(record: Record, time: int | None, numbers: LineForm) -> list[int]:
    """Return what the last field may be: the thread, or the clock."""
    if numbers.agent:
        return [int(record.stream or 0)]
    return _times(time, numbers)


def _times(time: int | None, numbers: LineForm) -> list[int]:
    """Return a clock, and how it looks once a clock of 32 bits has wrapped."""
    at = time or 0
    wrapped = not numbers.agent and 2**31 <= at < 2**32
    return [at - 2**32, at] if wrapped else [at]


def _numbers_of(id_: int | None) -> list[int]:
    """Return the numbers of an object that the table may have under an id."""
    if id_ is None:
        return []
    return [id_] if 0 <= id_ <= INT64_MAX else [id_ % 2**64, id_]


def _flawed(record: Record, members: Members, *, begins: bool) -> bool:
    """Return whether numbers are hexadecimal where ET3 has decimal ones; of a span, at one end at least."""
    if None in {record.start, record.end}:
        return record.flaw == "hex_numbers"
    keys = list(members)
    changed = members.get(BEGIN_WORDS, {}).get("$flaw")
    if begins and changed is not None:
        return bool(changed == "hex_numbers")
    at_front = keys[0] == "$flaw"
    flaw: object = members.get("$flaw")
    return flaw == "hex_numbers" and (begins or at_front)


def _all_commented(lines: list[str], members: Members, record: Record) -> list[str]:
    """Return lines with the comment, if it is theirs."""
    if "comment" not in members:
        return lines
    comment = members["comment"]
    found = [way for line in lines for way in _commented(line, comment, record.size)]
    whose = _whose_comment(record, members)
    return [*found, *lines] if whose is None else found if whose else lines


def _whose_comment(record: Record, members: Members) -> bool | None:
    """Return whether a comment stands behind this line, None if it may be that of the span's other line alone.

    The end's comment stands before what only the begin has, which is a receiver if the end has none."""
    if None in {record.start, record.end} or record.kind not in {Kind.BEGIN, Kind.END}:
        return True
    begins = record.kind == Kind.BEGIN
    if BEGIN_WORDS in members and "comment" in members[BEGIN_WORDS]:
        return True
    if "exception" in members:
        return None
    keys = list(members)
    of_end = keys.index("comment") < keys.index("receiver")
    return (None if begins else True) if of_end else begins


def _commented(line: str, comment: str, size: int) -> list[str]:
    """Return ways to put a comment behind a line, or alone, with as many spaces as a size needs or with few."""
    said = f"# {comment}" if comment else "#"
    gap = size - 1 - len(f"{line}{said}".encode()) if line else 0
    if not line:
        return [said, f"#{comment}"]
    spaced = [f"{line}{' ' * gap}{said}"] if 0 < gap <= GAP_MAX else []
    return [*spaced, f"{line} {said}", f"{line} #{comment}", f"{line}{said}", f"{line}#{comment}"]
