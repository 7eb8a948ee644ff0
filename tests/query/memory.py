"""Run the views of a store over rows in memory. This is fast enough for tests with many examples."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tailrace.query.catalog import ViewCatalog
from tailrace.query.views import TYPES
from tailrace.rows.schema import COLUMNS
from tests.query.tables import SCHEMA


class Views:
    empty = False
    version = 0

    def __init__(self):
        self.connection = duckdb.connect(config={"threads": 1})
        columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in COLUMNS)
        self.connection.execute(f"CREATE TABLE stored ({columns})")
        self.connection.execute("CREATE SCHEMA part; SET TimeZone = 'UTC'")
        self._catalog = ViewCatalog()
        self._held = None

    def hold(self, rows):
        """Replace the rows over which the views run. Do nothing if they are the same rows."""
        if rows == self._held:
            return
        self._held = [dict(row) for row in rows]
        self.connection.execute("DELETE FROM stored")
        if rows:
            held = pa.table(
                [pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA], SCHEMA
            )
            self.connection.register("held", held)
            self.connection.execute("INSERT INTO stored FROM held")
            self.connection.unregister("held")
        self._catalog.forget()

    def rows(self, sql, parameters=()):
        """Return the rows of an SQL statement, as an engine returns them."""
        self._catalog.prepare(self.connection, sql)
        self.connection.execute(sql, list(parameters))
        return self.connection.fetchall()

    def batches(self, sql, parameters=()):
        """Return the rows of an SQL statement as an engine returns them, in batches of a few rows."""
        self._catalog.prepare(self.connection, sql)
        for batch in self.connection.sql(sql, params=list(parameters)).to_arrow_reader():
            yield from (batch.slice(at, 3) for at in range(0, len(batch), 3))

    def of(self, rows, sql):
        self.hold(rows)
        found = self.rows(sql)
        names = [column[0] for column in self.connection.description]
        return [dict(zip(names, row, strict=True)) for row in found]
