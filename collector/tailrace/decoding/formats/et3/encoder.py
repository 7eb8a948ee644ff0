"""Write records of ET3 as lines again, and the maps of names beside them.

The table has all fields of a line and not their spelling: white space, leading zeros, how a clock of 32 bits wraps. The
encoder takes the spelling that has as many bytes as the line had; else spaces before the newline make up for what is
missing. Maps have one line for each name, in the order in which names came.

A repair ends the frames that are open, the innermost first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from tailrace.decoding.formats.et3.encoding.written import LineForm, OpenCall, ways_of
from tailrace.decoding.formats.et3.files import FILES
from tailrace.decoding.formats.et3.form import SPECIFICATION
from tailrace.decoding.formats.et3.maps import DOCUMENTS
from tailrace.model.record import KEY, Kind, Record

PADDING_MAX = 65_536
"""No line gets more spaces than these: what is missing then was lines that are gone, not spaces."""

_read = msgspec.json.Decoder(dict[str, Any]).decode


class Et3Encoder:
    """The encoder of one trace."""

    def __init__(self, repair: bool) -> None:
        self._added: Counter[str] = Counter()
        self._repair = repair
        self._path = ""
        self._numbers = LineForm(agent=True)
        self._names: dict[str, str] = {}
        self._open: defaultdict[str, list[OpenCall]] = defaultdict(list)
        self._time = 0
        self._blank_to = -1  # where blank lines end

    @property
    def added(self) -> dict[str, int]:
        return dict(self._added)

    def begin(self, path: str, run: dict[str, Any]) -> None:  # noqa: ARG002 - traces share nothing
        self._path = path

    def encode(self, record: Record, *, last: bool) -> bytes | None:
        members = _read(record.attributes or "{}")
        if record.kind == Kind.NAME:
            self._names[members[KEY]] = str(record.name)
            return b""
        if record.kind == Kind.SESSION and record.flaw is None:
            return self._session(record, members, last=last)
        ways = ways_of(record, members, self._numbers)
        if record.flaw != "et1_shape" and ways.et1:
            self._numbers = self._numbers._replace(hexadecimal=True)
        if self._repair:
            self._note(record, ways.frame)
        return _fitted(ways.lines, record, last=last and not self._repair)

    def close(self) -> bytes:
        if not self._repair:
            return b""
        lines = []
        for thread, frames in self._open.items():
            for frame in reversed(frames):
                self._time += 1
                lines.append(self._numbers.leave(frame, thread, self._time))
        if lines:
            self._added["E"] = len(lines)
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

    def _session(self, record: Record, members: dict[str, Any], *, last: bool) -> bytes:
        if record.name == "trace" and "form" in members:
            self._numbers = LineForm(agent=members["form"] != SPECIFICATION)
            self._open.clear()
        if record.name != "blank_lines":
            return b""
        after_blank, self._blank_to = record.offset == self._blank_to, record.offset + record.size
        if last and after_blank:
            return b" " * record.size
        return b" " * (record.size - 1) + b"\n"

    def _note(self, record: Record, frame: OpenCall | None) -> None:
        """Remember what a repair must end."""
        self._time = max(self._time, record.start or 0, record.end or 0)
        if record.id is None:
            return
        frames = self._open[record.stream]
        if record.kind == Kind.BEGIN and frame is not None:
            frames.append(frame)
        elif record.kind == Kind.END:
            at = next((i for i, each in enumerate(frames) if each.id == record.id), len(frames))
            del frames[at:]


def _fitted(lines: list[str], record: Record, *, last: bool) -> bytes:
    """Return the first of these lines that has the record's size; else the shortest, made as long as that."""
    ways = [line.encode() for line in lines]
    for ending in (b"\n", b"", b"\r\n") if last else (b"\n", b"\r\n"):
        for way in ways:
            if len(way) + len(ending) == record.size:
                return way + ending
    shortest = min(ways, key=len)
    if last and record.size < len(shortest) + 1:
        return shortest
    missing = record.size - len(shortest) - 1
    return shortest + b" " * (missing if 0 < missing <= PADDING_MAX else 0) + b"\n"
