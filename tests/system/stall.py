"""Threads of another process that stop where they are, while its others go on: by the kernel's means
for debuggers (ptrace(2)), which nothing in the process notices.

The tracer is a process of its own, since whoever waits for a child that it traces is told of its stops.
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
    """Some threads, by their ids, do nothing meanwhile. Skips where that is not allowed."""
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
    """The same, at a moment in which the process goes on without these threads: none has the interpreter's lock."""
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
            gone = errno.ESRCH  # an idle one may just have ended
            if libc.ptrace(request, thread, None, None) < 0 and ctypes.get_errno() != gone:
                sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")
    print("stalled", flush=True)  # noqa: T201 - to whoever started it
    sys.stdin.read()


if __name__ == "__main__":
    main()
