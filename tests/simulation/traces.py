"""Make the files that programs write: traces of three formats, record by record, with the place of each record.

Each record contains the number of its trace and its own number in a form that is in its row, too.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from tests.decoding import dftracer_lines, ovni_bytes

MANY = 10**6
"""A number that is greater than the number of records of any trace."""

CLASS = "p.Of"
"""Together with the number of an ET3 trace, the name of the class of its objects."""


class Piece(NamedTuple):
    """Bytes of a trace's content: a record, or unreadable bytes."""

    begin: int
    end: int
    number: int | None
    """The number of the record; None for bytes that are no record."""


class Trace(ABC):
    """The content of one trace, as far as it is written. `path` is below the source's directory."""

    format: str
    dialect = "auto"

    def __init__(self, id_: int, path: str) -> None:
        self.id = id_
        self.path = path
        self.content = bytearray()
        self.pieces: list[Piece] = []
        self.places: dict[int, int] = {}
        """By record number, the offset in the content at which the record begins."""
        self.skipped: list[int] = []
        """Numbers that no record has."""
        self.ended = False
        """Whether the trace states that it is complete."""
        self._next = 0

    @abstractmethod
    def begin(self) -> None:
        """Write what precedes the first record."""

    @abstractmethod
    def _record(self, number: int) -> bytes: ...

    @abstractmethod
    def _garbage(self) -> bytes: ...

    def end(self) -> None:
        """Write what states that the trace is complete."""
        self.ended = True

    @property
    def records(self) -> int:
        return self._next - len(self.skipped)

    def record(self) -> None:
        self.places[self._next] = len(self.content)
        self._put(self._record(self._next), self._next)
        self._next += 1

    def garbage(self) -> None:
        self._put(self._garbage(), None)

    def skip(self) -> None:
        """Leave out a number, as a program does that discards an event."""
        self.skipped.append(self._next)
        self._next += 1

    @staticmethod
    def beside(path: str) -> str | None:
        """Return the path of the document beside a trace at some path; None if it has none."""
        return None

    def document(self) -> bytes:
        """Return the current content of the document beside the trace."""
        return b""

    def _put(self, data: bytes, number: int | None) -> None:
        self.pieces.append(Piece(len(self.content), len(self.content) + len(data), number))
        self.content += data


class Ovni(Trace):
    format = "ovni"

    def begin(self) -> None:
        self.content += ovni_bytes.HEADER + ovni_bytes.starts(self.id * MANY)

    def end(self) -> None:
        super().end()
        self.content += ovni_bytes.ends(self.id * MANY + self._next + 1)

    @staticmethod
    def beside(path: str) -> str:
        return path.rpartition("/")[0] + "/stream.json"

    def document(self) -> bytes:
        about: dict[str, object] = {"lib": {"version": "1.14.0", "commit": "x"}, "part": "thread"}
        *_, loom, process, thread, _ = self.path.split("/")
        about |= {
            "tid": int(thread[7:]),
            "pid": int(process[5:]),
            "loom": loom[5:],
            "app_id": self.id,
        }
        if self.ended:
            about |= {"require": {"ovni": "1.1.0"}, "finished": 1}
        return json.dumps({"version": 3, "ovni": about}).encode()

    def _record(self, number: int) -> bytes:
        return ovni_bytes.event("OB.", self.id * MANY + 1 + number)

    def _garbage(self) -> bytes:
        return b"\xff" * 20


class DFTracer(Trace):
    format = "dftracer"

    def begin(self) -> None:
        start = dftracer_lines.event(1, name="start", cat="dftracer", args=None, ts=self.id * MANY)
        self.content += dftracer_lines.text(start)

    def end(self) -> None:
        super().end()
        number = self._next + 2
        self.content += dftracer_lines.text(dftracer_lines.end(number, ts=self._time(number)))

    def _record(self, number: int) -> bytes:
        id_, name = number + 2, f"{self.id}/{number}"
        return dftracer_lines.text(dftracer_lines.event(id_, name=name, ts=self._time(id_)))

    def _time(self, id_: int) -> int:
        """Return the time (µs) of an event. Traces that have the same PID do not overlap in time."""
        return self.id * MANY + id_

    def _garbage(self) -> bytes:
        return b"{garbage of %d}\n" % self.id


class Et3(Trace):
    format, dialect = "et3", "agent"

    def begin(self) -> None:
        pass

    @staticmethod
    def beside(path: str) -> str:
        return path.removesuffix(".gz").removesuffix(".trace") + ".classs.list"

    def document(self) -> bytes:
        """Return the names, which the agents write when they end."""
        return b"%s%d,1\n" % (CLASS.encode(), self.id) if self.ended else b""

    def _record(self, number: int) -> bytes:
        return b"N %d 16 1 1 0 77\n" % (self.id * MANY + number)

    def _garbage(self) -> bytes:
        return b"not a record of %d\n" % self.id


TRACES: dict[str, type[Trace]] = {kind.format: kind for kind in (Ovni, DFTracer, Et3)}


def written(row: dict[str, Any]) -> tuple[int, int] | None:
    """Return the trace and the number of the record that a row describes; None for a row without a record."""
    if row["kind"] == "span" and row["format"] == "dftracer":
        trace, _, number = row["name"].partition("/")
        return int(trace), int(number)
    if row["kind"] == "instant" and row["name"] == "burst":
        return divmod(row["start"] - 1, MANY)
    if row["kind"] == "instant" and row["name"] == "allocation":
        return divmod(row["id"], MANY)
    return None
