"""Emit log records as events, in the stream of the spans in which they were written.

    logging.getLogger().addHandler(tailrace_client.logs.Handler())

An event's name is the record's message without its arguments ("took %d s"), so that all records of one statement have one name.
If the message is no string (for example an exception), the name is the name of its type. The name is cut at 255 characters.
Attributes:

    level, logger    "WARNING", "solver.io"
    message          the message with its arguments, by the handler's formatter if there is one
    file, line       the place of the statement
    error            the name of the exception's type, if the record has an exception
    traceback        the exception's text, unless a formatter has put it into the message
    …                the fields of `extra`; a field with one of these names gets the prefix "extra."

If the arguments do not fit the message, `message` is the bare message, and the attribute `args` is added. An event's time is
the time at which the record is handled, which is a little later behind a `QueueListener`."""

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
    """A log handler that emits log records as events of this process's emitter. While no emitter is open, the handler only
    counts the records.

    A handler takes no lock, writes no log and never raises, whatever the values of a record do."""

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        """Emit records of `level` and above, as other handlers do."""
        super().__init__(level)
        self._thread = threading.local()

    def handle(self, record: LogRecord) -> bool:
        """Emit the record if the filters accept it. Return whether they accepted it."""
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
        # A value of the record, or a signal handler, may log while the record is described. Emit that inner record
        # without reading its values, so that the recursion ends.
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
