"""Compute an overview of a running collector: rates of the sources, missing events and problems.

A rate is computed from two responses of /status by the same process. The difference of the counts is divided by the
difference of the uptimes in the responses, so that a slow response does not distort the rate."""

from __future__ import annotations

import msgspec

from tailrace.figures import SourceStatus, Status


class SourceOverview(msgspec.Struct, kw_only=True):
    """The overview of one source. Rates are None if only one response of /status is available."""

    source: str
    format: str
    open: int
    """Number of open connections of the source or, for a source of files, of open files."""
    streams: int
    rows: int
    rows_per_second: float | None
    received_bytes_per_second: float | None
    missing_events: int
    missing_is_known: bool
    """Whether `missing_events` is the exact number. It is false if a stream has no sequence numbers, if a gap has an
    unknown size, or if names of events have not arrived."""
    awaited_events: int
    malformed_records: int
    behind_bytes: int
    """Number of bytes in files and socket buffers that producers have written and the collector has not received."""


class Overview(msgspec.Struct, kw_only=True):
    """The overview of a collector. Its sources are in the order of the configuration."""

    state: str
    conditions: dict[str, str]
    """Messages of the current conditions, by name of the condition."""
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
    """Mean duration (seconds) of the commits between the two responses of /status from which the overview is computed;
    None if there was no commit in between."""
    uncommitted_bytes: int
    """Number of bytes in the spool whose rows are not in the table."""
    state_bytes: int
    sources: list[SourceOverview]


def overview(now: Status, before: Status | None) -> Overview:
    """Return the overview for the status `now`. Rates are computed from the earlier status `before`. The rates are None
    if `before` is None or comes from another process."""
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
        missing_is_known=not (
            now.unknown_gaps or now.uncounted_events or now.uncounted_sessions or now.asked_names
        ),
        awaited_events=now.awaited_events,
        malformed_records=sum(now.malformed_records.values()),
        behind_bytes=now.behind_bytes + now.queue_bytes,
    )
