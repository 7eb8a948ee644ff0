"""Stop threads of another process where they are, while its other threads continue. The kernel's means for debuggers
(ptrace(2)) are used, so nothing in the process notices it.

The tracer is a process of its own, because whoever waits for a traced child is told of its stops.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

SEIZE, INTERRUPT = 0x4206, 0x4207


@contextmanager
def stalled(threads):
    """Stop some threads, by their ids, within the `with` block. Skip the test if this is not allowed."""
    tracer = subprocess.Popen(
        [sys.executable, __file__, *map(str, threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with tracer:
        try:
            answer = tracer.stdout.readline().decode().strip()
            if answer != "stalled":
                pytest.skip(f"{answer}: run the container with --cap-add=SYS_PTRACE")
            yield
        finally:
            tracer.kill()


@contextmanager
def stalled_while(threads, goes_on):
    """Do the same, at a moment at which the process continues without these threads: none of them holds the GIL."""
    for _ in range(20):
        with stalled(threads):
            if goes_on():
                yield
                return
    raise AssertionError("in twenty attempts the process never went on without these threads")


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    for thread in map(int, sys.argv[1:]):
        for request in (SEIZE, INTERRUPT):
            gone = errno.ESRCH  # An idle thread may have ended just now.
            if libc.ptrace(request, thread, None, None) < 0 and ctypes.get_errno() != gone:
                sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")
    print("stalled", flush=True)  # noqa: T201 - to whoever started it
    sys.stdin.read()


if __name__ == "__main__":
    main()
