"""Settings of glibc's allocator that return freed memory to the system. With another C library, the functions do
nothing."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

HEAPS = 2
"""Maximum number of heaps of a viewer. With one heap for each thread, a viewer of 200 million spans took 60 MB more.
"""

LARGE = 512 * 2**10
"""Minimum size (bytes) of a block with its own pages, which return to the system when the block is freed.

glibc raises this threshold to the largest freed block by default. After 130 names of 500 kB the daemon then kept 110
MB in its heaps, and 20 MB with this setting.
"""

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def share() -> None:
    """Limit the number of heaps for further threads, because a heap keeps its maximum size."""
    _set(_M_ARENA_MAX, HEAPS)


def return_large() -> None:
    """Return large blocks to the system when they are freed, including blocks of Arrow. Call this before loading
    Arrow.

    A memory pool set in Python would not apply to allocations in Arrow's own code, which are 35 MiB during commits.
    """
    _set(_M_MMAP_THRESHOLD, LARGE)
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
