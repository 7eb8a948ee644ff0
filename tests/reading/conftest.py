"""Provide one store for all tests that only read it."""

from __future__ import annotations

import pytest

import tailrace
from tests.reading.stores import made, varied, whole


@pytest.fixture(scope="session")
def varied_store(tmp_path_factory):
    return made(tmp_path_factory, varied())


@pytest.fixture(scope="session")
def whole_store(tmp_path_factory):
    return made(tmp_path_factory, whole())


@pytest.fixture(scope="module")
def store(varied_store):
    with tailrace.open(varied_store) as opened:
        yield opened
