"""What the contract says of each metric, without a daemon."""

from __future__ import annotations

import re

from tailrace.config.describe import describe
from tailrace.figures import SourceStatus, SpoolStatus, Status
from tailrace.metrics.contract import DAEMON, LAWS, METRICS, SOURCE, bound
from tailrace.metrics.definition import UNITS, Restart, Type
from tailrace.metrics.families import bounded
from tests.metrics.scrape import evaluate

NO_METRICS = {
    "type", "format", "address",  # of a source: what it is
    "version", "failure", "pid", "config_path", "config_sha256", "kernels", "store", "admin",
    "sources", "spool", "commits",
    "end", "durable", "decoded", "committed", "identity",  # of the spool: places
}  # fmt: skip
"""What of the status is no number of its own."""


def test_names_are_as_prometheus_wants_them():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"tailrace(_[a-z]+)+", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_info"))
        # Base units only.
        assert not re.search(r"_(ms|milliseconds|ns|nanoseconds|kib|mib|percent)(_|$)", name)


def test_every_metric_says_what_it_counts_what_it_means_and_how_many_there_are():
    for metric in METRICS:
        only_true = metric.type in {Type.STATES, Type.INFO}
        assert bool(metric.unit) != only_true, metric.name
        assert metric.unit not in UNITS or metric.name.endswith(f"_{metric.unit}") or metric.counts
        assert metric.help.endswith("."), metric.name
        if metric.type is Type.COUNTER:
            assert metric.restart is not Restart.NOW, metric.name


def test_bounds_name_keys_of_the_configuration():
    keys = {f"{entry.section}.{entry.key}" for entry in describe()}
    for metric in METRICS:
        for key in re.findall(r"[a-z_]+\.[a-z_]+", f"{bound(metric)} {metric.help}"):
            assert key in keys, (metric.name, key)
        assert evaluate(bound(metric), {"a": {"type": "udp"}}, 1000) >= 0


def test_every_number_of_the_status_is_a_metric():
    """Whoever adds a figure has to say what it means."""
    fields = {*SourceStatus.__struct_fields__, *SpoolStatus.__struct_fields__}
    fields |= {*Status.__struct_fields__}
    told = {metric.field.rpartition(".")[2] for metric in METRICS}
    assert fields - NO_METRICS == told - {"build"}


def test_laws_are_about_metrics_that_exist_and_have_these_labels():
    by_name = {metric.name: metric for metric in METRICS}
    for law in LAWS:
        for name in law.names:
            metric = by_name[name]
            assert ("source" in law.by) == (metric in SOURCE), law.text
            more = set(law.by) - {"source"}
            assert not more or metric.label.name in more, law.text
    assert {name for law in LAWS for name in law.names} & {metric.name for metric in DAEMON}


def test_what_exceeds_a_bound_is_summed_under_other():
    values = {str(number): number for number in range(10)}
    assert bounded(values, 10) == values
    assert bounded(values, 4) == {"0": 0, "1": 1, "2": 2, "other": 42}
    assert bounded(values, 1) == {"other": 45}
