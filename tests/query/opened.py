"""Count the files that are opened in a directory, as the kernel reports them (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import contextmanager, suppress

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def opened_in(directory):
    """Yield a set. When the `with` block ends, it has the names of the files that were opened in the directory during
    the block.
    """
    watch = _LIBC.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0
    assert _LIBC.inotify_add_watch(watch, os.fsencode(directory), _IN_OPEN) >= 0
    names = set()
    try:
        yield names
        with suppress(BlockingIOError):
            while data := os.read(watch, 1 << 16):
                names.update(_names(data))
    finally:
        os.close(watch)


def _names(data):
    at = 0
    while at < len(data):
        *_, length = _EVENT.unpack_from(data, at)
        name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode()
        if name:
            yield name
        at += _EVENT.size + length
