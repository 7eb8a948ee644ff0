"""The program `tailrace` for tests, as a process of its own.

    run([*COMMAND, "query", "--store", store, statement], text=True)
    start([*COMMAND, "serve", "--config", config])

take the options of `subprocess.run` and `subprocess.Popen`. A command that begins with `COMMAND` is forked
from a process that has imported the program already (`server.py`), which saves 0.4 s of CPU each time. It
is a child of the test like any other, with its own pid. `executable=True` starts the true executable. So do
the long forms of the tests (`--slow`), and options and variables that only a new interpreter can obey.

Let the true executable run where a test asks for memory, for the environment of a new interpreter, or for
what the program imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tailrace
from tailrace.kernels import VARIABLE
from tests.program.forked import Forked

COMMAND = [sys.executable, "-m", "tailrace"]
TRUE = "TESTS_START_TRUE_EXECUTABLES"
"""Environment variable with which all tests start real executables. `--slow` sets it."""

NOWHERE = "http://127.0.0.1:9"
PROXIES = {f"{kind}_proxy": NOWHERE for kind in ("http", "https", "all")}
PROXIES |= {name.upper(): value for name, value in PROXIES.items()}
"""Environment variables with which Docker and sites name a proxy for the outside world.

Here they name one that answers nobody.
"""

_OWN = {"preexec_fn", "shell", "user", "group", "extra_groups", "umask", "process_group"}
"""Options of a command that the server does not support."""
_INTERPRETER = ("COVERAGE", "LANG", "LC_", "LD_", "MALLOC_", "PYTHON", "TAILRACE_KERNELS")
"""Beginnings of the names of variables that only a new interpreter, or a new import of the program, obeys."""

_AS_SYSTEMD_HANDS_THEM = """
import fcntl, os, sys
given = [int(number) for number in os.environ.pop("HANDED").split()]
apart = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in given]
for fd in given:
    os.close(fd)
for number, fd in enumerate(apart, 3):
    os.dup2(fd, number)
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""


def environment():
    """Return the environment without settings of Tailrace.

    The choice of kernels is kept: tests without kernels start commands without kernels, and a command with other
    kernels than this process cannot be forked.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.startswith("TAILRACE_")
    }


def start(command, *, executable=False, handed=None, **options):
    """Start a command. Return its Popen. `handed` are descriptors that a service manager passes to it."""
    if not executable and command[:3] == COMMAND and _can_be_forked(options):
        return Forked(command, handed=handed, **options)
    if handed is not None:
        options["env"] = {
            **(options.get("env") or os.environ),
            "HANDED": " ".join(map(str, handed)),
        }
        options["pass_fds"] = handed
        command = [sys.executable, "-c", _AS_SYSTEMD_HANDS_THEM, *command]
    return subprocess.Popen(command, **options)


def run(command, *, input=None, capture_output=False, timeout=None, check=False, **options):  # noqa: A002 - as subprocess.run
    """Run a command to its end. Return its CompletedProcess."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with start(command, **options) as process:
        try:
            said, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, said, errors)
    if check:
        done.check_returncode()
    return done


def _can_be_forked(options):
    if TRUE in os.environ or any(options.get(name) is not None for name in _OWN):
        return False
    environ = options.get("env")
    if environ is None:
        environ = os.environ
    return _imports_the_same(environ.get("PYTHONPATH", "")) and all(
        environ.get(name) == os.environ.get(name)
        for name in environ.keys() | os.environ.keys()
        if name.startswith(_INTERPRETER) and name not in {"PYTHONIOENCODING", "PYTHONPATH"}
    )


def _imports_the_same(path):
    """Return whether this PYTHONPATH names only directories from which tests import, too."""
    return {*path.split(os.pathsep)} <= {"", *sys.path, str(Path(tailrace.__path__[0]).parent)}
