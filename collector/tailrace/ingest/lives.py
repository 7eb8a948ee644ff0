"""Define the rules that assign a record to an incarnation (producer run), as two tables.

After a producer restarts, a record may belong to the new incarnation, or to the earlier one if its datagram is late.
The producer repeats its epoch (start time of its clock) and its announcement (with the id of the session), but the
datagrams may be lost.

- `STATEMENTS` contains the rules for records with an epoch, a header or a session id. A record's kind
  (`SessionStatement`), and whether the current incarnation can have sent it (`Standing`), determine an action
  (`Course`). `succession` determines both and executes the action.
- `EVENTS` contains the rules for events. Three facts determine the incarnation that receives the event (`Owner`): how
  the event's number fits the earlier incarnation (`EventFit`), how it fits the later one (`Expectation`), and whether
  the later one can have sent the event by now (`Timing`).

The first epoch or announcement from an address may arrive after events from this address. These events may come from
the same producer, or from an earlier one whose epoch or announcement was lost. Therefore a new incarnation begins in
doubt. The next event, report of discarded events or goodbye (end of the session) decides: if it fits the previous
incarnation, the previous incarnation continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from tailrace.ingest.incarnation import Incarnation
from tailrace.rows.fields import END
from tailrace.rows.records import ListRecords, numbered

# Table that selects the action for a record with an epoch, a header or a session id


class SessionStatement(Enum):
    """Kind of a record with facts about the session: an epoch, a header or a session id. Earlier records determine, for
    example, whether an epoch is the first one."""

    NONE = auto()
    """The record has no epoch, header or session id."""
    HEADER = auto()
    """A header that arrives after records of the current incarnation (producer run) and does not belong to these
    records."""
    SAME_EPOCH = auto()
    FIRST_EPOCH = auto()
    """An epoch. The current incarnation (producer run) has no epoch yet."""
    OTHER_EPOCH = auto()
    """An epoch that differs from the epoch of the current incarnation (producer run)."""
    PREVIOUS_EPOCH = auto()
    """The epoch of the previous incarnation (producer run), which still accepts late events."""
    OVER_EPOCH = auto()
    """The epoch of an incarnation (producer run) that accepts no further events."""
    LATE_EPOCH = auto()
    """An unknown epoch that is older than the current one, but recent enough that datagrams of its producer run may
    still arrive."""
    SAME_ID = auto()
    FIRST_ID = auto()
    """A new session id. The current incarnation (producer run) has no session id."""
    OTHER_ID = auto()
    """A new session id. The current incarnation (producer run) has another session id."""
    EARLIER_ID = auto()
    """The id of an earlier incarnation (producer run) from this address, whose datagrams may be late."""
    KNOWN_ID = auto()
    """The id of an announced session that began on another connection."""


class Standing(Enum):
    """Whether the current incarnation (producer run) can have sent a record with an epoch, a header or a session id."""

    PASSED = auto()
    """The record (epoch, header or session id) is in a datagram of another incarnation (producer run) than the current
    one."""
    EMPTY = auto()
    """The current incarnation (producer run) has received no event."""
    DOUBT = auto()
    """It is uncertain whether the current incarnation (producer run) is a new one or the previous one of the producer;
    the next event decides."""
    FITS = auto()
    """The record (epoch, header or session id) fits the current incarnation (producer run), because the next event may
    belong to this incarnation.

    Records whose action (`Course`) does not depend on the next event have this value, too."""
    DENIED = auto()
    """The record (epoch or session id) does not fit the current incarnation (producer run), because the next event's
    number shows a restart or repeats the number of another event of this incarnation."""
    OPEN = auto()
    """It is unknown whether the current incarnation (producer run) sent the record (epoch or session id), because no
    event follows the record in the same input."""


class Course(Enum):
    """Action for a record with an epoch, a header or a session id. The action determines which incarnation (producer
    run) receives the record, and whether a new incarnation begins first."""

    CURRENT = auto()
    """The current incarnation (producer run) receives the record (epoch, header or session id)."""
    OF_DATAGRAM = auto()
    """The record (epoch, header or session id) goes to the incarnation (producer run) that received an earlier record
    of the same datagram."""
    EARLIER = auto()
    """The earlier incarnation (producer run) with the stated epoch or session id receives the record with the epoch or
    id. The current incarnation stays the current one."""
    OVER = auto()
    """The record repeats the epoch of a finished incarnation (producer run). This incarnation receives the record, but
    no events."""
    LATE = auto()
    """A new incarnation (producer run) begins and receives the stated epoch. This epoch is older than the current one,
    because its datagram arrived late. The current incarnation stays the current one."""
    RESTART = auto()
    """A new incarnation (producer run) begins, because the producer has restarted."""
    CLOCKED_RESTART = auto()
    """A new incarnation (producer run) begins, because the producer has restarted. Both epochs are known, so the new
    incarnation inherits the measured lead of the producer's clock over the collector's clock."""
    DOUBT = auto()
    """A new incarnation (producer run) begins, but later events may show that the producer did not restart."""
    RESUME = auto()
    """The announced session that began on other connections continues on this connection."""


BEGINS = frozenset({Course.OVER, Course.LATE, Course.RESTART, Course.CLOCKED_RESTART, Course.DOUBT})
"""Actions that create an incarnation (producer run) or continue one. They count against the number of sessions that a
host may begin per second."""


def _row(passed: Course, *others: Course) -> dict[Standing, Course]:
    """Return one row of the table `STATEMENTS`: a dict from each `Standing` of a record to its action.

    `passed` is the action for `PASSED`. `others` are the actions for EMPTY, DOUBT, FITS and so on, in the order of
    `Standing`. A single action in `others` applies to `EMPTY`, `DOUBT` and `FITS`."""
    others = others if len(others) > 1 else others * 3
    return dict(zip(Standing, (passed, *others), strict=False))


_A = Course
STATEMENTS: dict[SessionStatement, dict[Standing, Course]] = {
    # Rows: kinds of records (`SessionStatement`). Columns: values of `Standing`. Entries: actions (`Course`).
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
"""Kinds of records with the first epoch or the first session id. The next event shows whether such a record belongs to
the current incarnation (producer run)."""

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
    """The event's number is missing in the earlier incarnation (producer run), or is one of the next that it can
    send."""
    OLD = "old"
    """The event's number is so low that the earlier incarnation (producer run) no longer remembers which event had this
    number."""
    FAR = "far"
    """The event's number is far ahead of the numbers of the earlier incarnation (producer run), or the stream is
    unknown."""
    COPY = "same"
    """The same event arrived in the earlier incarnation (producer run), so recently that a duplicate of it may still
    arrive. The epoch of at least one of the two incarnations is known."""
    BLIND_COPY = "blind copy"
    """The same event arrived in the earlier incarnation (producer run), and neither incarnation has stated an epoch.
    The event may be a duplicate, or come from a repeated simulation that sends equal events."""
    STALE_COPY = "stale copy"
    """The same event arrived in the earlier incarnation (producer run), but too long ago for a duplicate to arrive
    now."""


class Expectation(Enum):
    """Relation of an event's number to the later of the two producer runs that may have sent the event."""

    TAKEN = auto()
    """The later incarnation (producer run) has received a different event with the same number."""
    NEXT = auto()
    OTHER = auto()


