"""Find the end of the log after a stop of any kind.

Recovery reads the newest segment completely and continues after bad ranges. Recovery must keep all synced entries, and
must discard unsynced entries after a bad range. Each frame records the position up to which the log was synced when the
frame was written. Recovery therefore distinguishes two cases:

- A bad range below such a position is *damage*. The range stays in the log and is reported; reading the range raises
  StoreError.
- The log ends at the first bad range above all these positions. The bytes after the end were never acknowledged and are
  cleared.

A power cut leaves a bad range of the second kind: a part of a frame, or old bytes of the file (zeros, or frames of an
earlier segment, whose positions do not match). A failing disk, or a disk that does not store what it reported as
synced, causes damage. No frame records the position of the last sync, so damage in the entries of the last sync counts
as a torn tail.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.spool.segment import FRAME_MAX, HEADER_SIZE, WINDOW, Segment

ZEROS = bytes(256 * 1024)
"""A block of zeros, with which parts of a segment are compared.

The comparison takes a tenth of the time of a search for a nonzero byte."""


class DamagedRange(NamedTuple):
    """A range of log positions whose entries were acknowledged but cannot be read any more."""

    position: int
    end: int


class SpoolRecovery(NamedTuple):
    """The state in which a start of the daemon has found the newest segment of the log."""

    entries: int
    """Number of readable entries in the segment."""
    synced: int
    """The position up to which the log was synced when the last readable entry was written."""
    end: int
    """The position at which the log ends and the next entry is written."""
    time_ns: int
    """Time (Unix ns) of the last readable entry."""
    leftovers: bool
    """Whether the segment's file has nonzero bytes after the log's end, which must be cleared."""
    damage: list[DamagedRange]
    """The ranges before the log's end that cannot be read."""


class _Run(NamedTuple):
    """A series of consecutive readable entries in a segment, between two bad ranges."""

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
    return _conclude(segment, runs, faults, data_end)


def _conclude(
    segment: Segment, runs: list[_Run], faults: list[DamagedRange], data_end: int
) -> SpoolRecovery:
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
    """Read the entries from `position` up to the first bad range or up to the position `stop`."""
    start, count, time_ns, synced = position, 0, 0, segment.first
    while (found := segment.scan(position, WINDOW, stop)).entries:
        position += found.consumed
        count += len(found.entries)
        time_ns = found.entries[-1].time_ns
        synced = max(synced, found.synced)
    return _Run(start, position, count, time_ns, synced)


def _data_end(segment: Segment) -> int:
    """Return the position after the last nonzero byte of a segment, or the segment's first position if all bytes are
    zero. For an empty segment of 64 MiB, this takes 30 ms."""
    for begin, end in reversed(segment.written()):
        for start in reversed(range(begin, end, len(ZEROS))):
            data = segment.bytes_at(start, min(len(ZEROS), end - start))
            if data != ZEROS[: len(data)]:
                return start + len(data.rstrip(b"\0"))
    return segment.first
