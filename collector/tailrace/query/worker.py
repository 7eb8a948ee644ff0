"""Run one SQL statement in a process of its own, which the module `remote` starts.

The statement arrives on standard input. The answer goes to standard output, and an error to standard error. When the
parent closes its end of standard input, this process ends."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from tailrace.errors import TailraceError
from tailrace.query import output
from tailrace.query.answer import Page, Shape
from tailrace.query.engine import Engine
from tailrace.query.limits import bound_memory, confine, memory_limit_named
from tailrace.query.remote import AnswerForm, Failure, FramedQuestion, Head, is_large, write_frame


def answer(engine: Engine, question: FramedQuestion, out: BinaryIO) -> None:
    """Run the SQL statement in the request `question`, and write the answer to `out`. Raise QueryError or StoreError on
    failure."""
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
        with memory_limit_named(question.limits):
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
    """Exit at once, without waiting for the database: the answer is either written or no longer wanted."""
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
