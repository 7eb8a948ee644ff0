"""Every cell of the table of statements is reached through the ingest, and has the effect that its rows show."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.ingest import succession
from tailrace.ingest.lives import (
    EVENTS,
    INTRODUCTIONS,
    STATEMENTS,
    EventFit,
    Expectation,
    Owner,
    SessionStatement,
    Standing,
    Timing,
)
from tailrace.ingest.machine import Ingest
from tests.ingest.log import SECOND, Log, heph_epoch, heph_event, heph_report, heph_session, rows

MS = 10**6
T = 10**18
"""An epoch (ns)."""
HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'
RECORD = b'{"type":"record","id":1,"clk":1,"name":"n","record_type":"task"}\n'


def event(n):
    return heph_event(1, n, start=n * MS)


def other(n):
    """An event of a second stream."""
    return heph_event(2, n, start=n * MS)


def epoch(seconds):
    return heph_epoch(T + int(seconds * SECOND))


def announced(number):
    return heph_session(number, turn=1)


FALLEN = heph_event(1, 2, start=1)
"""An event that cannot be of the incarnation that has another one under its number."""
PLAIN = [[event(n)] for n in range(3)]
DOUBT = [*PLAIN, [epoch(0)]]
"""An epoch alone behind events: the second incarnation is in doubt."""
NAMED = [[announced(1), epoch(0), event(0)], [event(1)]]
TWO = [[epoch(0), event(0)], [epoch(9), other(0)]]
"""The first of two incarnations lingers."""
THREE = [*TWO, [epoch(18), heph_event(3, 0)]]
LATE = [[epoch(5), event(0)], [event(1)], [epoch(4.9), heph_report()]]
"""The last datagram begins with an epoch that is older, and was under way."""
NAMES = [*NAMED, [announced(2), epoch(9), other(0)]]
"""One client after another at one address."""
NAMES_BEHIND = [[epoch(-9), other(0)], TWO[0], [announced(1), event(1)], [announced(2), epoch(9)]]
NAMED_DOUBT = [*TWO, [announced(1)]]
"""An announcement alone behind events: an incarnation with an id is in doubt."""


def behind(datagrams, *packets):
    """The datagrams, and these packets in the last one."""
    return [*datagrams[:-1], [*datagrams[-1], *packets]]


def of_first(datagrams, *packets):
    """The datagrams, and one that is of the session that was announced first."""
    return [*datagrams, [announced(1), *packets]]


S, P = SessionStatement, Standing
FIRST, SECOND_ONE, THIRD = "s", "s.1", "s.2"
CELLS = {
    (S.NONE, P.PASSED): (of_first(NAMES, heph_report()), [FIRST] * 2),
    (S.NONE, P.EMPTY): ([[heph_report()]], [FIRST]),
    (S.NONE, P.DOUBT): ([*DOUBT, [heph_report()]], [SECOND_ONE]),
    (S.NONE, P.FITS): ([*PLAIN, [heph_report()]], [FIRST]),
    (S.SAME_EPOCH, P.PASSED): (of_first(NAMES, epoch(9)), [FIRST] * 2),
    (S.SAME_EPOCH, P.EMPTY): ([[epoch(0)], [epoch(0)]], [FIRST]),
    (S.SAME_EPOCH, P.DOUBT): ([*DOUBT, [epoch(0)]], [SECOND_ONE]),
    (S.SAME_EPOCH, P.FITS): ([*TWO, [epoch(9)]], [SECOND_ONE]),
    (S.FIRST_EPOCH, P.PASSED): (of_first([*NAMED, [announced(2), event(0)]], epoch(3)), [FIRST] * 2),
    (S.FIRST_EPOCH, P.EMPTY): ([[epoch(0)]], [FIRST]),
    (S.FIRST_EPOCH, P.DOUBT): ([*PLAIN, [announced(1)], [epoch(0)]], [SECOND_ONE]),
    (S.FIRST_EPOCH, P.FITS): ([*PLAIN, [epoch(0), event(3)]], [FIRST]),
    (S.FIRST_EPOCH, P.DENIED): ([*PLAIN, [epoch(0), FALLEN]], ["restart s.1", SECOND_ONE]),
    (S.FIRST_EPOCH, P.OPEN): (DOUBT, [SECOND_ONE]),
    (S.OTHER_EPOCH, P.PASSED): (of_first(NAMES, epoch(18)), [FIRST] * 2),
    (S.OTHER_EPOCH, P.EMPTY): ([[epoch(0)], [epoch(9)]], ["restart s.1", SECOND_ONE]),
    (S.OTHER_EPOCH, P.DOUBT): ([*DOUBT, [epoch(9)]], ["restart s.1", "close s", "restart s.2", THIRD]),
    (S.OTHER_EPOCH, P.FITS): ([*TWO[:1], [epoch(9)]], ["restart s.1", SECOND_ONE]),
    (S.PREVIOUS_EPOCH, P.PASSED): (of_first(NAMES, epoch(0)), [FIRST] * 2),
    (S.PREVIOUS_EPOCH, P.EMPTY): ([*TWO[:1], [epoch(9)], [epoch(0)]], [FIRST]),
    (S.PREVIOUS_EPOCH, P.DOUBT): ([*NAMED_DOUBT, [epoch(9)]], [SECOND_ONE]),
    (S.PREVIOUS_EPOCH, P.FITS): ([*TWO, [epoch(0)]], [FIRST]),
    (S.OVER_EPOCH, P.PASSED): (of_first(NAMES_BEHIND, epoch(-9)), [SECOND_ONE] * 2),
    (S.OVER_EPOCH, P.EMPTY): ([*TWO, [epoch(18)], [epoch(0)]], [FIRST]),
    (S.OVER_EPOCH, P.DOUBT): ([*NAMED_DOUBT, [epoch(0)]], [FIRST]),
    (S.OVER_EPOCH, P.FITS): ([*THREE, [epoch(0)]], [FIRST]),
    (S.LATE_EPOCH, P.PASSED): (of_first(NAMES, epoch(8.9)), [FIRST] * 2),
    (S.LATE_EPOCH, P.EMPTY): ([[epoch(5)], [epoch(4.9)]], ["restart s.1", SECOND_ONE]),
    (S.LATE_EPOCH, P.DOUBT): (
        [*PLAIN, [epoch(5)], [epoch(4.9)]], ["restart s.1", "close s", "restart s.2", THIRD],
    ),
    (S.LATE_EPOCH, P.FITS): ([*LATE[:2], [epoch(4.9)]], ["restart s.1", SECOND_ONE]),
    (S.SAME_ID, P.PASSED): (behind([*NAMED, [epoch(-0.1), heph_report()]], announced(1)), ["restart s.1", *[SECOND_ONE] * 2, FIRST]),
    (S.SAME_ID, P.EMPTY): ([[announced(1)], [announced(1)]], [FIRST]),
    (S.SAME_ID, P.DOUBT): ([*PLAIN, [announced(1)], [announced(1)]], [SECOND_ONE]),
    (S.SAME_ID, P.FITS): ([*NAMED, [announced(1)]], [FIRST]),
    (S.FIRST_ID, P.PASSED): (behind(LATE, announced(1)), ["restart s.1", *[SECOND_ONE] * 3]),
    (S.FIRST_ID, P.EMPTY): ([[announced(1)]], [FIRST]),
    (S.FIRST_ID, P.DOUBT): ([*DOUBT, [announced(1)]], [SECOND_ONE]),
    (S.FIRST_ID, P.FITS): ([*PLAIN, [announced(1), event(3)]], [FIRST]),
    (S.FIRST_ID, P.DENIED): ([*PLAIN, [announced(1), FALLEN]], ["restart s.1", SECOND_ONE]),
    (S.FIRST_ID, P.OPEN): ([*PLAIN, [announced(1)]], [SECOND_ONE]),
    (S.OTHER_ID, P.PASSED): (behind([*NAMED, [epoch(-0.1), heph_report()]], announced(2)), ["restart s.1", *[SECOND_ONE] * 3]),
    (S.OTHER_ID, P.EMPTY): ([[announced(1)], [announced(2)]], ["restart s.1", SECOND_ONE]),
    (S.OTHER_ID, P.DOUBT): ([*PLAIN, [announced(1)], [announced(2)]], ["restart s.1", "close s", "restart s.2", THIRD]),
    (S.OTHER_ID, P.FITS): ([*NAMED, [announced(2)]], ["restart s.1", SECOND_ONE]),
    (S.EARLIER_ID, P.EMPTY): ([*NAMED, [announced(2)], [announced(1)]], [FIRST]),
    (S.EARLIER_ID, P.FITS): ([*NAMES, [announced(1)]], [FIRST]),
    (S.KNOWN_ID, P.EMPTY): ([[announced(5)]], ["close s", "resume other", "other"]),
    (S.KNOWN_ID, P.DOUBT): ([*DOUBT, [announced(5)]], ["restart s.1", "close s", "close s.1", "resume other", "other"]),
    (S.KNOWN_ID, P.FITS): ([*NAMED, [announced(5)]], ["resume other", "other"]),
    (S.KNOWN_ID, P.PASSED): (behind(LATE, announced(5)), ["restart s.1", *[SECOND_ONE] * 2, "close s.1", "close s", "resume other", "other"]),
    (S.EARLIER_ID, P.PASSED): (behind([*NAMES, [epoch(8.9), heph_report()]], announced(1)), ["restart s.2", *[THIRD] * 2, FIRST]),
}  # fmt: skip
"""By cell the datagrams from one address, and the session of each session row that the last one makes, behind the row's name
where the row is about an incarnation's beginning or end. Another connection has announced session 5."""

