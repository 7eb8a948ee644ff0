"""What a metric is: its name, type, labels and bound, and where in the status its value is."""

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
"""Units with which the names of metrics end."""


class Type(StrEnum):
    COUNTER = "counter"
    """Only grows."""
    GAUGE = "gauge"
    STATES = "states"
    """A gauge for each value of the label: 1 for what is so, 0 for what is not."""
    HISTOGRAM = "histogram"
    INFO = "info"
    """Always 1; what it says is in the labels."""

    @property
    def exposed(self) -> str:
        """The type as OpenMetrics has it."""
        return "gauge" if self is Type.STATES else self.value

    @property
    def endings(self) -> tuple[str, ...]:
        """With which the names of the samples end."""
        several: dict[Type, tuple[str, ...]] = {
            Type.COUNTER: ("_total",),
            Type.INFO: ("_info",),
            Type.HISTOGRAM: ("_bucket", "_count", "_sum"),
        }
        return several.get(self, ("",))


class Restart(StrEnum):
    """What becomes of a value when the daemon is started again."""

    KEPT = "goes on"
    """It is a part of the ingest's state, which outlives the process."""
    ZERO = "begins at 0"
    NOW = "is what it is then"


class Label(NamedTuple):
    """A label beside those of the subject. `values` are those it may have for a source of some type
    and format, all of which are shown from the start; None where they are no fixed set. `of` is what
    they are, for people."""

    name: str
    of: str
    values: Callable[[str, str], Collection[str]] | None = None

    def all(self, type_: str = "", format_: str = "") -> list[str]:
        """Its values; none for a label without a fixed set."""
        return sorted(self.values(type_, format_)) if self.values else []


class Metric(NamedTuple):
    """One family. `field` is where its value is in the status of its subject: a number, a number for
    each value of the label, or for `states` what is so now."""

    name: str
    field: str
    type: Type
    restart: Restart
    help: str
    label: Label | None = None
    counts: str = ""
    """What it counts, where the name does not end with it."""
    optional: bool = False
    """Whether there may be no value: the help says when."""

    @property
    def unit(self) -> str:
        """What is measured or counted; empty for what is only true or not."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else self.counts

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples."""
        return tuple(self.name + ending for ending in self.type.endings)


class Law(NamedTuple):
    """What holds between metrics at every scrape: `left` is (`=`) or is at most (`<=`) `right`, for
    each value of the labels `by`. Both are sums and differences of families, and of numbers; a family
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
        """The families in it."""
        return [w for w in f"{self.left} {self.right}".split() if w.startswith("tailrace_")]
