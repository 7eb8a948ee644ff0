"""The client as it is installed: it needs nothing, with a compiler or without."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import tarfile
import zipfile

import pytest

from tests.packaging.installing import (
    ROOT,
    SAME_DATE,
    Environment,
    build_sdist,
    build_wheel,
    copy_client,
    copy_tree,
    has_compiler,
)

NATIVE = "tailrace_client/_native"
EMIT = """
import importlib.metadata, json, sys
before = set(sys.modules)
known = sys.stdlib_module_names | {"_xxsubinterpreters"}  # CPython's, and not in the list
import tailrace_client as trace
trace.connect("file://" + sys.argv[1])
with trace.span("step", cell=3): pass
assert trace.close(20)
print(json.dumps({
    "compiled": trace.compiled,
    "distributions": [d.name for d in importlib.metadata.distributions()],
    "modules": sorted({n.partition(".")[0] for n in set(sys.modules) - before} - known),
    "home": trace.__file__,
}))
"""

needs_compiler = pytest.mark.skipif(
    not has_compiler(), reason="no C compiler with Python's headers: apt install gcc python3-dev"
)


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def check_it_emits(environment, tmp_path):
    """Check that it works there by itself. Return what it says of itself."""
    trace = tmp_path / "run.trace"
    said = json.loads(environment.run(EMIT, trace))
    assert b"step" in trace.read_bytes()
    assert said["distributions"] == ["tailrace-client"]
    assert said["modules"] == ["tailrace_client"]
    return said


def test_the_wheel_holds_its_package_and_nothing_else(client_wheel):
    found = names(client_wheel)
    tops = {name.split("/")[0] for name in found}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tailrace_client"}
    assert "tailrace_client/py.typed" in found
    assert {name.rpartition(".")[2] for name in found if name.startswith("tailrace_client/")} <= {
        "py",
        "pyi",
        "typed",
        "so",
    }
    with zipfile.ZipFile(client_wheel) as wheel:
        metadata = wheel.read(next(name for name in found if name.endswith("METADATA"))).decode()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needs if "extra ==" not in line] == []
    assert "Requires-Python: >=3.10\n" in metadata
    assert (ROOT / "clients/python/README.md").read_text() in metadata
    assert any(name.endswith("licenses/LICENSE") for name in found)


@pytest.fixture(scope="module")
def environment(client_wheel, tmp_path_factory):
    """The client installed alone."""
    return Environment(tmp_path_factory.mktemp("environment"), client_wheel)


def test_installed_alone_it_pulls_nothing_and_works(environment, client_wheel, tmp_path):
    said = check_it_emits(environment, tmp_path)
    assert said["home"].startswith(str(environment.site))
    assert said["compiled"] == any(name.endswith(".so") for name in names(client_wheel))


@needs_compiler
def test_where_a_compiler_is_the_emitter_is_compiled(environment, tmp_path):
    assert check_it_emits(environment, tmp_path)["compiled"]
    pure = "import tailrace_client; print(tailrace_client.compiled)"
    assert environment.run(pure, TAILRACE_PURE="1") == "False\n"


def test_where_none_is_it_is_installed_all_the_same(tmp_path):
    """From sources, as pip does it, with a compiler that fails."""
    project = copy_client(tmp_path / "source")
    environment = Environment(tmp_path / "environment", dependencies=True)
    environment.install("--no-build-isolation", project, CC="/bin/false")
    (environment.site / "dependencies.pth").unlink()
    assert not check_it_emits(environment, tmp_path)["compiled"]


def test_a_source_distribution_has_all_that_building_needs(compiling, tmp_path):
    archive = build_sdist(copy_client(tmp_path / "source"), tmp_path)
    with tarfile.open(archive) as opened:
        found = {name.partition("/")[2] for name in opened.getnames()}
        opened.extractall(tmp_path / "unpacked", filter="data")
    sources = {"README.md", "LICENSE", "pyproject.toml", "setup.py"}
    for path in (ROOT / "clients/python/src/tailrace_client").iterdir():
        if path.suffix in {".c", ".h", ".py", ".pyi", ".typed"}:
            sources.add(f"src/tailrace_client/{path.name}")
    assert sources <= found
    assert not [name for name in found if name.endswith((".so", ".o"))]
    (project,) = (tmp_path / "unpacked").iterdir()
    wheel = build_wheel(project, tmp_path, **compiling)
    check_it_emits(Environment(tmp_path / "environment", wheel), tmp_path)


def test_a_wheel_is_the_same_wherever_it_is_built(client_wheel, compiling, tmp_path):
    project = copy_client(tmp_path / "somewhere else")
    wheel = build_wheel(project, tmp_path, **SAME_DATE, **compiling)
    assert wheel.name == client_wheel.name
    assert wheel.read_bytes() == client_wheel.read_bytes()


@needs_compiler
def test_an_editable_install_compiles_too_and_again_when_the_source_changes(compiling, tmp_path):
    project = copy_client(tmp_path / "source")
    native = project / "src" / f"{NATIVE}.c"
    environment = Environment(tmp_path / "environment", dependencies=True)
    option = ("--no-build-isolation", "--editable", project)
    environment.install(*option, **compiling)
    say = "import tailrace_client as t; print(t.compiled, t.__file__)"
    compiled, home = environment.run(say).split()
    assert compiled == "True"
    assert home.startswith(str(project))
    (library,) = native.parent.glob("_native*.so")
    built = library.stat().st_mtime_ns
    os.utime(native)
    environment.install(*option, **compiling)
    assert library.stat().st_mtime_ns > built


def test_make_installs_again_when_the_compiled_part_changes(tmp_path):
    source = copy_tree(tmp_path / "source")
    ready = source / ".venv/ready"
    ready.parent.mkdir()
    ready.touch()

    def is_ready():
        return subprocess.run(["make", "-q", ready.relative_to(source)], cwd=source, check=False)

    assert is_ready().returncode == 0
    later = ready.stat().st_mtime + 10
    for name in ("setup.py", f"src/{NATIVE}.c"):
        os.utime(source / "clients/python" / name, (later, later))
        assert is_ready().returncode == 1
        os.utime(source / "clients/python" / name, (1, 1))


def test_every_module_is_python_3_10():
    for path in (ROOT / "clients/python/src").rglob("*.py"):
        ast.parse(path.read_text(), path.name, feature_version=(3, 10))
