"""Convert the times that callers pass."""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from typing import SupportsIndex

from tailrace.errors import QueryError

Time = datetime | str | SupportsIndex
"""A datetime with a time zone, ISO 8601 text (UTC unless it names a zone, down to nanoseconds), or Unix
nanoseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(:\d\d)[.,](\d{1,9})(?!\d)", re.ASCII)


def unix_ns(time: Time, keyword: str) -> int:
    """Return a time as Unix nanoseconds. Raise QueryError, which names the keyword, for anything else."""
    if isinstance(time, str):
        return _of_text(time, keyword)
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise QueryError(
                f"{keyword}: {time!r} has no time zone; add one, for example tzinfo=UTC"
            )
        return _of_datetime(time)
    try:
        return operator.index(time)
    except TypeError:
        raise QueryError(
            f"{keyword}: {time!r} is not a datetime, text or a whole number of Unix nanoseconds"
        ) from None


def _of_text(text: str, keyword: str) -> int:
    fraction = _FRACTION.search(text)
    nanoseconds = int(fraction[2].ljust(9, "0")) if fraction else 0
    try:
        time = datetime.fromisoformat(_FRACTION.sub(r"\1", text, count=1))
    except ValueError:
        raise QueryError(
            f"{keyword}: {text!r} is not a time; write it as 2026-11-21 08:30:00Z"
        ) from None
    return _of_datetime(time if time.tzinfo else time.replace(tzinfo=UTC)) + nanoseconds


def _of_datetime(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
