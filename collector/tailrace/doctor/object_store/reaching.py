"""Test that each address of the endpoint's name answers, and what time the server says it is."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.object_store.client import Client, EndpointAnswer
from tailrace.doctor.object_store.place import CHECK, StorePlace

CLOCK = "endpoint clock"

DIFFERENCE = 5.0
"""Seconds that the server's clock may differ from ours. A header tells whole seconds."""

REFUSED = 15 * 60
"""S3 refuses requests that were signed so many seconds from its own time."""


class Reached(NamedTuple):
    """An answer of an address to a first request, sent and received at these times (Unix nanoseconds)."""

    address: str
    answer: EndpointAnswer
    sent: int
    received: int

    @property
    def difference(self) -> float | None:
        """Return by how many seconds the server's clock is ahead of ours; None if it does not say."""
        try:
            told = parsedate_to_datetime(self.answer.date).timestamp() + 0.5  # of a whole second
        except ValueError:
            return None
        return told - (self.sent + self.received) / 2e9


def reach(place: StorePlace, addresses: list[str], clock: Clock) -> list[Reached]:
    """Ask each address for one key of the store."""
    return [_reached(place, address, clock) for address in addresses]


def _reached(place: StorePlace, address: str, clock: Clock) -> Reached:
    client = Client(place, address, clock)
    sent = clock.wall_ns()
    answer = client.page(place.prefix, most=1).answer
    client.close()
    return Reached(address, answer, sent, clock.wall_ns())


def check(place: StorePlace, reached: list[Reached]) -> Iterator[Finding]:
    silent = [each for each in reached if not each.answer.status]
    answering = len(reached) - len(silent)
    figures = {"addresses": len(reached), "answering": answering}
    if not silent:
        names = ", ".join(each.address for each in reached)
        yield good(CHECK, f"{place.endpoint} answers at {names}.", **figures)
        return
    first = silent[0]
    yield Finding(
        check=CHECK,
        severity=Severity.ADVICE if answering else Severity.PROBLEM,
        what=f"{place.endpoint} does not answer at {', '.join(each.address for each in silent)}:"
        f" {first.answer.cause}.",
        why="A commit that goes there waits, and is tried again."
        if answering
        else "The collector cannot store anything there; its spool fills.",
        commands=[
            f"getent ahosts {place.host}",
            f"curl -sS -o /dev/null {place.endpoint}",
        ],
        figures=figures,
    )


def check_clock(reached: list[Reached]) -> Iterator[Finding]:
    """Compare the server's clock with ours, at the address where they differ most."""
    differences = [each.difference for each in reached if each.answer.status]
    told = [difference for difference in differences if difference is not None]
    if not told:
        if differences:
            yield _wrong(Severity.ADVICE, "The server does not say what time it has.", {})
        return
    most = max(told, key=abs)
    figures = {"ahead_s": round(most, 1)}
    if abs(most) <= DIFFERENCE:
        yield good(CLOCK, "The server's clock agrees with ours to the second.", **figures)
        return
    severity = Severity.PROBLEM if abs(most) >= REFUSED else Severity.ADVICE
    side = "ahead of" if most > 0 else "behind"
    yield _wrong(severity, f"The server's clock is {abs(most):,.0f} s {side} ours.", figures)


def _wrong(severity: Severity, what: str, figures: dict[str, float]) -> Finding:
    return Finding(
        check=CLOCK,
        severity=severity,
        what=what,
        why="Requests are signed with the time: S3 refuses them from 15 minutes on. Upkeep deletes abandoned"
        " files by their age.",
        commands=["timedatectl status  # here, and on the server", "date -u"],
        figures=figures,
    )
