"""What records in this process: the compiled module where it was built, or the same in Python.

With TAILRACE_PURE in the environment it is the latter.
"""

from __future__ import annotations

import os

try:
    if os.environ.get("TAILRACE_PURE"):
        raise ImportError("TAILRACE_PURE")  # noqa: TRY301 - as if it were not there
    from tailrace_client._native import OFF, Recorder, Span, counter, event, span, switch, write
except ImportError:  # there was no compiler, or it is one for another Python
    from tailrace_client._recorder import Recorder
    from tailrace_client._span import OFF, Span
    from tailrace_client._switch import counter, event, span, switch, write

__all__ = ["OFF", "Recorder", "Span", "compiled", "counter", "event", "span", "switch", "write"]

compiled = Recorder.__module__ == "tailrace_client._native"
"""Whether it is the compiled module."""
