"""Wait for a process on behalf of others: hand signals on to it, and reap orphans, as process 1 of a container must.

The kernel gives the orphans of a PID namespace to its process 1, and keeps each one that ends as a zombie until process 1
waits for it. It also ignores signals that process 1 has no handler for. So process 1 does this and nothing else, and the
command runs as its child, where subprocesses can be waited for as usual.
"""

from __future__ import annotations

import os
import signal

HANDED_ON = signal.valid_signals() - {
    signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
}  # fmt: skip
"""All signals but those that concern only the process that receives them, or that no process can handle."""

ADDRESSED = ("LISTEN_PID", "WATCHDOG_PID")
"""Variables in which a service manager names the process that they are for."""


def leave_process_1() -> None:
    """Return at once unless this is process 1. Process 1 forks: the child returns, and process 1 waits for it and
    ends with its status.

    Call this before there are threads."""
    if os.getpid() != 1:
        return
    try:
        child = fork()
    except OSError:
        return  # no second process can be had: the command runs, and orphans stay
    if child:
        os._exit(attend(child))
    for name in ADDRESSED:
        if os.environ.get(name) == "1":
            os.environ[name] = str(os.getpid())


def fork() -> int:
    """Fork. Return 0 in the child, and its pid in the parent, where signals wait for `attend` from now on."""
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
    """Return the exit status of a forked child as a shell does, 128 + N after signal N, once it has ended."""
    status = None
    while status is None:
        received = signal.sigwaitinfo(HANDED_ON | {signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            status = _reaped(child)
        elif received.si_code <= 0:  # the kernel sends a terminal's signals to the child itself
            os.kill(child, received.si_signo)
    return status if status >= 0 else 128 - status


def _reaped(child: int) -> int | None:
    """Reap all processes that have ended. Return the child's exit code, if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)
