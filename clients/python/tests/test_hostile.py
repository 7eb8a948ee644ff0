"""Test a hostile collector: whatever and however much it answers, the client needs little memory."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from clients.python.tests.collectors import option

GROWTH_MAX = 6 * 2**20
"""Maximum growth (bytes) of the memory of a client with a buffer of 1 MiB."""

FLOOD = 12 * 2**20
"""Number of bytes of answers that the collector sends."""

EVENTS = 200

PROGRAM = f"""
import os, select, sys
import tailrace_client as t

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

emitter = t.connect(sys.argv[1], buffer_bytes=2**20)
for number in range({EVENTS}):
    emitter.event("x", number=number)
emitter.flush(0.1)
before = peak()
while not select.select([sys.stdin], [], [], 0)[0]:
    emitter.flush(0.1)
print(peak() - before, emitter._sender.link.dialogue.answered, flush=True)
os._exit(0)
"""


def holes(about):
    """Return answers with holes (ranges of missing events) among durable events. The client cannot send these events
    again, and reports them as discarded."""
    named = [[1, n * 2, 1] for n in range(64)]
    whole = option("tailrace.ack", about | {"streams": {"1": EVENTS}})
    return whole + option("tailrace.ack", about | {"streams": {"1": EVENTS}, "holes": named}) * 1000


def too_many_holes(about):
    named = [[1, n % EVENTS, 2**31] for n in range(1000)]
    return option("tailrace.ack", about | {"streams": {"1": EVENTS}, "holes": named}) * 20


def streams(about):
    """Return answers about streams that the client does not have."""
    packets = [
        option("tailrace.ack", about | {"streams": {str(at + n): 1 for n in range(100)}})
        for at in range(2, 100_000, 100)
    ]
    return b"".join(packets)


def members(about):
    """Return answers with an unknown member. Each of its brackets becomes an object when it is decoded."""
    return option("tailrace.ack", about | {"streams": {"1": EVENTS}, "more": [[]] * 250_000})


def never_ending(_):
    """Return the beginning of an answer with a stated size of nearly 4 GiB."""
    return b"\x75\xd1\x1d\x4d\xff\xff\xff\xff" + bytes(2**20)


@pytest.fixture
def listener():
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.bind(("127.0.0.1", 0))
        made.listen()
        made.settimeout(30)
        yield made


@pytest.fixture
def client(listener):
    """Yield the process of the client."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"tcp://127.0.0.1:{listener.getsockname()[1]}"],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def read_announcement(connection):
    """Return the session and the turn from the client's announcement of its session. Read little more than the
    announcement."""
    data = b""
    while b'"client"' not in data:
        data += connection.recv(256)
    begin, end = data.index(b'{"session"'), data.index(b',"process"')
    said = json.loads(data[begin:end] + b"}")
    return {"session": said["session"], "turn": said["turn"]}


@pytest.mark.parametrize(
    ("answers", "heard"),
    [
        (holes, True),
        (too_many_holes, False),
        (streams, True),
        (members, False),
        (never_ending, False),
    ],
)
def test_whatever_a_collector_answers_the_client_stays_small(listener, client, answers, heard):
    """`heard` states whether the answers are valid according to the protocol, so that the client accepts them."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        flood = answers(read_announcement(connection))
        for _ in range(0, FLOOD, len(flood)):
            connection.sendall(flood)
        client.stdin.write("enough\n")
        client.stdin.flush()
        growth, answered = map(int, client.stdout.readline().split())
    assert growth < GROWTH_MAX
    assert (answered >= 0) == heard
