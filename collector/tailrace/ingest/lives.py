"""Define the rules that assign a record to an incarnation, as two tables: one for statements about the session, one for
events.

After a producer restarts, two incarnations are possible. On a datagram socket, records of the earlier incarnation may
arrive after the later one has begun. The epoch and the announcement are repeated, and may be lost.

- `STATEMENTS` contains an action for each statement and each standing of the current incarnation. A statement is an
  epoch, a header, or the id of an announced session, compared with the known facts. `succession` determines both keys,
  and executes the action.
- `EVENTS` contains the owner of an event that may belong to the earlier incarnation although a later one has begun. The
  keys are how the event fits the earlier incarnation's numbers, how the later incarnation sees the event's number, and
  the evidence of the clock.

A first epoch or announcement may arrive after events of the same address. At this point the sender of these events is
uncertain: another producer may have sent them, whose own epoch or announcement was lost. A new incarnation begins in
doubt, and the next event, report or goodbye decides. If this record fits the previous incarnation, the previous
incarnation continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from tailrace.ingest.incarnation import Incarnation
from tailrace.rows.fields import END
from tailrace.rows.records import ListRecords, numbered

# Statements


class SessionStatement(Enum):
    """Statement of a record about its session, compared with the known facts."""

    NONE = auto()
    """The record states no epoch, no header and no id."""
    HEADER = auto()
    """The record is a header, although the current incarnation has records and its own header."""
    SAME_EPOCH = auto()
    FIRST_EPOCH = auto()
    """The record states an epoch, and the current incarnation has none so far."""
    OTHER_EPOCH = auto()
    """The epoch differs from the current incarnation's epoch."""
    PREVIOUS_EPOCH = auto()
    """The epoch belongs to the previous incarnation, which still accepts events."""
    OVER_EPOCH = auto()
    """The epoch belongs to a finished incarnation."""
    LATE_EPOCH = auto()
    """The epoch is unknown and older than the current epoch, and a datagram from this time may still arrive."""
    SAME_ID = auto()
    FIRST_ID = auto()
    """The id is unknown, and no client announced the current incarnation."""
    OTHER_ID = auto()
    """The id is unknown, and a client announced the current incarnation under another id."""
    EARLIER_ID = auto()
    """The id belongs to an earlier incarnation from this address, whose datagrams may be late."""
    KNOWN_ID = auto()
    """The id belongs to a session that other connections have carried."""


class Standing(Enum):
    """Relation of the current incarnation to a statement."""

    PASSED = auto()
    """The statement's datagram belongs to another incarnation."""
    EMPTY = auto()
    """The current incarnation has received no event."""
    DOUBT = auto()
    """The current incarnation began in doubt, and may be the previous incarnation."""
    FITS = auto()
    """The event after the statement may belong to the current incarnation, or is irrelevant for the statement."""
    DENIED = auto()
    """The event after the statement cannot belong to the current incarnation."""
    OPEN = auto()
    """No event follows the statement, and datagrams may have overtaken each other."""


class Course(Enum):
    """Action for a statement: the incarnation that receives the statement, and the incarnation that begins first, if any."""

    CURRENT = auto()
    """The current incarnation receives the statement."""
    OF_DATAGRAM = auto()
    """The incarnation of the statement's datagram receives the statement."""
    EARLIER = auto()
    """The earlier incarnation with the epoch or id receives the statement, without becoming the current one."""
    OVER = auto()
    """A finished incarnation receives only this statement."""
    LATE = auto()
    """An incarnation begins that was over before the current incarnation began. The current incarnation continues."""
    RESTART = auto()
    """A new incarnation begins, because the producer has restarted."""
    CLOCKED_RESTART = auto()
    """A new incarnation begins, and continues the clock of the current one."""
    DOUBT = auto()
    """A new incarnation begins in doubt."""
    RESUME = auto()
    """The incarnation that other connections have carried continues here."""


BEGINS = frozenset({Course.OVER, Course.LATE, Course.RESTART, Course.CLOCKED_RESTART, Course.DOUBT})
"""Actions that cost as much as a new session. The number of sessions that a host may begin is limited."""


