"""Isolate Tailrace's processes from the user's Python modules and environment variables.

    python -I …/tailrace/interpreter.py MODULE [ARGUMENT]...

runs a module of this installation. Modules in the working directory, beside the script, in the user's site-packages or
in PYTHONPATH never replace modules of Tailrace or of the standard library. If one of these directories contains the
installation itself, for example after `pip install --user` or `--target`, it is searched last. All others are not
searched.

Commands call `isolate` first, and start other interpreters with `command`. The environment stays unchanged for the
user's programs.

This module imports only modules that every interpreter has loaded already or has built in. Any other import might load
a module of the user with the same name."""

from __future__ import annotations

import gc
import os
import sys

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib may be the user's
"""The directory from which this installation is imported, as an entry of the module search path."""

HARMLESS = frozenset({
    "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONMALLOC", "PYTHONNOUSERSITE",
    "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONUTF8",
})  # fmt: skip
"""Environment variables of the Python interpreter that change neither imports nor the behaviour of a command. A command
need not start a new interpreter because of them."""

THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable that limits the threads of numpy's linear algebra library.

Without it, the library starts a thread for each processor core but the first as soon as pyarrow imports numpy. Each
thread spins before it sleeps, which costs CPU time when a command starts (docs/decisions/speed.md, D171)."""
NO_THREADS = "01"
"""Value of the environment variable `THREADS` for one thread: numpy's library then uses only the thread that calls it.
The zero before the 1 shows that Tailrace has set the value, not the user."""
RUNTIME_THREADS = "TOKIO_WORKER_THREADS"
"""Environment variable for the number of threads in the Delta table's library. The library panics if the value is not a
positive number."""
COLLECTED_AT = (200_000, 50, 100)
"""Thresholds of Python's garbage collector (see `gc.set_threshold`).

A command loads up to 150,000 objects that are never freed, and the daemon creates many records, which form no
reference cycles. With the default thresholds, garbage collection takes a fifteenth of a start and a fifth of the
daemon's time, and datagrams are lost during its pauses."""
UMASK_OF_USER = os.umask(0o077)
"""The umask that this process had when it started. Programs of the user are started with it."""
# Set the umask back to the user's: Python can read it only by setting another one.
os.umask(UMASK_OF_USER)
OTHERS_WRITE = 0o002
"""Write permission of other users, with which they could replace the content of a file or directory. Files and
directories of Tailrace never have this permission, whatever the umask is."""
_removed: dict[str, str] = {}
"""Environment variables of the user that this process has removed from its environment, because they would break
libraries. The user's programs still get them."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this installation in a separate interpreter."""
    return [sys.executable, "-I", os.path.abspath(__file__), module, *arguments]  # noqa: PTH100 - as above


def isolate() -> None:
    """Limit the imports of this process to this installation and the standard library. Call this function before all
    other imports.

    If an environment variable changes the behaviour of the Python interpreter, replace this process by a new
    interpreter that ignores the variable."""
    if not sys.flags.isolated:
        if sys.executable and any(map(_obeyed, os.environ)):
            try:  # noqa: SIM105 - contextlib may be the user's
                os.execve(sys.executable, command("tailrace", *sys.argv[1:]), environment_of_user())  # noqa: S606 - ourselves
            except OSError:
                # Go on without a new interpreter, because the file of the interpreter was replaced or removed.
                pass
        if not sys.flags.safe_path:
            # Remove the directory of the script, or the working directory, from the search path.
            del sys.path[0]
        foreign = [] if sys.flags.ignore_environment else _python_path()
        site = sys.modules.get("site")
        if getattr(site, "ENABLE_USER_SITE", None) and getattr(site, "USER_SITE", None):
            foreign.append(site.USER_SITE)  # type: ignore[union-attr]  # it is there
        own = [entry for entry in sys.path if entry not in foreign]
        sys.path[:] = own if HOME in own else _behind_the_library(own, foreign)
    _settle()


def environment_of_user() -> dict[str, str]:
    """Return the environment that this process had when it started, for a program of the user."""
    environ = {n: value for n, value in os.environ.items() if (n, value) != (THREADS, NO_THREADS)}
    environ |= _removed
    if "LC_CTYPE" in environ and not _given("LC_CTYPE"):
        # Remove LC_CTYPE, because Python itself sets it if the locale is C.
        del environ["LC_CTYPE"]
    return environ


def _settle() -> None:
    """Set the umask, the garbage collector and the threads of this process. Remove an environment variable with which
    the Delta table's library would panic."""
    gc.set_threshold(*COLLECTED_AT)
    os.umask(UMASK_OF_USER | OTHERS_WRITE)
    os.environ.setdefault(THREADS, NO_THREADS)
    count = os.environ.get(RUNTIME_THREADS, "1")
    if not (count.isascii() and count.isdecimal() and int(count)):
        _removed[RUNTIME_THREADS] = os.environ.pop(RUNTIME_THREADS)


def _given(name: str) -> bool:
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - as above
            return f"\0{name}=".encode() in b"\0" + file.read()
    except OSError:
        return True


def _obeyed(name: str) -> bool:
    """Return whether an environment variable changes the behaviour of an interpreter that is started without `-I`."""
    if name == "PYTHONPATH":
        return bool({*_python_path()} - {HOME})
    # Ignore variables such as PYTHON_VERSION, which container images and build tools set and no interpreter reads.
    return name.startswith("PYTHON") and name[6:].isalpha() and name not in HARMLESS


def _python_path() -> list[str]:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(entry) for entry in entries if entry]  # noqa: PTH100 - as above


def _behind_the_library(path: list[str], more: list[str]) -> list[str]:
    """Return the module search path `path` with this installation and `more` after the standard library."""
    standard = os.path.dirname(os.__file__)  # noqa: PTH120 - as above
    ours = (standard, os.path.join(standard, "lib-dynload"))  # noqa: PTH118 - as above
    at = max((place + 1 for place, entry in enumerate(path) if entry in ours), default=0)
    return list(dict.fromkeys([*path[:at], HOME, *more, *path[at:]]))


def _run() -> None:
    """Run the module that the command line names. This process is an isolated interpreter."""
    from importlib.util import find_spec  # noqa: PLC0415 - commands need none of this
    from runpy import run_module  # noqa: PLC0415

    found = find_spec("tailrace")
    if found is None or found.origin != os.path.join(HOME, "tailrace", "__init__.py"):  # noqa: PTH118 - as above
        import site  # noqa: PLC0415

        before = [*sys.path]
        site.addsitedir(site.getusersitepackages())
        user = [entry for entry in sys.path if entry not in before]
        sys.path[:] = _behind_the_library(before, [*_python_path(), *user])
    _settle()
    # Import this module as `__main__`, which holds the umask and the user's variables as they were at the start
    sys.modules["tailrace.interpreter"] = sys.modules["__main__"]
    sys.argv[:] = sys.argv[1:]
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
