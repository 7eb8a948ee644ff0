"""Convert the daemon's status into Prometheus metrics, which each scrape creates anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

from prometheus_client.core import Metric as Family

from tailrace.figures import Durations, Status
from tailrace.metrics.contract import DAEMON, SESSION, SOURCE, Metric, Type, type_of

OTHER = "other"
"""Value of a label for the sum of all values that were left out because there are too many."""


def families(status: Status, series_max: int) -> Iterator[Family]:
    """Yield all metrics of the daemon, its sources and its sessions. If a label's values are not known in advance, a
    metric has at most `series_max` of them over all sources, but at least one for each source."""
    share = max(1, series_max // max(1, len(status.sources)))
    for metric in DAEMON:
        family = family_of(metric)
        fill(family, metric, {}, attrgetter(metric.field)(status))
        yield family
    for metric in SOURCE:
        family = family_of(metric)
        for name, source in status.sources.items():
            if type_of(metric) in {None, source.type}:
                value = getattr(source, metric.field)
                if metric.label and metric.label.values is None:
                    value = bounded(value, share)
                elif metric.label:
                    # Values that are known in advance but have no number yet get zero: without this first sample,
                    # Prometheus would not see the first increase.
                    zeros = dict.fromkeys(metric.label.all(source.type, source.format), 0.0)
                    value = zeros | dict(value)
                fill(family, metric, {"source": name}, value)
        yield family
    for metric in SESSION:
        family = family_of(metric)
        for name, source in status.sources.items():
            for session, pace in source.sessions.items():
                value = getattr(pace, metric.field)
                fill(family, metric, {"source": name, "session": session}, value)
        yield family


def bounded(values: Mapping[str, float], most: int) -> dict[str, float]:
    """Return `values` if it has at most `most` entries. Otherwise, return the first `most` - 1 entries and, under the
    key `OTHER`, the sum of all others."""
    if len(values) <= most:
        return dict(values)
    kept = dict(list(values.items())[: most - 1])
    kept[OTHER] = sum(values.values()) - sum(kept.values())
    return kept


def family_of(metric: Metric) -> Family:
    unit = metric.unit if metric.name.endswith(f"_{metric.unit}") else ""
    return Family(metric.name, metric.help, metric.type.exposed, unit)


def fill(family: Family, metric: Metric, labels: dict[str, str], value: object) -> None:
    for ending, more, number in _samples(metric, value):
        family.add_sample(metric.name + ending, labels | more, float(number))


def _samples(metric: Metric, value: object) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield for each sample of a metric: the text to append to the metric's name, additional labels, and the value."""
    label = metric.label.name if metric.label else ""
    match value:
        case None if metric.optional:
            return
        case Durations():
            bounds = zip(map(str, value.BOUNDS), value.at_most, strict=True)
            for bound, count in [*bounds, ("+Inf", value.count)]:
                yield "_bucket", {"le": bound}, count
            yield "_count", {}, value.count
            yield "_sum", {}, value.sum
        case dict() if metric.type is Type.INFO:
            yield "_info", value, 1
        case str() | dict() if metric.type is Type.STATES:
            now = {value} if isinstance(value, str) else value
            for state in metric.label.all() if metric.label else ():
                yield "", {label: state}, state in now
        case dict():
            for key, number in value.items():
                yield metric.type.endings[0], {label: key}, number
        case int() | float():
            yield metric.type.endings[0], {}, value
        case _:
            raise TypeError(f"{metric.name}: not a number: {value!r}")
