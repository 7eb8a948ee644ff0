"""Emits spans and events to a Tailrace collector, and never gets in its program's way.

import tailrace_client as trace

trace.connect()  # to TAILRACE_ADDRESS; without it all of this is off, and next to free
with trace.span("step", cell=3):
    ...
trace.event("checkpoint", bytes=4096)
trace.counter("queue length", 17)
"""

from __future__ import annotations

from tailrace_client._credentials import Credentials
from tailrace_client._emitter import Emitter, Span
from tailrace_client._jets import JetsWriter
from tailrace_client._process import close, connect, flush, substream, use_stream
from tailrace_client._recording import compiled, counter, event, span, write
from tailrace_client._traced import traced

__version__ = "0.1.0"
__all__ = [
    "Credentials",
    "Emitter",
    "JetsWriter",
    "Span",
    "close",
    "compiled",
    "connect",
    "counter",
    "event",
    "flush",
    "span",
    "substream",
    "traced",
    "use_stream",
    "write",
]
