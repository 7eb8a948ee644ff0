"""Run the code of the README, in order, in one program, and check the README's tables."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import tailrace_client
from clients.python.tests.reader import events
from tailrace_client import Emitter

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def table(header):
    """Return the first cell of each row of the table that begins with `header`."""
    rows = README.partition(header)[2].partition("\n\n")[0]
    return re.findall(r"^ *\| `(.*?)`", rows, re.MULTILINE)


def test_it_does_what_it_shows(tmp_path, monkeypatch):
    trace = tmp_path / "readme.heph"
    monkeypatch.setenv("TAILRACE_ADDRESS", f"file://{trace}")
    names = {"__name__": "readme"}
    try:
        for language, block in BLOCKS:
            if language == "sql":  # needs a collector: tests/system/test_contexts.py runs this code
                continue
            assert language == "python"
            exec(block.replace("/tmp/", f"{tmp_path}/"), names)  # noqa: S102, S108 - our own page
        assert tailrace_client.close(20)
    finally:
        tailrace_client.close()
        logging.getLogger("solver").handlers.clear()
    found = events(trace.read_bytes())
    by_name = {event.description: event for event in found}
    assert [event.description for event in found[:4]] == [
        *("solve", "checkpoint", "queue length", "refine"),
    ]
    assert [name for name, _, _ in by_name["queue length"].attributes] == ["tailrace.counter"]
    assert (by_name["transfer"].start, by_name["transfer"].end) == (0, 250)
    assert (by_name["refresh"].start, by_name["refresh"].end) == (40, 65)
    assert (by_name["grant"].stream, by_name["grant"].substream) == (7, 3)
    assert "residual %g after %d steps" in by_name
    assert "waiting for the files" not in by_name
    assert [event.description for event in found].count("assemble") >= 2 + 2 + 1
    assert {event.substream for event in found if event.description == "assemble"} > {1, 2}
    begun, residual, served = found[-3:]
    assert [event.description for event in (begun, residual, served)] == [
        "otel.start",
        "residual",
        "serve",
    ]
    (jets,) = tmp_path.glob("*.jets")
    assert len(jets.read_bytes().splitlines()) == 8


def test_its_addresses_are_addresses():
    addresses = table("| address |")
    assert [address.partition(":")[0] for address in addresses] == [
        "unix",
        "tcp",
        "tls",
        "udp",
        "file",
    ]
    for address in addresses:
        emitter = Emitter(address)
        assert emitter.enabled
        emitter.close(0)
    with pytest.raises(ValueError, match="is not an address"):
        Emitter("http://node7:7701")


def test_its_reasons_are_the_reasons(tmp_path):
    emitter = Emitter(f"file://{tmp_path}/x")
    assert sorted(table("| reason |")) == sorted(emitter.discarded)
    emitter.close()
