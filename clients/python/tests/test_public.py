from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tailrace_client
from clients.python.tests.collectors import UdpCollector
from clients.python.tests.reader import packets

README = Path(__file__).parents[1] / "README.md"


def test_the_public_names_are_these():
    assert tailrace_client.__all__ == [
        "Emitter",
        "JetsWriter",
        "Span",
        "close",
        "connect",
        "event",
        "flush",
        "span",
        "traced",
        "use_stream",
    ]
    assert all(hasattr(tailrace_client, name) for name in tailrace_client.__all__)


def test_importing_it_starts_nothing_and_imports_only_the_standard_library():
    program = (
        "import sys, threading; before = set(sys.modules); import tailrace_client;"
        "own = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(own - set(sys.stdlib_module_names), threading.active_count())"
    )
    output = subprocess.check_output(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, text=True
    )
    assert output == "{'tailrace_client'} 1\n"


def test_the_readme_does_what_it_shows(tmp_path, monkeypatch):
    """Its Python blocks run, in order, in one program."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2
    with UdpCollector() as collector:
        monkeypatch.setenv("TAILRACE_ADDRESS", collector.address)
        monkeypatch.chdir(tmp_path)
        names = {}
        for block in blocks:
            exec(block.replace("/tmp/", f"{tmp_path}/"), names)  # noqa: S102, S108 - our own page
        tailrace_client.close()
        received = [packet for datagram in collector.waiting() for packet in packets(datagram)]
    assert [packet[-2] for packet in received] == ["epoch", "solve", "checkpoint"]
    (trace,) = tmp_path.glob("*.jets")
    assert len(trace.read_bytes().splitlines()) == 8
