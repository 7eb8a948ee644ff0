"""Limit a statement's memory, processor time and wall time. The kernel enforces the limits on a separate
process.

DuckDB checks its own limits only between two steps of its work. A single step may last long: for example a
function that sleeps, pads a text to a gigabyte or recurses too deeply. Therefore an untrusted statement runs
in a process that the kernel ends, and the program that started the process explains the end (`verdict`).

`go_apart` runs the rest of a command in such a process. `go_apart` forks before a database is loaded, which
takes a millisecond. The child writes directly to the terminal, file or pipe of the parent, so that a slow
reader slows the child down and no output is copied.
"""

from __future__ import annotations

import fcntl
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tailrace.errors import QueryError
from tailrace.standard import keep_errors_apart
from tailrace.terminal import guarded, unguarded
from tailrace.units import Duration, Size

DATABASES_SHARE = 0.8
"""Share of the memory limit that is set as DuckDB's own limit. The remaining memory is for allocations that
DuckDB does not count."""

MACHINES_SHARE = 0.8
"""Default memory limit as a share of the machine's memory. The limit prevents the kernel from killing another
process, such as the collector, when memory is short."""

SPILL = 10
"""Maximum number of bytes that a statement may spill to disk, as a multiple of the memory limit."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a statement.

    `seconds` is the wall time until the last row is read; None means no limit. `memory` is the number of
    bytes beyond those of an idle database; None means 80 % of the machine's memory. `threads` is the number
    of threads; None means all processors. `spill` is the number of bytes that may be written to disk when
    memory is short; None means ten times the memory."""

    seconds: float | None = None
    memory: int | None = None
    threads: int | None = None
    spill: int | None = None


def confine(limits: Limits, lifeline: int) -> None:
    """Apply the time limits to this process, irrevocably.

    The process ends with its parent: `lifeline` is the read end of a pipe, and only the parent has the write
    end. The parent handles Ctrl-C. Output of libraries to standard error at exit is discarded, while Python's
    own standard error still works."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.seconds is not None:
        processors = limits.threads or os.cpu_count() or 1
        seconds = math.ceil(limits.seconds * processors) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    keep_errors_apart()
    sys.stderr = guarded(sys.stderr)


def bound_memory(limits: Limits) -> None:
    """Limit this process to its current memory plus the memory limit, irrevocably."""
    memory = limits.memory or int(_machines_memory() * MACHINES_SHARE)
    most = _taken() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextmanager
def memory_limit_named(limits: Limits) -> Iterator[None]:
    """Convert a MemoryError to a QueryError that states the limit."""
    try:
        yield
    except MemoryError:
        given = (
            "the machine has" if limits.memory is None else f"its limit of {Size(limits.memory)}"
        )
        raise QueryError(f"the statement was ended: it needs more memory than {given}") from None


def verdict(status: int, limits: Limits) -> str:
    """Return the reason why a signal ended a statement's process. `status` is the negative exit code of the
    process."""
    number = -status
    if number in {signal.SIGALRM, signal.SIGXCPU} and limits.seconds is not None:
        return f"the statement was ended: it took longer than its limit of {_spelled(limits)}"
    if number == signal.SIGKILL:
        return "the statement's process was killed, perhaps by the kernel for want of memory"
    name = signal.Signals(number).name
    return f"the statement crashed the database ({name}), or needs more memory than it may take"


def _end_with(lifeline: int) -> None:
    """Make the kernel kill this process when the other end of a pipe is closed."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the other end was closed earlier
        os.kill(os.getpid(), signal.SIGKILL)


def _spelled(limits: Limits) -> str:
    return str(Duration(limits.seconds or 0))


def _taken() -> int:
    """Return the size (bytes) of the private writable memory, which the kernel counts towards RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise QueryError("/proc/self/status: does not report how much memory this process has")


def _machines_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_CLEAR = "\r\x1b[K"


def go_apart(limits: Limits) -> str:
    """Fork. In the child, apply the time limits and return the path of a private directory.

    The parent waits until the child ends and removes the directory. The parent then ends with the child's
    exit code (SystemExit), or raises QueryError if the child was killed. On Ctrl-C the parent kills the
    child."""
    room = make_room()
    sys.stdout.flush()
    sys.stderr.flush()
    lifeline, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        confine(limits, lifeline)
        return room
    os.close(lifeline)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:  # KeyboardInterrupt
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        _clear_notice()
        raise
    finally:
        shutil.rmtree(room, ignore_errors=True)
    if status < 0:
        _clear_notice()
        raise QueryError(verdict(status, limits))
    sys.exit(status)


def make_room(what: str = "query") -> str:
    """Create a private, empty directory for temporary files, and return its path. Raise QueryError."""
    try:
        return tempfile.mkdtemp(prefix=f"tailrace-{what}-")
    except OSError as error:
        raise QueryError(
            f"cannot make a temporary directory: {error}; set TMPDIR to a writable directory"
        ) from error


def _clear_notice() -> None:
    """Clear the terminal line on which the child showed the elapsed time."""
    if sys.stderr.isatty():
        notice = unguarded(sys.stderr)
        notice.write(_CLEAR)
        notice.flush()
