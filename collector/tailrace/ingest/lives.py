"""Define the rules that assign a record to an incarnation (producer run), as two tables.

After a restart of the producer, a record may belong to the new incarnation, or to the earlier one if its datagram is
late. `STATEMENTS` decides for records with an epoch, a header or a session id, and `EVENTS` for events. The first epoch
or session id from an address may belong to the producer of the events before it, or to a new producer. Therefore a new
incarnation begins on suspicion, and the next event, report of discarded events, or goodbye (report that the session
ends) decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from tailrace.ingest.incarnation import Incarnation
from tailrace.rows.fields import END
from tailrace.rows.records import ListRecords, numbered

# Table that selects the action for a record with an epoch, a header or a session id


class SessionStatement(Enum):
    """Kind of a record with an epoch, a header or a session id, in relation to earlier records."""

    NONE = auto()
    HEADER = auto()
    """A header that arrives after records of the current incarnation (producer run) and does not belong to them."""
    SAME_EPOCH = auto()
    FIRST_EPOCH = auto()
    """An epoch, while the current incarnation (producer run) has none."""
    OTHER_EPOCH = auto()
    """An epoch that differs from the epoch of the current incarnation (producer run)."""
    PREVIOUS_EPOCH = auto()
    """The epoch of the previous incarnation (producer run), which still accepts late events."""
    OVER_EPOCH = auto()
    """The epoch of an incarnation (producer run) that accepts no further events."""
    LATE_EPOCH = auto()
    """An unknown epoch that is older than the current one, but whose datagrams may still arrive late."""
    SAME_ID = auto()
    FIRST_ID = auto()
    """A new session id, while the current incarnation (producer run) has none."""
    OTHER_ID = auto()
    """A new session id, while the current incarnation (producer run) has another one."""
    EARLIER_ID = auto()
    """The id of an earlier incarnation (producer run) from this address, whose datagrams may be late."""
    KNOWN_ID = auto()
    """The id of a session that a client began on another connection."""


class Standing(Enum):
    """Whether the current incarnation (producer run) can have sent a record with an epoch, a header or a session id."""

    PASSED = auto()
    """An earlier record of the same datagram shows that the datagram belongs to another incarnation (producer run)."""
    EMPTY = auto()
    """The current incarnation (producer run) has received no event."""
    DOUBT = auto()
    """It is uncertain whether the producer has restarted; the next event decides."""
    FITS = auto()
    """The next event may belong to the current producer run, or the action does not depend on the next event."""
    DENIED = auto()
    """The next event's number shows a restart of the producer, or repeats the number of a different event."""
    OPEN = auto()
    """No event follows the record in the same input."""


class Course(Enum):
    """Action for a record with an epoch, a header or a session id."""

    CURRENT = auto()
    """The current incarnation (producer run) receives the record."""
    OF_DATAGRAM = auto()
    """The incarnation (producer run) of the datagram's earlier records receives the record."""
    EARLIER = auto()
    """The earlier incarnation (producer run) that stated the same epoch or session id receives the record."""
    OVER = auto()
    """The finished incarnation (producer run) that stated the same epoch receives the record, but no further events."""
    LATE = auto()
    """A new incarnation (producer run) begins for an epoch that arrived late. It does not become the current one."""
    RESTART = auto()
    CLOCKED_RESTART = auto()
    """A new incarnation (producer run) begins, and takes over the measured lead of the earlier run's clock."""
    DOUBT = auto()
    """A new incarnation (producer run) begins, but later events may show that the producer did not restart."""
    RESUME = auto()
    """The session with the stated id, which began on another connection, continues on this connection."""


BEGINS = frozenset({Course.OVER, Course.LATE, Course.RESTART, Course.CLOCKED_RESTART, Course.DOUBT})
"""Actions that count against the number of sessions that a host may begin per second."""


def _row(passed: Course, *others: Course) -> dict[Standing, Course]:
    """Return the action for each `Standing`: `passed` for `PASSED`, and `others` for the following values in order. A
    single action in `others` applies to all of `EMPTY`, `DOUBT` and `FITS`."""
    others = others if len(others) > 1 else others * 3
    return dict(zip(Standing, (passed, *others), strict=False))


