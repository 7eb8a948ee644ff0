"""The rows that the ingest makes of every vector: a count and a digest for each, in `tests/vectors/rows.json`.

    python -m tests.ingest.vector_rows            write tests/vectors/rows.json anew
    python -m tests.ingest.vector_rows VECTOR     print the rows of one vector, as in heph/busy

Whoever makes rows by other code, faster or put together in another way, must make these. Where a digest
differs, print the rows by both commits and compare them.

Each vector is played in several ways: as a file, as a file that grows, and, where the format has such
sources, over a connection, in datagrams and in datagrams of which some are lost, doubled or late.
Vectors say nothing of the clock, so all times are made up: no digest depends on the day or the machine.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.rows.schema import COLUMNS
from tests.decoding.test_conformance import ALL, VECTORS
from tests.ingest.log import Log, run

SESSION = [column.name for column in COLUMNS].index("session")
ROWS = VECTORS / "rows.json"
PIECE = 499
"""Number of bytes that arrive at a time while the input grows. It is no multiple of any size in the input."""
PER_ENTRY = 7
"""Number of datagrams that arrive at a time."""
HASTY = LedgerConfig(reorder_events=16)


def as_file(vector):
    return _file(vector, [vector.data])


def as_growing_file(vector):
    return _file(vector, _pieces(vector.data))


def over_a_connection(vector):
    log = Log()
    session = log.open(vector.format.name, record_max=vector.limit)
    for piece in _pieces(vector.data):
        log.data(session, piece)
        log.tick(0.1)
    log.close(session)
    return log


def in_datagrams(vector):
    return _network(vector, _datagrams(vector))


def over_a_bad_network(vector):
    """Return the datagrams after a bad network: every 5th is late, every 7th is lost, every 11th arrives twice.

    The kernel dropped some of the lost ones. The ledger waits for few later events, so that some holes close while
    events arrive.
    """
    sent, arrived, held = _datagrams(vector), [], []
    for number, datagram in enumerate(sent, 1):
        if number % 5 == 0:
            held.append(datagram)
        elif number % 7:
            arrived += [datagram] * (1 if number % 11 else 2)
            if number % 3 == 0:
                arrived += held
                held = []
    return _network(vector, arrived + held, limits=HASTY, drops=True)


WAYS = {
    "file": (as_file, "tail"),
    "growing": (as_growing_file, "tail"),
    "connection": (over_a_connection, "tcp"),
    "datagrams": (in_datagrams, "udp"),
    "bad network": (over_a_bad_network, "udp"),
}
"""Ways of playing a vector, by name, each with its type of source."""


def rows_of(vector):
    """Return the rows of one vector for each way of playing it, as lists in the order of the table's columns."""
    return {
        name: _rows(play(vector).entries)
        for name, (play, source) in WAYS.items()
        if source in vector.format.transports
    }


def digests_of(vector):
    """Return for each way the number of rows and a digest of them, session by session, in as few characters as
    distinguish them.
    """
    return {name: _digest(rows) for name, rows in rows_of(vector).items()}


def _digest(rows):
    by_session = sorted(rows, key=lambda row: row[SESSION])
    return f"{len(rows)} {hashlib.sha256(msgspec.msgpack.encode(by_session)).hexdigest()[:16]}"


def load():
    return json.loads(ROWS.read_text(encoding="utf-8"))


def save():
    """Write the digests of all vectors, one vector a line."""
    lines = [f"{json.dumps(v.name)}: {json.dumps(digests_of(v))}" for v in ALL]
    ROWS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _file(vector, pieces):
    log, beside = Log(), vector.beside or {"path": "/runs/a", "documents": []}
    dialect = beside.get("dialect", "auto")
    session = log.open_file(
        vector.format.name, beside["path"], dialect=dialect, record_max=vector.limit
    )
    for name, text in beside["documents"]:
        log.document(session, name, text.encode(errors="surrogateescape"))
    for piece in pieces:
        log.data(session, piece)
        log.tick(0.1)
    log.close(session)
    return log


def _network(vector, datagrams, *, limits=None, drops=False):
    log = Log()
    session = log.open(vector.format.name, transport="udp", record_max=vector.limit, limits=limits)
    for at in range(0, len(datagrams), PER_ENTRY):
        log.datagrams(session, datagrams[at : at + PER_ENTRY])
        if drops and at % (2 * PER_ENTRY):
            log.drops(1)
        log.tick(0.1)
    log.close(session)
    return log


def _pieces(data):
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def _datagrams(vector):
    """Return a vector's input as datagrams with one record each.

    From a place on where it cannot be cut, return pieces.
    """
    if vector.format.name != "heph":
        return vector.data.splitlines(keepends=True)
    rest, found = vector.data, []
    while rest:
        size = struct.unpack_from(">I", rest, 4)[0] if len(rest) >= 8 else 0
        if not 8 <= size <= len(rest):
            return found + _pieces(rest)
        found.append(rest[:size])
        rest = rest[size:]
    return found


def _rows(entries):
    _, rows = run(entries)
    assert all(list(row) == [column.name for column in COLUMNS] for row in rows[:1])
    return [list(row.values()) for row in rows]


def main(arguments):
    for name in arguments:
        (vector,) = (vector for vector in ALL if vector.name == name)
        for way, rows in rows_of(vector).items():
            sys.stdout.writelines(f"{way}: {json.dumps(row, default=str)}\n" for row in rows)
    if not arguments:
        save()


if __name__ == "__main__":
    main(sys.argv[1:])
