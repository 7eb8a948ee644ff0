"""Every Prometheus metric of the daemon, in one table: name, unit, labels, what sums to what.

Values are read from `Status` at each scrape, so that no series outlives what it speaks of. Labels
are source names (bounded by the configuration) and closed sets of reasons; a label that could grow
is cut at `metrics.series_max`, the rest summed under `other`.

    received_bytes = decoded_bytes + malformed_bytes + pending_bytes      (imbalance_bytes is 0)
    events_expected = events_seen + events_missing - events_duplicate    (imbalance_events is 0)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from tailrace.figures import Durations, Figures, SourceStatus, Status


class SourceMetric(NamedTuple):
    """A metric with one value a source, or one for each key of a dictionary (then `label`)."""

    name: str
    field: str
    kind: str  # counter | gauge
    help: str
    label: str | None = None


SOURCE_METRICS = (
    SourceMetric("tailrace_source_received_bytes", "received_bytes", "counter", "Bytes that came in, as decoded so far."),
    SourceMetric("tailrace_source_decoded_bytes", "decoded_bytes", "counter", "Bytes of records that could be read."),
    SourceMetric("tailrace_source_malformed_bytes", "malformed_bytes", "counter", "Bytes that could not be read."),
    SourceMetric("tailrace_source_pending_bytes", "pending_bytes", "gauge", "Bytes of records that are not whole yet."),
    SourceMetric("tailrace_source_imbalance_bytes", "imbalance_bytes", "gauge", "received - decoded - malformed - pending; 0, or Tailrace has a bug."),
    SourceMetric("tailrace_source_taken_bytes", "taken_bytes", "counter", "Bytes taken in since the daemon started."),
    SourceMetric("tailrace_source_chunks", "chunks", "counter", "Chunks taken in since the daemon started."),
    SourceMetric("tailrace_source_rows", "rows", "counter", "Rows made for the table."),
    SourceMetric("tailrace_source_records", "records", "counter", "Records decoded, by kind.", "kind"),
    SourceMetric("tailrace_source_flaws", "flaws", "counter", "Records kept although they break a rule, by rule.", "rule"),
    SourceMetric("tailrace_source_malformed_records", "malformed_records", "counter", "Pieces that could not be read, by cause.", "cause"),
    SourceMetric("tailrace_ledger_expected_events", "expected_events", "gauge", "Events that producers' counters and references say there are."),
    SourceMetric("tailrace_ledger_seen_events", "seen_events", "counter", "Events that came, duplicates too."),
    SourceMetric("tailrace_ledger_missing_events", "missing_events", "gauge", "Events missing now: gaps not healed, and holes still open."),
    SourceMetric("tailrace_ledger_duplicate_events", "duplicate_events", "counter", "Events that had come before; they are not stored again."),
    SourceMetric("tailrace_ledger_uncounted_events", "uncounted_events", "counter", "Events of streams past a limit; they are stored, and nobody knows what is missing between them."),
    SourceMetric("tailrace_ledger_imbalance_events", "imbalance_events", "gauge", "expected - (seen + missing - duplicate); 0, or Tailrace has a bug."),
    SourceMetric("tailrace_ledger_gap_events", "gap_events", "counter", "Events found missing, by reason.", "reason"),
    SourceMetric("tailrace_ledger_heal_events", "heal_events", "counter", "Missing events that came after all, by the gap's reason.", "reason"),
    SourceMetric("tailrace_ledger_open_windows", "open_windows", "gauge", "Sessions that wait for late events before they say what is missing."),
    SourceMetric("tailrace_ledger_streams", "followed_streams", "gauge", "Streams whose counters are followed (at most `ledger.source_streams_max`)."),
    SourceMetric("tailrace_ledger_remembered_gaps", "remembered_gaps", "gauge", "Holes and gaps that late events can still fill (at most `ledger.source_holes_max`)."),
    SourceMetric("tailrace_ledger_forgotten_gaps", "forgotten_gaps", "counter", "Gaps that can no longer be healed, for want of room to remember them."),
    SourceMetric("tailrace_ledger_unknown_gaps", "unknown_gaps", "counter", "Gaps found of which nobody knows the size."),
    SourceMetric("tailrace_ledger_restarts", "restarts", "counter", "Producers that began anew within a session."),
    SourceMetric("tailrace_source_sessions_opened", "sessions_opened", "counter", "Sessions begun: connections, datagram peers, files."),
    SourceMetric("tailrace_source_sessions_closed", "sessions_closed", "counter", "Sessions ended."),
    SourceMetric("tailrace_source_open", "open", "gauge", "Connections, datagram peers or files now."),
    SourceMetric("tailrace_source_refused", "refused", "counter", "Connections not taken or cut off, by cause.", "cause"),
    SourceMetric("tailrace_source_acknowledgements", "acknowledgements", "counter", "Packets for clients that want to know what is durable, by outcome: `sent`, or put off because the client has not read earlier ones (`unread`), has not sent as much itself (`excess`, of a datagram peer) or is not there any more (`gone`), or because the kernel would not (`refused`).", "outcome"),
    SourceMetric("tailrace_udp_kernel_dropped_datagrams", "kernel_drops", "counter", "Datagrams the kernel dropped for want of room in the socket's buffer."),
    SourceMetric("tailrace_udp_unassigned_drops", "unassigned_drops", "gauge", "Of all datagrams the kernel ever dropped here, those that no gap of a counter accounts for."),
    SourceMetric("tailrace_udp_queue_bytes", "queue_bytes", "gauge", "Memory of datagrams waiting in the socket's buffer."),
    SourceMetric("tailrace_udp_buffer_bytes", "buffer_bytes", "gauge", "The socket's buffer as granted by the kernel."),
    SourceMetric("tailrace_udp_buffer_asked_bytes", "buffer_asked_bytes", "gauge", "The socket's buffer as asked for."),
    SourceMetric("tailrace_tail_files", "files", "gauge", "Files followed, or known and waiting to be."),
    SourceMetric("tailrace_tail_waiting_files", "waiting_files", "gauge", "Files known and not followed, by what they wait for.", "cause"),
    SourceMetric("tailrace_tail_descriptors", "descriptors", "gauge", "Files held open."),
    SourceMetric("tailrace_tail_errors", "errors", "counter", "Calls for files and directories that failed and are tried again, by error.", "error"),
    SourceMetric("tailrace_tail_behind_bytes", "behind_bytes", "gauge", "Bytes of followed files that are not read yet."),
)  # fmt: skip

OF_ONE_TYPE = {"tailrace_udp_": "udp", "tailrace_tail_": "tail"}
"""How the names of metrics begin that only one type of source has."""

DAEMON_METRICS = (
    ("tailrace_build", "info", "Version, and whether compiled kernels are in use."),
    ("tailrace_state", "gauge", "1 for the state the daemon is in."),
    ("tailrace_condition", "gauge", "1 for each thing that is wrong now."),
    ("tailrace_uptime_seconds", "gauge", "Seconds since the daemon started."),
    ("tailrace_spool_size_bytes", "gauge", "The spool on disk, preallocated space included."),
    ("tailrace_spool_buffered_bytes", "gauge", "Received and not yet on disk."),
    ("tailrace_spool_undecoded_bytes", "gauge", "On disk and not yet decoded."),
    ("tailrace_spool_uncommitted_bytes", "gauge", "On disk and not yet in the table."),
    ("tailrace_spool_sync_seconds", "histogram", "Time to bring what was received to disk."),
    ("tailrace_store_commit_seconds", "histogram", "Time from a batch to its durable commit."),
    ("tailrace_store_committed_rows", "counter", "Rows committed since the daemon started."),
    ("tailrace_store_upkeeps", "counter", "Upkeep runs, by outcome."),
)

STATES = ("starting", "ok", "degraded", "stopping", "failed")


def source_families(statuses: dict[str, SourceStatus], series_max: int) -> Iterator[Metric]:
    for metric in SOURCE_METRICS:
        labels = ["source", metric.label] if metric.label else ["source"]
        family = _family(metric.kind, metric.name, metric.help, labels)
        for name, status in statuses.items():
            if any(metric.name.startswith(p) and status.type != t for p, t in OF_ONE_TYPE.items()):
                continue
            value = getattr(status, metric.field)
            if metric.label:
                for key, number in bounded(value, series_max).items():
                    family.add_metric([name, key], number)
            else:
                family.add_metric([name], value)
        yield family


def daemon_families(status: Status, figures: Figures) -> Iterator[Metric]:
    helps = {name: help_ for name, _, help_ in DAEMON_METRICS}
    build = {"version": status.version, "kernels": status.kernels}
    yield InfoMetricFamily("tailrace_build", helps["tailrace_build"], value=build)
    states = GaugeMetricFamily("tailrace_state", helps["tailrace_state"], labels=["state"])
    for state in STATES:
        states.add_metric([state], state == status.state)
    yield states
    name = "tailrace_condition"
    conditions = GaugeMetricFamily(name, helps[name], labels=["condition"])
    for condition in ("spool", "store", "checkpoint", "upkeep", "damage"):
        conditions.add_metric([condition], condition in status.conditions)
    yield conditions
    spool = status.spool
    for name, value in (
        ("tailrace_uptime_seconds", status.uptime_seconds),
        ("tailrace_spool_size_bytes", spool.size_bytes),
        ("tailrace_spool_buffered_bytes", spool.buffered_bytes),
        ("tailrace_spool_undecoded_bytes", spool.durable - spool.decoded),
        ("tailrace_spool_uncommitted_bytes", spool.durable - spool.committed),
    ):
        yield GaugeMetricFamily(name, helps[name], value=value)
    for name, durations in (
        ("tailrace_spool_sync_seconds", figures.syncs),
        ("tailrace_store_commit_seconds", figures.commits),
    ):
        yield _histogram(name, helps[name], durations)
    name = "tailrace_store_committed_rows"
    yield CounterMetricFamily(name, helps[name], value=status.rows_committed)
    upkeeps = CounterMetricFamily(
        "tailrace_store_upkeeps", helps["tailrace_store_upkeeps"], labels=["outcome"]
    )
    for outcome, count in figures.upkeeps.items():
        upkeeps.add_metric([outcome], count)
    yield upkeeps


def bounded(values: dict[str, int], most: int) -> dict[str, int]:
    """At most `most` entries; what exceeds them is summed under `other`."""
    if len(values) <= most:
        return values
    kept = dict(list(values.items())[: most - 1])
    kept["other"] = sum(values.values()) - sum(kept.values())
    return kept


def _family(
    kind: str, name: str, help_: str, labels: list[str]
) -> CounterMetricFamily | GaugeMetricFamily:
    if kind == "counter":
        return CounterMetricFamily(name, help_, labels=labels)
    return GaugeMetricFamily(name, help_, labels=labels)


def _histogram(name: str, help_: str, durations: Durations) -> HistogramMetricFamily:
    bounds = zip(durations.BOUNDS, durations.at_most, strict=True)
    buckets = [(str(bound), float(count)) for bound, count in bounds]
    buckets.append(("+Inf", float(durations.count)))
    return HistogramMetricFamily(name, help_, buckets=buckets, sum_value=durations.sum)
