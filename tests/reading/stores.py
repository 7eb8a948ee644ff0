"""Make stores to read from. They have something for every filter to select."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import write_deltalake

from tailrace.store.durable import NO_HOOKS
from tailrace.store.layout import table_root, writer_properties
from tests.query.tables import SCHEMA, SECOND, clocked, gap, heal, make, row, session

EPOCH = int(datetime(2026, 11, 21, 8, tzinfo=UTC).timestamp()) * SECOND
HOSTILE = "' OR 1=1 --"


def varied():
    """Write two sources, four sessions, streams, names, kinds and gaps, with times an hour apart."""
    rows = []
    for number, (source, name) in enumerate(
        [("sim", "aa"), ("sim", "ab"), ("files", "ac"), ("files", HOSTILE)]
    ):
        mine = {"source": source, "session": name}
        begins = EPOCH + number * 3600 * SECOND
        closing = {"closed": "done", "closed_at": begins + 60 * SECOND} if number != 1 else {}
        rows += [
            clocked(epoch=begins, **mine),
            session("open", opened=begins, **mine),
            *([session("close", offset=999, **closing, **mine)] if closing else []),
        ]
        for seq in range(30):
            rows.append(
                row(
                    ["span", "instant", "counter"][seq % 3],
                    stream=str(seq % 4),
                    seq=seq,
                    offset=10 * seq,
                    name=[HOSTILE, "step", "Ünï", None][seq % 4],
                    id=-seq or None,
                    start=seq * SECOND + seq,
                    end=seq * SECOND + 2 * seq,
                    attributes={"cell": seq, "big": 2**63 + seq},
                    **mine,
                )
            )
    rows += [
        gap(3, 100, source="sim", session="aa"),
        heal(1, 101, source="sim", session="aa"),
        gap(4, 100, source="sim", session="ab", stream="2"),
        gap(0, reason="truncated", source="files", session="ac", stream=""),
        gap(5, reason="malformed", source="files", session=HOSTILE, stream="3"),
    ]
    return rows


def whole():
    return [row(seq=seq, offset=seq, name="n") for seq in range(3)]


def made(tmp_path_factory, rows):
    half = len(rows) // 2
    return make(tmp_path_factory.mktemp("store"), rows[:half], rows[half:])


def sorted_rows(rows):
    return sorted(rows, key=lambda each: json.dumps(each, sort_keys=True))


def make_large(store, *, files, rows):
    """Write a table of rows with attributes of 800 bytes. All are equal, so that the table's files are small."""
    make(store)
    each = row("instant", attributes={"text": "x" * 800})
    columns = {f.name: pa.repeat(pa.scalar(each[f.name], f.type), rows) for f in SCHEMA}
    for number in range(files):
        columns["seq"] = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        write_deltalake(
            table_root(str(store)),
            pa.table(columns, schema=SCHEMA),
            mode="append",
            post_commithook_properties=NO_HOOKS,
            writer_properties=writer_properties(),
        )
