"""The groups of mutation tests name files that there are."""

from __future__ import annotations

import pytest

from tests.mutants import GROUPS, ROOT

SOURCES = {"tailrace": ROOT / "collector", "tailrace_client": ROOT / "clients/python/src"}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_names_files_that_exist(group):
    modules, tests = GROUPS[group]
    gone = [name for name in modules if not [*SOURCES[name.split("/")[0]].glob(name)]]
    gone += [name for name in tests if not (ROOT / name).exists()]
    assert gone == []
