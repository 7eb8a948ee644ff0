"""Test that a run refuses and counts events of other users of the host, and that its certificate has none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tailrace.query.engine import Engine
from tailrace.sources.source import Refusal
from tests import program, toml
from tests.ingest.log import heph_event
from tests.run.jobs import Job
from tests.system.collector import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

EMIT = """
import json, os, pathlib, time
import tailrace_client as trace
for number in range(500):
    trace.event("step", number=number)
trace.flush(10)
given = {name: value for name, value in os.environ.items() if name.startswith("TAILRACE_")}
pathlib.Path("given.new").write_text(json.dumps(given))
os.rename("given.new", "given")
while not os.path.exists("attacked"):
    time.sleep(0.01)
trace.close()
"""

ATTACK = f"""
import json, os, socket, sys
sys.path[:0] = {sys.path!r}
from tests.ingest.log import heph_event
given = json.load(open("given"))
"".encode("idna")
forged = heph_event(9, 0) + heph_event(9, 1000)
line = b'{{"t":"slice","n":1}}\\n{{"t":"slice","n":1000}}\\n'
tcp = [given["TAILRACE_HEPH_TCP"], given["TAILRACE_JETS_TCP"]]
address = lambda text: ("127.0.0.1", int(text.rpartition(":")[2]))
os.setgroups([])
os.setuid(65534)

def ends(sock):
    sock.settimeout(30)
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass

# As the other user, who sends no token, or a wrong one.
for first in (b"", b"tailrace-token " + b"x" * 32 + b"\\n"):
    for text in tcp:
        sock = socket.create_connection(address(text))
        try:
            sock.sendall(first + (forged if text == tcp[0] else line))
        except ConnectionError:
            pass
        ends(sock)
# As a user whose socket is closed, so that the kernel names no user.
for number in range(40):
    for text in tcp:
        with socket.create_connection(address(text)) as sock:
            try:
                sock.sendall(forged if text == tcp[0] else line)
            except ConnectionError:
                pass
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.sendto(forged, address(given["TAILRACE_HEPH_UDP"]))
connected = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
connected.connect(address(given["TAILRACE_HEPH_UDP"]))
connected.send(forged)
print("sent", flush=True)
sys.stdin.read()
"""


REFUSED = 2 * 2 + 2 * 40 + 2
"""Connections and datagrams of the attack."""

ORPHANS = {Refusal.USER_UNKNOWN, Refusal.NO_TOKEN}


def attacked(directory):
    """Attack the run in a directory, as another user. Return the attacker, who keeps its sockets."""
    until((directory / "given").exists, "the program to emit")
    attacker = subprocess.Popen(
        [sys.executable, "-c", ATTACK],
        cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert attacker.stdout.readline() == "sent\n"
    return attacker


def check(certificate, refused, store):
    assert certificate["totals"] == {
        "expected": 500, "stored": 500, "missing": {}, "unknown": False,
    }  # fmt: skip
    assert sum(refused.values()) == REFUSED
    assert refused[Refusal.USER] >= 2 * 2 + 2
    assert set(refused) <= {Refusal.USER, *ORPHANS}
    rows = list(Engine(str(store)).rows("SELECT source FROM sessions"))
    assert rows == [("heph_tcp",)]


def test_another_user_forges_nothing_of_a_run(tmp_path):
    command = [*program.COMMAND, "run", "--json", "--store", "store", "--max-loss", "0"]
    run = program.start(
        [*command, "--", sys.executable, "-c", EMIT],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with attacked(tmp_path) as attacker:
        (tmp_path / "attacked").touch()
        said = json.loads(run.communicate(timeout=120)[1])
        attacker.communicate()
    assert (run.returncode, said["failures"]) == (0, [])
    check(
        json.loads((tmp_path / "store/certificate.json").read_bytes()),
        said["refused"],
        tmp_path / "store",
    )


def test_another_user_forges_nothing_of_the_ranks_of_a_node(tmp_path):
    job = Job(tmp_path, 1, "--json", "--max-loss", 0, python=EMIT)
    (tmp_path / "here/0").touch()  # nobody waits for the rank to say so
    try:
        job.start(0)
        with attacked(tmp_path) as attacker:
            (tmp_path / "attacked").touch()
            ended = job.wait(0)
            attacker.communicate()
        assert ended.status == 0, ended.said
        node = job.over()
        check(node.certificate(), json.loads(ended.said)["refused"], node.path)
    finally:
        job.close()


BRIEF = """
import os, socket
host, _, port = os.environ["TAILRACE_HEPH_TCP"].rpartition(":")
token = os.environ["TAILRACE_TOKEN"].encode()
for stream in range(40):
    sock = socket.create_connection((host, int(port)))
    sock.sendall(b"tailrace-token " + token + b"\\n" + EVENTS.replace(b"STRE", stream.to_bytes(4, "big")))
    sock.close()
os._exit(0)
"""


def test_a_program_with_the_token_may_be_gone_before_its_connection_is_accepted(tmp_path):
    events = b"".join(heph_event(int.from_bytes(b"STRE", "big"), count) for count in range(3))
    done = program.run(
        [
            *program.COMMAND, "run", "--json", "--store", "store", "--",
            sys.executable, "-c", BRIEF.replace("EVENTS", repr(events)),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = json.loads(done.stderr)
    assert said["refused"] == {}
    assert said["totals"]["stored"] == 120


UNNAMED = """
import sys
from tailrace.sources import listening
listening._NETLINK_SOCK_DIAG = 31  # the kernel refuses the socket, as a sandbox does
from tailrace.cli import commands
commands.run()
"""


def test_a_host_that_names_no_users_is_traced_and_named(tmp_path):
    emit = "import tailrace_client as trace; trace.event('x'); trace.close(20)"
    done = subprocess.run(
        [sys.executable, "-c", UNNAMED, "run", "--json", "--store", "store", "--", sys.executable, "-c", emit],
        cwd=tmp_path, env=program.environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = json.loads(done.stderr)
    assert (said["totals"]["stored"], said["refused"]) == (1, {})
    assert ["does not name the users" in each for each in said["failures"]] == [True]


def test_a_source_that_cannot_know_its_users_is_a_clear_error(tmp_path):
    (tmp_path / "tailrace.toml").write_text(
        toml.section("store", path="store") + toml.source("a", "udp", same_user=True)
    )
    done = subprocess.run(
        [sys.executable, "-c", UNNAMED, "serve", "--config", "tailrace.toml"],
        cwd=tmp_path, env=program.environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "sources.a.same_user: this host does not name the users of sockets" in done.stderr
