"""Run calls of a query engine in a thread, because DuckDB handles no signals, and show the elapsed time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TextIO, TypeVar

from tailrace.query.database import check_process

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

    from tailrace.query.answer import ArrowAnswer, Page, RowAnswer
    from tailrace.query.engine import Engine
    from tailrace.query.remote import RemoteAnswer, RemoteArrowAnswer, RemoteEngine

T = TypeVar("T")

FIRST_SECONDS = 0.7
EVERY_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class Patience:
    """Runs calls of a query engine in a thread. `notice` is the terminal that shows the elapsed time, or None."""

    def __init__(self, engine: Engine | RemoteEngine, notice: TextIO | None) -> None:
        self._engine = engine
        self._notice = notice
        self._pool = ThreadPoolExecutor(1)

    def make(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread, and return its result. On KeyboardInterrupt, interrupt the query engine."""
        check_process()
        future = self._pool.submit(call)
        began = time.monotonic()
        shown = False
        try:
            while not wait([future], EVERY_SECONDS if shown else FIRST_SECONDS).done:
                shown = True
                if self._notice:
                    share = self._engine.progress()
                    percent = f", {share:.0%}" if share else ""
                    waited = time.monotonic() - began
                    self._notice.write(f"{_CLEAR}asking ... {waited:.0f} s{percent}")
                    self._notice.flush()
            return future.result()
        except KeyboardInterrupt:
            # Repeat the interrupt, because an interrupt between two statements has no effect.
            while not future.done():
                self._engine.interrupt()
                wait([future], EVERY_SECONDS)
            raise
        finally:
            if shown and self._notice:
                self._notice.write(_CLEAR)
                self._notice.flush()

    def pages(self, answer: RowAnswer | RemoteAnswer) -> Iterator[Page]:
        while page := self.make(answer.next_page):
            yield page

    def batches(self, answer: ArrowAnswer | RemoteArrowAnswer) -> Iterator[pyarrow.RecordBatch]:
        while (batch := self.make(answer.next_batch)) is not None:
            yield batch
