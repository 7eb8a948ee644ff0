"""Whose an event is, when two runs from one datagram address are possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.ingest.run import Run, marks_of
from tailrace.normalize import COUNT, END, STREAM

_SLACK = 50 * 10**6
"""How much faster (ns) an event may arrive than the fastest before it."""


def candidates(run: Run, columns: Sequence[Sequence[Any]], next_epoch: int | None) -> Iterator[int]:
    """Yield the places of records that may be of a run although a run with `next_epoch` has begun.

    An event that ended after the next run began is not of the run. Without both epochs nor is an event of
    which the run's numbers say nothing."""
    counters, epoch = run.counters, run.state.epoch
    if counters is None:
        return
    latest = None if epoch is None or next_epoch is None else next_epoch - epoch
    events = zip(columns[STREAM], columns[COUNT], marks_of(columns), columns[END], strict=True)
    for place, (stream, count, mark, end) in enumerate(events):
        if latest is not None and end is not None and end > latest:
            continue
        how = counters.fits(stream, count, mark)
        if how and (how != "far" or latest is not None):
            yield place


def owns(run: Run, event: Sequence[Sequence[Any]], later: Run, now: int, *, repeats: bool) -> bool:
    """Return whether a candidate, given as columns, is an event of a run and not of the later run.

    `repeats` tells whether copies of the run's events may still come. In this order: the event is known
    here to the last bit; its number is another event's in the later run; the later run can have sent the
    event by now, or cannot. Where no clock tells the latter, the event is of the run if the run's numbers
    speak for it and its time is nearer here."""
    mine, its = run.counters, later.counters
    if mine is None or its is None:
        return False
    (stream,), (count,), (mark,), (end,) = (
        event[STREAM], event[COUNT], marks_of(event), event[END],
    )  # fmt: skip
    expected = its.expects(stream, count)
    how = mine.fits(stream, count, mark)
    if how == "same":
        # A simulation that is run again says the same to the last bit.
        clocked = run.state.epoch is not None or later.state.epoch is not None
        return repeats and (clocked or not expected)
    if its.contradicts(stream, count, mark):
        return True
    sent = _can_have_sent(run, later, end or 0, now)
    if sent is not None:
        return not sent
    if expected or how in ("old", "far"):
        return False
    return abs(mark - mine.last_mark(stream)) < abs(mark - its.last_mark(stream))


def _can_have_sent(run: Run, later: Run, end: int, now: int) -> bool | None:
    """Return whether the later run can have sent an event with this end (ns) by now, as far as the
    clock that both runs share tells. Where no epochs tie its zeros together, only the later run's own
    events tell how fast they travel: return None if the event would have travelled faster. Return None
    as well where nothing came yet."""
    epoch, next_epoch = run.state.epoch, later.state.epoch
    if epoch is None or next_epoch is None:
        lead = later.lead.at(now)
        return True if lead is not None and end - now <= lead + _SLACK else None
    leads = [(epoch, run.lead.at(now)), (next_epoch, later.lead.at(now))]
    known = [zero + lead for zero, lead in leads if lead is not None]
    return next_epoch + end - now <= max(known) + _SLACK if known else None
