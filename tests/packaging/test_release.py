"""The checklist of a release: its conditions hold where they can hold always, and see what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from hashlib import sha256

import pytest

from release import check, versions
from tests.packaging.installing import ROOT, copy_tree

SPACK = "deploy/spack/spack_repo/tailrace/packages/tailrace/package.py"


def test_every_file_states_the_version():
    assert [*check.all_files_state_one_version()] == []


def test_the_table_has_every_file_that_states_the_version():
    number = re.escape(versions.version())
    others = (
        "requirements",
        "share/man",
        "release",
        "docs",
        "clients/PROTOCOL.md",
        "collector/tailrace/decoding",
        "collector/tailrace/demo",
        "tests/vectors",
    )
    found = subprocess.run(
        ["git", "grep", "-lP", rf"(?<![\d.]){number}(?![\d.])", "--", ".", *(f":!{path}" for path in others)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    not_ours = {
        "clients/python/src/tailrace_client/_wire.py",
        "CHANGELOG.md",
    }  # Heph's version; history
    assert {*found} - not_ours <= {*versions.PLACES}


def test_one_command_writes_a_new_version_to_all_files(tmp_path):
    tree = copy_tree(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "release.versions", "7.8.9"],
        cwd=tree, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"7.8.9"}
    assert 'version("7.8.9"' in (tree / SPACK).read_text()
    assert "sh tailrace-7.8.9/install.sh" in (tree / "deploy/README.md").read_text()
    refused = subprocess.run(
        [sys.executable, "-m", "release.versions", "7.8"],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (refused.returncode, "'7.8' is not a version" in refused.stderr) == (1, True)


def test_cibuildwheel_builds_for_the_same_cpythons():
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    named = ["cp" + name.replace(".", "") + "-manylinux*" for name in versions.PYTHONS]
    assert configured["build"] == named
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in versions.PYTHONS:
        assert f"Programming Language :: Python :: {name}" in project["classifiers"]


@pytest.fixture
def dist(tmp_path, monkeypatch):
    """Return a directory with the names of a whole release, and the checksums of these empty files."""
    number = versions.version()
    names = [
        f"tailrace-{number}.tar.gz",
        f"tailrace_client-{number}.tar.gz",
        f"tailrace-{number}.cdx.json",
    ]
    names += [
        f"tailrace-{number}-py3-none-any.whl",
        f"tailrace_client-{number}-cp310-abi3-manylinux_2_28_x86_64.whl",
    ]
    for name in versions.PYTHONS:
        tag = "cp" + name.replace(".", "")
        names += [
            f"tailrace-{number}-{tag}-{tag}-manylinux_2_28_x86_64.whl",
            f"tailrace-{number}-offline-{tag}-linux_x86_64.tar",
        ]
    for name in names:
        (tmp_path / name).touch()
    empty = sha256(b"").hexdigest()
    (tmp_path / "SHA256SUMS").write_text("".join(f"{empty}  {name}\n" for name in sorted(names)))
    monkeypatch.setattr(check, "DIST", tmp_path)
    monkeypatch.setattr(check, "SUMS", tmp_path / "SHA256SUMS")
    return tmp_path


def test_a_whole_release_passes(dist):
    assert [*check.dist_has_every_file()] == [*check.checksums_are_those_of_the_files()] == []


def test_a_missing_a_changed_and_a_foreign_file_are_named(dist):
    number = versions.version()
    (dist / f"tailrace-{number}.tar.gz").write_text("changed")
    (dist / f"tailrace-{number}.cdx.json").unlink()
    (dist / "tailrace-9.9.9.tar.gz").touch()
    wrong = "\n".join(check.dist_has_every_file())
    assert "cdx" in wrong
    assert "dist/tailrace-9.9.9.tar.gz is no file of this version" in wrong
    sums = "\n".join(check.checksums_are_those_of_the_files())
    assert {*re.findall(r"dist/(\S+) (?:is missing|has another)", sums)} == {
        f"tailrace-{number}.tar.gz", f"tailrace-{number}.cdx.json", "tailrace-9.9.9.tar.gz",
    }  # fmt: skip


def test_a_directory_without_files_is_no_release(dist):
    for path in dist.iterdir():
        path.unlink()
    assert len([*check.dist_has_every_file()]) == sum(check.patterns().values())
    assert [*check.checksums_are_those_of_the_files()] == [
        "dist/SHA256SUMS is missing or empty: make dist"
    ]


def test_the_package_of_spack_must_name_the_archive_that_was_built(dist):
    (wrong,) = check.the_spack_package_names_its_archive()
    assert sha256(b"").hexdigest() in wrong
