"""Test that programs in MPI, uWSGI and pytest-xdist behave under `tailrace run` as without tracing, and that each event that
they emit is stored, or named as missing."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import socket
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.c.building import HERE, build
from tests.forms import in_turn
from tests.job.test_mpirun import MPICH, OPEN_MPI, need
from tests.program import COMMAND, environment, run
from tests.system.producers import free_ports
from tests.system.test_odd_files import FULL, READ_ONLY, needs_mounts, spoiled


def both(directory, *command, **environ):
    """Run a program without tracing and with. Return the program's result in each run, and the totals of the certificate."""
    options = {
        "cwd": directory,
        "capture_output": True,
        "text": True,
        "timeout": 120,
        "check": False,
    }
    options["env"] = environment() | environ
    as_ever = run(command, **options)
    traced = run([*COMMAND, "run", "--store", "store", "--", *command], **options)
    totals = json.loads((directory / "store/certificate.json").read_text())["totals"]
    return as_ever, traced, totals


RANK = """
import ctypes, os, sys
import tailrace_client as trace
library = ctypes.CDLL(sys.argv[1])
trace.event("before")
from mpi4py import MPI
library.a_start(None)
world = MPI.COMM_WORLD
for _ in range(50):
    with trace.span("reduce"):
        total = world.allreduce(world.rank)
    library.a_work(ctypes.c_uint64(2))
child = os.fork()
if not child:
    for _ in range(20):
        trace.event("child")
        library.a_work(ctypes.c_uint64(1))
    trace.close(20)
    library.a_stop()
    os._exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
world.Barrier()
MPI.Finalize()
trace.event("after")
os.write(1, f"sum {total}, child {status}\\n".encode())
"""

OF_A_RANK = 1 + 50 + 1 + 100 + 20 + 20


@pytest.mark.parametrize(
    ("launch", "package", "kind"),
    [(OPEN_MPI, "openmpi-bin", "openmpi"), (MPICH, "mpich", "mpich")],
)
def test_ranks_of_both_clients_that_fork_lose_nothing(launch, package, kind, tmp_path):
    pytest.importorskip("mpi4py", reason="pip install mpi4py")
    need(launch, package)
    (tmp_path / "rank.py").write_text(RANK)
    plugin = build(HERE / "plugin.c", "-shared", "-fPIC", "-DPLUGIN=a")
    command = [*launch, "-n", "3", sys.executable, "-W", "ignore", "rank.py", plugin]
    if found := ctypes.util.find_library(
        kind
    ):  # Debian's MPICH has another name than mpi4py asks for
        (tmp_path / "libmpi.so.12").symlink_to(
            f"/lib/{sysconfig.get_config_var('MULTIARCH')}/{found}"
        )
    as_ever, traced, totals = both(
        tmp_path, *map(str, command), MPI4PY_MPIABI=kind, LD_LIBRARY_PATH=str(tmp_path)
    )
    assert (as_ever.returncode, traced.returncode) == (0, 0), traced.stderr
    assert traced.stdout == as_ever.stdout == "sum 3, child 7\n" * 3
    assert (totals["stored"], totals["missing"], totals["unknown"]) == (3 * OF_A_RANK, {}, False)


APPLICATION = """
import tailrace_client as trace

trace.event("imported")

def application(environ, start_response):
    with trace.span("request"):
        pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"answered"]
"""

SERVICE = """
import concurrent.futures, pathlib, subprocess, sys, time, urllib.request
port = int(sys.argv.pop(1))
with open("log", "w") as log:
    service = subprocess.Popen(
        [*sys.argv[1:], "--http-socket", f"127.0.0.1:{port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

def answer(_):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).read()

try:
    said, lazy = "", "--lazy-apps" in sys.argv
    while "spawned uWSGI worker 2" not in said or said.count(" ready in ") <= lazy:
        assert service.poll() is None, said
        time.sleep(0.05)
        said = pathlib.Path("log").read_text()
    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        print(set(clients.map(answer, range(40))))
    service.terminate()
    print(service.wait(60))
finally:
    service.kill()
"""


