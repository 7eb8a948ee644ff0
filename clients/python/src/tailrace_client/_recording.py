"""Select the recorder of this process: the compiled module if it was built, otherwise the recorder in Python.

The environment variable TAILRACE_PURE selects the recorder in Python. So does a free-threaded Python, because the
compiled module relies on the GIL.
"""

from __future__ import annotations

import os
import sys
from typing import Any

Traced: Any = None
"""The compiled type of functions whose calls are recorded as spans, or None."""

try:
    if os.environ.get("TAILRACE_PURE") or "t" in sys.abiflags:
        raise ImportError("pure")  # noqa: TRY301 - as if the module were not there
    from tailrace_client import _native
    from tailrace_client._native import (
        OFF,
        Recorder,
        Span,
        counter,
        event,
        miss,
        span,
        switch,
        write,
    )

    # Python 3.12 ends a recursion after 750 calls of Python functions from C, whatever the recursion limit is.
    if sys.version_info[:2] != (3, 12):
        Traced = getattr(_native, "Traced", None)
except ImportError:  # The module is not compiled, or was compiled for another Python.
    from tailrace_client._recorder import Recorder
    from tailrace_client._span import OFF, Span
    from tailrace_client._switch import counter, event, miss, span, switch, write

__all__ = [
    "OFF",
    "Recorder",
    "Span",
    "Traced",
    "compiled",
    "counter",
    "event",
    "miss",
    "span",
    "switch",
    "write",
]

compiled = Recorder.__module__ == "tailrace_client._native"
"""Whether the compiled module records the events."""
