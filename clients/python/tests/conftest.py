from __future__ import annotations

import pytest
from hypothesis import settings

import tailrace_client
from clients.python.tests.collectors import Authority
from clients.python.tests.reader import events
from tailrace_client import _process

if settings.get_current_profile_name() == "default":  # This is so if tests/conftest.py is not used
    settings.register_profile("same", deadline=None, derandomize=True, database=None)
    settings.load_profile("same")


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """Return the authority that has signed the certificates of this session's collectors and clients."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def emitted(tmp_path):
    """Let this process's emitter write to a file. Yield a function that closes the emitter and returns the events in
    the file."""
    path = tmp_path / "emitted.trace"
    tailrace_client.connect(f"file://{path}")

    def end():
        is_on = _process.current is not None
        assert tailrace_client.close(10) or not is_on  # A later close also reports later events.
        return events(path.read_bytes()) if path.exists() else []

    yield end
    tailrace_client.close()
