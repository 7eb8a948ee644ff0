"""The parts of the process's memory are what sessions, streams and records really take."""

from __future__ import annotations

import gc
import importlib
import os
import re
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tailrace.config.schema import Config, TailConfig, UdpConfig
from tailrace.daemon import memory
from tailrace.decoding.json_object import read_object
from tailrace.ledger.counters import STREAM_BYTES
from tailrace.ledger.stream import MARK_BYTES
from tailrace.rows.batch import BlockRows
from tailrace.store.data_files import to_arrow
from tests import toml
from tests.decoding import ovni_bytes
from tests.ingest.log import Log, applied, heph_event
from tests.system.collector import until
from tests.system.test_noise import of_process

KIB, MIB = 2**10, 2**20
BATCH = 20_000
"""Events of a batch that is weighed."""
PAGE = (Path(__file__).parents[2] / "collector/THREATS.md").read_text()
SECTION = PAGE.split("\n## Memory\n")[1].split("\n## ")[0]
JETS = b'{"type":"header","version":"2.0","metadata":{}}\n{"type":"event","record_id":1,"clk":1,"name":"x"}\n'
DFTRACER = b'[\n{"id":1,"name":"start","cat":"dftracer","pid":1,"tid":1,"ts":1,"dur":0,"ph":"X","args":{}}\n'
SAID = {
    "heph": heph_event(1, 0), "jets": JETS, "dftracer": DFTRACER, "et3": b"M 1 2 1\nE 1 2\n",
    "ovni": ovni_bytes.HEADER + ovni_bytes.starts(1),
}  # fmt: skip


def mib(size):
    return f"{-(-size // MIB)} MiB"


def test_the_page_says_what_the_code_says():
    parts = memory.bounds(Config())
    total = sum(part.bytes for part in parts)
    assert f"With the\ndefaults it is {mib(total)}." in SECTION
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| (\d+ MiB) \|", SECTION, re.MULTILINE)
    assert rows == [(part.name, mib(part.bytes)) for part in parts]
    assert total < 700 * MIB


@pytest.mark.parametrize(
    ("module", "constant", "text"),
    [
        ("ingest.spans", "SPAN_BYTES", "open spans"), ("ledger.references", "RANGE_BYTES", "record ids"),
        ("ledger.references", "UNKNOWN_BYTES", "unknown references"),
        ("ledger.stream", "MARK_BYTES", "marks of"), ("ledger.windows", "RANGE_BYTES", "holes and gaps"),
        ("ledger.copies", "COPY_BYTES", "datagrams"), ("decoding.formats.et3.stack", "FRAME_BYTES", "open calls"),
        ("decoding.formats.ovni.stack", "OPEN_BYTES", "open calls"), ("decoding.formats.et3.maps", "NAME_BYTES", "names of"),
        ("decoding.formats.dftracer.names", "NAME_BYTES", "names of"),
        ("decoding.formats.ovni.names", "NAMED_BYTES", "names of"),
        ("decoding.formats.dftracer.run", "RANGE_BYTES", "holes in DFTracer"),
    ],
)  # fmt: skip
def test_the_page_says_what_an_entry_takes(module, constant, text):
    value = getattr(sys.modules[f"tailrace.{module}"], constant)
    (row,) = [line for line in SECTION.splitlines() if line.startswith(f"| {text}")]
    assert f"{value} B" in row.split("|")[2]


def test_each_source_adds_its_sessions_streams_and_records():
    def of(**sources):
        return {part.name: part.bytes for part in memory.bounds(Config(sources=sources))}

    none, one = of(), of(a=UdpConfig(format="heph", listen="x", peers_max=10))
    assert none["state"] == none["sessions"] == none["streams"] == none["parsing"] == 0
    announced = Config().ledger.sessions_max * memory.ANNOUNCED_BYTES
    assert one["sessions"] == 10 * memory.PEER_BYTES + announced
    assert one["state"] == one["checkpoint"] == Config().ledger.source_state_max
    files = of(a=TailConfig(format="ovni", paths=["/x"], files_max=10, inflating_max=MIB))
    assert files["sessions"] == 10 * memory.FILE_BYTES + MIB
    assert files["streams"] == 0


def taken(work):
    """The bytes that the interpreter counts in what is made, and its result."""
    gc.collect()
    tracemalloc.start()
    try:
        result = work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format_", list(SAID))
