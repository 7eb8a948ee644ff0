"""Emit log records as events, among the spans in which they were written.

    logging.getLogger().addHandler(tailrace_client.logs.Handler())

An event's name is the record's message without its arguments ("took %d s"), so that all records of
one statement have one name. If the message is no string, say an exception, the name is its type's.
The name is cut at 255 characters. Attributes:

    level, logger    "WARNING", "solver.io"
    message          the message with its arguments, by the handler's formatter if there is one
    file, line       the place of the statement
    error            the name of the exception's type, if the record has an exception
    traceback        the exception's text, unless a formatter has put it into the message
    …                the fields of `extra`; a field with one of these names gets the prefix "extra."

A record whose arguments do not fit has the bare message as `message`, and `args`. An event's time is
when the record is handled: a little later behind a `QueueListener`.
"""

from __future__ import annotations

import logging
import threading
from logging import LogRecord
from traceback import format_exception

from tailrace_client import _process
from tailrace_client._recording import miss

_NAME_MAX = 255
_OF_EVERY_RECORD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


class Handler(logging.Handler):
    """Emits log records as events of this process's emitter. While that is off, it only counts them.

    A handler takes no lock, writes no log and never raises, whatever a record's values do.
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        """Emit records from `level` on, as any handler."""
        super().__init__(level)
        self._thread = threading.local()

    def handle(self, record: LogRecord) -> bool:
        """Emit the record if the filters let it pass. Return whether they did."""
        try:
            passed: bool | LogRecord = self.filter(record)
            if passed:
                self.emit(passed if isinstance(passed, LogRecord) else record)
        except Exception:  # noqa: BLE001 - a filter's
            self.handleError(record)
            return False
        return bool(passed)

    def emit(self, record: LogRecord) -> None:
        """Emit the record as an event."""
        emitter = _process.current
        if emitter is None:
            miss()
            return
        name = record.msg if isinstance(record.msg, str) else type(record.msg).__qualname__
        attributes: dict[str, object] = {"level": record.levelname, "logger": record.name}
        if not getattr(self._thread, "busy", False):
            self._thread.busy = True
            try:
                self._describe(record, name, attributes)
            finally:
                self._thread.busy = False
        # Otherwise a value of the record being described, or a signal handler, logs itself. Its
        # record is emitted without a look at values, so that this recursion ends.
        emitter.event(name[:_NAME_MAX], **attributes)

    def _describe(self, record: LogRecord, name: str, attributes: dict[str, object]) -> None:
        try:
            formatter = self.formatter
            attributes["message"] = formatter.format(record) if formatter else record.getMessage()
        except Exception:  # noqa: BLE001 - a value's __str__, or arguments that do not fit
            attributes["message"] = name
            attributes["args"] = record.args
        attributes["file"] = record.pathname
        attributes["line"] = record.lineno
        if isinstance(record.exc_info, tuple) and record.exc_info[0]:
            attributes["error"] = record.exc_info[0].__name__
            if self.formatter is None:
                attributes["traceback"] = "".join(format_exception(*record.exc_info))
        for key, value in record.__dict__.items():
            if key not in _OF_EVERY_RECORD:
                attributes[f"extra.{key}" if key in attributes else str(key)] = value
