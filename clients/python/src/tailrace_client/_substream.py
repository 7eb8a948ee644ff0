"""Which of the activities that take turns on one thread is emitting."""

from __future__ import annotations

from contextvars import ContextVar

SUBSTREAM: ContextVar[int] = ContextVar("tailrace.substream", default=0)
"""The substream (u64) of the events emitted in a context."""
