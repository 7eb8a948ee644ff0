"""The views over rows in memory: fast enough for many examples."""

from __future__ import annotations

import duckdb

from tailrace.query.names import learn
from tailrace.query.parts import hide
from tailrace.query.views import define
from tests.query.tables import SCHEMA


class Views:
    def __init__(self):
        self.connection = duckdb.connect(config={"threads": 1})
        columns = ", ".join(
            f'"{f.name}" {"BIGINT" if f.type == "int64" else "VARCHAR" if f.type == "string" else "DATE"}'
            for f in SCHEMA
        )
        self.connection.execute(f"CREATE TABLE stored ({columns})")
        define(self.connection)

    def of(self, rows, sql):
        self.connection.execute("DELETE FROM stored")
        if rows:
            marks = ", ".join("?" * len(SCHEMA))
            values = [[row[name] for name in SCHEMA.names] for row in rows]
            self.connection.executemany(
                f"INSERT INTO stored VALUES ({marks})",  # noqa: S608 - question marks
                values,
            )
        hide(self.connection)
        learn(self.connection)
        self.connection.execute(sql)
        names = [column[0] for column in self.connection.description]
        return [dict(zip(names, row, strict=True)) for row in self.connection.fetchall()]
