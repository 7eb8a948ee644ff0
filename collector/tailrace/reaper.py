"""Let a parent process forward signals to its child and reap orphans, as process 1 of a container must.

The kernel makes process 1 the parent of all orphans in a PID namespace, and ignores signals for which process 1 has no
handler. Therefore process 1 does nothing else, and the command runs as its child."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

HANDED_ON = signal.valid_signals() - {
    signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
}  # fmt: skip
"""The signals that process 1 forwards to its child: all that can be handled, except those about the receiving process
itself, such as SIGCHLD and SIGSEGV."""

ADDRESSED = ("LISTEN_PID", "WATCHDOG_PID")
"""Environment variables in which the service manager states the pid of the process that it has started."""


def leave_process_1() -> None:
    """Fork if this process is process 1: the child returns; process 1 waits for it and exits with its status. In any
    other process, return at once. Call this function before threads are started."""
    if os.getpid() != 1:
        return
    try:
        child = fork()
    except OSError:
        # Go on in this process if no second one can be created, although nobody reaps orphans then.
        return
    if child:
        os._exit(attend(child))
    for name in ADDRESSED:
        if os.environ.get(name) == "1":
            os.environ[name] = str(os.getpid())


def fork() -> int:
    """Fork the process as `os.fork` does. Signals to the parent stay pending until `attend` forwards them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON | {signal.SIGCHLD})
    try:
        child = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def attend(child: int) -> int:
    """Wait for a forked child, and forward signals to it. Return its exit status as a shell does: 128 + N if signal N
    ended it."""
    status = None
    while status is None:
        received = signal.sigwaitinfo(HANDED_ON | {signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            status = _reaped(child)
        # Forward only signals from other processes, because the kernel itself sends a terminal's signals to the child,
        # too.
        elif received.si_code <= 0:
            os.kill(child, received.si_signo)
    return status if status >= 0 else 128 - status


def _reaped(child: int) -> int | None:
    """Reap all ended children. Return the exit status of `child`, or None if it still runs."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = os.waitstatus_to_exitcode(ended[1])
    return found
