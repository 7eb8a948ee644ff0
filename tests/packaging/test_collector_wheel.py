"""The collector as it is installed: what is in its wheel, and that it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile

import pytest

from tailrace import kernels
from tests.packaging.conftest import SHARING
from tests.packaging.installing import (
    CLEAN,
    ROOT,
    Environment,
    build_wheel,
    copy_tree,
    has_compiler,
)

needs_compiler = pytest.mark.skipif(
    not has_compiler(),
    reason="no C compiler with Python's headers: apt install gcc python3-dev",
)

PACKAGE = ROOT / "collector/tailrace"
PAGE = PACKAGE / "view/page"

CONFIG = """
[admin]
listen = "127.0.0.1:0"

[sources.simulators]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
"""
EMIT = """
import sys, tailrace_client as trace
trace.connect(sys.argv[1])
for cell in range(100):
    with trace.span("step", cell=cell): pass
assert trace.close(20)
"""
READ = """
import sys, tailrace
with tailrace.open(sys.argv[1]) as store:
    spans = store.spans(name="step")
    print(spans.count(), spans.completeness.complete, tailrace.__file__)
"""


@pytest.fixture(scope="module")
def environment(collector_wheel, client_wheel, tmp_path_factory):
    """Where the wheel has not all kernels, this tree's stand in for the others."""
    directory = tmp_path_factory.mktemp("environment")
    environment = Environment(directory, collector_wheel, client_wheel, dependencies=True)
    for library in PACKAGE.rglob("_*.so"):
        installed = environment.site / library.relative_to(PACKAGE.parent)
        if not installed.exists():
            shutil.copy2(library, installed)
    return environment


def test_the_wheel_holds_its_package_and_nothing_else(collector_wheel):
    with zipfile.ZipFile(collector_wheel) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"tailrace"}
    shared = {
        name.partition("/data/")[2] for name in names if name.partition("/")[0].endswith(".data")
    }
    assert shared == {
        str(path.relative_to(ROOT)) for path in (ROOT / "share").rglob("*") if path.is_file()
    }
    assert "tailrace/py.typed" in names
    page = [name for name in names if name.startswith("tailrace/view/page/")]
    inside = {
        name.rpartition(".")[2] for name in {*names} - {*page} if name.startswith("tailrace/")
    }
    assert inside <= {"py", "pyi", "typed", "so"}
    files = {
        str(path.relative_to(ROOT / "collector")) for path in PAGE.rglob("*") if path.is_file()
    }
    assert {*page} == files


def test_its_command_works_as_installed(environment):
    done = subprocess.run(
        [environment.bin / "tailrace", "check", ROOT / "config/tailrace.toml"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout


def test_what_the_client_emits_is_served_and_read_as_installed(environment, tmp_path):
    config, store = tmp_path / "tailrace.toml", tmp_path / "store"
    config.write_text(CONFIG)
    command = [environment.bin / "tailrace"]
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*command, "serve", "--config", config, "--store", store],
            env=CLEAN,
            stdout=log,
            stderr=log,
        )
    try:
        until((store / "ports.json").exists, daemon)
        address = json.loads((store / "ports.json").read_text())["sources"]["simulators"]
        environment.run(EMIT, f"tcp://{address}")
        query = [*command, "query", "--store", store, "--json"]
        query += ["SELECT count(*) AS n FROM spans WHERE name = 'step'"]

        def arrived():
            answer = subprocess.run(
                query, env=CLEAN, capture_output=True, text=True, timeout=60, check=False
            )
            return answer.returncode == 0 and json.loads(answer.stdout) == {"n": 100}

        until(arrived, daemon)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
    rows, complete, home = environment.run(READ, store).split()
    assert (rows, complete) == ("100", "True")
    assert home.startswith(str(environment.site))


def until(condition, daemon):
    deadline = time.monotonic() + 60
    while not condition():
        assert daemon.poll() is None, "the daemon has ended"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def version(environment, **environ):
    program = "from tailrace.cli import main; main()"
    return environment.run(program, "--version", **environ)


