"""In two days CI runs whatever it runs a second time."""

from __future__ import annotations

from tests.order import LONGEST
from tests.parts import (
    CORE,
    CORE_FILES,
    COUNTING,
    LONG,
    MEASURED,
    core,
    is_core,
    long,
    measured,
    twice,
    without_kernels,
)
from tests.without_kernels import ROOT, files, runs_twice

DAY = 20_000


def test_in_two_days_every_file_that_may_reach_a_kernel_runs_once_without():
    ran = without_kernels(DAY) + without_kernels(DAY + 1)
    assert sorted(ran) == sorted(filter(runs_twice, files()))


def test_in_two_days_every_long_form_is_run_once():
    first, second = long(DAY), long(DAY + 1)
    assert {*LONG[0], *LONG[1], "tests/ingest/test_wild.py"} <= {*first, *second}
    assert not {*first} & {*second}


def test_neither_half_has_most_files():
    first, second = len(without_kernels(DAY)), len(without_kernels(DAY + 1))
    assert max(first, second) < 1.3 * min(first, second)


def test_what_measuring_would_change_is_not_measured():
    assert {f"--deselect={path}::{test}" for path, test in COUNTING.items()} <= {*measured()}
    assert [path for path in (*measured(), *twice()) if path.endswith("test_memory.py")] == []


def test_what_is_named_exists():
    assert [name for name in (*MEASURED, *CORE) if not (ROOT / "tests" / name).is_dir()] == []
    for path, test in COUNTING.items():
        assert f"def {test}(" in (ROOT / path).read_text()
    assert [path for each in LONG for path in each if not (ROOT / path).exists()] == []
    assert [path for path in CORE_FILES if not (ROOT / path).exists()] == []


def test_the_core_has_whatever_starts_no_process_and_is_soon_done():
    assert is_core("tests/ledger/test_counters.py")
    assert is_core("clients/python/tests/test_wire.py")
    assert not is_core("tests/store/test_kill.py")
    assert not is_core("tests/ingest/test_memory.py")
    assert {*CORE_FILES} < {*core()}
    assert {*core()} & {*LONGEST} == {"tests/decoding/test_conformance.py"}
