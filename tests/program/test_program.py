"""A forked program is like a new one to whoever started it: arguments, descriptors, signals and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toml
from tests.program import COMMAND, TRUE, environment, run, start
from tests.program.forked import Forked
from tests.system.collector import until

CONFIGURATION = toml.source("a", "tcp")


@pytest.fixture(autouse=True)
def _forking(monkeypatch):
    """Fork also among the long forms of the tests."""
    monkeypatch.delenv(TRUE, raising=False)


@pytest.fixture(params=["forked", "executable"])
def executable(request):
    return request.param == "executable"


def test_what_it_prints_and_its_status_come_back(executable):
    done = run([*COMMAND, "--version"], executable=executable, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tailrace ")
    done = run([*COMMAND, "querx"], executable=executable, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'query'?" in done.stderr


def test_input_environment_and_directory_are_those_that_were_given(executable, tmp_path):
    (tmp_path / "tailrace.toml").write_text(CONFIGURATION)
    environ = os.environ | {"TAILRACE_STORE_PATH": "named-by-the-environment"}
    done = run(
        [*COMMAND, "check", "tailrace.toml"],
        executable=executable, cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "named-by-the-environment" in done.stdout


def test_it_holds_the_descriptors_that_were_passed_and_no_others(executable, tmp_path):
    passed, kept = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    os.set_inheritable(kept, True)  # noqa: FBT003 - its only argument
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    try:
        with start([*COMMAND, "check", fifo], executable=executable, pass_fds=[passed]) as process:
            writer = os.open(fifo, os.O_WRONLY)  # waits until the process opens it
            until(lambda: str(fifo) in _held(process).values(), "the process to read")
            held = _held(process)
            os.close(writer)
    finally:
        os.close(passed)
        os.close(kept)
    assert held.pop(passed) == str(tmp_path)
    assert str(tmp_path) not in held.values()
    assert len(held) == 4, held


def test_it_has_first_what_a_service_manager_hands_it(executable, tmp_path):
    """The variables have its pid, too; see tests/system/test_service_manager.py."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "other").mkdir()
    paths = [tmp_path / "other", tmp_path]
    handed = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        with start([*COMMAND, "check", fifo], executable=executable, handed=handed) as process:
            writer = os.open(fifo, os.O_WRONLY)  # waits until the process opens it
            until(lambda: str(fifo) in _held(process).values(), "the process to read")
            held = _held(process)
            os.close(writer)
    finally:
        for each in handed:
            os.close(each)
    assert [held.pop(number) for number in (3, 4)] == list(map(str, paths))
    assert len(held) == 4, held


def _held(process):
    """Return what each descriptor of a process is of, by number."""
    descriptors = Path(f"/proc/{process.pid}/fd").iterdir()
    return {int(each.name): str(each.readlink()) for each in descriptors}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_it_leaves_no_zombie(number, executable, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [*COMMAND, "check", fifo]
    process = start(command, executable=executable, stderr=subprocess.PIPE, start_new_session=True)
    writer = os.open(fifo, os.O_WRONLY)
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.send_signal(number)
    until(lambda: _ended(process), "its end")
    os.close(writer)
    process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def _ended(process):
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_who_has_waited_long_enough_can_end_it(executable, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(subprocess.TimeoutExpired):
        run([*COMMAND, "check", fifo], executable=executable, timeout=0.2)


def test_only_what_a_new_interpreter_need_not_obey_is_forked(monkeypatch, tmp_path):
    def forked(command=COMMAND, **options):
        with start([*command, "--version"], stdout=subprocess.DEVNULL, **options) as process:
            return isinstance(process, Forked)

    assert forked()
    assert forked(env=os.environ | {"TAILRACE_STORE_PATH": "x"})
    assert forked(env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert not forked(executable=True)
    assert not forked([sys.executable, "-c", ""])
    assert not forked(preexec_fn=lambda: None)
    assert not forked(env=os.environ | {"PYTHONPATH": str(tmp_path)})
    for name in ("LD_PRELOAD", "LC_ALL", "PYTHONHASHSEED", "COVERAGE_FILE", "TAILRACE_KERNELS"):
        value = "" if os.environ.get(name) else "0" if name == "PYTHONHASHSEED" else "C"
        if name == "TAILRACE_KERNELS":
            value = "" if os.environ.get(name) == "off" else "off"
        assert not forked(env=os.environ | {name: value}, stderr=subprocess.DEVNULL), name
    monkeypatch.setenv("TAILRACE_STORE_PATH", "x")
    monkeypatch.setenv("TAILRACE_KERNELS", "require")  # as in CI
    assert "TAILRACE_STORE_PATH" not in environment()
    assert forked(env=environment())
    monkeypatch.setenv(TRUE, "1")
    assert not forked()
