"""The Dockerfile, really built and run. No registry can be reached here: the image that it begins
with is a Debian of the same version, under that image's name."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import fresh_root
from tests.packaging.installing import build_wheel, copy_tree
from tests.system.collector import until

missing = list(fresh_root.MISSING)
if shutil.which("buildah") is None:
    missing.append("needs buildah: apt-get install buildah")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason="; ".join(missing))]

IMAGE = "tailrace:test"
USER = 10001
PYTHON = "/usr/bin/python3"
MOST_BYTES = 250 * 10**6
LOOPBACK = """
import fcntl, socket, struct, time
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", b"lo", 1))
print("up", flush=True)
time.sleep(3600)
"""
EMIT = "import tailrace_client as t; t.connect('tcp://127.0.0.1:7701'); t.event('ran'); assert t.close(20)"


class Buildah:
    """Images and containers in a directory of their own."""

    def __init__(self, directory):
        storage = ["--storage-driver", "vfs", "--root", directory / "root"]
        self._command = ["buildah", *storage, "--runroot", directory / "run"]
        self._environ = os.environ | {"BUILDAH_ISOLATION": "chroot"}

    def command(self, *arguments):
        return [*map(str, self._command), *map(str, arguments)]

    def try_(self, *arguments, within=()):
        return subprocess.run(
            [*within, *self.command(*arguments)],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def __call__(self, *arguments):
        done = self.try_(*arguments)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout.strip()

    def start(self, *arguments, output, within=()):
        return subprocess.Popen(
            [*within, *self.command(*arguments)], env=self._environ, stdout=output, stderr=output
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self("rm", "--all")
        self("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    with Buildah(tmp_path_factory.mktemp("buildah")) as buildah:
        yield buildah


@pytest.fixture(scope="module")
def context(buildah, debian, tmp_path_factory):
    """Return a clone, from which images can be built: its Dockerfile's base image is a Debian."""
    source = copy_tree(tmp_path_factory.mktemp("context"))
    base = re.search(
        r"^ARG PYTHON_IMAGE=(\S+)$", (source / "Dockerfile").read_text(), re.MULTILINE
    )[1]
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, debian, "/")
    buildah("run", container, "--", "ln", "-s", PYTHON, "/usr/local/bin/python")
    for name, value in fresh_root.downloads().items():
        buildah("config", "--env", f"{name}={value}", container)
    buildah("commit", "--quiet", "--rm", container, f"docker.io/library/{base}")
    return source


@pytest.fixture(scope="module")
def image(buildah, context):
    """Ours, built as its Dockerfile says."""
    build(buildah, context, IMAGE)
    return IMAGE


def build(buildah, source, tag, *options):
    resolver = "/etc/resolv.conf:/etc/resolv.conf:ro"
    where = ["--pull-never", "--network", "host", "--volume", resolver, "--tag", tag]
    buildah("bud", "--quiet", "--format", "docker", *where, *options, source)


@pytest.fixture
def store(tmp_path):
    """The directory that is mounted as the volume."""
    store = tmp_path / "store"
    store.mkdir()
    os.chown(store, USER, USER)
    return store


@pytest.fixture
def run(buildah, image, store):
    """The arguments that run something in a container of the image, with its environment and user."""
    container = buildah("from", "--pull-never", image)
    volume = f"{store}:/var/lib/tailrace"
    yield ("run", "--volume", volume, container, "--")
    buildah("rm", container)


@pytest.fixture
def network():
    """The command that runs another in a network of its own, where no port is taken."""
    command = ["unshare", "--net", sys.executable, "-c", LOOPBACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"up\n"
        yield ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        holder.kill()


def configured(buildah, image):
    return json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]


def test_it_says_who_it_is_and_how_it_is_looked_after(buildah, image):
    config = configured(buildah, image)
    assert config["User"] == "tailrace"
    assert config["Entrypoint"] + config["Cmd"] == ["tailrace", "serve"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert set(config["Volumes"]) == {"/var/lib/tailrace"}


def test_it_is_small(buildah, image, tmp_path):
    archive = tmp_path / "image.tar"
    buildah("push", "--quiet", image, f"oci-archive:{archive}")
    size = archive.stat().st_size
    assert size < MOST_BYTES, f"{size / 1e6:.0f} MB"


def test_it_holds_no_installer(buildah, run):
    assert "No module named pip" in buildah.try_(*run, "python", "-m", "pip").stderr
    assert buildah(*run, "id", "-u") == str(USER)


def test_its_kernels_are_compiled_and_its_compiler_stayed_behind(buildah, run):
    assert buildah(*run, "tailrace", "--version").endswith(", kernels: compiled")
    assert buildah.try_(*run, "cc", "--version").returncode != 0


def test_it_can_be_built_of_a_wheel(buildah, context, tmp_path):
    """The wheel has no kernels, which shows that none was compiled."""
    wheel = build_wheel(copy_tree(tmp_path / "source"), tmp_path, TAILRACE_KERNELS="off")
    (context / "dist").mkdir()
    shutil.copy(wheel, context / "dist")
    build(buildah, context, "tailrace:wheel", "--build-arg", f"WHEEL=dist/{wheel.name}")
    container = buildah("from", "--pull-never", "tailrace:wheel")
    said = buildah("run", container, "--", "tailrace", "--version")
    buildah("rm", container)
    assert said.endswith(", kernels: python")


def test_it_serves_and_takes_events_in(buildah, image, run, network, store, tmp_path):
    _, *check = configured(buildah, image)["Healthcheck"]["Test"]

    def healthy():
        return buildah.try_(*run, *check, within=network).returncode == 0

    assert not healthy()
    log = tmp_path / "log"
    with log.open("wb") as output:
        runner = buildah.start(*run, "tailrace", "serve", output=output, within=network)
    try:

        def listening():
            assert runner.poll() is None, log.read_text()
            return (store / "ports.json").exists()

        until(listening, "the daemon to listen")
        assert USER in map(user_of, descendants(runner.pid))
        assert healthy()
        subprocess.run([*network, sys.executable, "-c", EMIT], check=True, timeout=60)
        query = (
            *run,
            "tailrace",
            "query",
            "--json",
            "SELECT name FROM spans WHERE format = 'heph'",
        )
        until(lambda: '"ran"' in buildah.try_(*query).stdout, "the event", pause=1)
    finally:
        for pid in descendants(runner.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        runner.wait()
    assert not healthy()
    assert (store / "events").stat().st_uid == USER


def descendants(pid):
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def user_of(pid):
    return Path(f"/proc/{pid}").stat().st_uid
