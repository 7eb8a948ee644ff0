"""Run SQL statements in separate processes, so that limits can be enforced and a crash does no harm.

If the process reaches a limit (see `limits`) or crashes, reading its rows raises QueryError. The process gets a
pickled `FramedQuestion` on standard input, and answers with frames, each preceded by its length: a `Head`, then
pages of rows, or an Arrow IPC stream without frames. In case of an error, it closes standard output, and writes a
`Failure` as JSON to standard error."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import msgspec

from tailrace.errors import BrokenOffError, QueryError, StoreError, TailraceError
from tailrace.interpreter import command
from tailrace.query.answer import AnswerColumn, Page, Shape
from tailrace.query.database import PipeEnd, finalize
from tailrace.query.limits import Limits, make_room, verdict
from tailrace.query.statement import Parameters

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

    from tailrace.query.engine import Engine


LENGTH = struct.Struct("!Q")

FAILURE_MAX = 20_000
"""Maximum length (characters) of a process's error text, which may quote a statement of any length."""

FAILURES: dict[str, type[TailraceError]] = {
    each.__name__: each for each in (BrokenOffError, QueryError, StoreError)
}
"""The error classes that a statement's process can send, by name."""

_LARGE = ("HUGEINT", "UHUGEINT", "DECIMAL")
"""Beginnings of the names of DuckDB's number types whose values MessagePack cannot represent. Such values are sent as
text."""


class AnswerForm(StrEnum):
    TEXT = "text"
    JSON = "json"
    ARROW = "arrow"
    COUNT = "count"


class FramedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The message that tells a separate process which statement to run."""

    store: str
    options: dict[str, str]
    version: int
    sql: str
    parameters: Parameters
    form: AnswerForm
    limits: Limits
    room: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """First frame of an answer: the version of the table, and the columns (name, type) or the number of rows."""

    version: int
    columns: list[tuple[str, str]] = []
    count: int = 0


class Failure(msgspec.Struct, frozen=True):
    """An error of a statement's process: its text, and the name of its class, a key of `FAILURES`."""

    text: str
    error: str

    @classmethod
    def of(cls, error: TailraceError) -> Failure:
        """Return the failure that describes an exception. It names the exception's class or base class in `FAILURES`,
        or else StoreError."""
        known = (name for name, each in FAILURES.items() if isinstance(error, each))
        return cls(str(error)[:FAILURE_MAX], next(known, StoreError.__name__))

    def exception(self) -> TailraceError:
        return FAILURES[self.error](self.text)


def is_large(type_: str) -> bool:
    return type_.startswith(_LARGE)


def write_frame(stream: BinaryIO, content: object) -> None:
    data = msgspec.msgpack.encode(content)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


T = TypeVar("T")

PIPE_BYTES = 2**16
"""Default size (bytes) of a pipe's buffer in Linux. The bytes of an answer are read in blocks of this size."""


