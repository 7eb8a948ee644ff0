"""Conversion of the status into Prometheus families, from scratch at each scrape, so that removed sources disappear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

from prometheus_client.core import Metric as Family

from tailrace.figures import Durations, SourceStatus, Status
from tailrace.metrics.contract import DAEMON, SESSION, SOURCE, Label, Metric, Type, type_of

OTHER = "other"
"""Label value for the sum of all values beyond a bound."""


def families(status: Status, series_max: int) -> Iterator[Family]:
    """Yield all families.

    A label without a fixed set of values has at most `series_max` label sets over all sources, and at least one for
    each source.
    """
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
                if metric.label:
                    value = _labelled(metric.label, value, source, share)
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
    """Return at most `most` entries. The last entry (`other`) is the sum of the rest."""
    if len(values) <= most:
        return dict(values)
    kept = dict(list(values.items())[: most - 1])
    kept[OTHER] = sum(values.values()) - sum(kept.values())
    return kept


def _labelled(
    label: Label, values: Mapping[str, float], source: SourceStatus, share: int
) -> dict[str, float]:
    """Return the number for each label value, including zeros, because Prometheus does not count the first sample of
    a series as an increase."""
    if label.values is None:
        return bounded(values, share)
    return dict.fromkeys(label.all(source.type, source.format), 0.0) | dict(values)


def family_of(metric: Metric) -> Family:
    unit = metric.unit if metric.name.endswith(f"_{metric.unit}") else ""
    return Family(metric.name, metric.help, metric.type.exposed, unit)


def fill(family: Family, metric: Metric, labels: dict[str, str], value: object) -> None:
    for ending, more, number in _samples(metric, value):
        family.add_sample(metric.name + ending, labels | more, float(number))


def _samples(metric: Metric, value: object) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the suffix, additional labels and value of each sample, or nothing for None."""
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
