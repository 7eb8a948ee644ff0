"""Collect the state of the daemon in one value, which the page /status and the metrics show."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import astuple

from tailrace import __version__, kernels
from tailrace.config.load import store_path
from tailrace.config.schema import SourceConfig
from tailrace.daemon import memory
from tailrace.daemon.conditions import failures
from tailrace.daemon.daemon import Daemon
from tailrace.figures import (
    AWAITED_MAX,
    Awaited,
    HeartbeatStatus,
    MemoryStatus,
    SessionStatus,
    SourceStatus,
    SpoolStatus,
    Status,
)
from tailrace.ingest.clocks import Pace, Progress
from tailrace.security.guard import OPEN, Guard
from tailrace.sources.source import SourceFigures
from tailrace.standard import dropped_lines


def status(daemon: Daemon, admin: str = "", guard: Guard = OPEN) -> Status:
    """Return the status of a daemon. `admin` is the address of the admin endpoint, and `guard` its access control."""
    spool, figures = daemon.spool, daemon.figures
    committing = daemon.loops.committing
    bounds = {bound.name: bound.bytes for bound in memory.bounds(daemon.config)}
    return Status(
        version=__version__,
        state=daemon.health.state,
        conditions=dict(daemon.health.conditions),
        failure=daemon.health.failure,
        collector=daemon.config.collector.name,
        pid=os.getpid(),
        uptime_seconds=daemon.clock.monotonic() - daemon.started_at,
        log_lines_dropped=dropped_lines(),
        killed_starts=daemon.starts.killed if daemon.starts else 0,
        config=daemon.current.status(),
        kernels=kernels.word(),
        store=store_path(daemon.config),
        admin=admin,
        sources={name: source_status(daemon, name, c) for name, c in daemon.config.sources.items()},
        spool=SpoolStatus(
            size_bytes=spool.size,
            free_bytes=spool.free,
            end=spool.end,
            durable=spool.durable,
            decoded=daemon.ingest.position,
            committed=committing.committed,
            buffered_bytes=spool.buffered,
            undecoded_bytes=spool.durable - daemon.ingest.position,
            uncommitted_bytes=spool.durable - committing.committed,
            sync_seconds=figures.syncs,
            identity=spool.identity,
        ),
        memory=MemoryStatus(
            state_bytes=daemon.ingest.budget.total, bound_bytes=sum(bounds.values()), bounds=bounds
        ),
        heartbeat=daemon.loops.heartbeats.status if daemon.loops.heartbeats else HeartbeatStatus(),
        clock_steps=figures.clock_steps,
        clock_ahead_seconds=spool.timeline.ahead / 1e9,
        commits=committing.commits,
        rows_committed=figures.rows_committed,
        commit_seconds=figures.commits,
        upkeeps=figures.upkeeps,
        out_of_descriptors=failures(daemon.sources, figures),
        admin_requests=figures.admin.requests,
        admin_refused=figures.admin.refused,
        admin_certificate_expiry_timestamp_seconds=guard.expires,
    )


def source_status(daemon: Daemon, name: str, config: SourceConfig) -> SourceStatus:
    """Return the status of a configured source, even if it does not run at the moment."""
    source = daemon.sources.get(name)
    ingest = daemon.ingest
    tally, account, pending = ingest.tally(name), ingest.account(name), ingest.pending(name)
    commons = ingest.common(name)
    # While entries are left to decode, compare the times of sessions with the time of the last decoded entry, not with
    # the present.
    caught_up = ingest.position == daemon.spool.durable
    now = daemon.spool.timeline.now() if caught_up else ingest.now
    paces = {
        session: _session(pace, now, ingest.wall) for session, pace in ingest.paces.of(name).items()
    }
    awaited = [
        Awaited(session=session, stream=stream, events=events)
        for session, stream, events in ingest.awaited(name)
    ]
    uncommitted = max(0, tally.said_missing - daemon.loops.committing.said_missing.get(name, 0))
    progress = Counter(pace.progress for pace in paces.values())
    known = _named(source.figures() if source else SourceFigures(), tally, account, commons.state)
    known |= {
        "type": str(config.__struct_config__.tag),
        "format": config.format,
        "address": source.address if source else "",
        "pending_bytes": pending,
        "imbalance_bytes": tally.received - tally.decoded - tally.malformed - pending,
        "imbalance_events": account.imbalance,
        "open_windows": ingest.open_windows(name),
        "awaited_events": sum(each.events for each in awaited) + uncommitted,
        "awaited": awaited[:AWAITED_MAX],
        "asked_names": ingest.asked_names(name),
        "state_bytes": ingest.budget.sources.get(name, 0),
        "packed_records": commons.packed,
        "slow_records": commons.slow,
        "unassigned_drops": commons.drops.unassigned,
        "followed_sessions": {p.value: progress[p] for p in Progress},
        "unfollowed_sessions": ingest.paces.unfollowed(name),
        "sessions": paces,
    }
    return SourceStatus(**{field: known[field] for field in SourceStatus.__struct_fields__})


def _named(*parts: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of all given structs in one dictionary. The keys are the names that the fields have in the
    encoded form."""
    return {
        name: value
        for part in parts
        for name, value in zip(part.__struct_encode_fields__, astuple(part), strict=True)
    }


def _session(pace: Pace, now: int, wall: Callable[[int], int]) -> SessionStatus:
    progress = pace.progress(now)
    silent = progress is Progress.SILENT
    return SessionStatus(
        progress=progress,
        reached_ticks=pace.reached,
        ticks_per_wall_second=None if silent else pace.ticks_per_wall_second,
        slowdown_ratio=None if silent else pace.slowdown,
        last_event_timestamp_seconds=wall(pace.heard) / 1e9,
        advanced_timestamp_seconds=wall(pace.advanced) / 1e9,
    )
