from __future__ import annotations

import pytest

from tailrace.sources import udp
from tailrace.sources.udp import SystemSocket
from tests.daemon.virtual import Calls


@pytest.fixture
def calls(monkeypatch, autojump_clock):
    """Make blocking calls in virtual time. No thread reads sockets: virtual time would pass until it has done so."""
    monkeypatch.setattr(udp, "system_socket", SystemSocket)
    return Calls(monkeypatch)