def test_no_session_takes_more_than_is_said(format_):
    log = Log()
    sessions = 300
    for n in range(sessions):
        if format_ in {"heph", "jets"}:
            number = log.open(format_, peer=f"127.0.0.1:{n}")
        else:
            number = log.open_file(format_, f"/runs/loom.x/proc.{n}/thread.{n}/stream.obs")
        log.data(number, SAID[format_])

    def work():
        ingest = applied(log.entries)
        ingest.batch.take()
        return ingest

    work()
    size, _ = taken(work)
    # Beside the ingest's part there is the source's.
    most = memory.PEER_BYTES if format_ in {"heph", "jets"} else memory.FILE_BYTES * 2 // 3
    assert size / sessions < most


def test_no_stream_takes_more_than_is_said():
    log = Log()
    number = log.open("heph")
    streams = 2000
    log.data(number, b"".join(heph_event(10**6 + n, 0) for n in range(streams)))

    def work():
        ingest = applied(log.entries)
        ingest.batch.take()
        return ingest

    work()
    size, _ = taken(work)
    assert size < 64 * KIB + streams * (STREAM_BYTES + 2 * MARK_BYTES)
    log.close(number)
    size, ingest = taken(work)
    assert sum(len(each.streams) for each in ingest.state.departures["s"]) == streams
    assert size < 64 * KIB + streams * memory.DEPARTED_BYTES


@pytest.mark.parametrize(
    "text", [b"[],", b"{},", b'"",', b"1.5,", b'{"a":[]},', b'"\xf0\x9f\x98\x80",']
)
def test_a_record_takes_no_more_while_it_is_read(text):
    size = 2**18
    line = b'{"type":"x","data":[' + text * (size // len(text)) + b"0]}\n"
    tracemalloc.start()
    try:
        assert not isinstance(read_object(line), str)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < memory.PARSED * len(line)


def test_a_collector_takes_no_more_than_the_process_until_its_first_commit(collector_of):
    """Libraries load more of themselves as they write for the first time. None of it is pandas, which is
    installed here: it takes 40 MiB."""
    importlib.import_module("pandas")
    collector = collector_of(executable=True)
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(heph_event(1, 0))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 1, "the event")
        collector.settle()
    assert collector.status()["rows_committed"] >= 1
    assert of_process(collector.process.pid, "VmHWM") < memory.PROCESS_BYTES
    assert "/pandas/" not in Path(f"/proc/{collector.process.pid}/maps").read_text()


def _held(batch):
    """Return the bytes that a batch's rows take: the buffers of blocks, and lists with their different values."""
    found, seen = 0, set()
    for part in batch.parts:
        if isinstance(part.rows, BlockRows):
            columns = filter(None, part.rows.columns())
            buffers = [
                b for c in columns for b in c if isinstance(b, bytes | bytearray | memoryview)
            ]
            found += sum(len(buffer) for buffer in buffers)
        else:
            for column in part.rows:
                found += sys.getsizeof(column)
                new = {id(value): value for value in column if id(value) not in seen}
                seen |= new.keys()
                found += sum(map(sys.getsizeof, new.values()))
    return found


USUAL = b"".join(heph_event(i % 5, i // 5, name=b"work %d" % (i % 50)) for i in range(BATCH))
LONG = b"".join(heph_event(1, i, name=b"%d" % i * 40) for i in range(BATCH))
LINES = b"".join(
    b'{"type":"event","record_id":%d,"clk":%d,"name":"x"}\n' % (i, i) for i in range(2, BATCH)
)


def _buffers(rows):
    """Return the bytes of all buffers of a table, each counted once."""
    chunks = [chunk for column in rows.columns for chunk in column.chunks]
    chunks += [chunk.dictionary for chunk in chunks if hasattr(chunk, "dictionary")]
    found = {b.address: b.size for chunk in chunks for b in chunk.buffers() if b is not None}
    return sum(found.values())


@pytest.mark.parametrize(
    ("format_", "data"),
    [("heph", USUAL), ("heph", LONG), ("jets", JETS + LINES)],
    ids=["usual", "other names each time", "lines"],
)
def test_a_batch_that_is_written_and_the_next_take_no_more_than_they_say(format_, data):
    log = Log()
    session = log.open(format_)
    for at in range(0, len(data), 2**16):
        log.data(session, data[at : at + 2**16])
    ingest = applied(log.entries)
    batch = ingest.batch.take()
    assert len(batch) >= BATCH
    [(_, rows)] = to_arrow(batch)
    assert 2 * _held(batch) + _buffers(rows) <= 2 * batch.bytes


def test_check_prints_the_sum_and_its_parts(tmp_path):
    file = tmp_path / "tailrace.toml"
    file.write_text(toml.section("ledger", state_max="8 MiB"))
    command = [sys.executable, "-m", "tailrace", "check", file]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    (line,) = [line for line in done.stdout.splitlines() if "memory:" in line]
    assert re.match(
        r"  memory: at most \d+ MiB \(process 160, rows 64, .*state 8, checkpoint 8,", line
    )
