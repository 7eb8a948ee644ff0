from __future__ import annotations

import pytest

from tests.daemon.virtual import Calls


@pytest.fixture
def calls(monkeypatch, autojump_clock):
    """What blocks, in virtual time."""
    return Calls(monkeypatch)
