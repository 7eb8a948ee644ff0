"""Small parts of a batch become few arrays; wrong values and buffers are refused."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest

from tailrace.kernels import active
from tailrace.model.record import Kind, Record
from tailrace.rows.batch import ENOUGH, LARGE, Batch, BlockRows
from tailrace.rows.block import Integers, Texts, Words
from tailrace.rows.schema import ROW
from tailrace.store.data_files import to_arrow
from tests.rows.packing import packed

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")
joined = pytest.importorskip("tailrace.rows._joined")


def block(session, rows):
    return packed([
        Record(
            at, 50, Kind.SPAN, f"{session}/{at % 5}", None, at, "turn", None, None, None, at, at + 1,
            '{"a":1}', None, None,
        )
        for at in range(rows)
    ])  # fmt: skip


def batch_of(sessions, rows):
    """Return rows of sessions: a block and one row of each session about itself."""
    batch = Batch()
    batch.day = 1
    for session in range(sessions):
        own = ["", None, None, "session", "open", None, None, None, None, None, None, 7, None, "{}", 0, None]  # fmt: skip
        batch.extend("s", "heph", str(session), [[value] for value in own], 1)
        made = block(session, rows)
        batch.extend("s", "heph", str(session), BlockRows(made, made.start, made.counter), 1)
    return batch


def test_a_blocks_columns_are_in_the_order_of_rows():
    made = block("0", 3)
    rows = BlockRows(made, made.start, made.counter, made.id, made.end)
    expected = [getattr(rows, name, getattr(made, name, None)) for name in ROW]
    assert list(rows.columns()) == expected


@pytest.mark.parametrize("valid", [range(0), range(40), range(3, 31), range(8, 24)])
def test_rows_without_a_value_have_none_wherever_their_block_begins(valid):
    batch = Batch()
    batch.day = 1
    for session in range(9):
        records = [
            Record(
                at, 50, Kind.SPAN, "1", at if at in valid else None, at, "turn", None, None, None, at, at + 1,
                None, None, None,
            )
            for at in range(40 + session)
        ]  # fmt: skip
        made = packed(records)
        batch.extend("s", "heph", str(session), BlockRows(made, made.start, made.counter), 1)
    [(_, found)] = to_arrow(batch)
    expected = [at if at in valid else None for size in range(40, 49) for at in range(size)]
    assert found.column("substream").to_pylist() == expected
    assert found.column("substream").num_chunks == 1


@pytest.mark.parametrize(("sessions", "rows"), [(400, 40), (10, LARGE - 1)])
def test_parts_become_few_arrays(sessions, rows):
    [(_, found)] = to_arrow(batch_of(sessions, rows))
    assert found.num_rows == sessions * (rows + 1)
    most = -(-found.num_rows // ENOUGH)
    for name in ("name", "start", "attributes"):
        assert found.column(name).num_chunks <= most


def test_large_blocks_are_not_copied():
    batch = batch_of(2, LARGE)
    buffers = [part.rows.block.start.values for part in batch.parts if isinstance(part.rows, BlockRows)]  # fmt: skip
    [(_, rows)] = to_arrow(batch)
    taken = [chunk.buffers()[1].address for chunk in rows.column("start").chunks]
    assert [pa.py_buffer(each).address in taken for each in buffers] == [True, True]


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("seq", 2**63, OverflowError),
        ("seq", 1.5, TypeError),
        ("name", 7, TypeError),
        ("name", "\ud800", UnicodeError),
        ("attributes", "\ud800", UnicodeError),
        ("attributes", b"{}", TypeError),
        ("kind", None, TypeError),
        ("offset", None, TypeError),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused_by_name(column, value, error):
    batch = batch_of(2, 20)
    batch.parts[2].rows[ROW.index(column)] = [value]
    with pytest.raises(error) as caught:
        to_arrow(batch)
    assert caught.value.__notes__ == [f"in column {column!r}"]


def test_buffers_that_do_not_hold_the_rows_are_refused():
    codes = array("i", [0, 1]).tobytes()
    ends = array("i", [0, 1, 2]).tobytes()
    with pytest.raises(ValueError, match="a buffer of 8 bytes, not 16"):
        joined.integers([Integers(bytes(8))], [2])
    with pytest.raises(ValueError, match="1 bytes do not hold 9 bits"):
        joined.integers([Integers(bytes(72), b"\xff")], [9])
    with pytest.raises(ValueError, match="a buffer of 8 bytes, not 12"):
        joined.words([Words(codes, ["a", "b"], 2)], [3])
    with pytest.raises(ValueError, match="row 1 has code 1 of 1"):
        joined.words([Words(codes, ["a"], 1)], [2])
    with pytest.raises(ValueError, match="a buffer of 12 bytes, not 16"):
        joined.texts([Texts(ends, b"ab")], [3])
    with pytest.raises(ValueError, match="a buffer of 1 bytes has no bytes 0 to 2"):
        joined.texts([Texts(ends, b"a")], [2])
