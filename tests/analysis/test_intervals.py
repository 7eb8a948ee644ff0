"""Random questions of stores that have lost something: each interval of `Store.stats` holds the truth."""

from __future__ import annotations

import pytest

import tailrace
from tests.analysis.questions import Twins, imported

ENTRY, EXIT = "M {} 0 {}\n", "E {} {}\n"
ONE, OTHER = 1_766_822_961, 1_191_747_167


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_interval_holds_the_truth_and_is_a_value_where_nothing_is_lost(tmp_path, seed):
    stores = Twins(tmp_path, seed)
    asked = list(stores.answers(12))
    assert [answer for answers in asked for answer in answers if answer.wrong] == []
    assert any(answer.told for answers in asked for answer in answers)


BEFORE = [ENTRY.format(7, ONE), ENTRY.format(7, OTHER), EXIT.format(7, ONE), EXIT.format(7, OTHER)]
ENTERED, LEFT = ENTRY.format(8, ONE), EXIT.format(8, ONE)
CALL = [ENTRY.format(7, OTHER), EXIT.format(7, OTHER)]


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        ([CALL[0], ENTERED, CALL[1], LEFT], (4, 4)),
        ([*CALL, LEFT], (0, None)),
        (["N 1 2 what\n", *CALL, LEFT], (0, None)),
    ],
    ids=["whole", "lost", "lost_beside_an_unreadable_line"],
)
def test_an_entry_that_one_thread_lost_puts_the_times_of_others_in_doubt(tmp_path, lines, total):
    """In the agent's form of ET3, a tick is an entry or exit of any thread. The unreadable line takes the place of the
    lost entry, so that no gap is at the exit."""
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "a.et3").write_text("".join([*BEFORE, *lines]))
    (traces / "methods.list").write_text("A#other,7\nA#one,8\n")
    with tailrace.open(str(imported(traces))) as store:
        (found,) = store.stats(stream=str(OTHER))
    assert found.bounds["total"] == total
