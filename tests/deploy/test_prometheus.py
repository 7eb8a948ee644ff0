"""A real Prometheus scrapes a real daemon under load: whatever the dashboard asks has an answer."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import pytest

from tailrace.metrics.contract import METRICS
from tailrace.metrics.observed import OBSERVED
from tests import program
from tests.system.collector import until
from tests.system.load import Load
from tests.system.producers import free_ports

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


TEXTS = ("prometheus/alerts.yml", "prometheus/recording.yml", "grafana/dashboard.py")

OLDER = (
    "after all", "came before", "come before", "came in", "cut off", "asked for",
    "past a limit", "defect of Tailrace",
)  # fmt: skip
"""Words for which the contract has others: events `arrived after all`, nothing else did."""


@pytest.mark.parametrize("name", TEXTS)
def test_only_metrics_of_the_contract_are_asked_for(name):
    text = (ROOT / "deploy" / name).read_text()
    rules = {rule.partition(":")[2].partition(":")[0] for rule in RULES}
    known = {metric.name for metric in (*METRICS, *OBSERVED)} | rules
    asked = set(re.findall(r"\btailrace_[a-z_]+", text))
    assert {
        name for name in asked if re.sub("_(total|bucket|info)$", "", name) not in known
    } == set()
    assert len(asked) > 8


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_words_of_the_contract(name):
    text = (ROOT / "deploy" / name).read_text().replace("arrived after all", "")
    words = " ".join(metric.help for metric in (*METRICS, *OBSERVED)).replace(
        "arrived after all", ""
    )
    assert [old for old in OLDER if old in text or old in words] == []


def test_a_panel_says_what_its_metrics_are(dashboard):
    (graph,) = [graph for graph in dashboard.OVERVIEW if graph.title == "Part that is missing"]
    helps = {metric.name: metric.help for metric in (*METRICS, *OBSERVED)}
    _, first, second = graph.description.split("\n\n")
    for said, name in ((first, "missing"), (second, "expected")):
        metric = f"tailrace_ledger_{name}_events"
        assert said == f"`{metric}`: {helps[metric]}"


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus: apt-get install prometheus"
)
def test_everything_that_is_asked_has_an_answer(dashboard, tmp_path):
    asked = dashboard.expressions()
    assert len(asked) > 20
    with (
        Load(tmp_path) as load,
        observing(load.collector.store) as observer,
        Prometheus(tmp_path, load.collector.ports["admin"], observer) as server,
    ):
        wanted = {*asked, *RULES, "up"}

        def answered():
            load.send()
            wanted.difference_update([query for query in wanted if server.ask(query)])
            return not wanted

        until(answered, "an answer to everything", seconds=180, pause=0.5)
        until(lambda: server.targets() == ["up", "up"], "a scrape in time of both")
        # Scraped while busy, and none of it makes the sums wrong.
        assert server.ask("sum(tailrace_ledger_imbalance_events)") == [0.0]


@contextmanager
def observing(store):
    """The address of a process that tells of the collectors of a store."""
    command = [*program.COMMAND, "collectors", "--store", store, "--listen", "127.0.0.1:0"]
    process = program.start(command, stdout=subprocess.PIPE)
    try:
        found = re.fullmatch(r"metrics: (.+)/metrics\n", process.stdout.readline().decode())
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


class Prometheus:
    def __init__(self, directory, target, observer="127.0.0.1:9"):
        config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        config = re.sub(r"^  # (- job_name|  )", r"  \1", config, flags=re.MULTILINE)
        config = config.replace("tailrace:9464", target).replace("tailrace:9465", observer)
        config = re.sub("interval: (5s|1m)", "interval: 1s", config)
        for name in ("recording.yml", "alerts.yml"):
            config = config.replace(f"- {name}", f"- {ROOT}/deploy/prometheus/{name}")
        self.config = directory / "prometheus.yml"
        self.config.write_text(config + "\n")
        self.data = directory / "prometheus"
        (port,) = free_ports(socket.SOCK_STREAM, 1)
        self.address = f"127.0.0.1:{port}"
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
        self.process.wait(timeout=120)

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
            with urllib.request.urlopen(url, timeout=60) as answer:
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
