"""A collector that gets what is no trace: it names what that is, and counts nothing in it as missing."""

from __future__ import annotations

import json
import socket
import time

import pytest

from tests.decoding.test_foreign import FOREIGN
from tests.system.collector import until
from tests.system.test_import import jets

SOURCES = """
[sources.runs]
type = "tail"
format = "jets"
paths = ["{runs}"]
poll_interval = "20 ms"
idle_interval = "50 ms"

[sources.tcp]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"

[sources.heph]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
"""

KINDS = ("utf_16_or_32", "zstd", "tar", "http", "tls", "old_heph")


@pytest.fixture
def collector(collectors, tmp_path):
    (tmp_path / "runs").mkdir()
    return collectors(sources=SOURCES.format(runs=tmp_path / "runs")).start()


def test_what_is_no_trace_is_named(collector, tmp_path):
    (tmp_path / "runs/good.jets").write_bytes(jets(10))
    for kind in KINDS:
        content = FOREIGN[kind] * 3
        file = tmp_path / f"runs/{kind}.jets"
        with (
            socket.create_connection(collector.address("tcp")) as connection,
            file.open("ab", 0) as end,
        ):
            for at in range(0, len(content), 100):
                connection.sendall(content[at : at + 100])
                end.write(content[at : at + 100])
                time.sleep(0.01)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(content[:1400], collector.address("heph"))
    size = sum(len(FOREIGN[kind]) * 3 for kind in KINDS)
    datagrams = sum(min(1400, len(FOREIGN[kind]) * 3) for kind in KINDS)
    for source in ("runs", "tcp"):
        until(
            lambda name=source: collector.status()["sources"][name]["malformed_bytes"] == size,
            f"{source} to read all",
        )
    until(
        lambda: collector.status()["sources"]["heph"]["received_bytes"] >= datagrams,
        "the datagrams",
    )
    collector.settle()
    gaps = {"runs": {}, "tcp": {}, "heph": {}}
    for row in collector.rows(kind="gap"):
        if row["source"] in gaps:
            detail = json.loads(row["attributes"])["detail"]
            gaps[row["source"]].setdefault(detail, []).append(row["missing"])
    for source, of_source in gaps.items():
        assert set(of_source) == set(KINDS), source
        for detail, missing in of_source.items():
            assert missing.count(None) == 1, (source, detail)
            assert set(missing) <= {None, 0}
    assert collector.status()["sources"]["runs"]["missing_events"] == 0