NOT_REACHED = {
    (S.HEADER, P.PASSED), (S.HEADER, P.DOUBT),  # only datagrams are passed or in doubt, and Heph has no header
    (S.EARLIER_ID, P.DOUBT),  # an incarnation in doubt has no event, and only one with events is overtaken
}  # fmt: skip


class Row(dict):
    """A row of the table that notes which of its cells are asked for."""

    def __init__(self, statement, row, asked):
        super().__init__(row)
        self._statement, self._asked = statement, asked

    def __getitem__(self, standing):
        self._asked.append((self._statement, standing))
        return super().__getitem__(standing)


@pytest.fixture
def asked(monkeypatch):
    found = []
    table = {statement: Row(statement, row, found) for statement, row in STATEMENTS.items()}
    monkeypatch.setattr(succession, "STATEMENTS", table)
    return found


def last(log, ingest, session, *, before):
    """The session rows that the entries of a session behind the first ones make."""
    for entry in log.entries[:before]:
        ingest.apply(entry)
    ingest.batch.take()
    yield
    for entry in log.entries[before:]:
        ingest.apply(entry)
    names = {f"session{log.entries[0].session}": "other", f"session{session}": "s"}
    made = []
    for row in rows(ingest.batch.take()):
        if row["kind"] == "session":
            name, _, number = row["session"].partition(".")
            short = names[name] + (f".{number}" if number else "")
            said = row["name"] in ("restart", "close", "resume")
            made.append(f"{row['name']} {short}" if said else short)
    yield made


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0].name}-{cell[1].name}")
def test_a_statement_of_a_datagram_does_what_its_cell_says(cell, asked):
    datagrams, expected = CELLS[cell]
    log = Log()
    log.datagrams(log.open(transport="udp", peer="10.0.0.9:5"), [announced(5), event(7)])
    session = log.open(transport="udp")
    for datagram in datagrams:
        log.now += 10 * MS
        log.datagrams(session, [b"".join(datagram)])
    steps = last(log, Ingest(), session, before=len(log.entries) - 1)
    next(steps)
    asked.clear()
    made = next(steps)
    assert asked[-1] == cell
    assert made == expected


