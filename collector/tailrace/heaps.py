"""Configure the memory of a process: glibc's allocator, and Arrow's memory pool.

With another C library, the settings of the allocator do nothing."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib import import_module

HEAPS = 2
"""Maximum number of heaps in a process of `tailrace view`. If each thread has a heap of its own, drawing 200 million
spans takes 60 MB more memory."""

LARGE = 640 * 2**10
"""Minimum size (bytes) of a block of memory that returns to the system when it is freed. It is larger than a chunk of
received bytes (512 KiB), because the system clears each page of a returned block when the page is used again.

By default, glibc raises this minimum to the size of the largest freed block. After the daemon had received 130 names of
500 kB, its heaps held 110 MB with the default, and 20 MB with this fixed value."""

KEPT = 8 * 2**20
"""Maximum size (bytes) of the free memory at the end of a heap. glibc returns more than this to the system. With glibc's
default of 128 KiB, a collector at full rate returns the memory of a chunk, and takes it back for the next one: 100,000
instead of 62,000 page faults for 6 million events."""

POOL = "ARROW_DEFAULT_MEMORY_POOL"
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def share() -> None:
    """Limit this process to `HEAPS` heaps, because a heap never shrinks. Call this before starting threads."""
    _set(_M_ARENA_MAX, HEAPS)


def load_arrow() -> None:
    """Load Arrow for a collector or for `tailrace follow`, unless it is loaded already.

    An environment variable sets Arrow's memory pool, because Arrow's own code ignores a pool that is set in Python. Arrow
    reads it once. Restore its value, because `tailrace run` passes the environment on to a program.

    Keep Arrow from importing numpy, which the process does not need (docs/decisions/speed.md, D177)."""
    if "pyarrow" in sys.modules:
        return
    _set(_M_MMAP_THRESHOLD, LARGE)
    _set(_M_TRIM_THRESHOLD, KEPT)
    of_user = os.environ.get(POOL)
    os.environ[POOL] = "system"
    hidden = "numpy" not in sys.modules
    if hidden:
        sys.modules["numpy"] = None  # type: ignore[assignment] # marks a module that cannot be imported
    try:
        import_module("pyarrow")
    finally:
        if hidden:
            del sys.modules["numpy"]
        if of_user is None:
            del os.environ[POOL]
        else:
            os.environ[POOL] = of_user


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
