"""Measure how fast the spool's disk syncs and writes, with a file that has no name."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from tailrace.clock import Clock
from tailrace.doctor.finding import KIB, MIB, Finding, Severity, good, setting
from tailrace.doctor.host import Host, nearest
from tailrace.filesystem import refusal_text
from tailrace.units import Duration

CHECK = "disk speed"

SYNC_BYTES = 64 * KIB
"""Bytes that a sync tick writes at about 20,000 small events a second."""
SYNCS = 16
BLOCK = MIB
BYTES_MAX = 32 * MIB
SYNC_SECONDS = 0.6
WRITE_SECONDS = 0.8

SLOW_MB_PER_SECOND = 20.0
"""About 250,000 events a second in the spool, with nothing left for the table."""


def check(host: Host) -> Iterator[Finding]:
    place = nearest(host.spool)
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        return
    try:
        # The file has no name if the file system supports that; otherwise its name is removed at once.
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            latencies = _syncs(file, host.clock)
            rate = _throughput(file, host.clock)
    except OSError as error:
        yield Finding(
            check=CHECK,
            severity=Severity.PROBLEM,
            what=f"A file in {place} could not be written and synced: {refusal_text(error.errno, place)}.",
            why="The collector ends when a sync fails, because no data is safe then.",
            commands=["sudo dmesg --level=err,warn | tail"],
        )
        return
    yield _judged(host.config.spool.sync_interval, latencies, rate)


def _judged(interval: Duration, latencies: list[float], rate: float) -> Finding:
    median, worst = statistics.median(latencies) * 1e3, max(latencies) * 1e3
    figures = {"sync_ms": round(median, 3), "sync_worst_ms": round(worst, 3), "mb_per_s": rate}
    what = (
        f"The spool's disk syncs in {median:.1f} ms (the slowest of {len(latencies)}: {worst:.1f})"
        f" and writes {rate:,.0f} MB/s."
    )
    slow_sync = median > interval * 1e3
    if not slow_sync and rate >= SLOW_MB_PER_SECOND:
        return good(CHECK, what, **figures)
    return Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=what,
        why=f"Bytes are decoded only after a sync, every {interval}. On a slow disk, rows come later,"
        " and sources wait when they send more than it writes.",
        commands=[
            setting("spool", "path", "/a/faster/disk"),
            *([setting("spool", "sync_interval", f"{2 * median:.0f} ms")] if slow_sync else []),
        ],
        figures=figures,
    )


def _syncs(file: BinaryIO, clock: Clock) -> list[float]:
    """Return the seconds that each small write with a sync takes."""
    latencies: list[float] = []
    piece = os.urandom(SYNC_BYTES)
    end = clock.monotonic() + SYNC_SECONDS
    while not latencies or (len(latencies) < SYNCS and clock.monotonic() < end):
        before = clock.monotonic()
        file.write(piece)
        os.fdatasync(file.fileno())
        latencies.append(clock.monotonic() - before)
    return latencies


def _throughput(file: BinaryIO, clock: Clock) -> float:
    """Return the megabytes a second of large writes, with a sync after every four."""
    block = os.urandom(BLOCK)
    before = now = clock.monotonic()
    written = 0
    while written < BYTES_MAX and now < before + WRITE_SECONDS:
        for _ in range(4):
            written += file.write(block)
        os.fdatasync(file.fileno())
        now = clock.monotonic()
    return round(written / max(now - before, 1e-9) / 1e6, 1)
