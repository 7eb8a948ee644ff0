"""The protocol between a statement's process and the program that started it (`worker`, `remote`).

The program sends a pickled question. The process answers with frames, each preceded by its length: a
`Head`, and then either pages of rows or an Arrow IPC stream without frames. An error is a `Failure` on
standard error, as JSON, after standard output is closed.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import BinaryIO

import msgspec

from tailrace.errors import BrokenOffError, QueryError, StoreError, TailraceError
from tailrace.query.guard import Parameters
from tailrace.query.limits import Limits

LENGTH = struct.Struct("!Q")

FAILURE_MAX = 20_000
"""Characters of an error's text. A statement can make a text of any length."""

FAILURES: dict[str, type[TailraceError]] = {
    each.__name__: each for each in (BrokenOffError, QueryError, StoreError)
}
"""Classes of errors that keep their class on the way to the program."""

_LARGE = ("HUGEINT", "UHUGEINT", "DECIMAL")
"""Types of numbers that a frame carries as text."""


class AnswerForm(StrEnum):
    TEXT = "text"
    JSON = "json"
    ARROW = "arrow"
    COUNT = "count"


class FramedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A statement for one version of a table."""

    store: str
    options: dict[str, str]
    version: int
    sql: str
    parameters: Parameters
    form: AnswerForm
    limits: Limits
    room: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The frame before the rows: the table's version, and the names and types of the columns."""

    version: int
    columns: list[tuple[str, str]] = []
    count: int = 0


class Failure(msgspec.Struct, frozen=True):
    """An error's text, and the name of its class: an element of `FAILURES`."""

    text: str
    error: str

    @classmethod
    def of(cls, error: TailraceError) -> Failure:
        """Return the failure for an error. A class that is not in `FAILURES` becomes its base class there,
        or StoreError."""
        known = (name for name, each in FAILURES.items() if isinstance(error, each))
        return cls(str(error)[:FAILURE_MAX], next(known, StoreError.__name__))

    def exception(self) -> TailraceError:
        return FAILURES[self.error](self.text)


def is_large(type_: str) -> bool:
    """Return whether numbers of this type may exceed 64 bits."""
    return type_.startswith(_LARGE)


def write_frame(stream: BinaryIO, content: object) -> None:
    data = msgspec.msgpack.encode(content)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next frame, or None at the end. Raise EOFError if the stream ends within a frame."""
    start = stream.read(LENGTH.size)
    if not start:
        return None
    if len(start) == LENGTH.size:
        (length,) = LENGTH.unpack(start)
        data = stream.read(length)
        if len(data) == length:
            return data
    raise EOFError
