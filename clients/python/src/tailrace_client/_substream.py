"""The substream: which of the activities that share a thread is emitting."""

from __future__ import annotations

from contextvars import ContextVar

SUBSTREAM: ContextVar[int] = ContextVar("tailrace.substream", default=0)
"""The substream (u64) of the events emitted in a context."""
