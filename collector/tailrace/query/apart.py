"""Run the rest of a command in a process of its own, watched by the process that the user started.

The process is forked before a database is loaded. The fork costs a millisecond, and the child writes to the
same terminal, file or pipe, so that a slow reader holds it up and nothing is copied.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile

from tailrace.errors import QueryError
from tailrace.query.limits import Limits, confine, verdict
from tailrace.terminal import unguarded

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
    """Clear the line on which the child said that the statement takes time."""
    if sys.stderr.isatty():
        notice = unguarded(sys.stderr)
        notice.write(_CLEAR)
        notice.flush()
