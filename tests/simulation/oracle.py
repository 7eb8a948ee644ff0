"""What must be true after a play. Shares no code with the ledger or the client.

Left out is what no collector can tell (ARCHITECTURE.md, "Blind spots"): the tail of a program that did
not end in order. For programs at one address, the generator leaves out the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.ingest.test_machine import assert_conserved, attributes, of
from tests.simulation.play import Event, Play


class Violation(AssertionError):  # noqa: N818 - the word of the trade
    """Something that must not be. `kind` says what, without numbers."""

    def __init__(self, kind: str, about: object) -> None:
        super().__init__(f"{kind}: {about}")
        self.kind = kind


def check(play: Play) -> None:
    """Raise Violation for the first thing that must not be."""
    rows = play.collector.rows
    spans = of(rows, "span")
    stored = Counter(_event(row) for row in spans)
    programs: dict[str, set[int]] = defaultdict(set)
    for row in spans:
        programs[row["session"]].add(_event(row).program)
        _demand(row["seq"] == _event(row).number, "another number", row)
    _none("stored twice", [event for event, times in stored.items() if times > 1])
    _none("two programs in a session", [s for s, some in programs.items() if len(some) > 1])
    _check_delivered(play, stored)
    _check_gaps(play, rows, stored, programs)
    _check_balance(play)


def _check_delivered(play: Play, stored: Counter[Event]) -> None:
    for number, program in play.programs.items():
        lacking = [event for event in program.sent[: program.delivered] if event not in stored]
        _demand(len(lacking) <= program.excused, "delivered and lost", (number, lacking[:9]))


def _check_gaps(
    play: Play, rows: list[dict[str, Any]], stored: Counter[Event], programs: dict[str, set[int]]
) -> None:
    """Each gap is of what is not stored, once; what is not stored, and was not the last, is in a gap."""
    missing: Counter[Event] = Counter()
    reasons: Counter[str] = Counter()
    for row in of(rows, "gap") + of(rows, "heal"):
        owners = programs.get(row["session"])
        sign = 1 if row["kind"] == "gap" else -1
        about = attributes(row)
        reasons[about.get("reason", "?")] += sign
        if row["seq"] is None or not owners:
            continue
        (owner,) = owners
        last = about.get("last", row["seq"] + about["count"] - 1)
        for number in range(row["seq"], last + 1):
            missing[Event(owner, int(row["stream"]), number)] += sign
    named = {event for event, times in missing.items() if times > 0}
    _none("in two gaps", [event for event, times in missing.items() if times > 1])
    _none("healed and never missing", [event for event, times in missing.items() if times < 0])
    _none("stored and in a gap", sorted(named & stored.keys()))
    highest: dict[tuple[int, int], int] = {}
    for event in stored:
        key = event.program, event.stream
        highest[key] = max(highest.get(key, 0), event.number)
    for program in play.programs.values():
        for event in program.sent:
            known = program.ended or event.number < highest.get((event.program, event.stream), 0)
            _demand(not known or event in stored or event in named, "nowhere", event)
        emitted = program.numbers
        about_it = [e for e in named if e.program == program.begin.program]
        _none("beyond the end", [e for e in about_it if e.number >= emitted[e.stream]])
    _check_reasons(play, reasons)


def _check_reasons(play: Play, reasons: Counter[str]) -> None:
    """No reason is given for what did not happen."""
    if not play.collector.dropped:
        _demand(reasons["kernel"] <= 0, "the kernel dropped nothing", reasons)


def _check_balance(play: Play) -> None:
    life = play.collector.life
    assert life is not None
    try:
        for source in ("udp", "tcp"):
            assert_conserved(life.ingest, source)
    except AssertionError as error:
        raise Violation("out of balance", error) from error


def _event(row: dict[str, Any]) -> Event:
    return Event(*map(int, row["name"].split("/")))


def _demand(holds: bool, kind: str, about: object) -> None:
    if not holds:
        raise Violation(kind, about)


def _none(kind: str, found: list[Any]) -> None:
    _demand(not found, kind, found[:9])
