"""Emits spans and events to a Tailrace collector, and never gets in its program's way.

import tailrace_client as tailrace

tailrace.connect()  # to TAILRACE_ADDRESS; without it all of this is off, and next to free
with tailrace.span("step", cell=3):
    ...
tailrace.event("checkpoint", bytes=4096)
"""

from __future__ import annotations

from tailrace_client._emitter import Emitter, Span
from tailrace_client._jets import JetsWriter
from tailrace_client._process import close, connect, event, flush, span, use_stream
from tailrace_client._traced import traced

__version__ = "0.1.0"
__all__ = [
    "Emitter",
    "JetsWriter",
    "Span",
    "close",
    "connect",
    "event",
    "flush",
    "span",
    "traced",
    "use_stream",
]