@pytest.mark.parametrize(
    ("lines", "standing", "expected"),
    [(HEADER, P.EMPTY, ["restart s.1", "s.1"]), (HEADER + RECORD, P.FITS, ["restart s.1", "s.1"])],
)
def test_a_second_header_begins_an_incarnation(asked, lines, standing, expected):
    log = Log()
    session = log.open("jets")
    log.data(session, lines)
    log.data(session, HEADER)
    steps = last(log, Ingest(), session, before=len(log.entries) - 1)
    next(steps)
    asked.clear()
    assert [name for name in next(steps) if not name.startswith("close")] == expected
    assert asked == [(S.HEADER, standing)]


def test_every_cell_is_reached_or_named():
    headers = {(S.HEADER, P.EMPTY), (S.HEADER, P.FITS)}
    cells = {(statement, standing) for statement, row in STATEMENTS.items() for standing in row}
    assert cells == CELLS.keys() | headers | NOT_REACHED
    for statement in SessionStatement:
        more = {P.DENIED, P.OPEN} if statement in INTRODUCTIONS else set()
        assert STATEMENTS[statement].keys() == {P.PASSED, P.EMPTY, P.DOUBT, P.FITS} | more


def owner(fit, number, clock):
    """Return the owner of an event: the first rule that applies decides."""
    if fit is EventFit.STALE_COPY:
        return Owner.LATER
    if fit is EventFit.COPY:
        return Owner.EARLIER
    if fit is EventFit.BLIND_COPY:
        return Owner.LATER if number is Expectation.NEXT else Owner.EARLIER
    if number is Expectation.TAKEN:
        return Owner.EARLIER
    if clock is not Timing.UNKNOWN:
        return Owner.LATER if clock is Timing.CAN else Owner.EARLIER
    if number is Expectation.NEXT or fit is not EventFit.NEAR:
        return Owner.LATER
    return Owner.NEARER


@pytest.mark.parametrize(("fit", "number", "clock"), [*product(EventFit, Expectation, Timing)])
def test_the_first_rule_that_applies_decides_on_an_event(fit, number, clock):
    assert EVENTS[fit][number][clock] is owner(fit, number, clock)