def served(directory, application, *options):
    """Let two workers of uWSGI serve an application. Return the totals of the certificate."""
    uwsgi = shutil.which("uwsgi", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not uwsgi:
        pytest.skip("no uwsgi: pip install pyuwsgi")
    (directory / "served.py").write_text(application)
    (directory / "service.py").write_text(SERVICE)
    as_ever, traced, totals = both(
        directory, sys.executable, "service.py", *map(str, free_ports(socket.SOCK_STREAM, 1)), uwsgi, "--wsgi-file", "served.py", "--master", "--processes", "2",
        "--die-on-term", "--need-app", "--virtualenv", sys.prefix, *options,
        PYTHONPATH=":".join(sys.path),
    )  # fmt: skip
    assert as_ever.stdout == "{b'answered'}\n0\n", as_ever.stderr
    assert (traced.returncode, traced.stdout) == (as_ever.returncode, as_ever.stdout), traced.stderr
    return totals


@pytest.mark.parametrize(
    ("threads", "lazy"),
    in_turn([[], ["--enable-threads"], ["--enable-threads", "--threads", "2"]], [False, True]),
)
def test_workers_of_uwsgi_lose_nothing(threads, lazy, tmp_path):
    """The master of uWSGI ends without the interpreter's exit. Unless the workers import the application themselves, the
    master has an event of its own, and so a session without an end."""
    totals = served(tmp_path, APPLICATION, *threads, *["--lazy-apps"] * lazy)
    assert (totals["stored"], sum(totals["missing"].values())) == (40 + 1 + lazy, 0)
    assert totals["unknown"] == (not lazy)


@pytest.mark.parametrize("decorators", [False, True])
def test_workers_of_uwsgi_do_not_report_events_of_the_master(decorators, tmp_path):
    """The master emits outside of a session, so its events are not the workers'."""
    application = APPLICATION.replace(
        'trace.event("imported")',
        'trace.event("imported"); trace.close(20); trace.event("outside")',
    ).replace("    with trace", "    trace._process.current or trace.connect()\n    with trace")
    totals = served(tmp_path, "import uwsgidecorators\n" * decorators + application)
    assert (totals["stored"], totals["missing"], totals["unknown"]) == (40 + 1, {}, False)


PLUGIN = """
import pytest
import tailrace_client as trace

def pytest_configure(config):
    trace.event("configured", worker=hasattr(config, "workerinput"))

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with trace.span("test", name=item.name):
        return (yield)

def pytest_sessionfinish(session):
    trace.event("finished")
"""

TESTS = """
import pytest
import tailrace_client as trace

@pytest.mark.parametrize("number", range(30))
def test_number(number):
    trace.event("inside", number=number)
    assert number != 17
"""


def test_workers_and_the_controller_of_xdist_lose_nothing(tmp_path):
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_numbers.py").write_text(TESTS)
    as_ever, traced, totals = both(
        tmp_path, sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "xdist.plugin",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # the others, of which some import much
    )  # fmt: skip
    assert (as_ever.returncode, traced.returncode) == (1, 1)
    for each in as_ever, traced:
        assert re.search("^1 failed, 29 passed", each.stdout, re.MULTILINE)
    assert (totals["stored"], totals["missing"], totals["unknown"]) == (3 + 60 + 3, {}, False)


WRITE = """
import sys
from pathlib import Path
from tailrace.errors import StoreError
from tailrace.run.certificate import write
try:
    write({}, Path(sys.argv[1], "run.json"))
except StoreError as error:
    print(error, Path(sys.argv[1], "run.json").exists())
"""


@needs_mounts
@pytest.mark.parametrize("how", [FULL, READ_ONLY])
def test_a_certificate_that_cannot_be_written_is_a_refusal_and_leaves_nothing(tmp_path, how):
    answer = spoiled(tmp_path, how, WRITE)
    assert answer.startswith(f"{tmp_path}/run.json: ")
    assert answer.endswith(" False\n")
