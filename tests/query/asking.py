"""Ask a store's table, to tests that have one on disk."""

from __future__ import annotations

from tailrace.query.engine import Engine


def ask(store, sql):
    """All rows, as tuples."""
    return ask_all(store, [sql])[0]


def ask_all(store, statements):
    """The rows of each statement, from one snapshot."""
    engine = Engine(str(store))
    try:
        answers = map(engine.ask, statements)
        return [[row for page in iter(answer.next_page, []) for row in page] for answer in answers]
    finally:
        engine.close()
