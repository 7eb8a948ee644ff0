"""`python -m benchmarks [NAME…]`: measure, print a table, compare with the floors (benchmarks/README.md).

Each throughput is events from the first byte sent to the last row committed, over the wall time,
with the real daemon in its own process on this machine and the sender beside it; "CPU" is the
daemon's own. Shared machines are noisy: quote the ratio to the peer of the same run.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks import emitting, files, traffic
from tests.system.collector import Collector, until


def main() -> None:
    print(machine())
    print(
        f"{'':34} {'events/s':>10} {'floor':>10}  {'CPU us/event':>12}  {'missing':>8}  RSS MB  peer"
    )
    chosen = sys.argv[1:] or list(BENCHES)
    for name in chosen:
        BENCHES[name]()


def machine() -> str:
    with Path("/proc/cpuinfo").open() as file:
        model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    memory = psutil.virtual_memory().total >> 30
    return (
        f"{os.cpu_count()} x {model}, {memory} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def run(
    name: str,
    floor: float,
    source: str,
    events: int,
    send: Callable[[tuple[str, int]], float],
    peer: str,
) -> None:
    """One daemon, one flood: rate until all is committed."""
    with tempfile.TemporaryDirectory() as directory:
        collector = Collector(Path(directory)).start()
        try:
            process = psutil.Process(collector.process.pid)
            before = process.cpu_times()
            begun = time.monotonic()
            send(collector.address(source))

            def done() -> bool:
                status = collector.status()
                spool, seen = status["spool"], status["sources"][source]
                quiet = spool["end"] == spool["committed"] and seen["pending_bytes"] == 0
                return quiet and seen["taken_bytes"] == seen["received_bytes"] > 0

            until(done, "all to be committed", seconds=300, pause=0.05)
            seconds = time.monotonic() - begun
            after = process.cpu_times()
            cpu = after.user + after.system - before.user - before.system
            status = collector.status()["sources"][source]
            memory = process.memory_info().rss / 1e6
            print(
                f"{name:34} {events / seconds:10.0f} {floor:10.0f}  {cpu / events * 1e6:12.2f}  "
                f"{status['missing_events']:8} {memory:7.0f}  {peer}"
            )
        finally:
            collector.end()


def heph_tcp() -> None:
    packets = traffic.heph_packets(1_000_000)
    data = b"".join(packets)
    peer = f"struct loop to tuples, no store: {struct_loop(data):.0f}/s"
    run("Heph over TCP", 0.8e6, "tcp", len(packets), lambda a: traffic.send_tcp(a, data), peer)


def heph_udp() -> None:
    packets = traffic.heph_packets(500_000)
    for rate in (100_000, 150_000):
        run(
            f"Heph over UDP, 1 a datagram @{rate // 1000}k", 1e5, "udp", len(packets),
            lambda a, rate=rate: traffic.send_udp(a, packets, rate), "",
        )  # fmt: skip


def heph_udp_packed() -> None:
    packets = traffic.heph_packets(1_500_000)
    datagrams = traffic.packed(packets)
    per = len(packets) / len(datagrams)
    rate = 500_000 / per
    run(
        f"Heph over UDP, {per:.0f} a datagram @500k", 0.5e6, "udp", len(packets),
        lambda a: traffic.send_udp(a, datagrams, rate), "",
    )  # fmt: skip


def jets_tcp() -> None:
    data = traffic.jets_lines(60_000)
    lines = data.count(b"\n")
    peer = f"DuckDB read_json to Parquet: {duckdb_copy(data):.0f}/s"
    run("JETS over TCP", 0.6e6, "jets", lines, lambda a: traffic.send_tcp(a, data), peer)


def tail() -> None:
    """Files of each format that are there at once, until all is committed."""
    pfw = files.dftracer(500_000)
    events = pfw.count(b"\n")
    peer = f"json.loads a line, no store: {files.per_second(lambda: files.json_loop(pfw), events):.0f}/s"
    tailed("DFTracer .pfw", 0.6e6, "dftracer", "a.pfw", pfw, events, peer)
    tailed("DFTracer .pfw.gz", 0.6e6, "dftracer", "a.pfw.gz", files.members(pfw), events, peer)
    obs = files.ovni(1_000_000)
    peer = f"struct loop to tuples, no store: {files.per_second(lambda: files.struct_loop(obs), 1_000_000):.0f}/s"
    name = "ovni/loom.a/proc.1/thread.1/stream.obs"
    tailed("ovni", 1.5e6, "ovni", name, obs, 1_000_002, peer)
    trace = files.et3(600_000)
    peer = f"split a line, no store: {files.per_second(lambda: files.split_loop(trace), 600_000):.0f}/s"
    tailed("ET3", 0.8e6, "et3", "trace", trace, 600_000, peer)


def tailed(
    name: str, floor: float, format_: str, path: str, data: bytes, events: int, peer: str
) -> None:
    seconds, cpu, memory = files.tail(format_, path, data)
    print(
        f"{name + ', a finished file':34} {events / seconds:10.0f} {floor:10.0f}  {cpu / events * 1e6:12.2f}  "
        f"{'':8} {memory:7.0f}  {peer}"
    )


def idle_files() -> None:
    for count in (1000, 10_000):
        cpu, memory = files.idle_files(count)
        print(
            f"{f'{count} idle files':34} {cpu:10.2%} of a core (floor 1 % for 1000), {memory:.0f} MB"
        )


def idle() -> None:
    """CPU and memory of a daemon to which nothing is sent, over ten seconds."""
    with tempfile.TemporaryDirectory() as directory:
        collector = Collector(Path(directory)).start()
        try:
            process = psutil.Process(collector.process.pid)
            before = process.cpu_times()
            time.sleep(10)
            after = process.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / 10
            memory = process.memory_info().rss / 1e6
            print(f"{'idle':34} {cpu:10.2%} of a core (floor 1 %), {memory:.0f} MB (floor 100 MB)")
        finally:
            collector.end()


def latency() -> None:
    """From a datagram's send to its row being visible, one at a time."""
    import socket

    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory() as directory:
        collector = Collector(Path(directory)).start()
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(collector.address("udp"))
            seconds = []
            for packet in traffic.heph_packets(30, streams=1):
                rows = committed(collector)
                begun = time.monotonic()
                sock.send(packet)
                until(lambda rows=rows: committed(collector) > rows, "a row", pause=0.01)
                seconds.append(time.monotonic() - begun)
            DeltaTable(str(collector.store / "events"))
            seconds.sort()
            print(
                f"{'socket to visible':34} p50 {seconds[15]:.2f} s, max of 30 {seconds[-1]:.2f} s (floor p99 1.5 s)"
            )
        finally:
            collector.end()


