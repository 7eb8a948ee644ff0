"""`make dist`: what a release is made of is the same wherever it is built, and works where no compiler is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile

import pytest

import tailrace
from tests.packaging.installing import CLEAN, SAME_DATE, Environment, copy_tree, has_compiler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_compiler(),
        reason="no C compiler with Python's headers: apt install gcc python3-dev",
    ),
    pytest.mark.skipif(shutil.which("make") is None, reason="no make: apt install make"),
]


def make_dist(directory, umask):
    """Return the files that `make dist` makes in a copy of this tree, with this environment's tools."""
    tree = copy_tree(directory)
    tools = os.path.relpath(sys.prefix, tree)
    subprocess.run(
        ["make", "dist", f"VENV={tools}", "--assume-old", f"{tools}/ready"],
        cwd=tree,
        env=CLEAN | SAME_DATE | {"TAILRACE_KERNELS": "require"},
        umask=umask,
        timeout=1800,
        check=True,
        capture_output=True,
    )
    return {path.name: path for path in (tree / "dist").iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    return make_dist(tmp_path_factory.mktemp("tree"), 0o022)


@pytest.fixture
def without_compiler(tmp_path):
    """A PATH on which nothing is but the shell."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shutil.which("sh"))
    return {"PATH": str(tmp_path / "bin"), "TAILRACE_KERNELS": ""}


def of(dist, beginning, end):
    (path,) = (p for name, p in dist.items() if name.startswith(beginning) and name.endswith(end))
    return path


def run(environment, *arguments, **environ):
    return subprocess.run(
        [environment.bin / "tailrace", *arguments],
        env=CLEAN | environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_sources_and_two_wheels_are_made(dist):
    version = tailrace.__version__
    assert len(dist) == 4
    for project in ("tailrace-", "tailrace_client-"):
        of(dist, f"{project}{version}", ".tar.gz")
        of(dist, f"{project}{version}", ".whl")


def test_they_are_the_same_wherever_and_by_whomever_they_are_built(dist, tmp_path):
    again = make_dist(tmp_path / "somewhere else", 0o077)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in dist.items()
    }


def test_a_source_distribution_tells_nothing_of_the_machine(dist):
    for project in ("tailrace-", "tailrace_client-"):
        with tarfile.open(of(dist, project, ".tar.gz")) as archive:
            members = archive.getmembers()
        told = {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members}
        assert told == {(0, 0, "", "", int(SAME_DATE["SOURCE_DATE_EPOCH"]))}
        assert {m.mode for m in members} <= {0o644, 0o755}


def test_wheels_work_where_no_compiler_is(dist, tmp_path, without_compiler):
    wheels = [of(dist, project, ".whl") for project in ("tailrace-", "tailrace_client-")]
    environment = Environment(tmp_path / "environment", dependencies=True)
    environment.install(*wheels, **without_compiler)
    said = run(environment, "--version", **without_compiler).stdout
    assert said.endswith(", kernels: compiled\n")
    shown = run(environment, "demo", "--json", "--store", tmp_path / "store", **without_compiler)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert '"good":true' in shown.stdout.replace(" ", "")


def test_sources_work_where_no_compiler_is_and_say_that_kernels_lack(
    dist, tmp_path, without_compiler
):
    sources = [of(dist, project, ".tar.gz") for project in ("tailrace-", "tailrace_client-")]
    environment = Environment(tmp_path / "environment", dependencies=True)
    environment.install("--no-build-isolation", *sources, **without_compiler)
    said = run(environment, "--version", **without_compiler).stdout
    assert said.endswith(", kernels: python\n")
    refused = run(environment, "--version", **without_compiler | {"TAILRACE_KERNELS": "require"})
    assert refused.returncode == 2
    assert "TAILRACE_KERNELS=require: not built for this Python" in refused.stderr
    shown = run(environment, "demo", "--json", "--store", tmp_path / "store", **without_compiler)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert '"good":true' in shown.stdout.replace(" ", "")
