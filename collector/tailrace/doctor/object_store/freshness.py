"""Test that what was written is read and listed at once, and what was deleted no more, at each address."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from math import inf
from typing import NamedTuple

from tailrace.doctor.finding import Finding, Severity, good, plural
from tailrace.doctor.object_store.client import Client, EndpointAnswer, EndpointProbe, pages

READ = "read after write"
LISTING = "listing after write"

ROUNDS = 20

PATIENCE = 3.0
"""Seconds within which a stale answer may become right, for the finding to say when it did."""

WAITS = 2
"""How often that is waited for, for each promise."""

PAUSE = 0.05

PAGE = 7
"""Keys of a page, so that a listing of few keys has several."""


class Promise(NamedTuple):
    """A promise of S3, and what is the case where it is broken."""

    check: str
    broken: str


NEW_READ = Promise(READ, "a new key was not found")
REPLACED_READ = Promise(READ, "a key still had the bytes that were replaced")
DELETED_READ = Promise(READ, "a deleted key could still be read")
NEW_LISTED = Promise(LISTING, "a new key was not listed")
DELETED_LISTED = Promise(LISTING, "a deleted key was still listed")
WHOLE = Promise(LISTING, f"keys were missing in pages of {PAGE} keys")

Look = Callable[[Client], tuple[EndpointAnswer, bool]]
"""Asks an address; returns its answer, and whether the promise is kept."""


class Freshness:
    """Looks, and counts what was stale."""

    def __init__(self, probe: EndpointProbe, *, deletes: bool) -> None:
        """With `deletes`, the keys may delete."""
        self._probe = probe
        self._deletes = deletes
        self._readers = probe.connect()
        self._looks: Counter[str] = Counter()
        self._stale: Counter[Promise] = Counter()
        self._seconds: dict[Promise, float] = {}
        self._failed: Counter[str] = Counter()

    def measure(self, kept: Collection[str]) -> None:
        """Write, read, list and delete keys of our own; then list all, of which `kept` were not deleted."""
        try:
            for number in range(ROUNDS):
                writer = self._probe.clients[number % len(self._probe.clients)]
                self._round(writer, self._probe.key(f"fresh-{number:02}"))
            self._look(WHOLE, lambda reader: _has_all(reader, self._probe.folder, kept))
        finally:
            for reader in self._readers:
                reader.close()

    def findings(self) -> Iterator[Finding]:
        yield self._finding(
            READ, "Keys are read as they were written, replaced or deleted just before"
        )
        yield self._finding(
            LISTING, "Keys are listed as they were written or deleted just before, in any page"
        )

    def _round(self, writer: Client, key: str) -> None:
        if self._obeyed(writer.put(key, b"first")):
            self._look(NEW_READ, lambda reader: _reads(reader, key, b"first"))
            self._look(NEW_LISTED, lambda reader: _lists(reader, key, there=True))
        if self._obeyed(writer.put(key, b"second")):
            self._look(REPLACED_READ, lambda reader: _reads(reader, key, b"second"))
        if self._deletes and self._obeyed(writer.delete(key)):
            self._look(DELETED_READ, lambda reader: _reads(reader, key, None))
            self._look(DELETED_LISTED, lambda reader: _lists(reader, key, there=False))

    def _obeyed(self, answer: EndpointAnswer) -> bool:
        if not answer.done:
            self._failed[str(answer)] += 1
        return answer.done

    def _look(self, promise: Promise, look: Look) -> None:
        for reader in self._readers:
            self._looks[promise.check] += 1
            answer, kept = look(reader)
            if not answer.done and not answer.is_missing:
                self._failed[str(answer)] += 1
            elif not kept:
                self._stale[promise] += 1
                if self._stale[promise] <= WAITS:
                    after = self._until_kept(reader, look)
                    self._seconds[promise] = max(after, self._seconds.get(promise, 0.0))

    def _until_kept(self, reader: Client, look: Look) -> float:
        """Return after how many seconds the promise was kept; infinity if it was not in `PATIENCE`."""
        clock = self._probe.clock
        begun = clock.monotonic()
        while (passed := clock.monotonic() - begun) < PATIENCE:
            if look(reader)[1]:
                return passed
            time.sleep(PAUSE)
        return inf

    def _finding(self, check: str, kept: str) -> Finding:
        stale = {promise: n for promise, n in self._stale.items() if promise.check == check}
        count = sum(stale.values())
        figures = {"looks": self._looks[check], "stale": count, "failed": self._failed.total()}
        if stale:
            worst = max(stale, key=lambda promise: self._seconds[promise])
            return _broken(worst, stale[worst], self._seconds[worst], figures)
        if self._failed:
            [(text, failed)] = self._failed.most_common(1)
            return Finding(
                check=check,
                severity=Severity.PROBLEM,
                what=f"{plural(failed, 'request')} failed with {text}, so whether it holds is not known.",
                why="Commits and questions are late while requests fail.",
                commands=["# read the server's log, and run this again when it is idle"],
                figures=figures,
            )
        return good(check, f"{kept}: {plural(self._looks[check], 'look')}.", **figures)


def _broken(promise: Promise, count: int, seconds: float, figures: dict[str, int]) -> Finding:
    when = f"after {PATIENCE:.0f} s, too" if seconds == inf else f"for up to {seconds:.1f} s"
    return Finding(
        check=promise.check,
        severity=Severity.PROBLEM,
        what=f"{_times(count)} {promise.broken}, {when}.",
        why="A collector whose commit got no answer looks whether it is in the table. If it sees an old table, it"
        " stores the rows again; readers miss rows without knowing it.",
        commands=[
            "# keep no table on this endpoint while it answers from copies that are behind",
            "# switch off caches before it, or ask for the setting that makes reads and listings strongly consistent",
        ],
        figures=figures,
    )


def _times(count: int) -> str:
    return "Once" if count == 1 else f"{count:,} times"


def _reads(reader: Client, key: str, body: bytes | None) -> tuple[EndpointAnswer, bool]:
    """Look whether a key has these bytes, or is not there."""
    answer = reader.get(key)
    kept = answer.is_missing if body is None else answer.done and answer.body == body
    return answer, kept


def _lists(reader: Client, key: str, *, there: bool) -> tuple[EndpointAnswer, bool]:
    page = reader.page(key, most=PAGE)
    return page.answer, (key in page.keys) == there


def _has_all(reader: Client, prefix: str, kept: Collection[str]) -> tuple[EndpointAnswer, bool]:
    found = list(pages(reader, prefix, most=PAGE))
    return found[-1].answer, {*kept} <= {key for page in found for key in page.keys}