_A = Course
STATEMENTS: dict[SessionStatement, dict[Standing, Course]] = {
    # Rows: kinds of records (`SessionStatement`). Columns: whether the current producer run can have sent the record
    # (`Standing`). Entries: actions (`Course`).
    #                               PASSED           EMPTY       DOUBT       FITS        DENIED      OPEN
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
"""Kinds of records in which a producer states its epoch or session id for the first time. The next event shows to which
producer run they belong."""

WHY = {
    SessionStatement.HEADER: "header",
    SessionStatement.FIRST_EPOCH: "epoch",
    SessionStatement.OTHER_EPOCH: "epoch",
    SessionStatement.LATE_EPOCH: "epoch",
    SessionStatement.FIRST_ID: "session",
    SessionStatement.OTHER_ID: "session",
}
"""Reason that rows state for a restart, by the kind of record that showed the restart."""


# Table that selects the incarnation (producer run) for an event


class EventFit(Enum):
    """Relation of an event's number to the earlier of the two producer runs that may have sent the event."""

    NEAR = "near"
    """The number is missing in the earlier producer run, or is one of the next numbers of this run."""
    OLD = "old"
    """The number is so low that the earlier producer run's event with this number is forgotten."""
    FAR = "far"
    """The number is far ahead of the earlier producer run's numbers, or this run does not have the stream."""
    COPY = "same"
    """The same event arrived in the earlier producer run, so recently that a duplicate may still arrive. At least
    one of the two runs has stated an epoch."""
    BLIND_COPY = "blind copy"
    """The same event arrived recently in the earlier of two producer runs without an epoch: a duplicate, or an equal
    event of a repeated simulation."""
    STALE_COPY = "stale copy"
    """The same event arrived in the earlier producer run, but too long ago for a duplicate to arrive now."""


class Expectation(Enum):
    """Relation of an event's number to the later of the two producer runs that may have sent the event."""

    TAKEN = auto()
    """The later producer run has received a different event with the same number."""
    NEXT = auto()
    OTHER = auto()


class Timing(Enum):
    """Whether the later of two producer runs can have sent an event by now, according to the producers' clock."""

    CAN = auto()
    CANNOT = auto()
    UNKNOWN = auto()


class Owner(Enum):
    """Incarnation (producer run) that receives an event if two incarnations are possible."""

    EARLIER = auto()
    LATER = auto()
    NEARER = auto()
    """The incarnation whose last event in the same stream is nearer in time to the event."""


_E, _L, _N = Owner.EARLIER, Owner.LATER, Owner.NEARER
EVENTS: dict[EventFit, dict[Expectation, dict[Timing, Owner]]] = {
    fit: {
        number: dict(zip(Timing, owners, strict=True))
        for number, owners in zip(Expectation, row, strict=True)
    }
    for fit, row in {
        # Rows: how the event's number fits the earlier of two producer runs (`EventFit`). Columns: how it fits the later
        # run (`Expectation`), and whether this run can have sent the event by now (`Timing`): CAN (+), CANNOT (-) or
        # UNKNOWN (?). Entries: the run that receives the event (`Owner`): _E EARLIER, _L LATER, _N NEARER.
        # Expectation:           TAKEN         NEXT          OTHER
        # Timing:                +   -   ?     +   -   ?     +   -   ?
        EventFit.NEAR:         ((_E, _E, _E), (_L, _E, _L), (_L, _E, _N)),
        EventFit.OLD:          ((_E, _E, _E), (_L, _E, _L), (_L, _E, _L)),
        EventFit.FAR:          ((_E, _E, _E), (_L, _E, _L), (_L, _E, _L)),
        EventFit.COPY:         ((_E, _E, _E), (_E, _E, _E), (_E, _E, _E)),
        EventFit.BLIND_COPY:   ((_E, _E, _E), (_L, _L, _L), (_E, _E, _E)),
        EventFit.STALE_COPY:   ((_L, _L, _L), (_L, _L, _L), (_L, _L, _L)),
    }.items()
}  # fmt: skip

_SLACK, _SLACK_MOST = 50 * 10**6, 10**9
"""Minimum and maximum tolerance (ns) for an event that arrives with a shorter delay than all earlier events."""


def candidates(earlier: Incarnation, records: ListRecords, next_epoch: int | None) -> Iterator[int]:
    """Yield the indexes of records that may be late events of an earlier incarnation (producer run), according to the
    records' numbers and end times. `next_epoch` is the epoch of the later incarnation."""
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
    earlier: Incarnation, event: ListRecords, later: Incarnation, now: int, *, repeats: bool
) -> bool:
    """Return whether an event belongs to the earlier of two incarnations (producer runs). `repeats` states that
    duplicates of the earlier incarnation's events may still arrive."""
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
    """Return whether the later incarnation (producer run) can have sent an event that ended at `end` (ns, by its
    clock). The end of an event is later than `now` by at most the lead of the producer's clock."""
    epoch, next_epoch = earlier.state.epoch, later.state.epoch
    if epoch is None or next_epoch is None:
        lead = later.lead.at(now)
        return Timing.CAN if lead is not None and end - now <= lead + _SLACK else Timing.UNKNOWN
    leads = [(epoch, earlier.lead.at(now)), (next_epoch, later.lead.at(now))]
    known = [zero + lead for zero, lead in leads if lead is not None]
    if not known:
        return Timing.UNKNOWN
    # The lead is measured from arrival times. If these are few, all earlier events may have been delayed, and the real
    # lead may be higher. Therefore tolerate more, the fewer the arrival times. Events that arrive together count once,
    # because the same delay may affect all of them.
    times = earlier.state.heard_times + later.state.heard_times
    slack = max(_SLACK, min((next_epoch - epoch) // 4, _SLACK_MOST) // max(1, times))
    return Timing.CAN if next_epoch + end - now <= max(known) + slack else Timing.CANNOT
