"""Distributions built and installed as a user would, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""The environment without what would let a program find this tree."""

SAME_DATE = {"SOURCE_DATE_EPOCH": "1700000000"}


def has_compiler():
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which("cc") is not None and headers.exists()


def hasty_compiler(directory):
    """A C compiler that does not optimize, whatever it is told."""
    compiler = directory / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    return compiler


def copy_tree(to, part="."):
    """A copy of what git knows, or of a part of it, in which a build may litter."""
    command = ["git", "ls-files", "-z", "--", part]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in names.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def pip(*arguments, **environ):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, env=CLEAN | environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(project, out, **environ):
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    before = set(out.glob("*.whl"))
    pip("wheel", *options, "--wheel-dir", out, project, **environ)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def build_sdist(project, out):
    program = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        env=CLEAN,
        capture_output=True,
        timeout=300,
        check=True,
    )
    (archive,) = out.glob("*.tar.gz")
    return archive


def copy_client(to):
    """A copy of the Python client's project."""
    return copy_tree(to, "clients/python") / "clients/python"


class Environment:
    """An environment with these distributions and nothing else; with `dependencies`, also with all
    that this one has."""

    def __init__(self, directory, *wheels, dependencies=False):
        venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
        self.bin = directory / "bin"
        self.python = self.bin / "python"
        (self.site,) = directory.glob("lib/python*/site-packages")
        if dependencies:
            # Directories named so are searched, but an editable install in them has no effect.
            ours = [path for path in sys.path if Path(path).name == "site-packages"]
            (self.site / "dependencies.pth").write_text("\n".join(ours))
        if wheels:
            self.install(*wheels)

    def install(self, *what, **environ):
        pip("--python", self.python, "install", "--no-deps", "--no-index", *what, **environ)

    def run(self, program, *arguments, **environ):
        """What it prints."""
        done = subprocess.run(
            [self.python, "-c", program, *map(str, arguments)],
            env=CLEAN | environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
