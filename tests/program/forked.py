"""Define processes that the server forks: like `subprocess.Popen`, but they begin in a program that is imported
already.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
ROOT = Path(__file__).parents[2]


class Server:
    """A process that forks the program on demand."""

    def __init__(self):
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.program.server", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def fork(self, request, descriptors):
        """Return the pid of a new child of this process, which has these descriptors.

        The server forks twice and ends the process in between. This process is the reaper of orphans meanwhile, so the
        server's grandchild becomes its child.
        """
        _reap_orphans(1)
        try:
            socket.send_fds(self._ours, [json.dumps(request).encode()], descriptors)
            answer = json.loads(self._ours.recv(65536) or b'{"error": "the server has ended"}')
        finally:
            _reap_orphans(0)
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["pid"]

    def end(self):
        self._ours.close()
        self._process.wait(timeout=60)


@cache
def server():
    """Return the server of this process. It ends together with this process."""
    started = Server()
    atexit.register(started.end)
    return started


def _reap_orphans(whether):
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, whether, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Forked(subprocess.Popen):
    """The command `[sys.executable, "-m", "tailrace", …]`, forked by the server.

    `handed` are descriptors that it has as 3, 4, …. As with a service manager, variables contain its pid and state that
    the descriptors are for it.
    """

    def __init__(self, command, *, handed=None, **options):
        self._handed = handed
        super().__init__(command, **options)

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
        shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid,
        umask, start_new_session, process_group=-1,
    ):  # fmt: skip
        """Let the server fork the process.

        This method of `subprocess` is not public; `test_program.py` fails when it changes.
        """
        standard = [
            given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))
        ]
        more, numbers, pid_in = pass_fds, pass_fds, ()
        if self._handed is not None:
            more, numbers = self._handed, range(3, 3 + len(self._handed))
            pid_in = ("LISTEN_PID", "WATCHDOG_PID")
        try:
            self.pid = server().fork(
                {
                    "arguments": [os.fsdecode(argument) for argument in args[3:]],
                    "environ": _text(os.environ if env is None else env),
                    "directory": os.fsdecode(Path.cwd() if cwd is None else Path(cwd).absolute()),
                    "session": bool(start_new_session),
                    "pid_in": pid_in,
                    "numbers": [0, 1, 2, *numbers],
                },
                [*standard, *more],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _text(environ):
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