@needs_compiler
def test_where_a_compiler_is_the_wheel_has_the_kernels(environment, collector_wheel, built):
    with zipfile.ZipFile(collector_wheel) as wheel:
        found = {name.split(".")[0] for name in wheel.namelist() if name.endswith(".so")}
    assert found == {f"tailrace/{name}" for name in built}
    assert version(environment, TAILRACE_KERNELS="require").endswith(", kernels: compiled\n")


def test_what_kernels_share_is_in_those_of_the_short_form():
    sources = "".join((PACKAGE / f"{name}.pyx").read_text() for name in SHARING)
    for shared in PACKAGE.rglob("*.pxd"):
        module = ".".join(shared.relative_to(PACKAGE.parent).with_suffix("").parts)
        assert f"from {module} cimport" in sources


@pytest.fixture
def without_compiler(tmp_path, pytestconfig):
    """A tree to build where no compiler is. In the short form it has one kernel, of one line: Cython
    translates each of them before the compiler fails."""
    tree = copy_tree(tmp_path / "source")
    if not pytestconfig.getoption("--slow"):
        one, *others = tree.rglob("_*.pyx")
        one.write_text("cdef int one = 1\n")
        for path in others:
            path.unlink()
    return tree


def test_where_none_is_the_collector_is_installed_all_the_same(without_compiler, tmp_path):
    environ = {"CC": "/bin/false", "TAILRACE_KERNELS": ""}
    wheel = build_wheel(without_compiler, tmp_path, **environ)
    environment = Environment(tmp_path / "environment", wheel, dependencies=True)
    assert version(environment, TAILRACE_KERNELS="").endswith(", kernels: python\n")
    with pytest.raises(AssertionError, match="TAILRACE_KERNELS=require: not built for this Python"):
        version(environment, TAILRACE_KERNELS="require")


def test_what_is_required_and_cannot_be_built_fails_the_installation(without_compiler, tmp_path):
    said = r"TAILRACE_KERNELS=require: tailrace\.\S+ cannot be built: .*it needs a C compiler"
    with pytest.raises(AssertionError, match=said):
        build_wheel(without_compiler, tmp_path, CC="/bin/false", TAILRACE_KERNELS="require")


def test_a_source_distribution_has_all_sources_and_nothing_built(distribution):
    """The wheel that other tests install is built from it, elsewhere."""
    with tarfile.open(distribution) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    sources = {f"collector/tailrace/{name}.pyx" for name in kernels.KERNELS}
    assert {name for name in found if name.endswith(".pyx")} == sources
    shared = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.pxd")}
    assert {name for name in found if name.endswith(".pxd")} == shared
    assert "setup.py" in found
    assert not [name for name in found if name.endswith((".so", ".o", ".c"))]


@pytest.mark.slow  # all kernels once more
def test_the_tree_builds_the_same_wheel_as_its_source_distribution(
    source, building, collector_wheel, tmp_path
):
    """Byte for byte, in another directory."""
    wheel = build_wheel(source, tmp_path, **building)
    assert wheel.name == collector_wheel.name
    assert wheel.read_bytes() == collector_wheel.read_bytes()


def test_make_installs_again_when_a_kernel_changes(tmp_path):
    source = copy_tree(tmp_path / "source")
    ready = source / ".venv/ready"
    ready.parent.mkdir()
    ready.touch()
    later = ready.stat().st_mtime + 10
    for name in ("setup.py", f"collector/tailrace/{kernels.KERNELS[0]}.pyx"):
        question = ["make", "-q", ready.relative_to(source)]
        assert subprocess.run(question, cwd=source, check=False).returncode == 0
        os.utime(source / name, (later, later))
        assert subprocess.run(question, cwd=source, check=False).returncode == 1
        os.utime(source / name, (1, 1))
