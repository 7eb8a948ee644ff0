"""Where the log ends, after a stop of any kind.

The newest segment is read through, across bad places. What was synced once must not be cut off,
and what was not must not be kept behind a hole; frames tell which is which, because each says up
to where the log was synced when it was written:

- a bad place below that is *damage*. It stays, is reported, and reading it raises StoreError;
- the log ends at the first bad place that is not. What lies behind was never acknowledged and goes.

A power cut leaves the second kind: half a frame, or zeros where the file system had reserved room
but not written yet. Damage takes a failing disk, or one that lied about a sync. The entries of
the very last sync have no successor to vouch for them; damage among them is taken for a torn tail.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.spool.entry import FRAME_MAX, Fault, name_fault
from tailrace.spool.segment import HEADER_SIZE, WINDOW, Segment

ZEROS = bytes(256 * 1024)
"""What a new segment is full of. Comparing with it takes a tenth of the time of a search in it."""


class Damage(NamedTuple):
    """Positions that were acknowledged once and cannot be read now."""

    position: int
    end: int
    fault: Fault


class Recovery(NamedTuple):
    """What was found at start."""

    entries: int
    """Readable ones in the newest segment."""
    synced: int
    """Up to where the log had been synced when the last of the entries was written."""
    end: int
    """Where the log ends, and goes on."""
    time_ns: int
    """Time of the last readable entry."""
    cut: int
    """Bytes behind the end, up to the last that was not zero."""
    fault: Fault | None
    """What ended the log; None when nothing had to be cut."""
    damage: list[Damage]
    """Bad places before the end, in the newest segment."""


class _Run(NamedTuple):
    """Consecutive readable entries."""

    position: int
    end: int
    entries: int
    time_ns: int
    synced: int


def survey(segment: Segment) -> Recovery:
    """Read the newest segment; nothing is changed."""
    data_end = _data_end(segment)
    runs = [_run(segment, segment.first)]
    faults: list[Damage] = []
    while runs[-1].end < data_end:
        bad = runs[-1].end
        resumed = segment.find(bad + 1, data_end + FRAME_MAX)
        rest = segment.bytes_at(bad, min(FRAME_MAX, data_end - bad))
        faults.append(Damage(bad, resumed or data_end, name_fault(rest, bad)))
        if resumed is None:
            break
        runs.append(_run(segment, resumed))
    return _conclude(segment, runs, faults, data_end)


def _conclude(segment: Segment, runs: list[_Run], faults: list[Damage], data_end: int) -> Recovery:
    synced = max(run.synced for run in runs)
    ending = next((bad for bad in faults if bad.end > synced), None)
    end = max(ending.position, synced) if ending else runs[-1].end
    kept = [run for run in runs if run.entries and run.position < end]
    return Recovery(
        entries=sum(run.entries for run in kept),
        synced=min(synced, end),
        end=end,
        time_ns=kept[-1].time_ns if kept else segment.header.time_ns,
        cut=max(data_end - end, 0),
        fault=ending.fault if ending else None,
        damage=[bad._replace(end=min(bad.end, end)) for bad in faults if bad.position < end],
    )


def _run(segment: Segment, position: int) -> _Run:
    """Read on from a position to the first bad place."""
    start, count, time_ns, synced = position, 0, 0, segment.first
    stop = segment.first + segment.size - HEADER_SIZE
    while (found := segment.scan(position, WINDOW, stop)).entries:
        position += found.consumed
        count += len(found.entries)
        time_ns = found.entries[-1].time_ns
        synced = max(synced, found.synced)
    return _Run(start, position, count, time_ns, synced)


def _data_end(segment: Segment) -> int:
    """Return the position behind the last byte that is not zero; the first one if all are."""
    end = segment.first + segment.size - HEADER_SIZE
    while end > segment.first:
        start = max(segment.first, end - len(ZEROS))
        data = segment.bytes_at(start, end - start)
        if data != ZEROS[: len(data)]:
            return start + len(data.rstrip(b"\0"))
        end = start
    return segment.first
