"""Build the C and C++ programs of the tests, once a session, with the compilers that are installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLIENT = HERE.parent.parent / "clients" / "c"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
PACKAGES = {"gcc": "gcc", "g++": "g++", "clang": "clang", "clang++": "clang", "cmake": "cmake"}
STANDARDS = {"gcc": "c99", "clang": "c99", "g++": "c++17", "clang++": "c++17"}

WRAPPED = {
    "hostile": "-Wl,--wrap=sched_yield,--wrap=pthread_key_create,--wrap=gethostname,--wrap=free",
    "ending": "-Wl,--wrap=shutdown",
}
"""System calls of the client that these programs replace by their own functions."""


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tailrace-c-")


def need(command: str) -> None:
    """Skip the test if `command` is not installed."""
    if not shutil.which(command):
        pytest.skip(f"no {command}: apt install {PACKAGES[command]}")


@functools.cache
def build(
    source: Path, *flags: str, compiler: str = "gcc", libraries: tuple[str, ...] = ()
) -> Path:
    """Return the program (or, with -shared, the library) that is built from one file.

    Optimizing more takes twice as long; `test_builds.py` does it.
    """
    need(compiler)
    made = Path(tempfile.mkdtemp(dir=_directory().name)) / source.stem
    language = ["-x", "c++"] if compiler.endswith("++") else []
    standard = [] if any(f.startswith("-std") for f in flags) else [f"-std={STANDARDS[compiler]}"]
    done = subprocess.run(
        [
            compiler, *standard, *WARNINGS, "-O1", "-pthread", f"-I{CLIENT}",
            *flags, *language, source, "-o", made, *libraries,
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


class Program:
    """A program that reads commands from its standard input."""

    def __init__(self, path: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_without_address() | environ,
        )
        self._watchdog = threading.Timer(60, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def tell(self, *lines: str) -> None:
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        """Return the program's answer to a command."""
        self.tell(line)
        return self.process.stdout.readline().rstrip("\n")

    def end(self, *lines: str, code: int = 0) -> list[str]:
        """Give the program the last commands. Return what it still printed."""
        said, complained = self.process.communicate("".join(f"{line}\n" for line in lines))
        self._watchdog.cancel()
        assert self.process.returncode == code, complained
        assert not complained, complained
        return said.splitlines()

    def close(self) -> None:
        """End the program, whatever it is doing."""
        self._watchdog.cancel()
        self.process.kill()
        if not self.process.stdin.closed:
            self.process.communicate()


def play(path: Path, *lines: str, code: int = 0, **environ: str) -> list[str]:
    """Run a whole script of commands."""
    return Program(path, **environ).end(*lines, code=code)


def _without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TAILRACE_ADDRESS"}
