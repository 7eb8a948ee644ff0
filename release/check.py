"""Check that this commit and the files in dist/ can be published: `make release-check`, after `make dist`.

Each line is one condition of the checklist, with what is wrong. The exit code is 1 if any does not hold. `--quick` leaves
out the two that take long: the tests of the files, and a second build from a fresh clone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from release.versions import HOME, PLACES, PYTHONS, ROOT, release_date, stated, version

DIST = ROOT / "dist"
SUMS = DIST / "SHA256SUMS"
MANY = r"manylinux[\w.]+_(x86_64|aarch64)"


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def the_tree_is_clean() -> Iterator[str]:
    yield from run("git", "status", "--porcelain").stdout.splitlines()


def all_files_state_one_version() -> Iterator[str]:
    for path in PLACES:
        if stated(path) != {version()}:
            found = ", ".join(sorted(stated(path))) or "nothing"
            yield f"{path} states {found}, and {HOME} {version()}: python -m release.versions {version()}"


def the_changelog_has_the_version_and_its_date() -> Iterator[str]:
    if release_date() is None:
        yield f"CHANGELOG.md has no line `## {version()}, YYYY-MM-DD`"


def the_projects_name_their_addresses() -> Iterator[str]:
    for path in ("pyproject.toml", "clients/python/pyproject.toml"):
        if "urls" not in tomllib.loads((ROOT / path).read_text())["project"]:
            yield f"{path} has no [project.urls]: add the addresses of the repository and the documentation"


def patterns() -> dict[str, bool]:
    """Return a pattern for the name of each file of a release, and whether a release must have one."""
    number = re.escape(version())
    found = {
        rf"tailrace-{number}\.tar\.gz": True,
        rf"tailrace-{number}-py3-none-any\.whl": True,
        rf"tailrace_client-{number}\.tar\.gz": True,
        rf"tailrace_client-{number}-cp310-abi3-{MANY}\.whl": True,
        rf"tailrace-{number}\.cdx\.json": True,
        "SHA256SUMS": True,
    }
    for name in PYTHONS:
        tag = f"cp{name.replace('.', '')}"
        found[rf"tailrace-{number}-{tag}-{tag}-{MANY}\.whl"] = True
        # cibuildwheel makes no archives; those that deploy/ names must be there.
        found[rf"tailrace-{number}-offline-{tag}-linux_(x86_64|aarch64)\.tar"] = name == PYTHONS[0]
    return found


def dist_has_every_file() -> Iterator[str]:
    names = [path.name for path in DIST.glob("*")]
    for pattern, needed in patterns().items():
        if needed and not any(re.fullmatch(pattern, name) for name in names):
            yield f"dist/ has no {pattern}: make dist, or cibuildwheel for a CPython that this machine lacks"
    for name in names:
        if not any(re.fullmatch(pattern, name) for pattern in patterns()):
            yield f"dist/{name} is no file of this version"


def sums() -> dict[str, str]:
    """Return the checksums that SHA256SUMS states, by name."""
    lines = SUMS.read_text().splitlines() if SUMS.exists() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def checksums_are_those_of_the_files() -> Iterator[str]:
    stated = sums()
    files = {path.name for path in DIST.glob("*") if path != SUMS}
    if not stated:
        yield "dist/SHA256SUMS is missing or empty: make dist"
    for name in sorted(files | stated.keys()):
        if name not in files:
            yield f"dist/{name} is missing, and dist/SHA256SUMS states its checksum"
        elif sha256((DIST / name).read_bytes()).hexdigest() != stated.get(name):
            yield f"dist/{name} has another checksum than dist/SHA256SUMS states, or none is stated"


def the_spack_package_names_its_archive() -> Iterator[str]:
    path = "deploy/spack/spack_repo/tailrace/packages/tailrace/package.py"
    archive = f"tailrace-{version()}-offline-cp311-linux_x86_64.tar"
    digest = sums().get(archive, "")
    if not digest or digest not in (ROOT / path).read_text():
        yield f"{path} does not have the checksum of {archive}: {digest or 'it is not in SHA256SUMS'}"


def the_files_install_and_work() -> Iterator[str]:
    os.environ["TAILRACE_DIST"] = str(DIST)
    tests = ("tests/packaging/test_dist.py", "tests/packaging/test_release.py")
    done = run(sys.executable, "-m", "pytest", "-q", "-rs", "--slow", *tests)
    if done.returncode:
        yield from done.stdout.splitlines()[-30:]


def a_fresh_clone_builds_the_same_bytes() -> Iterator[str]:
    names = [name for name in sums() if "-offline-cp3" in name]
    if not names:
        yield "dist/SHA256SUMS names no archive: make dist"
        return
    pythons = ",".join(re.sub(r".*-cp3(\d+)-.*", r"3.\1", name) for name in names)
    with tempfile.TemporaryDirectory() as directory:
        clone = Path(directory, "clone")
        run("git", "clone", "--quiet", ROOT, clone)
        done = run("make", "dist", f"PYTHONS={pythons}", cwd=clone)
        if done.returncode:
            yield from (done.stdout + done.stderr).splitlines()[-30:]
            return
        again = (clone / "dist/SHA256SUMS").read_text()
        for line in sorted({*again.splitlines()} - {*SUMS.read_text().splitlines()}):
            yield f"the clone built other bytes: {line}"


QUICK: tuple[Callable[[], Iterator[str]], ...] = (
    the_tree_is_clean,
    all_files_state_one_version,
    the_changelog_has_the_version_and_its_date,
    the_projects_name_their_addresses,
    dist_has_every_file,
    checksums_are_those_of_the_files,
    the_spack_package_names_its_archive,
)
LONG = (the_files_install_and_work, a_fresh_clone_builds_the_same_bytes)


def main() -> int:
    """Check all conditions, print each, and return the exit code."""
    failed = False
    for condition in QUICK if "--quick" in sys.argv else QUICK + LONG:
        print(f"{condition.__name__.replace('_', ' ')} … ", end="", flush=True)
        wrong = [*condition()]
        print("no" if wrong else "yes")
        for line in wrong:
            print(f"    {line}")
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
