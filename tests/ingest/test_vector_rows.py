"""Every vector becomes just the rows that it became when `tests/vectors/rows.json` was written.

See `tests/ingest/vector_rows.py`; `pytest --update-vectors` writes the digests anew.
"""

from __future__ import annotations

import pytest

from tests.decoding.test_conformance import ALL
from tests.ingest import vector_rows


@pytest.fixture(scope="module")
def written(request):
    if request.config.getoption("--update-vectors"):
        vector_rows.save()
    return vector_rows.load()


def test_every_vector_has_digests_and_nothing_else_has(written):
    assert list(written) == [vector.name for vector in ALL]


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.name)
def test_a_vector_makes_the_rows_that_it_made(vector, written):
    assert vector_rows.digests_of(vector) == written[vector.name]
