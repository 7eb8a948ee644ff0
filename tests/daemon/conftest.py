from __future__ import annotations

import pytest

from tailrace.sources import udp
from tailrace.sources.datagrams import SystemSocket
from tests.daemon.virtual import Calls


@pytest.fixture
def calls(monkeypatch, autojump_clock):
    """Things that block, in virtual time. No thread reads sockets: virtual seconds would pass until it has."""
    monkeypatch.setattr(udp, "system_socket", SystemSocket)
    return Calls(monkeypatch)
