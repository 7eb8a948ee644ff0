"""Test programs in which a library replaces Python's threads, queues and `sleep` by greenlets, before or after the
client is imported, or after the client has sent something."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec

import pytest

from clients.python.tests.collectors import Answering, until
from clients.python.tests.test_process import ended
from tests.forms import in_turn

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
    "gevent without queues": "from gevent import monkey; monkey.patch_all(queue=False)",
    "gevent's threads alone": "from gevent import monkey; monkey.patch_thread()",
}

PROGRAM = """
import os, sys
when, patch = sys.argv[1:]
waitpid = os.waitpid  # gevent's may wait for ever for a child that is gone already
if when == "before":
    exec(patch)
import tailrace_client as trace
if when == "behind an event":
    trace.event("first")
    trace.flush(5)
if when != "before":
    exec(patch)
import threading, time
def work(number):
    for _ in range(20):
        with trace.span("step", number=number):
            time.sleep(0.001)
            trace.event("inside")
threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in range(2000):
    trace.event("busy", number=number)
trace.flush(5)
child = os.fork()
if not child:
    trace.event("child")
    time.sleep(0.01)
    sys.exit()
assert waitpid(child, 0)[1] == 0
print("worked")
"""


def need(*modules):
    """Skip the test unless these modules are installed. Import none of them: eventlet would then warn at each later fork
    of this process, which fails other tests."""
    if not all(map(find_spec, modules)):
        pytest.skip(f"pip install {' '.join(modules)}")


@pytest.fixture
def collector(kind, tmp_path):
    with Answering(kind, tmp_path / "socket" if kind == "unix" else None) as opened:
        yield opened


@pytest.mark.parametrize(
    ("library", "when", "kind"),
    in_turn([*PATCHES], ["before", "behind the import", "behind an event"], ["unix", "tcp", "udp"]),
)
def test_a_program_of_greenlets_runs_and_loses_nothing(library, when, kind, collector):
    module = "eventlet" if library == "eventlet" else "gevent"
    need(module)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, when, PATCHES[library]],
        env={
            "PYTHONPATH": ":".join(sys.path),
            "TAILRACE_ADDRESS": collector.address,
            "TAILRACE_PURE": "1" if kind == "unix" else "",
        },
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "worked\n"), ran.stderr
    whole = [(1, True), (2400 + (when == "behind an event"), True)]
    until(lambda: ended(collector) == whole)


APPLICATION = """
import time
import tailrace_client as trace

def application(environ, start_response):
    with trace.span("request"):
        time.sleep(0.001)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"answered"]
"""

REQUESTS = 40


@pytest.mark.parametrize("kind", ["tcp"])
@pytest.mark.parametrize(
    ("workers", "preload"), in_turn(["sync", "gthread", "gevent"], [[], ["--preload"]])
)
def test_a_service_answers_all_requests_and_ends_when_it_is_asked_to(
    workers, preload, tmp_path, collector
):
    """gunicorn imports the application before it forks, with `--preload`, and its workers replace threads afterwards."""
    need("gunicorn", "gevent")
    (tmp_path / "served.py").write_text(APPLICATION)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        service = subprocess.Popen(
            [
                sys.executable, "-m", "gunicorn", "-k", workers, *preload, "-w", "2", "--max-requests", "10",
                "--bind", f"fd://{listener.fileno()}", "--graceful-timeout", "20", "served:application",
            ],
            env=os.environ | {
                "PYTHONPATH": ":".join([str(tmp_path), *sys.path]),
                "TAILRACE_ADDRESS": collector.address,
            },
            cwd=tmp_path,
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        address = "http://{}:{}/".format(*listener.getsockname())
        try:
            for _ in range(REQUESTS):
                with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - our own address
                    assert answer.read() == b"answered"
            service.terminate()
            assert service.wait(30) == 0
        finally:
            service.kill()
            service.wait()
    until(lambda: sum(count for count, _ in ended(collector)) == REQUESTS)
    assert all(whole for _, whole in ended(collector))


FORKING = """
import os, sys, time
exec(sys.argv[1])
import tailrace_client as trace
trace.event("first")
time.sleep(0.03)
child = os.fork()
time.sleep(1.5)  # lets the greenlet run that sends the parent's events
trace.event("later")
if not child:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_the_greenlet_that_sends_ends_in_a_forked_child(kind, collector):
    """A fork copies greenlets, while it does not copy threads."""
    need("gevent")
    collector.mute = True
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, PATCHES["gevent without queues"]],
        env={"PYTHONPATH": ":".join(sys.path), "TAILRACE_ADDRESS": collector.address},
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
