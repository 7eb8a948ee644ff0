"""A real Prometheus scrapes a real daemon under load: whatever the dashboard asks has an answer."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from importlib import util
from pathlib import Path

import pytest

from tests.system.collector import until
from tests.system.load import Load

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy/grafana"

RULES = (
    "source_reason:tailrace_lost_events:rate5m",
    "source:tailrace_missing_events:ratio",
    "source:tailrace_received_bytes:rate5m",
    "source:tailrace_rows:rate5m",
    "source:tailrace_malformed_bytes:ratio_rate5m",
    "source:tailrace_udp_queue:ratio",
    "instance:tailrace_commit_seconds:p99_rate5m",
    "instance:tailrace_sync_seconds:p99_rate5m",
    "source:tailrace_session_slowdown_ratio:max",
)


@pytest.fixture(scope="module")
def dashboard():
    spec = util.spec_from_file_location("dashboard", GRAFANA / "dashboard.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_dashboard_is_that_of_the_code(dashboard):
    assert (GRAFANA / "dashboards/tailrace.json").read_text() == dashboard.build()


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus: apt-get install prometheus"
)
def test_everything_that_is_asked_has_an_answer(dashboard, tmp_path):
    asked = dashboard.expressions()
    assert len(asked) > 20
    with Load(tmp_path) as load, Prometheus(tmp_path, load.collector.ports["admin"]) as server:
        wanted = {*asked, *RULES, "up"}

        def answered():
            load.send()
            wanted.difference_update([query for query in wanted if server.ask(query)])
            return not wanted

        until(answered, "an answer to everything", pause=0.5)
        assert server.targets() == ["up"]
        # Scraped while busy, and none of it makes the sums wrong.
        assert server.ask("sum(tailrace_ledger_imbalance_events)") == [0.0]


class Prometheus:
    def __init__(self, directory, target):
        config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        config = config.replace("tailrace:9464", target).replace("interval: 5s", "interval: 1s")
        for name in ("recording.yml", "alerts.yml"):
            config = config.replace(f"- {name}", f"- {ROOT}/deploy/prometheus/{name}")
        self.config = directory / "prometheus.yml"
        self.config.write_text(config + "\n")
        self.data = directory / "prometheus"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = directory / "prometheus.log"

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.config}",
                    f"--storage.tsdb.path={self.data}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)

    def ask(self, expression):
        """The values of an expression now; empty while there are none."""
        expression = (
            expression.replace("$__rate_interval", "10s")
            .replace("$instance", ".*")
            .replace("$source", ".*")
        )
        answer = self.get("query", query=expression)
        return [float(sample["value"][1]) for sample in answer["result"]] if answer else []

    def targets(self):
        return [target["health"] for target in self.get("targets")["activeTargets"]]

    def get(self, page, **query):
        url = f"http://{self.address}/api/v1/{page}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except ConnectionError:
            return None
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return None
            raise
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionError):
                return None
            raise
