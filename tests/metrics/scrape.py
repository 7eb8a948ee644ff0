"""Read one response of /metrics with Prometheus's own parsers, and compare it with the contract."""

from __future__ import annotations

import operator
from collections import Counter

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tailrace.metrics.contract import DAEMON, LAWS, METRICS, SESSION, SOURCE, Type, bound, type_of

OPENMETRICS = "application/openmetrics-text"
RELATIONS = {"=": operator.eq, "<=": operator.le}
BY_NAME = {metric.name: metric for metric in METRICS}


class Scrape:
    """The samples of one scrape: by family, label sets and values."""

    def __init__(self, answer):
        self.families = {}
        self.heads = {}
        for family in openmetrics.text_string_to_metric_families(answer):
            self.heads[family.name] = (family.type, family.unit, family.documentation)
            self.families[family.name] = family.samples

    def sums(self, name, by):
        """Return a family's values, summed up for each value of some of its labels."""
        sums = Counter()
        for sample in self.families[name]:
            sums[tuple(sample.labels[label] for label in by)] += sample.value
        return sums

    def check_laws(self):
        for law in LAWS:
            left, right = (self._sides(law, side) for side in (law.left, law.right))
            for key in {*left, *right}:
                # A constant has the same value for all labels.
                values = left.get(key, left.get(None, 0)), right.get(key, right.get(None, 0))
                assert key is None or RELATIONS[law.relation](*values), (law.text, key, values)

    def _sides(self, law, side):
        """Return the value of one side of a law for each value of the labels. The value of a constant is under None."""
        total, sign = Counter(), 1
        for word in side.split():
            if word in "+-":
                sign = 1 if word == "+" else -1
            elif word.isdigit():
                return {None: float(word)}
            else:
                for key, value in self.sums(word, law.by).items():
                    total[key] += sign * value
        return dict(total)

    def check_families(self, sources):
        """Check that the scrape has exactly what the contract has: families, types, units, help texts, names and labels
        of samples.

        `sources` are those of /status.
        """
        assert list(self.families) == list(BY_NAME)
        for name, metric in BY_NAME.items():
            unit = metric.unit if name.endswith(f"_{metric.unit}") else ""
            assert self.heads[name] == (metric.type.exposed, unit, metric.help)
            samples = self.families[name]
            assert {sample.name for sample in samples} <= set(metric.samples), name
            for sample in samples:
                assert set(sample.labels) == labels(metric, sample), sample
                self._check_values(metric, sample, sources)
            if metric in SOURCE and not metric.label:
                told = [sample.labels["source"] for sample in samples]
                assert told == [s for s in sources if has(metric, sources[s])], name

    def _check_values(self, metric, sample, sources):
        """Check that a label with a fixed set of values has no others."""
        if metric.label and metric.label.values:
            source = sources.get(sample.labels.get("source"), {"type": "", "format": ""})
            allowed = metric.label.all(source["type"], source["format"])
            assert sample.labels[metric.label.name] in allowed, sample

    def check_bounds(self, sources, series_max):
        for name, metric in BY_NAME.items():
            most = evaluate(bound(metric), sources, series_max)
            assert len(self.families[name]) <= most, (name, bound(metric))


def labels(metric, sample):
    subject = set() if metric in DAEMON else {"source"}
    if metric in SESSION:
        return {"source", "session"}
    if metric.type is Type.INFO:
        return {"version", "kernels"}
    if metric.type is Type.HISTOGRAM:
        return {"le"} if sample.name.endswith("_bucket") else set()
    return subject | ({metric.label.name} if metric.label else set())


def has(metric, source):
    lacks = metric.optional and source[metric.field] is None
    return type_of(metric) in {None, source["type"]} and not lacks


def evaluate(expression, sources, series_max):
    """Return the value of a bound, which is an expression, as a number."""
    types = Counter(source["type"] for source in sources.values())
    for type_ in ("tcp", "udp", "tail"):
        expression = expression.replace(f"{type_} sources", str(types[type_]))
    expression = expression.replace("metrics.series_max", str(series_max))
    return eval(expression.replace("sources", str(len(sources))), {"max": max})  # noqa: S307 - our own


def plain(answer):
    """Return the families of the text format: name, type and help. There, counters have the names of their samples."""
    return {
        family.name: (family.type, family.documentation)
        for family in text_string_to_metric_families(answer)
    }
