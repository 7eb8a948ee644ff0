"""Emit spans and events to a Tailrace collector, without blocking the program.

import tailrace_client as trace

with trace.span("step", cell=3):
    ...
trace.event("checkpoint", bytes=4096)
trace.counter("queue length", 17)

If TAILRACE_ADDRESS is set, the first event connects to this address. Otherwise all functions are
off, at almost no cost, until the program calls `connect`."""

from __future__ import annotations

from tailrace_client import _process
from tailrace_client._credentials import Credentials
from tailrace_client._emitter import Emitter, Span
from tailrace_client._jets import JetsWriter
from tailrace_client._process import close, connect, flush, hand_on, substream, take_up, use_stream
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
    "hand_on",
    "span",
    "substream",
    "take_up",
    "traced",
    "use_stream",
    "write",
]

_process.connect_by_environment()