def _row(passed: Course, *others: Course) -> dict[Standing, Course]:
    """Return the actions of a statement, by standing. A single action in `others` applies to `EMPTY`, `DOUBT` and
    `FITS`. Only `INTRODUCTIONS` depend on the following event, so only they can meet the standings `DENIED` and `OPEN`."""
    others = others if len(others) > 1 else others * 3
    return dict(zip(Standing, (passed, *others), strict=False))


_A = Course
STATEMENTS: dict[SessionStatement, dict[Standing, Course]] = {
    # statement                     PASSED           EMPTY       DOUBT       FITS        DENIED      OPEN
    SessionStatement.NONE:           _row(_A.OF_DATAGRAM, _A.CURRENT),
    SessionStatement.HEADER:         _row(_A.OF_DATAGRAM, _A.RESTART),
    SessionStatement.SAME_EPOCH:     _row(_A.OF_DATAGRAM, _A.CURRENT),
    SessionStatement.FIRST_EPOCH:    _row(_A.OF_DATAGRAM, _A.CURRENT, _A.CURRENT, _A.CURRENT, _A.RESTART, _A.DOUBT),
    SessionStatement.OTHER_EPOCH:    _row(_A.OF_DATAGRAM, _A.CLOCKED_RESTART),
    SessionStatement.PREVIOUS_EPOCH: _row(_A.OF_DATAGRAM, _A.EARLIER),
    SessionStatement.OVER_EPOCH:     _row(_A.OF_DATAGRAM, _A.OVER),
    SessionStatement.LATE_EPOCH:     _row(_A.OF_DATAGRAM, _A.LATE),
    SessionStatement.SAME_ID:        _row(_A.CURRENT,     _A.CURRENT),
    SessionStatement.FIRST_ID:       _row(_A.OF_DATAGRAM, _A.CURRENT, _A.CURRENT, _A.CURRENT, _A.RESTART, _A.DOUBT),
    SessionStatement.OTHER_ID:       _row(_A.OF_DATAGRAM, _A.RESTART),
    SessionStatement.EARLIER_ID:     _row(_A.EARLIER,     _A.EARLIER),
    SessionStatement.KNOWN_ID:       _row(_A.RESUME,      _A.RESUME),
}  # fmt: skip

INTRODUCTIONS = frozenset({SessionStatement.FIRST_EPOCH, SessionStatement.FIRST_ID})
"""Statements for which the following event decides."""

WHY = {
    SessionStatement.HEADER: "header",
    SessionStatement.FIRST_EPOCH: "epoch",
    SessionStatement.OTHER_EPOCH: "epoch",
    SessionStatement.LATE_EPOCH: "epoch",
    SessionStatement.FIRST_ID: "session",
    SessionStatement.OTHER_ID: "session",
}
"""Reasons of restarts, as written in rows."""


# Events


class EventFit(Enum):
    """Relation of an event to the numbers of the earlier incarnation."""

    NEAR = "near"
    """The event's number is missing in the earlier incarnation, or among its next numbers."""
    OLD = "old"
    """The event's number arrived in the earlier incarnation so long ago that the event is forgotten."""
    FAR = "far"
    """The event's number is far ahead of the earlier incarnation's numbers, or the stream is unknown."""
    COPY = "same"
    """The same event arrived in the earlier incarnation, and duplicates may still arrive. At least one of the two
    incarnations has an epoch."""
    BLIND_COPY = "blind copy"
    """The same event arrived in the earlier incarnation, and neither incarnation has an epoch: a repeated simulation
    sends equal events."""
    STALE_COPY = "stale copy"
    """The same event arrived in the earlier incarnation, too long ago for a duplicate."""


class Expectation(Enum):
    """Relation of an event's number to the later incarnation."""

    TAKEN = auto()
    """Another event arrived in the later incarnation under this number."""
    NEXT = auto()
    OTHER = auto()


class Timing(Enum):
    """Whether the producers' clock allows that the later incarnation has sent an event by now."""

    CAN = auto()
    CANNOT = auto()
    UNKNOWN = auto()


class Owner(Enum):
    """Incarnation that an event belongs to."""

    EARLIER = auto()
    LATER = auto()
    NEARER = auto()
    """The incarnation whose last event is nearer in time."""


