"""`make dist`: a release is the same wherever it is built, and its files need nothing but themselves.

TAILRACE_DIST names a directory with built files. Without it, the tests build for the CPython that runs them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import tailrace
from tests.packaging.installing import (
    CLEAN,
    ROOT,
    SAME_DATE,
    copy_tree,
    has_compiler,
    hasty_compiler,
    unpack,
)

TOOLS = Path(sys.prefix, "release")
GIVEN = os.environ.get("TAILRACE_DIST")
OURS = "{}.{}".format(*sys.version_info[:2])
ISOLATED = (shutil.which("unshare"), "--map-root-user", "--net")
"""The command in front of another one, which then has no network."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_compiler(),
        reason="no C compiler with Python's headers: apt install gcc python3-dev",
    ),
    pytest.mark.skipif(shutil.which("make") is None, reason="no make: apt install make"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: apt install util-linux"),
    pytest.mark.skipif(not (TOOLS / "ready").exists(), reason="no tools that build a release: make release"),
]  # fmt: skip


def make_dist(directory, umask):
    """Return the files that `make dist` makes in a copy of this tree, with this environment's tools.

    The compiler does not optimize, because this takes most of the time and optimized code runs in all other tests.
    """
    tree = copy_tree(directory)
    compiler = {"CC": str(hasty_compiler(directory.parent))}
    tools = os.path.relpath(sys.prefix, tree)
    done = subprocess.run(
        ["make", "dist", f"VENV={tools}", f"PYTHONS={OURS}", "--assume-old", f"{tools}/release/ready"],
        cwd=tree, env=CLEAN | SAME_DATE | compiler, umask=umask, timeout=1800, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return tree / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    return Path(GIVEN) if GIVEN else make_dist(tmp_path_factory.mktemp("tree"), 0o022)


@pytest.fixture(scope="module")
def archives(dist, tmp_path_factory):
    """Return the unpacked offline archives, by version of CPython."""
    return {
        "3." + path.name.partition("-cp3")[2].partition("-")[0]: unpack(path, tmp_path_factory.mktemp("offline"))
        for path in dist.glob("*-offline-*.tar")
    }  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a home directory whose PATH has a shell, few tools and CPythons, but no compiler."""
    home = tmp_path_factory.mktemp("home")
    (home / "path").mkdir()
    tools = {name: shutil.which(name) for name in ("sh", "dirname", "ln", "mkdir")}
    for name, place in (tools | interpreters()).items():
        (home / "path" / name).symlink_to(place)
    return home


def interpreters():
    """Return the CPythons that `make dist` would build for here, by the name of their command."""
    program = "import json; from release import dist; print(json.dumps({n: str(p) for n, p in dist.interpreters(list(dist.PYTHONS)).items()}))"
    done = subprocess.run(
        [TOOLS / "bin/python", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {f"python{name}": path for name, path in json.loads(done.stdout).items()}
    return found | {f"python{OURS}": Path(sysconfig.get_config_var("BINDIR"), f"python{OURS}")}


def run(home, *command, isolated=True, **environ):
    """Run a command with nothing but this home, and, if it is isolated, without a network."""
    done = subprocess.run(
        [*(ISOLATED if isolated else ()), *map(str, command)],
        env={"HOME": str(home), "PATH": str(home / "path"), "LC_ALL": "C.UTF-8"} | environ,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_it_works(home, program, kernels, store):
    """Check that an installed program names the losses that its demo injects."""
    assert (
        run(home, program, "--version") == f"tailrace {tailrace.__version__}, kernels: {kernels}\n"
    )
    shown = run(home, program, "demo", "--json", "--store", store, isolated=False)
    assert '"good":true' in shown.replace(" ", "")


def venv(home, python, directory):
    run(home, f"python{python}", "-m", "venv", directory)
    return directory / "bin"


def install(home, environment, *what):
    options = ("--isolated", "--disable-pip-version-check", "--no-index", "--no-compile")
    run(home, environment / "python", "-m", "pip", "install", *options, *what)


def only(directory, pattern):
    (path,) = directory.glob(pattern)
    return path


def test_checksums_are_those_of_the_files(dist):
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    listed = {line.split("  ")[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert listed | {"SHA256SUMS"} == {path.name for path in dist.iterdir()}


@pytest.mark.skipif(GIVEN is not None, reason="the files were built elsewhere")
def test_they_are_the_same_wherever_and_by_whomever_they_are_built(dist, tmp_path):
    again = make_dist(tmp_path / "somewhere else", 0o077)
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_no_archive_tells_anything_of_the_machine(dist):
    for path in dist.glob("*.tar*"):
        with tarfile.open(path) as archive:
            members = archive.getmembers()
        assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
        assert len({m.mtime for m in members}) == 1
        assert {m.mode for m in members} <= {0o644, 0o755}
        assert [m.name for m in members] == sorted(m.name for m in members)


def test_compiled_wheels_are_tagged_manylinux(dist):
    compiled = [path.name for path in dist.glob("*-cp3*.whl")]
    assert len(compiled) >= 2
    assert all("-manylinux" in name for name in compiled)


def test_metadata_names_licences_and_maintainers(dist):
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            metadata = opened.read(
                next(n for n in names if n.endswith(".dist-info/METADATA"))
            ).decode()
        assert "License-Expression: Apache-2.0\n" in metadata
        assert "Maintainer: The Tailrace maintainers\n" in metadata
        assert "Classifier: Operating System :: POSIX :: Linux\n" in metadata
        assert any("/licenses/" in name and name.endswith("LICENSE") for name in names)


def test_the_archive_installs_for_one_person(archives, home, tmp_path):
    for python, archive in archives.items():
        run(home, "sh", archive / "install.sh")
        check_it_works(home, home / ".local/bin/tailrace", "compiled", tmp_path / python)
        installed = home / f".local/share/tailrace-{tailrace.__version__}"
        assert (installed / "share/man/man1/tailrace-serve.1").exists()
        shutil.rmtree(home / ".local")


def test_the_archive_refuses_another_python(archives, home):
    archive, *_ = archives.values()
    with pytest.raises(
        AssertionError, match=r"install\.sh: /bin/false is not a CPython 3\.\d+ that runs"
    ):
        run(home, "sh", archive / "install.sh", home / "never", PYTHON="/bin/false")
    assert not (home / "never").exists()


def test_uv_installs_the_wheels_as_a_tool(archives, home, tmp_path):
    for python, archive in archives.items():
        places = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_TOOL_DIR": str(tmp_path / "tools")}
        options = (
            "--offline",
            "--no-index",
            "--no-config",
            "--force",
            "--find-links",
            archive / "wheels",
        )
        run(
            home,
            TOOLS / "bin/uv",
            "tool",
            "install",
            *options,
            "--python",
            f"python{python}",
            "tailrace",
            **places,
        )
        check_it_works(home, home / ".local/bin/tailrace", "compiled", tmp_path / python)


def test_the_wheel_without_kernels_says_so(dist, archives, home, tmp_path):
    for python, archive in archives.items():
        environment = venv(home, python, tmp_path / python)
        install(
            home,
            environment,
            "--find-links",
            archive / "wheels",
            only(dist, "tailrace-*-none-any.whl"),
        )
        check_it_works(home, environment / "tailrace", "python", tmp_path / f"store-{python}")
        with pytest.raises(
            AssertionError, match="TAILRACE_KERNELS=require: not built for this Python"
        ):
            run(home, environment / "tailrace", "--version", TAILRACE_KERNELS="require")


def test_sources_install_without_a_compiler(dist, archives, home, tmp_path):
    """The build tools are in the environment already, for they are not among a release's files."""
    python = OURS if OURS in archives else next(iter(archives))
    environment = venv(home, python, tmp_path / "environment")
    site = only(tmp_path / "environment", "lib/python*/site-packages")
    tools = only(TOOLS / f"cp{python.replace('.', '')}", "lib/python*/site-packages")
    # In front of the old setuptools that `venv` installs under CPython 3.11.
    (site / "tools.pth").write_text(f"import sys; sys.path.insert(0, {str(tools)!r})\n")
    options = ("--no-build-isolation", "--find-links", archives[python] / "wheels")
    install(home, environment, *options, *dist.glob("*.tar.gz"))
    check_it_works(home, environment / "tailrace", "python", tmp_path / "store")
    assert (
        run(home, environment / "python", "-c", "import tailrace_client as t; print(t.compiled)")
        == "False\n"
    )


def test_the_bill_of_materials_lists_what_is_installed(dist, archives):
    bill = json.loads(only(dist, "*.cdx.json").read_text())
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("tailrace", tailrace.__version__)
    listed = {
        (each["name"].lower().replace("-", "_"), each["version"]) for each in bill["components"]
    }
    wheels = {
        tuple(path.name.lower().split("-")[:2])
        for path in (next(iter(archives.values())) / "wheels").iterdir()
    }
    assert listed | {("tailrace", tailrace.__version__)} == wheels
    assert "file:" not in only(dist, "*.cdx.json").read_text()


def test_the_apptainer_definition_installs_and_tests_itself(dist, archives, home, tmp_path):
    """Apptainer is not to be had here: its sections run in this root, with other paths."""
    if "3.11" not in archives:
        pytest.skip("the definition is for CPython 3.11")
    definition = (ROOT / "deploy/apptainer/tailrace.def").read_text()
    sections = dict(part.split("\n", 1) for part in definition.split("\n%")[1:])
    archive, inside = sections["files"].split()
    for tool in ("tar", "rm", "mktemp"):
        (home / "path" / tool).symlink_to(shutil.which(tool))
    for path, place in (
        (inside, "tailrace.tar"),
        ("/tmp/tailrace", "unpacked"),  # noqa: S108 - a path in a container
        ("/opt/tailrace", "installed"),
    ):
        sections = {
            name: text.replace(path, str(tmp_path / place)) for name, text in sections.items()
        }
    shutil.copy(dist / archive, tmp_path / "tailrace.tar")
    run(home, "sh", "-ec", sections["post"])
    said = run(home, "sh", "-ec", sections["test"], isolated=False)
    assert ", kernels: compiled\n" in said
    assert '"good":true' in said.replace(" ", "")
    assert [path.name for path in tmp_path.iterdir()] == ["installed"]
