"""Define a metric: its name, type, labels and bound, and the field of the status that holds its value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import NamedTuple

UNITS = frozenset(
    {
        "bytes",
        "datagrams",
        "events",
        "files",
        "ratio",
        "records",
        "rows",
        "seconds",
        "sessions",
        "streams",
        "ticks",
    }
)
"""Units that may end the name of a metric."""


class Type(StrEnum):
    COUNTER = "counter"
    """Only grows."""
    GAUGE = "gauge"
    STATES = "states"
    """One gauge for each value of the label: 1 if it holds, 0 if not."""
    HISTOGRAM = "histogram"
    INFO = "info"
    """Always 1. Its labels carry the information."""

    @property
    def exposed(self) -> str:
        """Return the type as OpenMetrics spells it."""
        return "gauge" if self is Type.STATES else self.value

    @property
    def endings(self) -> tuple[str, ...]:
        """Return the suffixes of the names of its samples."""
        several: dict[Type, tuple[str, ...]] = {
            Type.COUNTER: ("_total",),
            Type.INFO: ("_info",),
            Type.HISTOGRAM: ("_bucket", "_count", "_sum"),
        }
        return several.get(self, ("",))


class Restart(StrEnum):
    """The effect of a restart of the daemon on a value."""

    KEPT = "goes on"
    """The value is a part of the ingest's state, which outlives the process."""
    ZERO = "begins at 0"
    NOW = "is what it is then"


class Label(NamedTuple):
    """A label beside those of the subject.

    `of` names its values for people. `values` returns the values that are possible for a source of a type
    and format; all of them are shown from the start. It is None where the set is not fixed."""

    name: str
    of: str
    values: Callable[[str, str], Collection[str]] | None = None

    def all(self, type_: str = "", format_: str = "") -> list[str]:
        """Return the possible values, or nothing for a label without a fixed set."""
        return sorted(self.values(type_, format_)) if self.values else []


class Metric(NamedTuple):
    """One metric family. `field` is the path of its value in the status of its subject. The value is a
    number, a number for each value of the label, or, for `states`, the states that hold now."""

    name: str
    field: str
    type: Type
    restart: Restart
    help: str
    label: Label | None = None
    counts: str = ""
    """The unit, where the name does not end with it."""
    optional: bool = False
    """Whether the value may be absent. The help says when."""

    @property
    def unit(self) -> str:
        """Return what is measured or counted, or an empty string if the metric is only true or false."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else self.counts

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names of its samples."""
        return tuple(self.name + ending for ending in self.type.endings)


class Law(NamedTuple):
    """A relation between metrics at every scrape: `left` equals (`=`) or is at most (`<=`) `right`, for
    each value of the labels `by`. Both sides are sums and differences of families and numbers. A family
    stands for the sum over its other labels."""

    left: str
    relation: str
    right: str
    by: tuple[str, ...] = ("source",)

    @property
    def text(self) -> str:
        each = [label for label in self.by if label != "source"]
        return " ".join([self.left, self.relation, self.right, *(f"for each {e}" for e in each)])

    @property
    def names(self) -> list[str]:
        """Return the families in it."""
        return [w for w in f"{self.left} {self.right}".split() if w.startswith("tailrace_")]
