"""Fixtures that the tests of security share."""

from __future__ import annotations

import pytest

from tests.security.authority import Authority, StoppedClock


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def clock():
    return StoppedClock()
