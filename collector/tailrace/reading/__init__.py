"""Read a store from Python: `tailrace.open`."""

from __future__ import annotations

from tailrace.query.completeness import Completeness
from tailrace.query.limits import Limits
from tailrace.reading.result import Result
from tailrace.reading.store import Store, open  # noqa: A004 - callers say `tailrace.open`

__all__ = ["Completeness", "Limits", "Result", "Store", "open"]
