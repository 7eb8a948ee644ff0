"""The two distributions as they are installed: what is in them, and that they work."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Both wheels, built from a copy of what git knows."""
    source = tmp_path_factory.mktemp("source")
    archive = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in archive.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheels")
    for project in (source, source / "clients/python"):
        pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out, project)
    return {path.name.split("-")[0]: path for path in out.iterdir()}


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "package"), [("tailrace", "tailrace"), ("tailrace_client", "tailrace_client")]
)
def test_a_wheel_holds_its_package_and_nothing_else(wheels, name, package):
    with zipfile.ZipFile(wheels[name]) as wheel:
        tops = {entry.split("/")[0] for entry in wheel.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {package}
        assert f"{package}/py.typed" in wheel.namelist()


def test_the_client_needs_nothing(wheels):
    with zipfile.ZipFile(wheels["tailrace_client"]) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        assert b"Requires-Dist" not in wheel.read(metadata)


def test_the_client_works_as_installed_alone(wheels, tmp_path):
    pip(
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        tmp_path / "site",
        wheels["tailrace_client"],
    )
    trace = tmp_path / "run.trace"
    program = (
        "import sys\n"
        f"sys.path[:] = [path for path in sys.path if 'site-packages' not in path] + [{str(tmp_path / 'site')!r}]\n"
        "import tailrace_client as trace\n"
        f"trace.connect('file://{trace}')\n"
        "with trace.span('step', cell=3): pass\n"
        "trace.close()\n"
    )
    subprocess.run([sys.executable, "-S", "-c", program], check=True, timeout=60)
    assert b"step" in trace.read_bytes()


def test_the_collector_works_as_installed(wheels, tmp_path):
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "site", wheels["tailrace"])
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import tailrace\n"
        f"assert tailrace.__file__.startswith({str(tmp_path)!r})\n"
        "from tailrace.cli import main\n"
        f"sys.argv = ['tailrace', 'check', {str(ROOT / 'config/tailrace.toml')!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout
