"""The parts of the suite have every test once with kernels, and once without those that may reach one."""

from __future__ import annotations

from collections import Counter

from tests.parts import COUNTING, MEASURED, bounded, measured, plain, twice
from tests.without_kernels import ROOT, files, runs_twice


def test_every_file_runs_once_with_kernels():
    counted = {f"{path}::{test}" for path, test in COUNTING.items()}
    left_out = {f"--deselect={each}" for each in counted}
    assert counted <= set(plain())
    assert left_out <= set(measured())
    ran = Counter(plain()) + Counter(measured())
    assert ran == Counter([*files(), *counted, *left_out])


def test_every_file_that_may_reach_a_kernel_runs_once_without():
    assert sorted([*twice(), *bounded()]) == sorted(filter(runs_twice, files()))


def test_what_is_named_exists():
    assert [name for name in MEASURED if not (ROOT / "tests" / name).is_dir()] == []
    for path, test in COUNTING.items():
        assert f"def {test}(" in (ROOT / path).read_text()
