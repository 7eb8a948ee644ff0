"""An overview of a running collector: what each source brings now, what is missing, and what is wrong.

Two statuses of a process make the rates between them. The time between them is the difference of the
uptimes that the process reports, so that a slow answer does not distort a rate.
"""

from __future__ import annotations

import msgspec

from tailrace.figures import SourceStatus, Status


class SourceOverview(msgspec.Struct, kw_only=True):
    """One source. Rates are None where only one status of the process is known."""

    source: str
    format: str
    open: int
    """Connections or files that are open."""
    streams: int
    rows: int
    rows_per_second: float | None
    received_bytes_per_second: float | None
    missing_events: int
    missing_is_known: bool
    """False if more events may be missing than `missing_events`: streams without sequence numbers, or gaps
    of unknown size."""
    awaited_events: int
    malformed_records: int
    behind_bytes: int
    """Bytes that producers have written and the collector has not received: in files and socket buffers."""


class Overview(msgspec.Struct, kw_only=True):
    """The collector and its sources, in the order of the configuration."""

    state: str
    conditions: dict[str, str]
    """Problems that do not stop the collector, each with its text."""
    failure: str | None
    collector: str
    pid: int
    version: str
    kernels: str
    uptime_seconds: float
    store: str
    rows_committed: int
    rows_committed_per_second: float | None
    commit_seconds: float | None
    """Mean duration of the commits between the two statuses; None if there was none."""
    uncommitted_bytes: int
    """Bytes in the spool that the table does not show yet."""
    state_bytes: int
    sources: list[SourceOverview]


def overview(now: Status, before: Status | None) -> Overview:
    """Return the overview at a status. A status of another process or of the same moment gives no rates."""
    if before is None or before.pid != now.pid or before.uptime_seconds >= now.uptime_seconds:
        before = None
    earlier = before.sources if before else {}
    seconds = now.uptime_seconds - before.uptime_seconds if before else 0.0
    return Overview(
        state=now.state,
        conditions=now.conditions,
        failure=now.failure,
        collector=now.collector,
        pid=now.pid,
        version=now.version,
        kernels=now.kernels,
        uptime_seconds=now.uptime_seconds,
        store=now.store,
        rows_committed=now.rows_committed,
        rows_committed_per_second=(now.rows_committed - before.rows_committed) / seconds
        if before
        else None,
        commit_seconds=_mean_commit(now, before) if before else None,
        uncommitted_bytes=now.spool.uncommitted_bytes,
        state_bytes=now.memory.state_bytes,
        sources=[
            _source(name, source, earlier.get(name), seconds)
            for name, source in now.sources.items()
        ],
    )


def _mean_commit(now: Status, before: Status) -> float | None:
    new, old = now.commit_seconds, before.commit_seconds
    return (new.sum - old.sum) / (new.count - old.count) if new.count > old.count else None


def _source(
    name: str, now: SourceStatus, before: SourceStatus | None, seconds: float
) -> SourceOverview:
    return SourceOverview(
        source=name,
        format=now.format,
        open=now.open,
        streams=now.followed_streams,
        rows=now.rows,
        rows_per_second=(now.rows - before.rows) / seconds if before else None,
        received_bytes_per_second=(now.received_bytes - before.received_bytes) / seconds
        if before
        else None,
        missing_events=now.missing_events,
        missing_is_known=not (now.unknown_gaps or now.uncounted_events or now.uncounted_sessions),
        awaited_events=now.awaited_events,
        malformed_records=sum(now.malformed_records.values()),
        behind_bytes=now.behind_bytes + now.queue_bytes,
    )
