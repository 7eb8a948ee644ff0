"""Keep the interpreter of Tailrace's processes apart from the user's modules and variables.

    python -I …/tailrace/interpreter.py MODULE [ARGUMENT]...

runs a module of this installation. A module that lies in the working directory, beside the script, in the user's own
site-packages or in PYTHONPATH is not imported in place of ours or of the standard library's. These places count only
where the installation itself is in one of them, as after `pip install --user` or `--target`: then they come last.

Commands begin with `isolate`; what they start begins with `command`. The environment stays as the user gave it, for a
program of the user. This module imports nothing but what every interpreter has loaded, since anything else may be the user's.
"""

from __future__ import annotations

import os
import sys

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib may be the user's
"""The directory from which this installation is imported."""

HARMLESS = frozenset({
    "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONMALLOC", "PYTHONNOUSERSITE",
    "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONUTF8",
})  # fmt: skip
"""Variables of an interpreter that change neither what a command imports nor what it does."""

THREADS = "OPENBLAS_NUM_THREADS"
"""pyarrow imports numpy, whose library for linear algebra starts a thread for each further core. Each of them spins
before it sleeps, which takes CPU while a command starts (docs/decisions/speed.md, D171)."""
NO_THREADS = "01"
"""The number 1: no thread but the caller's. The leading zero shows that Tailrace has set it, not the user."""
RUNTIME_THREADS = "TOKIO_WORKER_THREADS"
"""The library of the table panics where this variable is no positive number."""
UMASK_OF_USER = os.umask(0o077)
"""The umask with which this process was started, for a program of the user."""
os.umask(UMASK_OF_USER)  # a umask is read only by setting another one
OTHERS_WRITE = 0o002
"""The right that no file or directory of ours gives to all users, whatever the umask: they could replace what is in it."""
_removed: dict[str, str] = {}
"""Variables of the user that a library of ours must not see."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this installation in an interpreter of its own."""
    return [sys.executable, "-I", os.path.abspath(__file__), module, *arguments]  # noqa: PTH100 - as above


def isolate() -> None:
    """Make this process, which a user started, import from this installation and the standard library only.

    If a variable is set that changes what an interpreter does, replace this process by a new interpreter. Call this
    before all other imports."""
    if not sys.flags.isolated:
        if sys.executable and any(map(_obeyed, os.environ)):
            try:  # noqa: SIM105 - contextlib may be the user's
                os.execve(sys.executable, command("tailrace", *sys.argv[1:]), environment_of_user())  # noqa: S606 - ourselves
            except OSError:
                pass  # it has been replaced or removed; this one still runs
        if not sys.flags.safe_path:
            del sys.path[0]  # the directory of the script, or the working directory
        foreign = _foreign()
        own = [entry for entry in sys.path if entry not in foreign]
        sys.path[:] = own if HOME in own else _behind_the_library(own, foreign)
    _settle()


def environment_of_user() -> dict[str, str]:
    """Return the environment as the user gave it to this process, for a program of the user."""
    environ = {n: value for n, value in os.environ.items() if (n, value) != (THREADS, NO_THREADS)}
    environ |= _removed
    if "LC_CTYPE" in environ and not _given("LC_CTYPE"):
        del environ["LC_CTYPE"]  # Python sets it where the locale is C
    return environ


def _settle() -> None:
    """Protect this process from the user's umask, and from variables that would harm its libraries."""
    os.umask(UMASK_OF_USER | OTHERS_WRITE)
    _limit_threads()


def _limit_threads() -> None:
    """Allow this process and its children no threads for linear algebra, unless the user has chosen a number. If the
    user's number of threads for the table's library is unusable, remove it."""
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
    """Return whether this variable changes what an interpreter without `-I` does."""
    if name == "PYTHONPATH":
        return bool({*_python_path()} - {HOME})
    # Images and build tools have PYTHON_VERSION and the like, which no interpreter reads.
    return name.startswith("PYTHON") and name[6:].isalpha() and name not in HARMLESS


def _python_path() -> list[str]:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(entry) for entry in entries if entry]  # noqa: PTH100 - as above


def _foreign() -> list[str]:
    """Return the entries of `sys.path` that are the user's."""
    foreign = [] if sys.flags.ignore_environment else _python_path()
    site = sys.modules.get("site")
    if getattr(site, "ENABLE_USER_SITE", None) and getattr(site, "USER_SITE", None):
        foreign.append(site.USER_SITE)  # type: ignore[union-attr]  # it is there
    return foreign


def _behind_the_library(path: list[str], more: list[str]) -> list[str]:
    """Return the entries with this installation and `more` before all but the standard library."""
    standard = os.path.dirname(os.__file__)  # noqa: PTH120 - as above
    ours = (standard, os.path.join(standard, "lib-dynload"))  # noqa: PTH118 - as above
    at = max((place + 1 for place, entry in enumerate(path) if entry in ours), default=0)
    return list(dict.fromkeys([*path[:at], HOME, *more, *path[at:]]))


def _run() -> None:
    """Run the module that the command line names, in an isolated interpreter."""
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
    sys.modules["tailrace.interpreter"] = sys.modules[
        "__main__"
    ]  # which knows the user's umask and variables
    sys.argv[:] = sys.argv[1:]
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
