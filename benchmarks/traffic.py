"""Traffic made before the clock starts, and senders that only send."""

from __future__ import annotations

import json
import random
import socket
import struct
import time

MAGIC = 0xC1FC1FB7
DESCRIPTIONS = [
    b"Polling for OS events", b"Running thread-local process", b"Scheduling processes",
    b"receiving message", b"step", b"Running user function", b"cache miss", b"Relaying process signals",
]  # fmt: skip


def heph_packets(count: int, streams: int = 8, seed: int = 1) -> list[bytes]:
    """Events in order on each stream: mean 73 bytes, none to two attributes."""
    rng = random.Random(seed)
    packets = []
    for n in range(count):
        description = rng.choice(DESCRIPTIONS)
        attributes = b""
        number = rng.choice((0, 0, 1, 2))
        if number:
            attributes = struct.pack(">H2sBQ", 2, b"id", 1, rng.randrange(2**40))
        if number == 2:
            attributes += struct.pack(">H4sBH5s", 4, b"name", 4, 5, b"actor")
        size = 42 + len(description) + len(attributes)
        start = 1000 * n
        head = struct.pack(
            ">IIIIQQQH", MAGIC, size, n % streams, n // streams, 0, start, start + 800, len(description)
        )  # fmt: skip
        packets.append(head + description + attributes)
    return packets


def packed(packets: list[bytes], limit: int = 1432) -> list[bytes]:
    """Packets joined into datagrams of at most `limit` bytes."""
    datagrams, group, size = [], [], 0
    for packet in packets:
        if size + len(packet) > limit:
            datagrams.append(b"".join(group))
            group, size = [], 0
        group.append(packet)
        size += len(packet)
    return [*datagrams, b"".join(group)]


def jets_lines(instructions: int) -> bytes:
    """Return a trace shaped as jets-tracegen's: 12 lines of 131 bytes (mean) an instruction."""
    lines = [{"type": "header", "version": "2.0", "metadata": {"clock_frequency_mhz": 1000}}]
    lines.append(_record(0, "core_0", "Core", 1, None, "Core 0"))
    for n in range(instructions):
        clk, id_ = 1000 + n, n + 2
        name = f"0xFFFFFFFF{4 * n:08X}-ADD"
        data = {"pc": name[:18], "opcode": "ADD", "disassembly": "add  s3, t1, t4"}
        lines.append(_record(clk, name, "Instruction", id_, 1, "add  s3, t1, t4") | {"data": data})
        lines += [
            {"clk": clk + s, "type": "event", "name": stage, "record_id": id_, "description": f"{stage}. Pipeline stage of the instruction, in order"}
            for s, stage in enumerate(("F1", "F2", "D", "RN", "DS", "IS", "RR", "EX", "WB", "C"))
        ]  # fmt: skip
        lines.append({"clk": clk + 10, "type": "record_end", "record_id": id_})
    lines.append({"clk": 2000 + instructions, "type": "record_end", "record_id": 1})
    total = {
        "type": "footer",
        "capture_end_clk": 2000 + instructions,
        "total_records": instructions + 1,
    }
    lines.append(total | {"total_annotations": 0, "total_events": 10 * instructions})
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def _record(clk, name, record_type, id_, parent, description):  # noqa: ANN001, ANN202
    return {
        "clk": clk, "type": "record", "name": name, "record_type": record_type,
        "id": id_, "parent_id": parent, "description": description,
    }  # fmt: skip


def send_udp(address: tuple[str, int], datagrams: list[bytes], rate: float) -> float:
    """Send at about `rate` datagrams a second; the seconds it took."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        begun = time.monotonic()
        burst = max(1, round(rate / 1000))
        for at in range(0, len(datagrams), burst):
            ahead = begun + at / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            for datagram in datagrams[at : at + burst]:
                sock.send(datagram)
        return time.monotonic() - begun


def send_tcp(address: tuple[str, int], data: bytes) -> float:
    """Send all as fast as the peer takes it; the seconds until it has."""
    begun = time.monotonic()
    with socket.create_connection(address) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    return time.monotonic() - begun
