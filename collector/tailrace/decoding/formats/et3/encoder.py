"""Write records of ET3 as lines again, and the maps of names beside them.

The table has all fields of a line and not their spelling: white space, leading zeros, how a clock of 32 bits wraps. One space
stands between fields. Maps have one line for each name, in the order in which names came.

A repair ends the frames that are open, the innermost first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from tailrace.decoding.formats.et3.encoding.written import LineForm, OpenCall, line_of
from tailrace.decoding.formats.et3.files import FILES
from tailrace.decoding.formats.et3.form import SPECIFICATION
from tailrace.decoding.formats.et3.maps import DOCUMENTS
from tailrace.decoding.lines import without_content
from tailrace.model.record import KEY, Kind, Record

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

    @property
    def added(self) -> dict[str, int]:
        return dict(self._added)

    def begin(self, path: str, run: dict[str, Any]) -> None:  # noqa: ARG002 - traces share nothing
        self._path = path

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:  # noqa: ARG002 - a line stands alone
        members = _read(record.attributes or "{}")
        if record.kind == Kind.NAME:
            self._names[members[KEY]] = str(record.name)
            return b""
        if record.kind == Kind.SESSION and record.flaw is None:
            return self._session(record, members)
        line = line_of(record, members, self._numbers)
        if line.et1:
            self._numbers = self._numbers._replace(hexadecimal=True)
        if self._repair:
            self._note(record, line.frame)
        return f"{line.text}\n".encode()

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

    def _session(self, record: Record, members: dict[str, Any]) -> bytes:
        if record.name == "trace" and "form" in members:
            self._numbers = LineForm(agent=members["form"] != SPECIFICATION)
            self._open.clear()
        return without_content(record.name or "", record.size) or b""

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
