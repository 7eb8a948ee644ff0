"""CI runs every test with kernels, and in two days without kernels all that may reach one."""

from __future__ import annotations

from tests.parts import (
    COUNTING,
    LONG,
    MEASURED,
    long,
    with_kernels,
    without_kernels,
)
from tests.without_kernels import ROOT, files, runs_twice

DAY = 20_000


def test_in_two_days_every_file_runs_with_kernels():
    days = {*long(DAY), *long(DAY + 1)}
    assert {*with_kernels()} | days == {*files()}
    assert {*LONG[0], *LONG[1]} == days - {*with_kernels()}
    assert not {*long(DAY)} & {*long(DAY + 1)}


def test_in_two_days_every_file_that_may_reach_a_kernel_runs_once_without():
    ran = without_kernels(DAY) + without_kernels(DAY + 1)
    assert sorted(ran) == sorted(filter(runs_twice, files()))


def test_halves_cost_about_the_same():
    first, second = len(without_kernels(DAY)), len(without_kernels(DAY + 1))
    assert max(first, second) < 1.3 * min(first, second)


def test_what_is_named_exists():
    assert [name for name in MEASURED if not (ROOT / "tests" / name).is_dir()] == []
    for path, test in COUNTING.items():
        assert f"def {test}(" in (ROOT / path).read_text()
    assert all((ROOT / path).exists() for each in LONG for path in each)
