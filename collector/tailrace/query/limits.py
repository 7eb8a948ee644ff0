"""Limit a statement's memory, processor time and wall time. The kernel holds a process of its own to them.

DuckDB checks its own limits only between two steps of its work, and a function that sleeps, pads a text to a gigabyte
or recurses too deeply is one step. So a statement that may come from anybody runs in a process that the kernel ends,
and the program that started it explains why it ended (`verdict`).

`go_apart` runs the rest of a command in such a process. It forks before a database is loaded, which costs a
millisecond. The child writes to the same terminal, file or pipe, so that a slow reader holds it up and nothing is
copied.
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
"""The share of the memory limit that DuckDB may count. The rest covers memory that DuckDB does not count."""

MACHINES_SHARE = 0.8
"""The default memory limit as a share of the machine's memory. It keeps the kernel from ending another
process, such as the collector."""

SPILL = 10
"""The limit of what a statement may write to disk for lack of memory, as a multiple of the memory limit."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a statement: seconds of wall time until its last row is read, bytes of memory beyond
    those of an idle database, threads, and bytes that may be written to disk for lack of memory. None means
    no limit of time, 80 % of the machine's memory, all processors, and ten times the memory."""

    seconds: float | None = None
    memory: int | None = None
    threads: int | None = None
    spill: int | None = None


def confine(limits: Limits, lifeline: int) -> None:
    """Hold this process to its limits of time from now on, irrevocably.

    The process ends with its parent: `lifeline` is the reading end of a pipe whose other end only the
    parent has. The parent handles Ctrl-C. Output of libraries to standard error at exit is discarded,
    while Python's own standard error still works."""
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
    """Limit this process to the memory it has now plus the limit, irrevocably."""
    memory = limits.memory or int(_machines_memory() * MACHINES_SHARE)
    most = _taken() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextmanager
def memory_limit_named(limits: Limits) -> Iterator[None]:
    """Turn a MemoryError into a QueryError that names the limit."""
    try:
        yield
    except MemoryError:
        given = (
            "the machine has" if limits.memory is None else f"its limit of {Size(limits.memory)}"
        )
        raise QueryError(f"the statement was ended: it needs more memory than {given}") from None


def verdict(status: int, limits: Limits) -> str:
    """Return why a statement's process ended by a signal. `status` is its negative exit code."""
    number = -status
    if number in {signal.SIGALRM, signal.SIGXCPU} and limits.seconds is not None:
        return f"the statement was ended: it took longer than its limit of {_spelled(limits)}"
    if number == signal.SIGKILL:
        return "the statement's process was killed, perhaps by the kernel for want of memory"
    name = signal.Signals(number).name
    return f"the statement crashed the database ({name}), or needs more memory than it may take"


def _end_with(lifeline: int) -> None:
    """Have the kernel end this process when the other end of a pipe is closed."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os.kill(os.getpid(), signal.SIGKILL)


def _spelled(limits: Limits) -> str:
    return str(Duration(limits.seconds or 0))


def _taken() -> int:
    """Return the bytes of private writable memory, which the kernel counts towards RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise QueryError("/proc/self/status: does not report how much memory this process has")


def _machines_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_CLEAR = "\r\x1b[K"


def go_apart(limits: Limits) -> str:
    """Fork, and return the path of a private directory in the child, which is held to its limits of time.

    The parent waits here until the child ends, removes the directory, and ends like the child: it raises
    SystemExit with the same code, or QueryError if the child was killed. On Ctrl-C it kills the child."""
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
    """Make a private, empty directory for temporary files. Raise QueryError."""
    try:
        return tempfile.mkdtemp(prefix=f"tailrace-{what}-")
    except OSError as error:
        raise QueryError(
            f"cannot make a temporary directory: {error}; set TMPDIR to a writable directory"
        ) from error


def _clear_notice() -> None:
    """Clear the line on which the child showed how long the statement takes."""
    if sys.stderr.isatty():
        notice = unguarded(sys.stderr)
        notice.write(_CLEAR)
        notice.flush()
