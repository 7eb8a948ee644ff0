"""Test that of several writers who create one key at once exactly one succeeds, whichever address each one asks.

A version of the table is an object that a collector or an upkeep creates if nobody else has. If two are told that
they have created it, the rows of one are lost, and nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.doctor.finding import Finding, Severity, good, plural
from tailrace.doctor.object_store.client import TIMEOUT, EndpointAnswer, EndpointProbe

CHECK = "conditional puts"

WRITERS = 8
KEYS = 50

SECONDS = 60
"""No further key is raced for after so long."""

UNKNOWN = frozenset({400, 405, 501})
"""Answers of servers that have no conditional puts."""


class Raced(NamedTuple):
    """A key for which writers raced: the answer to each, to one who came later, and the bytes in the end."""

    key: str
    answers: list[EndpointAnswer]
    later: EndpointAnswer
    stored: list[EndpointAnswer]
    """The objects that the addresses have in the end."""

    @property
    def winners(self) -> list[int]:
        """Return the writers who were told that they have created it; the one who came later is the last."""
        return [who for who, answer in enumerate([*self.answers, self.later]) if answer.done]

    @property
    def is_right(self) -> bool:
        """Return whether one won, nobody else may have, and its bytes are there."""
        return len(self.winners) == 1 and self.holds(self.winners[0]) and not self.failures

    @property
    def failures(self) -> list[EndpointAnswer]:
        """Return answers that say neither that it was created nor that it was there already."""
        return [
            answer for answer in [*self.answers, self.later]
            if not answer.done and not answer.exists_already
        ]  # fmt: skip

    def holds(self, writer: int) -> bool:
        return all(answer.body == _body(writer) for answer in self.stored)


def race(probe: EndpointProbe) -> list[Raced]:
    """Let writers race for keys. Writers ask different addresses, and a writer another one for each key."""
    keys = [probe.key(f"race-{number:02}") for number in range(KEYS)]
    gate = _Gate(probe.clock)
    clients = [probe.connect() for _ in range(WRITERS)]

    def write(writer: int) -> list[EndpointAnswer]:
        found = []
        for number, key in enumerate(keys):
            if not gate.opens():
                break
            client = clients[writer][(writer + number) % len(probe.addresses)]
            found.append(client.put(key, _body(writer), create=True))
        return found

    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            answers = list(pool.map(write, range(WRITERS)))
    finally:
        for each in clients:
            for client in each:
                client.close()
    return [
        _looked_at(probe, number, keys[number], list(of_key))
        for number, of_key in enumerate(zip(*answers, strict=False))
    ]


class _Gate:
    """Lets all writers go at the same moment, and none once it is too late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic() + SECONDS
        self._open = True
        # A writer is away for two waits of the client's at most.
        self._barrier = Barrier(WRITERS, self._look, timeout=3 * TIMEOUT)

    def opens(self) -> bool:
        """Wait for the others; return whether to go. A writer who keeps the others waiting ends the race."""
        try:
            self._barrier.wait()
        except BrokenBarrierError:
            return False
        return self._open

    def _look(self) -> None:
        self._open = self._clock.monotonic() < self._end


def _looked_at(probe: EndpointProbe, number: int, key: str, answers: list[EndpointAnswer]) -> Raced:
    client = probe.clients[number % len(probe.clients)]
    later = client.put(key, _body(WRITERS), create=True)
    return Raced(key, answers, later, [client.get(key) for client in probe.clients])


def _body(writer: int) -> bytes:
    return f"written by {writer}".encode()


def judged(raced: Sequence[Raced], addresses: int) -> Finding:
    """Return the finding: the worst that happened to any key."""
    several = [each for each in raced if len(each.winners) > 1]
    failures = [answer for each in raced for answer in each.failures]
    replaced = [
        each for each in raced
        if len(each.winners) == 1 and any(answer.done for answer in each.stored) and not each.holds(each.winners[0])
    ]  # fmt: skip
    figures = {
        "keys": len(raced),
        "writers": WRITERS,
        "addresses": addresses,
        "keys_with_one_winner": sum(each.is_right for each in raced),
        "keys_with_several_winners": len(several),
        "unanswered": len(failures),
    }
    keys = plural(len(raced), "key")
    if several:
        most = max(len(each.winners) for each in several)
        what = (
            f"{len(several)} of {keys} had several winners: up to {most} of {WRITERS + 1} writers were told"
            " that they had created the same key."
        )
        return _broken(what, figures)
    if replaced:
        what = f"{len(replaced)} of {keys} have other bytes than those of the writer who was told that it had created it."
        return _broken(what, figures)
    if failures:
        return _failed(raced, failures, keys, figures)
    lone = [each for each in raced if not each.is_right]
    if lone or not raced:
        what = f"{len(lone)} of {keys} had no winner whose bytes can be read, though nobody had written them before."
        return _broken(what, figures)
    if len(raced) < KEYS:
        return _slow(keys, figures)
    spread = f" over {addresses} addresses" if addresses > 1 else ""
    return good(
        CHECK, f"{WRITERS} writers raced for {keys}{spread}: exactly one won each.", **figures
    )


def _slow(keys: str, figures: dict[str, int]) -> Finding:
    return Finding(
        check=CHECK,
        severity=Severity.ADVICE,
        what=f"Only {keys} of {KEYS} were raced for within {SECONDS} s; exactly one writer won each.",
        why="Commits are as slow. Fewer races show less.",
        commands=["# run this again when the endpoint is idle"],
        figures=figures,
    )


def _broken(what: str, figures: dict[str, int]) -> Finding:
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=what,
        why="Two collectors, or a collector and its upkeep, would both believe that they had written the next"
        " version: the rows of one would be lost, and no gap would name them.",
        commands=[
            "# keep no table on this endpoint: no setting makes it safe",
            "# ask its maker for a version in which If-None-Match on PUT is atomic, then run this again",
        ],
        figures=figures,
    )


def _failed(
    raced: Sequence[Raced], failures: list[EndpointAnswer], keys: str, figures: dict[str, int]
) -> Finding:
    """Return the finding about answers that are neither yes nor no, most often of a server that knows no conditions."""
    [(text, count)] = Counter(map(str, failures)).most_common(1)
    if all(answer.status in UNKNOWN for answer in failures) and not any(e.winners for e in raced):
        what = f"The server refuses conditional puts: {text}."
        return _broken(what, figures)
    return Finding(
        check=CHECK,
        severity=Severity.PROBLEM,
        what=f"{len(failures):,} of {len(raced) * (WRITERS + 1):,} puts for {keys} got no answer that says"
        f" who won, {count:,} of them: {text}.",
        why="A collector looks into the table then, and tries again: commits are late. Whether the server"
        " would have named one winner each is not known.",
        commands=["# read the server's log, and run this again when it is idle"],
        figures=figures,
    )
