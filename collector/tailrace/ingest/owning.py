"""Which of two incarnations from one datagram address an event is of."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.ingest.incarnation import Incarnation
from tailrace.rows.fields import END
from tailrace.rows.records import ListRecords, numbered

_SLACK, _SLACK_MOST = 50 * 10**6, 10**9
"""How much faster (ns) an event may arrive than the fastest before it, at least and at most."""


def candidates(earlier: Incarnation, records: ListRecords, next_epoch: int | None) -> Iterator[int]:
    """Yield the indexes of records that may be of an earlier incarnation although one with `next_epoch`
    has begun.

    An event that ended after the next incarnation began is not of the earlier one. Without both epochs,
    an event is not either if the earlier incarnation's numbers say nothing of it."""
    counters, epoch = earlier.counters, earlier.state.epoch
    if counters is None:
        return
    latest = None if epoch is None or next_epoch is None else next_epoch - epoch
    events = zip(numbered([records]), records.columns[END], strict=True)
    for index, ((stream, count, mark), end) in enumerate(events):
        if count is None or (latest is not None and end is not None and end > latest):
            continue
        how = counters.numbers.fits(stream, count, mark)
        if how and (how != "far" or latest is not None):
            yield index


def owns(
    earlier: Incarnation,
    event: ListRecords,
    later: Incarnation,
    now: int,
    *,
    repeats: bool,
) -> bool:
    """Return whether a candidate, is of the earlier incarnation and not of the later.

    `repeats` tells whether copies of the earlier incarnation's events may still come. The first of these
    decides: the earlier incarnation has the same event; the later one has another event under its number; the
    clock says whether the later one can have sent the event by now. Where no clock says it, the event is of
    the earlier incarnation if its numbers expect the event and its time is nearer there."""
    ((stream, count, mark),) = numbered([event])
    (end,) = event.columns[END]
    if earlier.counters is None or later.counters is None or count is None:
        return False
    mine, its = earlier.counters.numbers, later.counters.numbers
    expected = its.expects(stream, count)
    how = mine.fits(stream, count, mark)
    if how == "same":
        # A simulation that is repeated says the same to the last bit.
        clocked = earlier.state.epoch is not None or later.state.epoch is not None
        return repeats and (clocked or not expected)
    if its.contradicts(stream, count, mark):
        return True
    sent = _can_have_sent(earlier, later, end or 0, now)
    if sent is not None:
        return not sent
    if expected or how in ("old", "far"):
        return False
    return abs(mark - mine.last_mark(stream)) < abs(mark - its.last_mark(stream))


def _can_have_sent(earlier: Incarnation, later: Incarnation, end: int, now: int) -> bool | None:
    """Return whether the later incarnation can have sent an event with this end (ns) by now, by the clock
    that both share.

    Without both epochs, only the later incarnation's own events tell how fast events travel. Return None
    if this event would be faster than those, or if no event has come yet."""
    epoch, next_epoch = earlier.state.epoch, later.state.epoch
    if epoch is None or next_epoch is None:
        lead = later.lead.at(now)
        return True if lead is not None and end - now <= lead + _SLACK else None
    leads = [(epoch, earlier.lead.at(now)), (next_epoch, later.lead.at(now))]
    known = [zero + lead for zero, lead in leads if lead is not None]
    slack = _slack(next_epoch - epoch, earlier.lead.times + later.lead.times)
    return next_epoch + end - now <= max(known) + slack if known else None


def _slack(apart: int, times: int) -> int:
    """Return how much faster (ns) an event may arrive than the fastest before it, where two clocks that began so
    far apart were heard so many times. All that came at a few times may have been slow."""
    return max(_SLACK, min(apart // 4, _SLACK_MOST) // max(1, times))
