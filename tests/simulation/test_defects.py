"""The simulator finds the defects that it is there to find."""

from __future__ import annotations

import pytest

from tests.simulation.defects import DEFECTS, ROOT, hunt

SEEDS = range(300)


@pytest.mark.parametrize("name", DEFECTS)
def test_the_mended_code_is_there_once(name):
    defect = DEFECTS[name]
    assert (ROOT / defect.file).read_text().count(defect.mended) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_is_put_back_is_found(name):
    assert hunt(DEFECTS[name], SEEDS) is not None
