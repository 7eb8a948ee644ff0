"""Which incarnation of a session a record is of, as two tables: one for statements about the session, one for events.

Two incarnations are possible where a producer restarts. On a datagram socket, records of the earlier one come after the
later one has begun; its epoch and its announcement are repeated, and may be lost.

- `STATEMENTS` has an action for each statement (an epoch, a header, the id of an announced session, compared with what is
  known) and each standing of the current incarnation. `succession` finds both, and carries the action out.
- `EVENTS` has the owner of an event that may be of the earlier incarnation although a later one has begun, by how
  the event fits the earlier one's numbers, how the later one sees its number, and what the clock says.

The first epoch or announcement may come alone, behind events. Then it is open whether the same producer sent those
events: they may be another producer's, whose own epoch or announcement was lost. A new incarnation begins in doubt, and the next
event, report or goodbye decides. If that fits the previous incarnation, the previous incarnation goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from tailrace.ingest.incarnation import Incarnation
from tailrace.rows.fields import END
from tailrace.rows.records import ListRecords, numbered

# Statements


class SessionStatement(Enum):
    """A record's statement about its session, compared with what is known."""

    NONE = auto()
    """No epoch, no header and no id."""
    HEADER = auto()
    """A header, although the current incarnation has records and has had its own."""
    SAME_EPOCH = auto()
    FIRST_EPOCH = auto()
    """The current incarnation has no epoch so far."""
    OTHER_EPOCH = auto()
    """The current incarnation has another epoch."""
    PREVIOUS_EPOCH = auto()
    """The epoch of the previous incarnation, which still takes events."""
    OVER_EPOCH = auto()
    """The epoch of an incarnation that is over."""
    LATE_EPOCH = auto()
    """An older epoch that is not known, and a datagram from that time may come now."""
    SAME_ID = auto()
    FIRST_ID = auto()
    """An id that is not known; no client announced the current incarnation."""
    OTHER_ID = auto()
    """An id that is not known; a client announced the current incarnation under another one."""
    EARLIER_ID = auto()
    """The id of an incarnation that came from this address before the current one, and whose datagrams may be late."""
    KNOWN_ID = auto()
    """The id of a session that other connections have brought."""


class Standing(Enum):
    """How the current incarnation stands to a statement."""

    PASSED = auto()
    """The statement's datagram is of another incarnation."""
    EMPTY = auto()
    """No event has come."""
    DOUBT = auto()
    """It began in doubt, and may be the previous incarnation."""
    FITS = auto()
    """The event behind the statement may be its own; or nothing depends on that event."""
    DENIED = auto()
    """The event behind the statement cannot be its own."""
    OPEN = auto()
    """No event is behind the statement, and datagrams may have overtaken each other."""


class Course(Enum):
    """Which incarnation takes the statement, and which one begins before."""

    CURRENT = auto()
    """The current one takes it."""
    OF_DATAGRAM = auto()
    """The one that the statement's datagram is of takes it."""
    EARLIER = auto()
    """The earlier one that the epoch or id names takes it, and is not current thereby."""
    OVER = auto()
    """One that is over takes this statement alone."""
    LATE = auto()
    """One begins that was over before the current one began. The current one goes on."""
    RESTART = auto()
    """One begins: the producer has restarted."""
    CLOCKED_RESTART = auto()
    """One begins, and its clock goes on from that of the current one."""
    DOUBT = auto()
    """One begins in doubt."""
    RESUME = auto()
    """The one that other connections have brought goes on here."""


BEGINS = frozenset({Course.OVER, Course.LATE, Course.RESTART, Course.CLOCKED_RESTART, Course.DOUBT})
"""Actions that cost as much as a new session. A host may begin a limited number of sessions."""


def _row(passed: Course, *others: Course) -> dict[Standing, Course]:
    """Return the actions of a statement by standing. A single other action is that of `EMPTY`, `DOUBT` and `FITS`: only
    `INTRODUCTIONS` depend on the event behind, so that the incarnation can be `DENIED` or `OPEN`."""
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
"""Statements after which the event behind decides."""

WHY = {
    SessionStatement.HEADER: "header",
    SessionStatement.FIRST_EPOCH: "epoch",
    SessionStatement.OTHER_EPOCH: "epoch",
    SessionStatement.LATE_EPOCH: "epoch",
    SessionStatement.FIRST_ID: "session",
    SessionStatement.OTHER_ID: "session",
}
"""The reason of a restart, as rows have it."""


# Events


class EventFit(Enum):
    """How an event fits the numbers of the earlier incarnation."""

    NEAR = "near"
    """It may be missing there, or one of the next."""
    OLD = "old"
    """Its number came there so long ago that the event is forgotten."""
    FAR = "far"
    """Its number is far ahead, or nothing is known of its stream."""
    COPY = "same"
    """The same event came there, and copies may still come. One of the two incarnations has an epoch."""
    BLIND_COPY = "blind copy"
    """The same without an epoch: a repeated simulation sends equal events."""
    STALE_COPY = "stale copy"
    """The same event came there, too long ago for a copy to come now."""


class Expectation(Enum):
    """How the later incarnation sees an event's number."""

    TAKEN = auto()
    """Another event came under it."""
    NEXT = auto()
    OTHER = auto()


class Timing(Enum):
    """Whether the later incarnation can have sent an event by now, by the producers' clock."""

    CAN = auto()
    CANNOT = auto()
    UNKNOWN = auto()


class Owner(Enum):
    """The incarnation that an event is of."""

    EARLIER = auto()
    LATER = auto()
    NEARER = auto()
    """The one whose last event is nearer in time."""


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
"""How much faster (ns) an event may arrive than the fastest before it, at least and at most."""


def candidates(earlier: Incarnation, records: ListRecords, next_epoch: int | None) -> Iterator[int]:
    """Yield the indexes of records that may be of an earlier incarnation although one with `next_epoch`
    has begun.

    An event that ended after the next incarnation began is not of the earlier one. Without both epochs,
    an event is not either if the earlier incarnation's numbers do not show it."""
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
    """Return whether a candidate is of the earlier incarnation and not of the later.

    `repeats`: whether copies of the earlier incarnation's events may still come."""
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
    """Return whether the later incarnation can have sent an event with this end (ns) by now, by the clock
    that both share.

    Without both epochs, only the later incarnation's own events show how fast events travel. Whether an event
    that would be faster than those can have been sent stays unknown."""
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
    """Return how much faster (ns) an event may arrive than the fastest before it. Two clocks began so far apart, and
    events of them arrived at so many times. With few arrival times, all of them may have been delayed, so allow more."""
    return max(_SLACK, min(apart // 4, _SLACK_MOST) // max(1, times))
