"""Arithmetic on packed columns equals the same in Python."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, strategies as st

from tailrace.rows.block import Integers

columns = pytest.importorskip("tailrace.rows._columns")
INT64 = st.integers(-(2**63), 2**63 - 1)
CODES = st.lists(st.integers(0, 6), max_size=40)


@given(st.lists(INT64, max_size=40), INT64, st.sampled_from([1, 1000, -7, 10**9]))
def test_shifted(values, by, factor):
    products = [value * factor for value in values]
    sums = [product + by for product in products]
    fits = all(-(2**63) <= each < 2**63 for each in [*products, *sums])
    found = columns.shifted(array("q", values).tobytes(), len(values), by, factor)
    assert found == (array("q", sums).tobytes() if fits else None)


@given(st.lists(INT64, max_size=40))
def test_divided(values):
    cut = [value // 1000 if value >= 0 else -(-value // 1000) for value in values]
    found = columns.divided(array("q", values).tobytes(), len(values), 1000)
    assert found == array("q", cut).tobytes()


@given(st.lists(INT64, min_size=1, max_size=40))
def test_greatest(values):
    packed = array("q", values).tobytes()
    for begin in range(len(values)):
        assert columns.greatest(packed, len(values), begin) == max(values[begin:])


@given(CODES, st.lists(st.booleans(), min_size=40, max_size=40))
def test_present(codes, marks):
    packed = array("i", codes).tobytes()
    assert columns.present(packed, len(codes), 7) == list(dict.fromkeys(codes))
    valid = Integers.of([0 if mark else None for mark in marks]).valid
    kept = [code for code, mark in zip(codes, marks, strict=False) if valid is None or mark]
    assert columns.present(packed, len(codes), 7, valid) == list(dict.fromkeys(kept))


@given(CODES)
def test_counted(codes):
    packed = array("i", codes).tobytes()
    assert columns.counted(packed, len(codes), 7) == [codes.count(code) for code in range(7)]


@given(CODES, st.lists(st.integers(0, 100), min_size=1, max_size=7))
def test_recoded(codes, table):
    expected = [table[code] if code < len(table) else 0 for code in codes]
    found = columns.recoded(array("i", codes).tobytes(), len(codes), array("i", table))
    assert array("i", found).tolist() == expected


def test_rows_beyond_a_buffer_are_refused():
    with pytest.raises(ValueError, match="do not hold 2 integers"):
        columns.shifted(bytes(15), 2, 0)
    with pytest.raises(ValueError, match="do not hold integers 0 to 1"):
        columns.greatest(b"", 1)
    with pytest.raises(ValueError, match="do not hold integers 2 to 2"):
        columns.greatest(bytes(16), 2, 2)
    with pytest.raises(ValueError, match="do not hold 3 codes"):
        columns.present(bytes(8), 3, 1)
    with pytest.raises(ValueError, match="row 1 has code 9 of 9"):
        columns.present(array("i", [8, 9]).tobytes(), 2, 9)
    with pytest.raises(ValueError, match="do not hold 3 codes"):
        columns.counted(bytes(8), 3, 1)
    with pytest.raises(ValueError, match="row 1 has code 9 of 9"):
        columns.counted(array("i", [8, 9]).tobytes(), 2, 9)
    with pytest.raises(ValueError, match="row 0 has code -1 of 9"):
        columns.counted(array("i", [-1]).tobytes(), 1, 9)
    with pytest.raises(ValueError, match="do not hold 9 bits"):
        columns.present(bytes(36), 9, 1, b"\xff")
    with pytest.raises(ValueError, match="do not hold 3 codes"):
        columns.recoded(bytes(8), 3, array("i", [0]))
