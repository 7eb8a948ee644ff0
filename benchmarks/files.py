"""Finished files and how long a daemon that finds them takes; idle files and what they cost."""

from __future__ import annotations

import json
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.system.collector import Collector, until

_HASH = "6882804a826580cd"


def dftracer(events: int) -> bytes:
    """One process of release 2.2.0, arguments recorded: 190 bytes an event."""
    first = '{"name":"HH","cat":"dftracer","type":1,"pid":1,"tid":1,"ph":4,"args":{"hhash":"%s","name":"vm","value":"%s"}}'
    start = '{"id":1,"name":"start","cat":"dftracer","type":1,"pid":1,"tid":1,"ts":1795287728221103,"dur":0,"ph":1,"args":{"hhash":"%s","ppid":1,"version":20003}}'
    line = '{"id":%d,"name":"pwrite","cat":"POSIX","type":3,"pid":1,"tid":%d,"ts":%d,"dur":%d,"ph":1,"args":{"hhash":"%s","fhash":"6d07341a6d736eef","size":%d,"offset":%d}}'
    lines = [first % (_HASH, _HASH), start % _HASH]
    lines += [
        line % (n, 1 + n % 8, 1795287728221103 + 20 * n, n % 97, _HASH, 4096, 4096 * n)
        for n in range(2, events + 2)
    ]
    return "\n".join(lines).encode() + b"\n"


def members(data: bytes, size: int = 2**20) -> bytes:
    """As the producer compresses: a member for each so many bytes."""
    parts = []
    for at in range(0, len(data), size):
        compressor = zlib.compressobj(6, wbits=31)
        parts += [compressor.compress(data[at : at + size]), compressor.flush()]
    return b"".join(parts)


def ovni(events: int) -> bytes:
    """One thread: calls of 12 bytes, and a task of 16 in four."""
    call, task = struct.Struct("<B3sQ"), struct.Struct("<B3sQI")
    parts = [b"ovni\1\0\0\0", struct.pack("<B3sQIiQ", 0x0F, b"OHx", 1, 0, -1, 0)]
    for n in range(events // 4):
        clock = 1000 * n + 2
        parts += [
            call.pack(0, b"VU[", clock), call.pack(0, b"VU]", clock + 300),
            task.pack(0x03, b"VTx", clock + 400, n), task.pack(0x03, b"VTe", clock + 900, n),
        ]  # fmt: skip
    return b"".join(parts) + call.pack(0, b"OHe", 1000 * events)


def et3(events: int) -> bytes:
    """Return a trace in the agent's form: calls two deep, with an allocation and an update in each."""
    call = (
        "M {} 0 1766822961\nN {} 24 2 54 0 1766822961\nM {} {} 1766822961\n"
        "U 0 {} 2 1766822961\nE {} 1766822961\nE {} 1766822961\n"
    )
    return "".join(
        call.format(n % 50, n + 7, 60 + n % 9, n + 7, n + 7, 60 + n % 9, n % 50)
        for n in range(events // 6)
    ).encode()


def tail(format_: str, name: str, data: bytes) -> tuple[float, float, float]:
    """Seconds until all of a file is committed, CPU seconds, and memory (MB) of the daemon."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory) / "runs" / Path(name).parent
        runs.mkdir(parents=True)
        source = (
            f'[sources.runs]\ntype = "tail"\nformat = "{format_}"\npaths = ["{directory}/runs"]'
        )
        collector = Collector(Path(directory), sources=source).start()
        try:
            process = psutil.Process(collector.process.pid)
            before, begun = process.cpu_times(), time.monotonic()
            (runs / Path(name).name).write_bytes(data)

            def done() -> bool:
                status = collector.status()
                source, spool = status["sources"]["runs"], status["spool"]
                read = source["received_bytes"] and not source["behind_bytes"]
                return read and spool["end"] == spool["committed"] and not source["pending_bytes"]

            until(done, "the file to be committed", seconds=600, pause=0.05)
            seconds, after = time.monotonic() - begun, process.cpu_times()
            cpu = after.user + after.system - before.user - before.system
            return seconds, cpu, process.memory_info().rss / 1e6
        finally:
            collector.end()


def idle_files(count: int) -> tuple[float, float]:
    """Share of a core that so many files take which nobody writes to, and memory (MB)."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory) / "runs"
        runs.mkdir()
        for n in range(count):
            (runs / f"{n}.jets").write_bytes(b'{"type":"header","version":"2.0","metadata":{}}\n')
        source = f'[sources.runs]\ntype = "tail"\nformat = "jets"\npaths = ["{runs}"]'
        collector = Collector(Path(directory), sources=source).start()
        try:
            until(
                lambda: collector.status()["sources"]["runs"]["open"] == count,
                "all files",
                seconds=120,
            )
            collector.settle()
            time.sleep(10)  # until the daemon looks at them no more often than it has to
            process = psutil.Process(collector.process.pid)
            before = process.cpu_times()
            time.sleep(20)
            after = process.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / 20
            return cpu, process.memory_info().rss / 1e6
        finally:
            collector.end()


def per_second(work: Callable[[], object], events: int) -> float:
    begun = time.thread_time()
    work()
    return events / (time.thread_time() - begun)


def json_loop(data: bytes) -> list[object]:
    return [json.loads(line) for line in data.splitlines()]


def struct_loop(data: bytes) -> list[object]:
    """Every event's header to a tuple."""
    unpack, at, events = struct.Struct("<B3sQ").unpack_from, 8, []
    while at < len(data):
        event = unpack(data, at)
        events.append(event)
        at += 12 + (event[0] & 15) + (event[0] & 15 > 0)
    return events


def split_loop(data: bytes) -> list[list[bytes]]:
    return [line.split() for line in data.splitlines()]
