"""Configure the memory of a process: glibc's allocator, and Arrow's memory.

With another C library, the settings of the allocator do nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib import import_module

HEAPS = 2
"""Maximum number of heaps of glibc's allocator in a process of `tailrace view`.

With one heap for each thread, drawing 200 million spans took 60 MB more.
"""

LARGE = 512 * 2**10
"""Minimum size (bytes) of a block of memory that gets its own pages. When such a block is freed, its pages return to
the system.

By default, glibc raises this minimum to the size of the largest freed block. After the daemon had received 130 names of
500 kB, its heaps held 110 MB with the default, and 20 MB with this fixed value."""

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def share() -> None:
    """Let the threads of this process share at most `HEAPS` heaps of glibc's allocator, because a heap never shrinks.
    Call this before starting threads."""
    _set(_M_ARENA_MAX, HEAPS)


def load_arrow() -> None:
    """Load Arrow for a collector, unless it is loaded already. Make the allocator return large blocks to the system
    when they are freed.

    An environment variable sets Arrow's memory pool, because Arrow's own code ignores a pool that is set in Python, and
    then allocates 35 MiB during commits. Keep Arrow from importing numpy, which a collector does not need
    (docs/decisions/speed.md, D177)."""
    if "pyarrow" in sys.modules:
        return
    _set(_M_MMAP_THRESHOLD, LARGE)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    hidden = "numpy" not in sys.modules
    if hidden:
        sys.modules["numpy"] = None  # type: ignore[assignment] # marks a module that cannot be imported
    try:
        import_module("pyarrow")
    finally:
        if hidden:
            del sys.modules["numpy"]


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
