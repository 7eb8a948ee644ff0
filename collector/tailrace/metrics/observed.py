"""Define metrics of the collectors that write to a store. An observer on any host reads their values from the table.

The newest heartbeat's time is exported, not its age, which would stop growing when the observer stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from prometheus_client.core import Metric as Family

from tailrace.figures import State
from tailrace.metrics.contract import Label, Metric, Restart, Type
from tailrace.metrics.families import family_of, fill
from tailrace.query.collectors import KILLED, SILENT, STOPPED, UNKNOWN, CollectorHistory

NOW, GAUGE = Restart.NOW, Type.GAUGE

HEALTHS = (*State, STOPPED, KILLED, SILENT, UNKNOWN)

READ = Metric("tailrace_collectors_read_timestamp_seconds", "", GAUGE, NOW, "When the table was read (Unix time): what the other metrics say is as old as this.")  # fmt: skip

COLLECTORS = (
    Metric("tailrace_collector_health", "health", Type.STATES, NOW, "1 for the health of the collector as the table shows it: what its newest heartbeat says, `stopped` after a stop in order, `killed` if it ended otherwise, as far as the lock of a local store tells, `silent` if its heartbeats are overdue, whatever the last one says, or `unknown`.", Label("health", "healths", lambda *_: HEALTHS)),
    Metric("tailrace_collector_heartbeat_timestamp_seconds", "made", GAUGE, NOW, "When the collector's newest heartbeat in the table was made (Unix time, by its clock); absent if that clock is ahead, so that nobody knows the age.", optional=True),
    Metric("tailrace_collector_heartbeat_interval_seconds", "interval_seconds", GAUGE, NOW, "Time between two heartbeats of the collector, as the newest one says."),
    Metric("tailrace_collector_uncommitted_bytes", "uncommitted_bytes", GAUGE, NOW, "Bytes that the collector had received and the table lacked when its newest heartbeat was made; absent if that does not say.", optional=True),
    Metric("tailrace_collector_spool_bytes", "spool_bytes", GAUGE, NOW, "Size of the collector's spool when its newest heartbeat was made; absent if that does not say.", optional=True),
    Metric("tailrace_collector_missing_events", "missing_events", GAUGE, NOW, "Events that the collector's ledger lacked when its newest heartbeat was made; absent if that does not say.", optional=True),
)  # fmt: skip
"""Metrics of each collector, with the labels in `SUBJECT` and the values of `ObservedCollector`."""

SUBJECT = ("collector", "host", "identity")

OBSERVED = (READ, *COLLECTORS)


class ObservedCollector:
    """The figures of one collector, as its rows in the table show them. An unknown figure is None."""

    def __init__(self, each: CollectorHistory) -> None:
        self.health = each.health if each.health in HEALTHS else UNKNOWN
        ahead = self.health == UNKNOWN and each.age_seconds < 0
        self.made = None if ahead else each.heartbeat / 1e9
        self.interval_seconds = each.interval_seconds
        self.uncommitted_bytes = each.uncommitted_bytes
        self.spool_bytes = each.spool_bytes
        self.missing_events = each.missing_events


def observed(found: Iterable[CollectorHistory], read: int) -> Iterator[Family]:
    """Yield the metrics of the collectors `found`, whose rows were read at the time `read` (Unix ns). If several
    collectors have the same labels, yield only the metrics of the one with the newest heartbeat."""
    newest: dict[tuple[str, ...], CollectorHistory] = {}
    for each in sorted(found, key=attrgetter("heartbeat")):
        newest[each.name, each.host, each.identity] = each
    labelled = [
        (dict(zip(SUBJECT, who, strict=True)), ObservedCollector(each))
        for who, each in newest.items()
    ]
    when = family_of(READ)
    fill(when, READ, {}, read / 1e9)
    yield when
    for metric in COLLECTORS:
        family = family_of(metric)
        for labels, it in labelled:
            fill(family, metric, labels, getattr(it, metric.field))
        yield family
