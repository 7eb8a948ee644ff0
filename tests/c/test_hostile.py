"""C programs that do to the client what programs do: each behaves as without tracing, and names what it loses."""

from __future__ import annotations

import subprocess

import pytest

from tests.c.building import HERE, build
from tests.c.listening import Stream, Udp, hear


def run(program, *words, code=0, **environ):
    ended = subprocess.run(
        [program, *map(str, words)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    return ended.stdout.splitlines()


def listen(kind, directory):
    if kind == "udp":
        return Udp()
    return Stream(directory / "socket" if kind == "unix" else None)


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix", "file"])
def test_what_a_program_writes_to_closed_standard_descriptors_reaches_nothing(tmp_path, kind):
    """A socket without a peer would even end the program, by SIGPIPE."""
    peer = None if kind == "file" else listen(kind, tmp_path)
    address = peer.address if peer else f"file://{tmp_path}/trace"
    run(build(HERE / "closed.c"), address, 100)
    data = peer.close() if peer else (tmp_path / "trace").read_bytes()
    data = data if isinstance(data, bytes) else b"".join(data)
    assert b"SHOUTED" not in data
    assert len(hear(data).sessions) == 100
