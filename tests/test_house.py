"""Figures of the product's rooms stay at or below their bounds. Lower a bound when its figure has fallen."""

from __future__ import annotations

import pytest

from tests.house import figures

BOUNDS = {
    "files under 60 lines": 12,
    "files over 600 lines": 0,
    "files with one importer, at home": 40,
    "type names with two definitions": 7,
    "constructors with 8 parameters": 0,
    "checks of the form of rows": 0,
}


@pytest.fixture(scope="module")
def found():
    return figures()


@pytest.mark.parametrize(("figure", "bound"), BOUNDS.items())
def test_a_figure_is_at_most_its_bound(found, figure, bound):
    assert len(found[figure]) <= bound, found[figure]


def test_every_figure_has_a_bound(found):
    assert found.keys() == BOUNDS.keys()
