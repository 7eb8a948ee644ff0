"""A user whom the host does not know, without HOME, as containers have: words without a store, and everything with one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import StoreError
from tailrace.store.layout import open_table
from tests import program
from tests.forms import in_turn
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until

UNKNOWN = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
TAILRACE = (*UNKNOWN, sys.executable, "-m", "tailrace")
HOMES = {"HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}


@pytest.fixture(autouse=True)
def _namespaces():
    if subprocess.run([*UNKNOWN, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")


def environment(**more):
    return {n: value for n, value in program.environment().items() if n not in HOMES} | more


def ask(*arguments, environ=None, before=(), **options):
    return subprocess.run(
        [*map(str, (*before, *TAILRACE, *arguments))],
        env=environ or environment(), capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with rows, made by such a user."""
    directory = tmp_path_factory.mktemp("store")
    emits = "import tailrace_client as trace\nfor n in range(20):\n    with trace.span('x'): pass\ntrace.close()"
    done = ask("run", "--store", directory, "--max-loss", 0, "--", sys.executable, "-c", emits)
    assert done.returncode == 0, done.stderr
    return directory


WITHOUT_STORE = [
    ("serve",), ("query", "SELECT 1"), ("streams",), ("gaps",), ("stats",), ("ranks",), ("follow",), ("top",),
    ("collectors",), ("view",), ("export", "--to", "chrome", "-o", "x.json"), ("upkeep",),
    ("doctor", "--quick"), ("bundle", "-o", "b.tgz"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", WITHOUT_STORE, ids=lambda arguments: arguments[0])
def test_without_a_store_it_is_said_what_to_set(arguments, tmp_path):
    done = ask(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "TAILRACE_STORE_PATH" in line
    assert "HOME" in line


@pytest.mark.parametrize("text", ["~/store", "~no-such-user/store"])
def test_a_path_from_home_is_named(text, tmp_path):
    done = ask("query", "--store", text, "SELECT 1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"{text}: ")
    done = ask("serve", "--store", "s3://bucket/x", cwd=tmp_path)
    assert (done.returncode, "TAILRACE_SPOOL_PATH" in done.stderr) == (2, True), done.stderr


WITH_STORE = [
    ("query", "SELECT count(*) FROM spans"), ("streams",), ("gaps",), ("stats",), ("collectors",), ("upkeep",),
    ("export", "--to", "chrome", "-o", "x.json"), ("doctor", "--quick"), ("bundle", "-o", "b.tgz"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "more"),
    in_turn(WITH_STORE, [{}, {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}]),
)
def test_with_a_store_everything_works(arguments, more, store, tmp_path):
    environ = environment(**more)
    done = ask(arguments[0], "--store", store, *arguments[1:], environ=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_works(tmp_path):
    collector = Collector(tmp_path, environ=dict.fromkeys(HOMES, ""))
    arguments = collector.command()
    collector.command = lambda: [*UNKNOWN, *arguments]
    try:
        collector.start()
        with socket.create_connection(collector.address("tcp")) as sock:
            sock.sendall(heph_event(1, 0) + heph_event(1, 1))
            until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2, "the events")
        collector.stop()
    finally:
        collector.end()
    assert "Traceback" not in collector.log()


@pytest.mark.parametrize("kind", ["gone", "unreadable"])
def test_in_a_working_directory_that_cannot_be_used(kind, store, tmp_path):
    """A service that is started from a directory of its installation, which is removed or another user's."""
    place = tmp_path / "place"
    place.mkdir()
    change = "cd $0 && rmdir $0" if kind == "gone" else "cd $0 && chmod 0 ."
    before = ("sh", "-c", f'{change} && exec "$@"', place)
    for arguments in (("query", "--store", store, "SELECT 1"), ("streams", "--store", store)):
        done = ask(*arguments, before=before)
        assert (done.returncode, done.stderr) == (0, "")
        place.mkdir(exist_ok=True)
        place.chmod(0o700)
    done = ask("run", "--", "echo", "ran", before=before)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    if kind == "gone":
        assert "the program is not traced: tailrace-run-" in done.stderr
        assert "--store" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_store_that_may_not_be_read_is_not_called_empty(store):
    """Root may read everything, so that only another user can try it."""
    if os.geteuid():
        pytest.skip("needs root")
    Path(store).chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match="Permission denied"):
            open_table(str(store / "events"), {})
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["query", "streams", "gaps", "stats"])
def test_without_a_directory_for_temporary_files_it_is_said_what_to_set(command, store):
    """As in a container whose root may not be written; here no file may have a byte."""
    statement = ["SELECT 1"] if command == "query" else []
    done = ask(command, "--store", store, *statement, before=("prlimit", "--fsize=0"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "set TMPDIR to a writable directory" in done.stderr


@pytest.mark.parametrize("arguments", WITHOUT_STORE[:6], ids=lambda arguments: arguments[0])
def test_of_a_home_that_may_not_be_read_it_is_said_what_to_set(arguments, tmp_path):
    """A home directory of another user, as `sudo -u` without -H and some containers leave it."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0)
    done = ask(*arguments, environ=environment(HOME=str(home)), cwd="/")
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tailrace: {home}/.local/share/tailrace")
    assert "Permission denied" in line
    assert "TAILRACE_STORE_PATH" in line
