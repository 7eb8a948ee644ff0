"""Check the bytes of programs without a client: everything that the collector received in whole is stored, and the
bytes that cannot be read are in the quarantine, exactly.
"""

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
    """Raise Violation for the first rule that does not hold."""
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
    """Check that each epoch packet of a flood begins a session or is in the quarantine.

    In each second, at most as many sessions begin as the limit allows, in addition to the first session of a
    connection.
    """
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
    """The bytes of a session that the collector received."""

    parts: list[Part]
    copies: list[Part]
    """Number of bytes that may count as a copy, or as more of the same, because the session has evicted what it knew of
    copies.
    """


def taken(play: Play) -> dict[int, Taken]:
    """Return for each session what the collector received of programs without a client.

    Copies that are no events are left out.
    """
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
    """Return the sessions that state that they evicted what they knew of copies."""
    return {
        number
        for number, row in _of_the_log(play, "session")
        if row["name"] == "evicted" and "copies" in attributes(row)["evicted"]
    }


def _damaged(play: Play) -> set[int]:
    """Return the sessions that state that a damaged segment of the log may have held some of their bytes."""
    if not any(name.endswith(".segment") for name in play.collector.rotten):
        return set()
    return {
        number
        for number, row in _of_the_log(play, "gap")
        if attributes(row).get("detail") == "spool_damaged" and row["format"] == "heph"
    }


def _of_the_log(play: Play, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a kind, each with its session's number in the log.

    After the loss of all checkpoints the log begins again, and sessions from before have no number.
    """
    names = play.collector.book.names
    for row in of(play.collector.rows, kind):
        # Blank lines of DFTracer have no attributes.
        about = attributes(row) if row["attributes"] else {}
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
        connection = play.collector.book.connections.get(number)  # Leave out the sessions of files.
        if connection in play.sent.streams:
            yield number, play.sent.parts(connection, size)


def _datagrams(play: Play) -> dict[int, list[tuple[int, bytes]]]:
    """Return for each session its datagrams, each with its time."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for entry in sorted(play.collector.book.entries.values()):
        if entry.kind == EntryKind.DATAGRAMS:
            payloads = list(Datagrams(entry.payload))
            found.setdefault(entry.session, []).extend((entry.time_ns, p) for p in payloads)
    return found


def _unreadable(play: Play) -> Counter[int]:
    """Return for each session the number of bytes in its quarantine."""
    found: Counter[int] = Counter()
    for number, row in _of_the_log(play, "gap"):
        if "quarantine" in attributes(row):
            found[number] += attributes(row)["bytes"]
    return found
