"""The heaps of a process whose threads allocate, as glibc counts them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COUNTS = """
import ctypes, sys, threading
from tailrace import heaps

libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
if sys.argv[1] == "shared":
    heaps.share()
together = threading.Barrier(8)

def allocate():
    together.wait()
    for size in range(1000, 60000, 100):
        libc.malloc(ctypes.c_size_t(size))
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_threads_share_two_heaps():
    def heaps(word):
        command = [sys.executable, "-c", COUNTS, word]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        return done.stdout.count("<heap nr=")

    assert heaps("own") > 2
    assert heaps("shared") <= 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_daemon_returns_large_blocks():
    """A block just below one that was freed has pages of its own, and Arrow's own code allocates from the C library, which it
    decides when `serve` loads it."""
    program = """
import ctypes, sys
from tailrace.cli import serve
from tailrace import heaps
assert "pyarrow" not in sys.modules
heaps.load_arrow()
import pyarrow
assert "numpy" not in sys.modules
import numpy
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(8 << 20))
mapped = int.from_bytes(ctypes.string_at(libc.malloc(4 << 20) - 8, 8), "little") & 2
print(pyarrow.default_memory_pool().backend_name, mapped)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert done.stdout.split() == ["system", "2"]
