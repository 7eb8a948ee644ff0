"""Log records as events, among the spans they were written in.

    logging.getLogger().addHandler(tailrace_client.logs.Handler())

An event's name is the record's message before its arguments are put in ("took %d s"), so that all
records of one statement are found by one name; of a message that is no string, an exception say, it
is the type's name. It is cut at 255 characters. Attributes:

    level, logger    "WARNING", "solver.io"
    message          with its arguments, by the handler's formatter if it has one
    file, line       of the statement
    error            the type's name, if an exception came with it, and
    traceback        its text, unless a formatter has put it into the message
    …                what `extra` said; with "extra." before a name that is one of these

A record whose arguments do not fit its message has that as `message`, and `args`. The time is that
of handling: behind a `QueueListener`, a little later.
"""

from __future__ import annotations

import logging
import threading
from logging import LogRecord
from traceback import format_exception

from tailrace_client import _process

_NAME_MAX = 255
_OF_EVERY_RECORD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


class Handler(logging.Handler):
    """Emits log records as events of this process's emitter; while it is off, does nothing.

    It takes no lock, writes no log and never raises, whatever a record's values do.
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        """`level` is the least that is emitted, as of any handler."""
        super().__init__(level)
        self._thread = threading.local()

    def handle(self, record: LogRecord) -> bool:
        """Emit the record if the filters let it pass; say whether."""
        if _process.current is None:
            return False
        try:
            passed: bool | LogRecord = self.filter(record)
            if passed:
                self.emit(passed if isinstance(passed, LogRecord) else record)
        except Exception:  # noqa: BLE001 - a filter's
            self.handleError(record)
            return False
        return bool(passed)

    def emit(self, record: LogRecord) -> None:
        """Make it an event."""
        emitter = _process.current
        if emitter is None:
            return
        name = record.msg if isinstance(record.msg, str) else type(record.msg).__qualname__
        attributes: dict[str, object] = {"level": record.levelname, "logger": record.name}
        if not getattr(self._thread, "busy", False):
            self._thread.busy = True
            try:
                self._describe(record, name, attributes)
            finally:
                self._thread.busy = False
        # Else a value of the record being described, or a signal handler, logs in its turn: without
        # a look at its values this ends.
        emitter.event(name[:_NAME_MAX], **attributes)

    def _describe(self, record: LogRecord, name: str, attributes: dict[str, object]) -> None:
        try:
            formatter = self.formatter
            attributes["message"] = formatter.format(record) if formatter else record.getMessage()
        except Exception:  # noqa: BLE001 - of values' __str__, or because arguments do not fit
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