class Timing(Enum):
    """Whether the later of two incarnations (producer runs) can have sent an event by now, according to the event's
    time and the producers' clock."""

    CAN = auto()
    CANNOT = auto()
    UNKNOWN = auto()


class Owner(Enum):
    """Incarnation (producer run) that receives an event if two incarnations are possible."""

    EARLIER = auto()
    LATER = auto()
    NEARER = auto()
    """The incarnation (producer run) whose last event in the same stream is nearer in time to the event."""


_E, _L, _N = Owner.EARLIER, Owner.LATER, Owner.NEARER
EVENTS: dict[EventFit, dict[Expectation, dict[Timing, Owner]]] = {
    fit: {
        number: dict(zip(Timing, owners, strict=True))
        for number, owners in zip(Expectation, row, strict=True)
    }
    for fit, row in {
        # Rows: values of `EventFit`. Columns: values of `Expectation`, each with the three values of `Timing`:
        # CAN (+), CANNOT (-) and UNKNOWN (?). Entries: _E for EARLIER, _L for LATER, _N for NEARER.
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
"""Minimum and maximum tolerance (ns) in the check whether a producer can have sent an event by now. The check assumes
the shortest delay of all earlier events, but a new event may have a shorter one."""


def candidates(earlier: Incarnation, records: ListRecords, next_epoch: int | None) -> Iterator[int]:
    """Yield the indexes of records that may be late events of an earlier incarnation (producer run).

    Leave out events whose number cannot belong to the earlier incarnation. If both epochs are known, also leave out
    events that ended after the epoch of the later incarnation (`next_epoch`). Otherwise, also leave out events whose
    number is far from the earlier incarnation's numbers."""
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
    """Return whether an event belongs to the earlier incarnation (producer run), not to the later one.

    `repeats` states that duplicates of the earlier incarnation's events may still arrive."""
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
    """Return whether the later incarnation (producer run) can have sent an event by now.

    `end` is the event's end time (ns) by the producer's clock. An event sent by now ends at most now plus the lead of
    this clock over the collector's clock. If both epochs are known, the events of both incarnations determine the lead,
    and an event with a later end gets `CANNOT`. Otherwise only the events of the later incarnation determine the lead,
    and an event with a later end gets `UNKNOWN`."""
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
    """Return the tolerance (ns) for an event that arrives with a shorter delay than all earlier events.

    `times` is the number of different arrival times of the earlier events. If it is small, all of these events may have
    been delayed, so the tolerance is larger. `apart` is the time (ns) between the epochs of the earlier and the later
    producer run."""
    return max(_SLACK, min(apart // 4, _SLACK_MOST) // max(1, times))
