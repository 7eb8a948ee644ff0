"""Prometheus's own tool runs our rules: every alert fires when it should, and stops when that is over."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.metrics.contract import METRICS
from tailrace.metrics.observed import OBSERVED

ROOT = Path(__file__).parents[2]
RULES = [ROOT / "deploy/prometheus/recording.yml", ROOT / "deploy/prometheus/alerts.yml"]
ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES[1].read_text(), re.MULTILINE)
RECORDED = re.findall(r"^ +- record: (\S+)$", RULES[0].read_text(), re.MULTILINE)

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus"
)


class Case(NamedTuple):
    """Series as promtool writes them, a sample a minute; when the alert fires, and when no more."""

    series: dict[str, str]
    fires: str
    over: str
    labels: str = ""


SOURCE = 'instance="a",source="s"'
COLLECTOR, ANOTHER = (
    f'instance="o",collector="{name}",host="h",identity="{name}"' for name in "ab"
)
MB = 1_000_000
LIMIT = 14 * 86400
CASES = {
    "TailraceEventsLost": Case(
        {
            f'tailrace_ledger_gap_events_total{{{SOURCE},reason="network"}}': "0x5 7x60",
            f'tailrace_ledger_gap_events_total{{{SOURCE},reason="kernel"}}': "0x5 9x60",
            f'tailrace_ledger_heal_events_total{{{SOURCE},reason="kernel"}}': "0x5 9x60",
        },
        "8m", "30m", 'reason="network"',
    ),
    # A collector that is away for half an hour, names gaps when it is back, and heals them. Another source's gaps are old.
    "TailraceUnknownGaps": Case(
        {
            f"tailrace_ledger_unknown_gaps{{{SOURCE}}}": "3x5 _x30 5x10 3x60",
            'tailrace_ledger_unknown_gaps{instance="a",source="t"}': "7x120",
        },
        "40m", "60m",
    ),
    "TailraceKernelDrops": Case(
        {f"tailrace_udp_kernel_dropped_datagrams_total{{{SOURCE}}}": "0x5 3x60"}, "8m", "30m"
    ),
    "TailraceUdpBufferSmall": Case(
        {
            f"tailrace_udp_buffer_bytes{{{SOURCE}}}": "212992x20 8388608x40",
            f"tailrace_udp_buffer_asked_bytes{{{SOURCE}}}": "16777216x60",
        },
        "10m", "30m",
    ),
    "TailraceUdpQueueFilling": Case(
        {
            f"tailrace_udp_queue_bytes{{{SOURCE}}}": "900x20 10x40",
            f"tailrace_udp_buffer_bytes{{{SOURCE}}}": "1000x60",
        },
        "10m", "30m",
    ),
    "TailraceUnreadable": Case(
        {
            f"tailrace_source_malformed_bytes_total{{{SOURCE}}}": "0+50x30 1500x60",
            f"tailrace_source_received_bytes_total{{{SOURCE}}}": "0+1000x90",
        },
        "25m", "50m",
    ),
    "TailraceUncounted": Case(
        {f"tailrace_ledger_uncounted_events_total{{{SOURCE}}}": "0x5 40x60"}, "8m", "30m"
    ),
    "TailraceLedgerImbalance": Case(
        {f"tailrace_ledger_imbalance_events{{{SOURCE}}}": "0x5 -3x10 0x60"}, "10m", "30m"
    ),
    "TailraceDown": Case({'up{job="tailrace",instance="a"}': "1x5 0x10 1x60"}, "10m", "30m"),
    "TailraceDegraded": Case(
        {'tailrace_condition{instance="a",condition="store"}': "0x5 1x10 0x60"}, "10m", "30m"
    ),
    "TailraceReloadFailed": Case(
        {
            'tailrace_config_reload_success{instance="a"}': "1x5 0x10 1x60",
            'tailrace_condition{instance="a",condition="reload"}': "0x5 1x10 0x60",
        },
        "10m", "30m",
    ),
    "TailraceCertificateExpiring": Case(
        {
            f"tailrace_tcp_certificate_expiry_timestamp_seconds{{{SOURCE}}}": "9e6x90",
            'tailrace_admin_certificate_expiry_timestamp_seconds{instance="a"}': f"{LIMIT + 600}x30 9e6x60",
        },
        "25m", "45m", 'source="the admin endpoint"',
    ),
    "TailraceFlapping": Case(
        {'tailrace_uptime_seconds{instance="a"}': "9 3 2 1 0+60x90"}, "10m", "60m"
    ),
    "TailraceStoreBehind": Case(
        {'tailrace_spool_uncommitted_bytes{instance="a"}': f"{400 * MB}x20 0x60"}, "15m", "30m"
    ),
    "TailraceCommitsSlow": Case(
        {
            'tailrace_store_commit_seconds_bucket{instance="a",le="5"}': "0x30 0+60x60",
            'tailrace_store_commit_seconds_bucket{instance="a",le="10"}': "0+60x30 1800+60x60",
            'tailrace_store_commit_seconds_bucket{instance="a",le="+Inf"}': "0+60x30 1800+60x60",
        },
        "25m", "50m",
    ),
    "TailraceSyncsSlow": Case(
        {
            'tailrace_spool_sync_seconds_bucket{instance="a",le="1"}': "0x30 0+60x60",
            'tailrace_spool_sync_seconds_bucket{instance="a",le="2.5"}': "0+60x30 1800+60x60",
            'tailrace_spool_sync_seconds_bucket{instance="a",le="+Inf"}': "0+60x30 1800+60x60",
        },
        "25m", "50m",
    ),
    # 100 MB a minute are a day's 144 GB; then nothing more.
    "TailraceDiskFilling": Case(
        {'tailrace_spool_free_bytes{instance="a"}': f"{100_000 * MB}-{100 * MB}x100 {90_000 * MB}x400"},
        "95m", "480m",
    ),
    "TailraceUpkeepFailing": Case(
        {'tailrace_store_upkeeps_total{instance="a",outcome="failed"}': "0x5 5x90"}, "10m", "80m"
    ),
    "TailraceHeartbeatLate": Case(
        {
            'tailrace_heartbeat_age_seconds{instance="a"}': "0+60x20 30x60",
            'tailrace_heartbeat_interval_seconds{instance="a"}': "60x80",
        },
        "15m", "30m",
    ),
    "TailraceFilesBehind": Case(
        {f"tailrace_tail_behind_bytes{{{SOURCE}}}": f"0+{10 * MB}x40 0x60"}, "35m", "60m"
    ),
    "TailraceFilesFailing": Case(
        {f'tailrace_tail_errors_total{{{SOURCE},error="EACCES"}}': "0+20x30 600x60"}, "25m", "50m"
    ),
    "TailraceRefusing": Case(
        {f'tailrace_source_refused_total{{{SOURCE},cause="garbage"}}': "0+20x30 600x60"},
        "25m", "50m",
    ),
    # b stopped in order: its heartbeats are as old, and it raises nothing. Nobody reads the table from minute 40 on.
    "TailraceCollectorSilent": Case(
        {
            f"tailrace_collector_heartbeat_timestamp_seconds{{{COLLECTOR}}}": "0+60x5 300x14 1200+60x60",
            f"tailrace_collector_heartbeat_interval_seconds{{{COLLECTOR}}}": "60x80",
            f'tailrace_collector_health{{{COLLECTOR},health="stopped"}}': "0x80",
            f"tailrace_collector_heartbeat_timestamp_seconds{{{ANOTHER}}}": "0+60x5 300x80",
            f"tailrace_collector_heartbeat_interval_seconds{{{ANOTHER}}}": "60x80",
            f'tailrace_collector_health{{{ANOTHER},health="stopped"}}': "0x5 1x80",
        },
        "15m", "30m", 'collector="a"',
    ),
    "TailraceCollectorUnwell": Case(
        {
            f'tailrace_collector_health{{{COLLECTOR},health="ok"}}': "1x5 0x10 1x60",
            f'tailrace_collector_health{{{COLLECTOR},health="degraded"}}': "0x5 1x10 0x60",
        },
        "13m", "30m",
    ),
    "TailraceCollectorsUnwatched": Case(
        {
            'up{job="tailrace-collectors",instance="a"}': "1x5 0x10 1x60",
            'tailrace_collectors_read_timestamp_seconds{instance="file"}': "0+60x90",
        },
        "13m", "30m",
    ),
    "TailraceSimulationStalled": Case(
        {
            f'tailrace_source_followed_sessions{{{SOURCE},progress="stalled"}}': "0x5 1x20 0x60",
            f'tailrace_source_followed_sessions{{{SOURCE},progress="silent"}}': "5x90",
        },
        "15m", "40m",
    ),
}  # fmt: skip


def test_every_alert_has_a_case_a_name_of_ours_and_a_section_in_the_runbook():
    assert set(CASES) == set(ALERTS)
    text = RULES[1].read_text()
    linked = re.findall(r'runbook_url: "RUNBOOK.md#(\w+)"', text)
    assert linked == [alert.lower() for alert in ALERTS]
    sections = re.findall(r"^## (\w+)$", (ROOT / "deploy/RUNBOOK.md").read_text(), re.MULTILINE)
    assert sections == ALERTS


def test_rules_ask_for_metrics_that_exist():
    known = {sample for metric in (*METRICS, *OBSERVED) for sample in metric.samples}
    asked = set()
    for file in RULES:
        expressions = re.findall(r"^ +expr: (.*(?:\n {10,}.*)*)", file.read_text(), re.MULTILINE)
        for expression in expressions:
            asked |= set(re.findall(r"(?<![:\w])(tailrace_\w+)", expression))
            assert set(re.findall(r"\w+:tailrace_\w+:\w+", expression)) <= set(RECORDED)
    assert asked
    assert asked <= known


@promtool
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_prometheus_accepts_the_rules(file):
    run("check", "rules", file)


@promtool
def test_every_alert_fires_and_resolves(tmp_path):
    cases = [
        {
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in case.series.items()],
            "promql_expr_test": [
                firing(alert, "0m", 0),
                firing(alert, case.fires, 1, case.labels),
                firing(alert, case.over, 0),
            ],
        }
        for alert, case in CASES.items()
    ]
    tests = {
        "rule_files": [str(file) for file in RULES],
        "evaluation_interval": "1m",
        "tests": cases,
    }
    file = tmp_path / "rules.test.yml"
    file.write_text(json.dumps(tests))
    run("test", "rules", file)


@promtool
def test_a_reading_that_has_stopped_neither_ends_silence_nor_hides_itself(tmp_path):
    """The metrics are in a file that nobody writes any more: all that they say gets old."""
    told = {
        f"tailrace_collector_heartbeat_timestamp_seconds{{{COLLECTOR}}}": "0+60x5 300x60",
        f"tailrace_collector_heartbeat_interval_seconds{{{COLLECTOR}}}": "60x60",
        f'tailrace_collector_health{{{COLLECTOR},health="ok"}}': "1x60",
        f'tailrace_collector_health{{{COLLECTOR},health="stopped"}}': "0x60",
        'tailrace_collectors_read_timestamp_seconds{instance="o"}': "0+60x5 300x60",
    }
    expected = [
        firing(alert, at, count)
        for alert in ("TailraceCollectorSilent", "TailraceCollectorsUnwatched")
        for at, count in (("5m", 0), ("30m", 1))
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in told.items()],
        "promql_expr_test": expected,
    }
    file = tmp_path / "rules.test.yml"
    rules = [str(file) for file in RULES]
    file.write_text(json.dumps({"rule_files": rules, "evaluation_interval": "1m", "tests": [case]}))
    run("test", "rules", file)


def firing(alert, at, count, labels=""):
    """Assert that so many alerts of a name, and of these labels where given, fire at a time."""
    matchers = f'alertname="{alert}",alertstate="firing",{labels}'
    samples = [{"labels": "{}", "value": count}] if count else []
    return {"expr": f"count(ALERTS{{{matchers}}})", "eval_time": at, "exp_samples": samples}


def run(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
