"""Build and install distributions as a user would, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""The environment without variables by which a program would find this source tree."""

SAME_DATE = {"SOURCE_DATE_EPOCH": "1700000000"}


def has_compiler():
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which("cc") is not None and headers.exists()


def hasty_compiler(directory):
    """Return a C compiler that does not optimize, whatever its options are."""
    compiler = directory / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    return compiler


def copy_tree(to, part="."):
    """Return a copy of the files that git knows, or of a part of them, in which a build may leave files."""
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
    """Build a wheel with the call that pip makes.

    `test_dist.py` builds with pip itself, and other tests install from sources.
    """
    before = set(out.glob("*.whl"))
    done = _backend("wheel", project, out, environ)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def build_sdist(project, out):
    done = _backend("sdist", project, out, {})
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = out.glob("*.tar.gz")
    return archive


def _backend(what, project, out, environ):
    program = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        env=CLEAN | environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def unpack(archive, to):
    """Unpack an archive below a directory. Return the only directory in it."""
    with tarfile.open(archive) as opened:
        opened.extractall(to, filter="data")
    (project,) = to.iterdir()
    return project


def copy_client(to):
    """Return a copy of the Python client's project."""
    return copy_tree(to, "clients/python") / "clients/python"


class Environment:
    """A virtual environment with these distributions only; with `dependencies`, also with everything that this
    environment has.
    """

    def __init__(self, directory, *wheels, dependencies=False):
        venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
        self.bin = directory / "bin"
        self.python = self.bin / "python"
        (self.site,) = directory.glob("lib/python*/site-packages")
        if dependencies:
            # Directories named in this way are searched, but an editable install in them has no effect.
            ours = [path for path in sys.path if Path(path).name == "site-packages"]
            (self.site / "dependencies.pth").write_text("\n".join(ours))
        if wheels:
            self.install(*wheels)

    def install(self, *what, **environ):
        # Do not compile all modules to bytecode, because most are never imported here.
        options = ("--no-deps", "--no-index", "--no-compile")
        pip("--python", self.python, "install", *options, *what, **environ)

    def run(self, program, *arguments, **environ):
        """Run a program of the environment. Return its output."""
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
