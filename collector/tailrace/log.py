"""Write log lines to standard error, as text or as one JSON object for each line.

Each place in the code that logs writes at most `LINES_A_MINUTE` lines a minute. Names from outside (peers, files) can
neither start a new line nor send control characters to a terminal."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from functools import partial

import msgspec

from tailrace.config.schema import LogConfig
from tailrace.standard import STDERR, never_wait, spell_drops
from tailrace.terminal import printable

LINES_A_MINUTE = 60
MINUTE = 60.0

FIELDS = {
    "time": "When, in UTC (ISO 8601, to the millisecond).",
    "level": "debug, info, warning, error or critical.",
    "logger": "The module that wrote the line.",
    "message": "A sentence that says what happened.",
    "source": "The source that the line is about, if any.",
    "condition": "The condition that begins or ends, as on /healthz.",
    "suppressed": "How many lines from the same place in the code were left out since the one before.",
    "dropped": "How many lines before this one nobody read in time; they are lost.",
    "exception": "A traceback; only where Tailrace has a defect.",
}
"""All fields of a JSON log line with their meanings. The first `_ALWAYS` fields are present in every line."""

_ALWAYS = 4


def configure(config: LogConfig, *, quiet: bool = False) -> None:
    """Configure logging. With `quiet`, write only warnings and errors, for commands that have output of their own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LineLimit())
    handler.setFormatter(_Json() if config.format == "json" else _Console())
    level = max(logging.getLevelName(config.level.upper()), logging.WARNING if quiet else 0)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    never_wait(STDERR)
    spell_drops(partial(_dropped, handler))


def _dropped(handler: logging.Handler, lines: int) -> str:
    """Return a formatted log line which states that `lines` log lines were dropped."""
    text = "%d lines before this one were dropped, because nobody read standard error in time"
    record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (lines,), None)
    record.dropped = lines
    return handler.format(record)


class LineLimit(logging.Filter):
    """A filter that passes at most `LINES_A_MINUTE` lines a minute for each line of code that logs."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], _LogPlace] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            place = self._places.setdefault((record.pathname, record.lineno), _LogPlace())
            if not 0 <= record.created - place.since < MINUTE:
                place.since, place.lines = record.created, 0
            place.lines += 1
            if place.lines > LINES_A_MINUTE:
                place.suppressed += 1
                return False
            record.suppressed = place.suppressed
            place.suppressed = 0
        return True


class _LogPlace(msgspec.Struct):
    """The state of one line of code that logs: how many lines it has written since a time (Unix seconds), and how many
    were suppressed."""

    since: float = 0.0
    lines: int = 0
    suppressed: int = 0


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():8} {printable(record.getMessage())}"
        if suppressed := getattr(record, "suppressed", 0):
            line += f" ({suppressed} more like this before it)"
        if record.exc_info:
            # Indent the traceback, so that none of its lines looks like a log line.
            lines = self.formatException(record.exc_info).splitlines()
            line += "".join(f"\n  {printable(text)}" for text in lines)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        for field in [*FIELDS][_ALWAYS:]:
            if value := getattr(record, field, None):
                line[field] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
