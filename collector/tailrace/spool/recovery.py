"""Find the end of the log after a stop of any kind: keep all synced entries, and discard torn ones at the end.

Each frame records the position up to which the log was synced when the frame was written. A bad range below such a
position is *damage*: it stays in the log, and reading it raises StoreError. The log ends at the first bad range above
the highest of these positions; the bytes after the end were never acknowledged and are cleared. Damage in the entries
of the last sync counts as a torn end, because no frame records that sync."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.spool.segment import FRAME_MAX, HEADER_SIZE, WINDOW, Segment

ZEROS = bytes(256 * 1024)
"""Zeros with which a segment is compared, in a tenth of the time of a search for a nonzero byte."""


class DamagedRange(NamedTuple):
    """A range of log positions whose entries were acknowledged but cannot be read any more."""

    position: int
    end: int


class SpoolRecovery(NamedTuple):
    """The state of the newest segment of the log at a start of the daemon."""

    entries: int
    synced: int
    """The position up to which the log was synced when the last readable entry was written."""
    end: int
    time_ns: int
    leftovers: bool
    """Whether nonzero bytes after the log's end must be cleared."""
    damage: list[DamagedRange]
    """The ranges before the log's end that cannot be read."""


class _Run(NamedTuple):
    position: int
    end: int
    entries: int
    time_ns: int
    synced: int


def survey(segment: Segment) -> SpoolRecovery:
    """Read the newest segment, and find where the log ends. Do not change the file."""
    data_end = _data_end(segment)
    # Zero bytes after `data_end` may belong to the last frame. They are fewer than `FRAME_MAX`.
    stop = min(data_end + FRAME_MAX, segment.first + segment.size - HEADER_SIZE)
    runs = [_run(segment, segment.first, stop)]
    faults: list[DamagedRange] = []
    while runs[-1].end < data_end:
        bad = runs[-1].end
        resumed = segment.find(bad + 1, stop)
        faults.append(DamagedRange(bad, resumed or data_end))
        if resumed is None:
            break
        runs.append(_run(segment, resumed, stop))
    synced = max(run.synced for run in runs)
    ending = next((bad for bad in faults if bad.end > synced), None)
    end = max(ending.position, synced) if ending else runs[-1].end
    kept = [run for run in runs if run.entries and run.position < end]
    return SpoolRecovery(
        entries=sum(run.entries for run in kept),
        synced=min(synced, end),
        end=end,
        time_ns=kept[-1].time_ns if kept else segment.header.time_ns,
        leftovers=data_end > end,
        damage=[bad._replace(end=min(bad.end, end)) for bad in faults if bad.position < end],
    )


def _run(segment: Segment, position: int, stop: int) -> _Run:
    start, count, time_ns, synced = position, 0, 0, segment.first
    while (found := segment.scan(position, WINDOW, stop)).entries:
        position += found.consumed
        count += len(found.entries)
        time_ns = found.entries[-1].time_ns
        synced = max(synced, found.synced)
    return _Run(start, position, count, time_ns, synced)


def _data_end(segment: Segment) -> int:
    """Return the position after the last nonzero byte of a segment, or its first position if all bytes are zero."""
    for begin, end in reversed(segment.written()):
        for start in reversed(range(begin, end, len(ZEROS))):
            data = segment.bytes_at(start, min(len(ZEROS), end - start))
            if data != ZEROS[: len(data)]:
                return start + len(data.rstrip(b"\0"))
    return segment.first
