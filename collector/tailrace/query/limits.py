"""Limit the memory, processor time and elapsed time of an SQL statement, which runs in a separate process.

DuckDB checks its own limits only between two steps, and a single step may take very long: a function that sleeps,
pads a text to a gigabyte or recurses deeply. Therefore the kernel kills the process at a limit. `go_apart` forks
before a database is loaded, so that the fork takes only a millisecond."""

from __future__ import annotations

import fcntl
import math
import os
import re
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
"""Share of a statement's memory limit that DuckDB gets, because DuckDB does not count all its memory."""

MACHINES_SHARE = 0.8
"""Share of the machine's memory that a statement may use without a limit, so that the kernel kills no other process."""

SPILL = 10
"""Maximum size of a statement's temporary data on disk by default, as a multiple of its memory limit."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one SQL statement.

    - `seconds`: the time until the last row of the answer is read; None for no limit.
    - `memory`: bytes, without the memory of an idle database; None for 80 % of the machine's memory.
    - `threads`: the number of threads; None for all processors.
    - `spill`: the number of bytes that may be written to disk when memory runs out; None for ten times the memory."""

    seconds: float | None = None
    memory: int | None = None
    threads: int | None = None
    spill: int | None = None


def confine(limits: Limits, lifeline: int) -> None:
    """Apply the time limits of a statement to this process, for ever. Let the kernel end this process when the parent
    ends: only the parent has the write end of the pipe `lifeline`. Ignore Ctrl-C, because the parent handles it.
    Redirect file descriptor 2 to /dev/null, because libraries write to it at exit; `sys.stderr` still works."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    ended, _, _ = select.select([lifeline], [], [], 0)
    if ended:  # the parent closed its end before the kernel began to watch the pipe
        os.kill(os.getpid(), signal.SIGKILL)
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
    """Limit the memory of this process, for ever, to its present memory and the memory of one statement."""
    machines = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    status = Path("/proc/self/status").read_text()
    # VmData is the size of the private writable memory, which RLIMIT_DATA limits.
    if (taken := re.search(r"^VmData:\s*(\d+) kB", status, re.MULTILINE)) is None:
        raise QueryError("/proc/self/status: does not report how much memory this process has")
    most = int(taken[1]) * 1024 + (limits.memory or int(machines * MACHINES_SHARE))
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextmanager
def memory_limit_named(limits: Limits) -> Iterator[None]:
    """Turn a MemoryError in the `with` block into a QueryError whose text names the limit."""
    try:
        yield
    except MemoryError:
        given = (
            "the machine has" if limits.memory is None else f"its limit of {Size(limits.memory)}"
        )
        raise QueryError(f"the statement was ended: it needs more memory than {given}") from None


def verdict(status: int, limits: Limits) -> str:
    """Return an error text that states why a signal ended a statement's process. `status` is its negative exit code."""
    number = -status
    if number in {signal.SIGALRM, signal.SIGXCPU} and limits.seconds is not None:
        limit = Duration(limits.seconds)
        return f"the statement was ended: it took longer than its limit of {limit}"
    if number == signal.SIGKILL:
        return "the statement's process was killed, perhaps by the kernel for want of memory"
    name = signal.Signals(number).name
    return f"the statement crashed the database ({name}), or needs more memory than it may take"


_CLEAR = "\r\x1b[K"


def go_apart(limits: Limits) -> str:
    """Fork, and run the rest of the command in the child. In the child, apply the time limits and return the path of a
    private directory. The parent does not return. It waits until the child ends (on Ctrl-C it kills the child), removes
    the directory, and exits with the child's exit code (SystemExit). If a signal ended the child, it raises
    QueryError."""
    room = make_room()
    sys.stdout.flush()
    sys.stderr.flush()
    lifeline, held = os.pipe()
    # Block Ctrl-C: os.fork ignores a KeyboardInterrupt that is raised in one of its callbacks, such as that of logging.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child == 0:
        os.close(held)
        confine(limits, lifeline)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return room
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(lifeline)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:  # Kill the child if this wait is interrupted, usually by Ctrl-C.
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
    """Create an empty private directory for temporary files, and return its path. Raise QueryError on failure."""
    try:
        return tempfile.mkdtemp(prefix=f"tailrace-{what}-")
    except OSError as error:
        raise QueryError(
            f"cannot make a temporary directory: {error}; set TMPDIR to a writable directory"
        ) from error


def _clear_notice() -> None:
    if sys.stderr.isatty():
        notice = unguarded(sys.stderr)
        notice.write(_CLEAR)
        notice.flush()