def committed(collector: Collector) -> int:
    return int(collector.status()["rows_committed"])


def struct_loop(data: bytes) -> float:
    """Unpack the packets' headers to tuples, the cheapest thing Python can do with them. Return events a second."""
    unpack = struct.Struct(">IIIIQQQH").unpack_from
    begun, at, events = time.thread_time(), 0, []
    while at < len(data):
        event = unpack(data, at)
        events.append(event)
        at += event[1]
    return len(events) / (time.thread_time() - begun)


def duckdb_copy(data: bytes) -> float:
    """DuckDB, one thread, JSON lines to zstd Parquet. Lines a second."""
    import duckdb

    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "trace.jets", Path(directory) / "trace.parquet"
        source.write_bytes(data)
        columns = {
            "clk": "BIGINT", "type": "VARCHAR", "name": "VARCHAR", "record_id": "UBIGINT", "id": "UBIGINT",
            "parent_id": "UBIGINT", "record_type": "VARCHAR", "description": "VARCHAR", "data": "JSON",
        }  # fmt: skip
        connection = duckdb.connect(config={"threads": 1})
        begun = time.monotonic()
        connection.execute(
            f"COPY (SELECT * FROM read_json('{source}', format='newline_delimited', "
            f"columns={json.dumps(columns).replace(chr(34), chr(39))})) TO '{target}' (COMPRESSION zstd)"
        )
        return data.count(b"\n") / (time.monotonic() - begun)


BENCHES = {
    "heph-tcp": heph_tcp,
    "heph-udp": heph_udp,
    "heph-udp-packed": heph_udp_packed,
    "jets-tcp": jets_tcp,
    "latency": latency,
    "idle": idle,
    "tail": tail,
    "idle-files": idle_files,
    "emitting": emitting.main,
}

if __name__ == "__main__":
    main()
