"""Real collectors of two hosts on a table at a URL: a reader on one host knows what it cannot know of the other."""

from __future__ import annotations

import json
import signal
import socket

import pytest
from deltalake import DeltaTable

from tests import program
from tests.ingest.log import heph_event
from tests.store.s3_server import RunningS3
from tests.system.collector import until
from tests.system.test_bucket import start

URL = "s3://bucket/elsewhere"
STORE = '[store]\npath = "{url}"\ncommit_interval = "{every}"\n[store.options]\n{options}\n[heartbeat]\ninterval = "2 s"\n'


@pytest.fixture
def bucket():
    with RunningS3() as server:
        yield server


@pytest.fixture
def on_host(bucket, collectors, tmp_path_factory):
    """Start a collector as on a host of its own, which commits so often."""

    def do(every="100 ms"):
        options = "\n".join(f'"{key}" = "{value}"' for key, value in bucket.options.items())
        home = tmp_path_factory.mktemp("home")
        more = STORE.format(url=URL, every=every, options=options)
        collector = collectors(more=more, environ={"XDG_DATA_HOME": str(home)})
        start(collector, home)
        return collector, home

    return do


def run(collector, *arguments):
    """A command on this collector's host."""
    command = [*program.COMMAND, arguments[0], "--config", collector.config, *arguments[1:]]
    return program.run(
        command, env=collector.environ, capture_output=True, text=True, check=False, timeout=60
    )


def ask(collector):
    """The exit code of a question that demands completeness, and what it says on standard error."""
    done = run(collector, "query", "--complete-only", "SELECT count(*) FROM spans")
    return done.returncode, done.stderr


def listed(collector):
    found = map(json.loads, run(collector, "collectors", "--json").stdout.splitlines())
    return {each["identity"]: each["health"] for each in found}


def beats(bucket, identity):
    """How many heartbeats of a collector the table has."""
    table = DeltaTable(f"{URL}/events", storage_options=bucket.options)
    rows = table.to_pyarrow_table(columns=["name", "attributes"]).to_pylist()
    return sum(row["name"] == "heartbeat" and identity in row["attributes"] for row in rows)


def send(collector, stream, numbers):
    """Return once the connection's end was read: a kill cuts nothing of it."""
    with socket.create_connection(collector.address("tcp")) as sock:
        for number in numbers:
            sock.sendall(heph_event(stream, number))
    until(lambda: collector.status()["sources"]["tcp"]["sessions_closed"], "the end")


def test_what_a_killed_collector_of_another_host_had_is_unknown_until_it_has_stopped(
    on_host, bucket
):
    (mine, _), (other, home) = on_host(), on_host(every="3 s")
    send(mine, 1, range(3))
    mine.settle()
    identity = other.status()["spool"]["identity"]
    until(lambda: identity in listed(mine), "a heartbeat of the other", pause=0.2)
    send(other, 2, range(5))
    other.kill()
    code, said = ask(mine)
    assert code == 3
    assert "main on" in said
    assert "cannot be asked from here" in said
    assert "cannot be asked" in run(mine, "gaps").stdout
    next(home.glob("tailrace/spool-*/ports.json")).unlink()
    before = beats(bucket, identity)
    start(other, home)
    until(lambda: beats(bucket, identity) > before, "a heartbeat of its next life", pause=0.2)
    other.stop()
    assert listed(mine)[identity] == "stopped"
    code, said = ask(mine)
    assert (code, said) == (0, ""), said
    assert run(mine, "query", "--csv", "SELECT count(*) FROM spans").stdout.split() == [
        "count_star()",
        "8",
    ]


def test_one_that_runs_elsewhere_is_never_complete_however_well_it_says_it_is(on_host):
    (mine, _), (other, _) = on_host(), on_host()
    send(mine, 1, range(3))
    identity = other.status()["spool"]["identity"]
    until(lambda: listed(mine).get(identity) == "ok", "a heartbeat of the other", pause=0.2)
    assert ask(mine)[0] == 3
    other.process.send_signal(signal.SIGSTOP)
    assert ask(mine)[0] == 3
    other.process.send_signal(signal.SIGCONT)
    other.stop()
    mine.settle()
    code, said = ask(mine)
    assert (code, said) == (0, ""), said
