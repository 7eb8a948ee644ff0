"""The collector as it is installed: what is in its wheel, and that it works."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import zipfile

import pytest

from tests.packaging.installing import CLEAN, ROOT, Environment

CONFIG = """
[admin]
listen = "127.0.0.1:0"

[sources.simulators]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
"""
EMIT = """
import sys, tailrace_client as trace
trace.connect(sys.argv[1])
for cell in range(100):
    with trace.span("step", cell=cell): pass
assert trace.close(20)
"""
READ = """
import sys, tailrace
with tailrace.open(sys.argv[1]) as store:
    spans = store.spans(name="step")
    print(len(spans), spans.completeness.complete, tailrace.__file__)
"""


@pytest.fixture(scope="module")
def environment(collector_wheel, client_wheel, tmp_path_factory):
    directory = tmp_path_factory.mktemp("environment")
    return Environment(directory, collector_wheel, client_wheel, dependencies=True)


def test_the_wheel_holds_its_package_and_nothing_else(collector_wheel):
    with zipfile.ZipFile(collector_wheel) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tailrace"}
    assert "tailrace/py.typed" in names


def test_its_command_works_as_installed(environment):
    done = subprocess.run(
        [environment.bin / "tailrace", "check", ROOT / "config/tailrace.toml"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout


def test_what_the_client_emits_is_served_and_read_as_installed(environment, tmp_path):
    config, store = tmp_path / "tailrace.toml", tmp_path / "store"
    config.write_text(CONFIG)
    command = [environment.bin / "tailrace"]
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*command, "serve", "--config", config, "--store", store],
            env=CLEAN,
            stdout=log,
            stderr=log,
        )
    try:
        until((store / "ports.json").exists, daemon)
        address = json.loads((store / "ports.json").read_text())["sources"]["simulators"]
        environment.run(EMIT, f"tcp://{address}")
        query = [*command, "query", "--store", store, "--json"]
        query += ["SELECT count(*) AS n FROM spans WHERE name = 'step'"]

        def arrived():
            answer = subprocess.run(
                query, env=CLEAN, capture_output=True, text=True, timeout=60, check=False
            )
            return answer.returncode == 0 and json.loads(answer.stdout) == {"n": 100}

        until(arrived, daemon)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
    rows, complete, home = environment.run(READ, store).split()
    assert (rows, complete) == ("100", "True")
    assert home.startswith(str(environment.site))


def until(condition, daemon):
    deadline = time.monotonic() + 60
    while not condition():
        assert daemon.poll() is None, "the daemon has ended"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
