"""Import the program once, and fork it on demand.

    python -m tests.program.server NUMBER

Each packet on the socket with this number is a request (see `forked.py`), whose descriptors come with it.
The answer is the pid. The server ends when nobody holds the other end.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from coverage import Coverage

import tailrace.cli
from tailrace.config.keys import SECTIONS, SOURCES, keys

WITHOUT = ("tailrace.reading", "tailrace.query.follow", "tailrace.__main__")
"""Modules that import pyarrow, which starts threads that do not exist after a fork."""
DESCRIPTORS = 64


def main():
    server = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prepare()
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 2**20, DESCRIPTORS)
        if not data:
            os._exit(0)  # Skip the exit of the interpreter, as below
        request = json.loads(data)
        try:
            pid = _fork()
        except OSError as error:
            server.send(json.dumps({"error": str(error)}).encode())
        else:
            if not pid:
                server.close()
                return request, descriptors
            server.send(json.dumps({"pid": pid}).encode())
        for number in descriptors:
            os.close(number)


def _prepare():
    """Import everything that commands import, and exempt it from the collection of garbage."""
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if not module.name.startswith(WITHOUT):
            importlib.import_module(module.name)
    importlib.import_module("rich.console")
    for section in (*SECTIONS.values(), *SOURCES.values()):
        keys(section)  # This reads the fields once, before the fork.
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    names = threads - {"jemalloc_bg_thd", Path("/proc/self/comm").read_text().strip()}
    assert not names, f"threads that do not survive a fork: {names}"
    if measuring := Coverage.current():
        # Save the lines that the import has reached. Otherwise each child would write them again.
        measuring.save()
    gc.collect()
    gc.freeze()


def _fork():
    """Return 0 in a new process whose parent has ended, and its pid in this process."""
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        between = os.getpid()
        child = os.fork()
        if not child:
            os.close(reading)
            os.close(writing)
            # Wait until the parent has changed, so that the program does not see the change.
            while os.getppid() == between:
                os.sched_yield()
            return 0
        os.write(writing, str(child).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    pid = os.read(reading, 32)
    os.close(reading)
    if not pid:
        raise OSError("the process between could not fork")
    return int(pid)


def become(request, descriptors):
    """Become the requested program."""
    if request["session"]:
        os.setsid()
    _place(descriptors, request["numbers"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.environ.update(dict.fromkeys(request["pid_in"], str(os.getpid())))
    os.chdir(request["directory"])
    _open_standard_streams()
    sys.argv = ["tailrace", *request["arguments"]]
    sys.path[0] = request["directory"]
    status = 1
    try:
        runpy.run_module("tailrace", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = _status(end)
    except BaseException:  # noqa: BLE001 - whatever an interpreter prints at its end
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Skip the exit of the interpreter: taking all modules apart costs more than most commands.
    os._exit(status)


def _status(end):
    if isinstance(end.code, int | None):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def _open_standard_streams():
    """Open the standard streams as a new interpreter does, with the encodings of this one."""
    encoding = os.environ.get("PYTHONIOENCODING") or sys.stdout.encoding
    how = {"encoding": encoding, "closefd": False}
    sys.stdin = open(0, errors=sys.stdin.errors, **how)  # noqa: SIM115
    sys.stdout = open(1, "w", errors=sys.stdout.errors, **how)  # noqa: SIM115
    sys.stderr = open(2, "w", errors=sys.stderr.errors, **how)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    sys.stderr.reconfigure(line_buffering=True)


def _place(descriptors, numbers):
    """Give descriptors these numbers, and close all others."""
    beyond = max([*descriptors, *numbers]) + 1
    for number, descriptor in enumerate(descriptors, beyond):
        os.dup2(descriptor, number)
    os.closerange(0, beyond)
    for wanted, number in zip(numbers, range(beyond, beyond + len(numbers)), strict=True):
        os.dup2(number, wanted)
        os.close(number)
    os.closerange(max(numbers) + 1, beyond + len(numbers))


if __name__ == "__main__":
    become(*main())
