"""The views over rows in memory: fast enough for many examples."""

from __future__ import annotations

import duckdb

from tailrace.query.catalog import ViewCatalog
from tailrace.query.views import TYPES
from tailrace.rows.schema import COLUMNS
from tests.query.tables import SCHEMA


class Views:
    def __init__(self):
        self.connection = duckdb.connect(config={"threads": 1})
        columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in COLUMNS)
        self.connection.execute(f"CREATE TABLE stored ({columns})")
        self.connection.execute("CREATE SCHEMA part; SET TimeZone = 'UTC'")
        self._catalog = ViewCatalog()
        self._held = None

    def hold(self, rows):
        """Replace the rows, unless it has the same already."""
        if rows == self._held:
            return
        self._held = [dict(row) for row in rows]
        self.connection.execute("DELETE FROM stored")
        if rows:
            marks = ", ".join("?" * len(SCHEMA))
            values = [[row[name] for name in SCHEMA.names] for row in rows]
            self.connection.executemany(
                f"INSERT INTO stored VALUES ({marks})",  # noqa: S608 - question marks
                values,
            )
        self._catalog.forget()

    def rows(self, sql, parameters=()):
        """The answer's rows, as an engine gives them."""
        self._catalog.prepare(self.connection, sql)
        self.connection.execute(sql, list(parameters))
        return self.connection.fetchall()

    def of(self, rows, sql):
        self.hold(rows)
        found = self.rows(sql)
        names = [column[0] for column in self.connection.description]
        return [dict(zip(names, row, strict=True)) for row in found]
