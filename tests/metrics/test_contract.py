"""Test what the contract says of each metric, without a daemon."""

from __future__ import annotations

import re
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import msgspec

from tailrace.figures import Durations, Status
from tailrace.metrics.contract import DAEMON, LAWS, METRICS, SOURCE, UNITS, Restart, Type, bound
from tailrace.metrics.families import bounded
from tests.docs.configuration import describe
from tests.metrics.scrape import evaluate

NO_METRICS = {
    "pid", "commits",  # the latter are the count of `commit_seconds`
    "spool.end", "spool.durable", "spool.decoded", "spool.committed",  # places, not amounts
    "heartbeat.made", "heartbeat.committed",
    "memory.bounds",  # parts of `memory.bound_bytes`
}  # fmt: skip
"""Numbers of the status that are no metrics, or are by another name."""


def numbers(status, prefix=""):
    """Where in a status there are numbers; those of what is there by name begin anew."""
    for name, hint in get_type_hints(status).items():
        types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if {int, float, Durations, dict[str, int]} & set(types):
            yield prefix + name
        elif get_origin(hint) is dict and issubclass(get_args(hint)[1], msgspec.Struct):
            yield from numbers(get_args(hint)[1])
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from numbers(hint, f"{prefix}{name}.")


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
    told = {metric.field for metric in METRICS if metric.type not in {Type.STATES, Type.INFO}}
    assert set(numbers(Status)) - NO_METRICS == told


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
