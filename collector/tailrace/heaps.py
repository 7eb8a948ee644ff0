"""Configure the memory of a process: glibc's allocator, Arrow's memory, and Python's garbage collector.

With another C library, the settings of the allocator do nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

HEAPS = 2
"""Maximum number of heaps of the allocator in a process of `tailrace view`.

With one heap for each thread, drawing 200 million spans took 60 MB more.
"""

LARGE = 512 * 2**10
"""Minimum size (bytes) of a block of memory that gets its own pages. They return to the system when the block
is freed.

By default, glibc raises this threshold to the size of the largest freed block. After 130 names of 500 kB the
daemon then kept 110 MB in its heaps, and 20 MB with this setting.
"""

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def share() -> None:
    """Limit the number of heaps to `HEAPS`, because a heap never shrinks. Call this before starting threads."""
    _set(_M_ARENA_MAX, HEAPS)


def load_arrow() -> None:
    """Load Arrow for a collector, unless Arrow is loaded already.

    Large blocks of memory, including those of Arrow, then return to the system when they are freed, and Arrow
    works without numpy. A memory pool set in Python would not apply to allocations in Arrow's own code, which are
    35 MiB during commits. Arrow would import numpy, which a collector does not use (docs/decisions/speed.md, D177).
    """
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


@contextmanager
def tamed_garbage_collection() -> Iterator[None]:
    """Run Python's garbage collector less often within a `with` block.

    Records are numerous and form no cycles. With the default thresholds the garbage collector takes a fifth of the
    time, and its pauses lose datagrams.
    """
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()  # some libraries clean up in finalizers at exit


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
