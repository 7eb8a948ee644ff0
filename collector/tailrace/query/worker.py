"""Run one statement in a process of its own: `tailrace.query.worker`, started by `remote`.

The program sends a pickled question on standard input, which stays open as long as somebody wants the answer. The process
answers on standard output with frames, each preceded by its length: a `Head`, and then either pages of rows or an Arrow IPC
stream without frames. An error is a `Failure` on standard error, as JSON, after standard output is closed.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, BinaryIO

import msgspec

from tailrace.errors import BrokenOffError, QueryError, StoreError, TailraceError
from tailrace.query import output
from tailrace.query.answer import Page, Shape
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits, bound_memory, confine, telling
from tailrace.query.statement import Parameters

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


def answer(engine: Engine, question: FramedQuestion, out: BinaryIO) -> None:
    """Write the answer to a question. Raise QueryError and StoreError."""
    sql, values = question.sql, question.parameters
    if question.form is AnswerForm.COUNT:
        count = engine.count(sql, values)
        write_frame(out, Head(version=engine.version, count=count))
        return
    if question.form is AnswerForm.ARROW:
        found = engine.ask_arrow(sql, values)
        write_frame(out, Head(version=engine.version))
        output.write_arrow(found.schema, iter(found.next_batch, None), out)
        return
    rows = engine.ask(sql, Shape(question.form.value), parameters=values)
    columns = [(column.name, column.type) for column in rows.columns]
    write_frame(out, Head(version=engine.version, columns=columns))
    large = [i for i, (_, type_) in enumerate(columns) if is_large(type_)]
    for page in iter(rows.next_page, []):
        write_frame(out, list(_spelled(page, large)) if large else page)


def main() -> None:
    question: FramedQuestion = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent
    confine(question.limits, sys.stdin.fileno())
    out = sys.stdout.buffer
    try:
        engine = Engine(
            question.store,
            question.options,
            question.limits,
            room=question.room,
            version=question.version,
        )
        bound_memory(question.limits)
        with telling(question.limits):
            answer(engine, question, out)
    except BrokenPipeError:
        pass
    except TailraceError as error:
        os.close(out.fileno())
        failure = Failure.of(error)
        sys.stderr.write(msgspec.json.encode(failure).decode())
        _leave(1)
    _leave(0)


def _leave(code: int) -> None:
    """Exit without waiting for the database, since its answer is written or unwanted."""
    sys.stderr.flush()
    os._exit(code)


def _spelled(page: Page, large: list[int]) -> Iterator[list[Any]]:
    for row in page:
        values = list(row)
        for i in large:
            values[i] = None if row[i] is None else str(row[i])
        yield values


if __name__ == "__main__":
    main()
