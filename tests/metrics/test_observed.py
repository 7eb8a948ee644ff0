"""The collectors of a table as metrics: nothing that is unknown becomes a number."""

from __future__ import annotations

import re

from prometheus_client.openmetrics import parser as openmetrics

from tailrace.metrics.contract import Type
from tailrace.metrics.observed import COLLECTORS, HEALTHS, OBSERVED, SUBJECT, observed
from tailrace.query.collectors import CollectorHistory
from tailrace.serving.http import exposed

SECOND = 10**9
NOW = 1_800_000_000 * SECOND


def one(**values):
    told = {
        "name": "main", "host": "h", "identity": "i", "since": NOW - 90 * SECOND, "heartbeat": NOW - 30 * SECOND,
        "interval_seconds": 60.0, "age_seconds": 30.0, "health": "ok", "conditions": "", "silent_since": None,
        "uncommitted_bytes": 1, "spool_bytes": 2, "missing_events": 3,
    }  # fmt: skip
    return CollectorHistory(**told | values)


def scrape(*found):
    """The samples as Prometheus reads them: values by name and labels, the latter joined."""
    body = exposed(list(observed(found, NOW)), "application/openmetrics-text").body.decode()
    families = {f.name: f for f in openmetrics.text_string_to_metric_families(body)}
    assert set(families) == {metric.name for metric in OBSERVED}
    return {
        (
            sample.name,
            *(sample.labels[name] for name in (*SUBJECT, "health") if name in sample.labels),
        ): sample.value
        for family in families.values()
        for sample in family.samples
    }


def test_what_a_heartbeat_says_is_told_and_when_it_was_made():
    said = scrape(one())
    healths = {key[-1]: value for key, value in said.items() if key[0].endswith("_health")}
    assert healths == dict.fromkeys(HEALTHS, 0) | {"ok": 1}
    assert {key[0]: v for key, v in said.items() if not key[0].endswith("_health")} == {
        "tailrace_collectors_read_timestamp_seconds": NOW / SECOND,
        "tailrace_collector_heartbeat_timestamp_seconds": NOW / SECOND - 30,
        "tailrace_collector_heartbeat_interval_seconds": 60,
        "tailrace_collector_uncommitted_bytes": 1,
        "tailrace_collector_spool_bytes": 2,
        "tailrace_collector_missing_events": 3,
    }
    assert {key[1:4] for key in said if len(key) > 1} == {("main", "h", "i")}


def test_the_unknown_is_absent_and_never_zero():
    unknown = {"uncommitted_bytes": None, "spool_bytes": None, "missing_events": None}
    said = scrape(
        one(health="unknown", age_seconds=-500.0, heartbeat=NOW + 500 * SECOND, **unknown)
    )
    assert {key[0] for key in said} == {
        "tailrace_collectors_read_timestamp_seconds",
        "tailrace_collector_health",
        "tailrace_collector_heartbeat_interval_seconds",
    }
    assert said["tailrace_collector_health", "main", "h", "i", "unknown"] == 1


def test_a_health_that_nobody_knows_is_unknown_and_its_age_is_known():
    said = scrape(one(health='what\n"ever'))
    assert [key for key, v in said.items() if key[0].endswith("_health") and v] == [
        ("tailrace_collector_health", "main", "h", "i", "unknown")
    ]
    assert ("tailrace_collector_heartbeat_timestamp_seconds", "main", "h", "i") in said


def test_no_two_samples_are_alike_or_prometheus_would_refuse_all_of_them():
    older = one(identity="", heartbeat=NOW - 900 * SECOND, health="silent")
    said = scrape(one(identity="", health="stopped"), older, one(identity="2"), one(host="g"))
    assert said["tailrace_collector_health", "main", "h", "", "stopped"] == 1
    assert said["tailrace_collector_health", "main", "h", "", "silent"] == 0
    beats = [key for key in said if key[0] == "tailrace_collector_heartbeat_timestamp_seconds"]
    assert len(beats) == 3


def test_no_collector_is_no_sample_but_says_when_that_was():
    assert scrape() == {("tailrace_collectors_read_timestamp_seconds",): NOW / SECOND}


def test_the_contract_is_as_prometheus_wants_it():
    for metric in OBSERVED:
        assert re.fullmatch(r"tailrace(_[a-z]+)+_(seconds|bytes|events|health)", metric.name)
        assert bool(metric.unit) != (metric.type is Type.STATES)
        assert metric.help.endswith(".")
        assert ("absent" in metric.help) == metric.optional
    assert len(SUBJECT) == 3
    assert len(COLLECTORS) == len({metric.name for metric in COLLECTORS})
