"""What a store's table answers, to tests that have one on disk."""

from __future__ import annotations

from tailrace.query.engine import Engine


def ask(store, sql):
    """All rows, as tuples."""
    engine = Engine(str(store))
    try:
        return list(engine.rows(sql))
    finally:
        engine.close()
