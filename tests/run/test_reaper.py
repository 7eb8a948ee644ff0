"""As process 1 of a container, a command reaps orphans, and its signals and exit status are its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import environment

NAMESPACE = (
    "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip
TAILRACE = (sys.executable, "-m", "tailrace")

ORPHANS = """
for n in $(seq 40); do (setsid sleep 0.01 &); done
for n in $(seq 400); do
    sleeping=$(grep -l '^Name:.sleep' /proc/[0-9]*/status 2>/dev/null | wc -l)
    [ $sleeping = 0 ] && break
    sleep 0.05
done
grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l
exit 7
"""


@pytest.fixture(autouse=True)
def _namespaces():
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs PID namespaces")


@pytest.mark.parametrize("rank", [{}, {"PMI_RANK": "0", "PMI_SIZE": "1"}], ids=["alone", "rank"])
def test_it_leaves_no_zombie_and_ends_as_the_program_does(tmp_path, rank):
    done = subprocess.run(
        [*NAMESPACE, *TAILRACE, "run", "--store", tmp_path / "s", "--", "sh", "-c", ORPHANS],
        env=environment() | rank, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "0\n"), done.stderr
    assert "run certificate" in done.stderr


def test_a_signal_reaches_the_program(tmp_path):
    program = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*NAMESPACE, *TAILRACE, "run", "--store", tmp_path / "s", "--", "sh", "-c", program],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 5, said


def test_variables_that_name_process_1_name_its_child(tmp_path):
    """As podman hands on the sockets of a unit."""
    says = "import json, os; print(json.dumps([os.environ['LISTEN_PID'], os.environ['WATCHDOG_PID'], os.getppid()]))"
    code = f"from tailrace.reaper import leave_process_1; leave_process_1(); {says}; import sys; sys.exit(os.getpid() != int(os.environ['LISTEN_PID']))"
    environ = environment() | {"LISTEN_PID": "1", "WATCHDOG_PID": "1"}
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )  # fmt: skip
    listen, watchdog, parent = json.loads(done.stdout)
    assert (listen, parent) == (watchdog, 1)
    assert listen != "1"


def test_a_killed_child_has_the_status_of_a_shell():
    """In a process without threads, as `leave_process_1` asks: another thread could take the signal of the child's end."""
    code = "import os; from tailrace.reaper import attend, fork; child = fork(); child or os.kill(os.getpid(), 9); os._exit(attend(child))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGKILL
