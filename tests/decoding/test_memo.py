"""Test that a memo has a bounded size, and never changes a result."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tailrace.decoding.memo import Memo


@given(st.lists(st.text(max_size=6), max_size=60))
def test_a_memo_is_bounded_and_remembers_only_what_it_was_told(keys: list[str]) -> None:
    memo: Memo[str, int] = Memo(5, 4)
    for key in keys:
        assert memo.get(key) in {None, hash(key)}
        assert memo.keep(key, hash(key)) == hash(key)
        assert (memo.get(key) is None) == (len(key) > 4)
        assert len(memo) <= 5


def test_each_memo_counts_its_own_eighths() -> None:
    one: Memo[str, int] = Memo(5, 4)
    other: Memo[str, int] = Memo(5, 4)
    found = [one.is_eighth() for _ in range(17)]
    assert [at for at, eighth in enumerate(found) if eighth] == [0, 8, 16]
    assert other.is_eighth()
