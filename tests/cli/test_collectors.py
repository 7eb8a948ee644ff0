"""`tailrace collectors` as an observer: what it serves follows the table, and a table that cannot be read is an error."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace.clock import SystemClock
from tests import program
from tests.query.tables import SECOND, commit, make, row, session

OWN = {"source": "tailrace", "format": "tailrace", "session": "s"}
BEAT = "tailrace_collector_heartbeat_timestamp_seconds"


def beat(seq, at, **said):
    about = {"collector": "main", "identity": "i", "host": "h", "state": "ok"} | said
    return row(
        "instant", stream="heartbeat", name="heartbeat", seq=seq, offset=seq + 1, time=at, start=at,
        attributes=about, **OWN,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    at = SystemClock().wall_ns()
    rows = [session("open", **OWN) | {"time": at - SECOND}, beat(0, at, uncommitted_bytes=0)]
    return make(tmp_path / "store", rows), at


def command(store, *more):
    return [*program.COMMAND, "collectors", "--store", store, *more]


def samples(text):
    families = text_string_to_metric_families(text)
    return {(s.name, s.labels.get("health")): s.value for f in families for s in f.samples}


def run(store, *more):
    return program.run(command(store, *more), capture_output=True, text=True, check=False)


@contextmanager
def listening(store, *more):
    process = program.start(
        command(store, "--listen", "127.0.0.1:0", *more), stdout=subprocess.PIPE
    )
    try:
        yield "http://" + process.stdout.readline().decode().removeprefix("metrics: ").strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def get(url, **headers):
    """The status and the text of an answer."""
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http
        with urllib.request.urlopen(request, timeout=60) as it:  # noqa: S310 - http
            return it.status, it.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_printed_for_a_file_that_somebody_else_serves(store):
    path, at = store
    said = samples(run(path, "--metrics").stdout)
    assert said[BEAT, None] == pytest.approx(at / SECOND)
    assert said["tailrace_collector_health", "ok"] == 1
    assert said["tailrace_collector_uncommitted_bytes", None] == 0
    assert ("tailrace_collector_spool_bytes", None) not in said
    [listed] = map(json.loads, run(path, "--json").stdout.splitlines())
    assert listed["interval_seconds"] == 60


def test_each_scrape_reads_the_table_as_it_is_then(store):
    path, at = store
    with listening(path) as url:
        assert samples(get(url)[1])[BEAT, None] == pytest.approx(at / SECOND)
        commit(path, [beat(1, at + SECOND, state="degraded")])
        said = samples(get(url)[1])
    assert said[BEAT, None] == pytest.approx(at / SECOND + 1)
    assert said["tailrace_collector_health", "degraded"] == 1


def test_a_table_that_cannot_be_read_is_no_answer_and_comes_back(store, tmp_path):
    path, _ = store
    events, away = tmp_path / "store" / "events", tmp_path / "away"
    with listening(path) as url:
        assert get(url)[0] == 200
        events.rename(away)
        status, text = get(url)
        assert (status, BEAT in text, "store" in text) == (503, False, True)
        away.rename(events)
        assert get(url)[0] == 200


def test_it_admits_whom_the_daemon_would_admit(store, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-many-characters-1234567890\n")
    tokens.chmod(0o600)
    config = tmp_path / "tailrace.toml"
    config.write_text(f'[admin]\ntokens = "{tokens}"\n')
    with listening(store[0], "--config", config) as url:
        assert get(url)[0] == 401
        assert get(url, Authorization=f"Bearer {tokens.read_text().strip()}")[0] == 200
        assert get(url + "/no", Authorization=f"Bearer {tokens.read_text().strip()}")[0] == 404
    refused = run(store[0], "--listen", "0.0.0.0:0")
    assert (refused.returncode, "other machines" in refused.stderr) == (2, True)
    refused = run(store[0], "--listen", "127.0.0.1:0", "--json")
    assert (refused.returncode, "only one of" in refused.stderr) == (2, True)