_E, _L, _N = Owner.EARLIER, Owner.LATER, Owner.NEARER
EVENTS: dict[EventFit, dict[Expectation, dict[Timing, Owner]]] = {
    fit: {
        number: dict(zip(Timing, owners, strict=True))
        for number, owners in zip(Expectation, row, strict=True)
    }
    for fit, row in {
        # number             TAKEN         NEXT          OTHER
        # clock              can not  ?    can not  ?    can not  ?
        EventFit.NEAR:         ((_E, _E, _E), (_L, _E, _L), (_L, _E, _N)),
        EventFit.OLD:          ((_E, _E, _E), (_L, _E, _L), (_L, _E, _L)),
        EventFit.FAR:          ((_E, _E, _E), (_L, _E, _L), (_L, _E, _L)),
        EventFit.COPY:         ((_E, _E, _E), (_E, _E, _E), (_E, _E, _E)),
        EventFit.BLIND_COPY:   ((_E, _E, _E), (_L, _L, _L), (_E, _E, _E)),
        EventFit.STALE_COPY:   ((_L, _L, _L), (_L, _L, _L), (_L, _L, _L)),
    }.items()
}  # fmt: skip

_SLACK, _SLACK_MOST = 50 * 10**6, 10**9
"""Minimum and maximum time (ns) by which an event may travel faster than the fastest earlier event."""


def candidates(earlier: Incarnation, records: ListRecords, next_epoch: int | None) -> Iterator[int]:
    """Yield the indexes of records that may belong to an earlier incarnation although an incarnation with `next_epoch`
    has begun.

    An event that ended after the next incarnation began does not belong to the earlier incarnation. If either epoch is
    unknown, an event is a candidate only if its number fits the earlier incarnation's numbers."""
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
    """Return whether a candidate belongs to the earlier incarnation instead of the later one.

    `repeats`: whether duplicates of the earlier incarnation's events may still arrive."""
    ((stream, count, mark),) = numbered([event])
    (end,) = event.columns[END]
    if earlier.counters is None or later.counters is None or count is None:
        return False
    mine, its = earlier.counters.numbers, later.counters.numbers
    fit = EventFit(mine.fits(stream, count, mark) or "near")
    if fit is EventFit.COPY and not repeats:
        fit = EventFit.STALE_COPY
    elif fit is EventFit.COPY and earlier.state.epoch is None and later.state.epoch is None:
        fit = EventFit.BLIND_COPY
    number = Expectation.OTHER
    if its.contradicts(stream, count, mark):
        number = Expectation.TAKEN
    elif its.expects(stream, count):
        number = Expectation.NEXT
    owner = EVENTS[fit][number][_clock(earlier, later, end or 0, now)]
    if owner is Owner.NEARER:
        return abs(mark - mine.last_mark(stream)) < abs(mark - its.last_mark(stream))
    return owner is Owner.EARLIER


def _clock(earlier: Incarnation, later: Incarnation, end: int, now: int) -> Timing:
    """Return whether the later incarnation can have sent an event with this end (ns) by now, according to the clock
    that both incarnations share.

    If either epoch is unknown, only the later incarnation's own events show how fast events travel. An event that would
    have travelled faster gives the result `UNKNOWN`."""
    epoch, next_epoch = earlier.state.epoch, later.state.epoch
    if epoch is None or next_epoch is None:
        lead = later.lead.at(now)
        return Timing.CAN if lead is not None and end - now <= lead + _SLACK else Timing.UNKNOWN
    leads = [(epoch, earlier.lead.at(now)), (next_epoch, later.lead.at(now))]
    known = [zero + lead for zero, lead in leads if lead is not None]
    if not known:
        return Timing.UNKNOWN
    slack = _slack(next_epoch - epoch, earlier.lead.times + later.lead.times)
    return Timing.CAN if next_epoch + end - now <= max(known) + slack else Timing.CANNOT


def _slack(apart: int, times: int) -> int:
    """Return the time (ns) by which an event may travel faster than the fastest earlier event. `apart` is the distance
    between the two clocks' zeros, and `times` the number of arrival times of their events. With few arrival times, all
    events may have been delayed, so the result is larger."""
    return max(_SLACK, min(apart // 4, _SLACK_MOST) // max(1, times))
