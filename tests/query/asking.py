"""Ask questions of a store on disk, for tests."""

from __future__ import annotations

from tailrace.query.engine import Engine


def ask(store, sql):
    """Return all rows of one SQL statement, as tuples."""
    return ask_all(store, [sql])[0]


def ask_all(store, statements):
    """Return the rows of each SQL statement, as tuples. All statements read one snapshot."""
    engine = Engine(str(store))
    try:
        answers = map(engine.ask, statements)
        return [[row for page in iter(answer.next_page, []) for row in page] for answer in answers]
    finally:
        engine.close()
