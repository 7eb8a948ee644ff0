"""Check what must be true of the bytes of programs without a client: what the collector took in whole is stored, and
what cannot be read is in the quarantine, to the byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from tailrace.spool.entry import Datagrams, EntryKind
from tests.ingest.log import heph_epoch
from tests.ingest.test_machine import attributes, of
from tests.simulation import oracle_jets
from tests.simulation.copies import without_copies
from tests.simulation.play import FLOOD, Play
from tests.simulation.violation import demand, none
from tests.simulation.wire import Part
from tests.simulation.world import SECOND

EPOCH = len(heph_epoch(0))


def check(play: Play) -> None:
    """Raise Violation for the first thing that must not be."""
    stored = {row["name"] for row in play.collector.rows if row["format"] == "heph"}
    lines = oracle_jets.stored(play)
    unreadable, damaged = _unreadable(play), _damaged(play)
    for session, (parts, copies) in taken(play).items():
        if session in damaged:
            continue
        times, more = _events(parts), _events(copies)
        none("taken in and not stored", [e for e in times if e not in stored and e not in lines])
        if play.collector.book.opened[session].format == "jets":
            wrong = [e for e in times if not times[e] <= lines[e] <= times[e] + more[e]]
            none("stored another time", wrong)
        least, most = _unreadable_in(parts), _unreadable_in([*parts, *copies])
        about = (session, least, most, unreadable[session])
        demand(least <= unreadable[session] <= most, "another quarantine", about)
    if not play.collector.rotten and not play.collector.losses.for_good:
        _check_floods(play, unreadable)


def _check_floods(play: Play, unreadable: Counter[int]) -> None:
    """Each epoch of a flood begins a session or is in the quarantine. No second has more beginnings than the limit, and
    the first of a connection."""
    book = play.collector.book
    stored = Counter(
        number for number, row in _of_the_log(play, "session") if row["name"] == "epoch"
    )
    for number, connection in book.connections.items():
        if not connection.source.startswith(FLOOD):
            continue
        came = [e for e in book.entries.values() if (e.session, e.kind) == (number, EntryKind.DATA)]
        times = [entry.time_ns for entry in came]
        size, epochs = sum(len(entry.payload) for entry in came), stored[number]
        whole = size == EPOCH * epochs + unreadable[number]
        demand(whole, "of a flood", (number, size, epochs, unreadable[number]))
        rate = book.opened[number].limits.new_sessions_rate
        lasted = max(times, default=0) - min(times, default=0)
        most = 1 + rate + rate * lasted // SECOND
        demand(epochs <= most, "more beginnings than the limit", (number, epochs, most))


class Taken(NamedTuple):
    """The bytes of a session that the collector took in."""

    parts: list[Part]
    copies: list[Part]
    """Bytes that may be taken for a copy or for more of the same, since the session gave up what it knew of copies."""


def taken(play: Play) -> dict[int, Taken]:
    """Return by session what the collector took in of programs without a client, without copies where
    these are no events."""
    known = play.sent.datagrams
    forgetful = _forgetful(play)
    found = {number: Taken(list(parts), []) for number, parts in _streams(play)}

    def readable(payload: bytes) -> bool:
        return any(part.good for part in known[payload])

    for number, payloads in _datagrams(play).items():
        if all(payload in known for _, payload in payloads):
            opened = play.collector.book.opened[number]
            came = kept = [payload for _, payload in payloads]
            if opened.format == "jets":
                kept = without_copies(payloads, opened.limits, readable)
            copies = Counter(came) - Counter(kept) if number in forgetful else Counter[bytes]()
            found[number] = Taken(
                [part for payload in kept for part in known[payload]],
                [part for payload in copies.elements() for part in known[payload]],
            )
    return found


def _forgetful(play: Play) -> set[int]:
    """Return the sessions that say that they gave up what they knew of copies."""
    return {
        number
        for number, row in _of_the_log(play, "session")
        if row["name"] == "evicted" and "copies" in attributes(row)["evicted"]
    }


def _damaged(play: Play) -> set[int]:
    """Return the sessions that say that a rotten segment of the log may have held some of their bytes."""
    if not any(name.endswith(".segment") for name in play.collector.rotten):
        return set()
    return {
        number
        for number, row in _of_the_log(play, "gap")
        if attributes(row).get("detail") == "spool_damaged" and row["format"] == "heph"
    }


def _of_the_log(play: Play, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a kind, each with its session's number in the log. After the loss of all checkpoints the log
    begins again, and the sessions before have no number."""
    names = play.collector.book.names
    for row in of(play.collector.rows, kind):
        about = attributes(row) if row["attributes"] else {}  # blank lines of DFTracer have none
        number = names.get(about.get("quarantine_of", row["session"]).partition(".")[0])
        if number is not None:
            yield number, row


def _events(parts: list[Part]) -> Counter[object]:
    return Counter(part.event for part in parts if part.good and part.event)


def _unreadable_in(parts: list[Part]) -> int:
    return sum(len(part.data) for part in parts if not part.good)


def _streams(play: Play) -> Iterator[tuple[int, Iterator[Part]]]:
    sizes: Counter[int] = Counter()
    for entry in play.collector.book.entries.values():
        if entry.kind == EntryKind.DATA:
            sizes[entry.session] += len(entry.payload)
    for number, size in sizes.items():
        connection = play.collector.book.connections.get(number)  # none of a file's session
        if connection in play.sent.streams:
            yield number, play.sent.parts(connection, size)


def _datagrams(play: Play) -> dict[int, list[tuple[int, bytes]]]:
    """Return by session the datagrams, each with its time."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for entry in sorted(play.collector.book.entries.values()):
        if entry.kind == EntryKind.DATAGRAMS:
            payloads = list(Datagrams(entry.payload))
            found.setdefault(entry.session, []).extend((entry.time_ns, p) for p in payloads)
    return found


def _unreadable(play: Play) -> Counter[int]:
    """Return by session how many bytes are in its quarantine."""
    found: Counter[int] = Counter()
    for number, row in _of_the_log(play, "gap"):
        if "quarantine" in attributes(row):
            found[number] += attributes(row)["bytes"]
    return found
