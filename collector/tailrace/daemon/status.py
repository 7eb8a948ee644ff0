"""The daemon's state as one value: what /status answers and /metrics is made from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from tailrace import __version__
from tailrace.config.schema import SourceConfig
from tailrace.daemon import memory
from tailrace.daemon.conditions.open_files import failures
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
from tailrace.ingest.pace import Pace, Progress
from tailrace.security.guard import OPEN, Guard


def status(daemon: Daemon, admin: str = "", guard: Guard = OPEN) -> Status:
    """Return the status of a daemon whose admin endpoint is at `admin`, behind this guard."""
    spool, figures = daemon.spool, daemon.figures
    committing = daemon.loops.committing
    return Status(
        version=__version__,
        state=daemon.health.state,
        conditions=dict(daemon.health.conditions),
        failure=daemon.health.failure,
        pid=os.getpid(),
        uptime_seconds=daemon.clock.monotonic() - daemon.started_at,
        killed_starts=daemon.starts.killed if daemon.starts else 0,
        config=daemon.current.status(),
        kernels="python",
        store=daemon.disk.store,
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
        memory=_memory(daemon),
        heartbeat=daemon.loops.heartbeats.status if daemon.loops.heartbeats else HeartbeatStatus(),
        clock_steps=figures.clock_steps,
        clock_ahead_seconds=spool.timeline.ahead / 1e9,
        commits=committing.commits,
        rows_committed=figures.rows_committed,
        commit_seconds=figures.commits,
        upkeeps=figures.upkeeps,
        out_of_descriptors=failures(daemon),
        admin_requests=figures.admin.requests,
        admin_refused=figures.admin.refused,
        admin_certificate_expiry_timestamp_seconds=guard.expires,
    )


def source_status(daemon: Daemon, name: str, config: SourceConfig) -> SourceStatus:
    """Return the status of a configured source; the daemon need not run."""
    source = daemon.sources[name]
    figures = source.figures()
    ingest = daemon.ingest
    tally, account, pending = ingest.tally(name), ingest.account(name), ingest.pending(name)
    commons = ingest.common(name)
    # What is not decoded yet tells no more than its last entry.
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
    return SourceStatus(
        type=str(config.__struct_config__.tag),
        format=config.format,
        address=source.address,
        open=figures.open,
        received_bytes=tally.received,
        decoded_bytes=tally.decoded,
        malformed_bytes=tally.malformed,
        pending_bytes=pending,
        imbalance_bytes=tally.received - tally.decoded - tally.malformed - pending,
        rows=tally.rows,
        records=tally.records,
        flaws=tally.flaws,
        malformed_records=tally.malformed_records,
        expected_events=account.expected,
        seen_events=account.seen,
        missing_events=account.missing,
        duplicate_events=account.duplicates,
        uncounted_events=account.uncounted,
        uncounted_sessions=commons.state.uncounted_sessions,
        imbalance_events=account.imbalance,
        gap_events=tally.gaps,
        heal_events=tally.heals,
        gave_way=tally.gave_way,
        unknown_gaps=tally.unknown_gaps,
        open_windows=ingest.open_windows(name),
        awaited_events=sum(each.events for each in awaited) + uncommitted,
        awaited=awaited[:AWAITED_MAX],
        followed_streams=commons.state.streams,
        remembered_gaps=commons.state.ranges,
        forgotten_gaps=commons.state.forgotten,
        state_bytes=ingest.budget.sources.get(name, 0),
        evicted=tally.evicted,
        unassigned_drops=commons.drops.unassigned,
        restarts=tally.restarts,
        sessions_opened=tally.opened,
        sessions_closed=tally.closed,
        followed_sessions={p.value: progress[p] for p in Progress},
        unfollowed_sessions=ingest.paces.unfollowed(name),
        sessions=paces,
        refused=figures.refused,
        acknowledgements=figures.replies,
        certificate_expiry_timestamp_seconds=figures.certificate_expires,
        chunks=figures.chunks,
        taken_bytes=figures.bytes,
        kernel_drops=figures.kernel_drops,
        queue_bytes=figures.queue_bytes,
        buffer_bytes=figures.buffer_bytes,
        buffer_asked_bytes=figures.buffer_asked,
        files=figures.files,
        waiting_files=figures.waiting,
        descriptors=figures.descriptors,
        errors=figures.errors,
        behind_bytes=figures.behind_bytes,
    )


def _memory(daemon: Daemon) -> MemoryStatus:
    parts = {bound.name: bound.bytes for bound in memory.bounds(daemon.config)}
    held = daemon.ingest.budget.total
    return MemoryStatus(state_bytes=held, bound_bytes=sum(parts.values()), bounds=parts)


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