class RemoteEngine:
    """Runs statements over a store in separate processes. It has the same methods and errors as `Engine`."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        """Read the same version of the table as `engine`."""
        self._store = engine.store
        self._options = engine.options
        self._snapshot = engine.version
        self._limits = limits
        self._worker: Worker | None = None
        self.version = engine.version
        """Version number of the table that the latest statement has read."""

    def ask(
        self, sql: str, shape: Shape = Shape.TEXT, *, parameters: Parameters = ()
    ) -> RemoteAnswer:
        worker, head = self._start(sql, parameters, AnswerForm(shape.value))
        return RemoteAnswer(worker, head, shape)

    def ask_arrow(self, sql: str, parameters: Parameters = ()) -> RemoteArrowAnswer:
        worker, _ = self._start(sql, parameters, AnswerForm.ARROW)
        return RemoteArrowAnswer(worker)

    def count(self, sql: str, parameters: Parameters = ()) -> int:
        worker, head = self._start(sql, parameters, AnswerForm.COUNT)
        worker.finish()
        return head.count

    def interrupt(self) -> None:
        if self._worker is not None:
            self._worker.end()

    def progress(self) -> float:
        """Return 0, because the progress of a statement in another process is unknown."""
        return 0.0

    def close(self) -> None:
        self.interrupt()

    def _start(self, sql: str, parameters: Parameters, form: AnswerForm) -> tuple[Worker, Head]:
        question = FramedQuestion(
            store=self._store,
            options=self._options,
            version=self._snapshot,
            sql=sql,
            parameters=parameters,
            form=form,
            limits=self._limits,
            room=make_room(),
        )
        self._worker = worker = Worker(question)
        head = worker.frame(Head)
        if head is None:
            raise QueryError("the statement's process ended without an answer")
        self.version = head.version
        return worker, head


class Worker:
    """The process that runs one statement, as its parent sees it. When the process ends, its private directory is
    removed."""

    def __init__(self, question: FramedQuestion) -> None:
        self._limits = question.limits
        self.finished = False
        """Whether the process has ended without an error, so that its answer is complete."""
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command("tailrace.query.worker"),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        ends = self._process.stdin, self._process.stdout, self._process.stderr
        question_to, answer_from, errors_from = (PipeEnd(cast("BinaryIO", end)) for end in ends)
        self.answer = io.BufferedReader(answer_from, PIPE_BYTES)
        self._errors = io.BufferedReader(errors_from)
        lifeline = io.BufferedWriter(question_to)
        ours = lifeline, self.answer, self._errors
        self.end = finalize(self, _end, self._process, ours, question.room)
        try:
            pickle.dump(question, lifeline)
            lifeline.flush()
        except BrokenPipeError:
            self.finish()

    def frame(self, type_: type[T]) -> T | None:
        """Return the next frame of the answer, or None after the last one. Raise the error of a failed process."""
        if self.finished:
            return None
        length, data = -1, b""
        with suppress(struct.error, ValueError):  # another thread has closed the pipe (ValueError)
            (length,) = LENGTH.unpack(self.answer.read(LENGTH.size))
            data = self.answer.read(length)
        if len(data) == length:
            return msgspec.msgpack.decode(data, type=type_)
        self.finish()
        return None

    def finish(self) -> None:
        """Wait for the end of the process, after its whole answer was read. If the process failed, raise the error that
        it reported, or QueryError if it reported none."""
        if not self.end.alive:
            raise QueryError("interrupted")
        errors = self._errors.read()
        status = self._process.wait()
        self.end()
        if status == 0:
            self.finished = True
            return
        if status < 0:
            raise QueryError(verdict(status, self._limits))
        try:
            failure = msgspec.json.decode(errors, type=Failure)
        except msgspec.DecodeError:
            text = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise QueryError(f"the statement's process failed: {text}") from None
        raise failure.exception()


class RemoteAnswer:
    def __init__(self, worker: Worker, head: Head, shape: Shape) -> None:
        self._worker = worker
        self.columns = [AnswerColumn(i, *named, shape) for i, named in enumerate(head.columns)]
        self._large = [
            (i, Decimal if column.type.startswith("DECIMAL") else int)
            for i, column in enumerate(self.columns)
            if is_large(column.type)
        ]

    def next_page(self) -> Page:
        """Return the next page of rows, which is empty after the last one. Raise errors as `RowPages` does."""
        rows = self._worker.frame(list[list[Any]]) or []
        for row in rows:
            for i, number in self._large:
                row[i] = None if row[i] is None else number(row[i])
        return [tuple(row) for row in rows]


class RemoteArrowAnswer:
    def __init__(self, worker: Worker) -> None:
        import pyarrow  # noqa: PLC0415 - 100 ms, and only needed here

        self._worker = worker
        self._broken = (pyarrow.ArrowInvalid, OSError, ValueError)
        try:
            self._reader = pyarrow.ipc.open_stream(worker.answer)
        except self._broken as error:
            worker.finish()
            raise QueryError(f"the answer cannot be read: {error}") from error
        self.schema: pyarrow.Schema = self._reader.schema

    def next_batch(self) -> pyarrow.RecordBatch | None:
        """Return the next record batch, or None after the last one. Raise errors as `ArrowAnswer.next_batch` does."""
        if self._worker.finished:
            return None
        try:
            batch = next(self._reader, None)
        except self._broken as error:
            self._worker.finish()
            raise QueryError(f"the answer cannot be read: {error}") from error
        # If there is no further batch, check how the process ended: it may have been killed between two batches.
        if batch is None:
            self._worker.finish()
        return batch


def _end(process: subprocess.Popen[bytes], ends: Iterable[io.BufferedIOBase], room: str) -> None:
    process.kill()
    process.wait()
    for end in ends:
        with suppress(BrokenPipeError, TailraceError):
            end.close()
    shutil.rmtree(room, ignore_errors=True)
