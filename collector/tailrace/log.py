"""Log lines on standard error: text for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from tailrace.config.schema import LogConfig


def configure(config: LogConfig, *, quiet: bool = False) -> None:
    """`quiet` is for commands that show what they do themselves: warnings and worse, no less."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if config.format == "json" else _Console())
    level = max(logging.getLevelName(config.level.upper()), logging.WARNING if quiet else 0)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():8} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
