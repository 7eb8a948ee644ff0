"""Generate a JETS trace as a processor simulator writes it (JETS 2.0, the dialect with `clk` first).

Clusters contain cores, cores contain threads, threads contain instructions. An instruction has 10 or 11
events, and a footer has totals. Within a thread, lines are in the order of `clk`. Each thread begins
again at clk 0, as in the reference generator, so `clk` falls back from thread to thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import NamedTuple

START_CLK = 1000
"""The clk at which a thread's first instruction begins. The threads themselves begin at 0."""

_STAGES = {
    "F1": "Fetch 1. Address to the instruction cache",
    "F2": "Fetch 2. Line from the instruction cache",
    "D": "Decode. Operation and branch prediction",
    "RN": "Rename. Physical registers assigned",
    "DS": "Dispatch. Into a reservation station",
    "IS": "Issue. Operands are ready",
    "RR": "Register Read. From the physical registers",
    "EX": "Execute. In a functional unit",
    "M": "Memory. Load or store",
    "WB": "Writeback. To the physical registers",
    "C": "Commit. In program order",
}
_OPCODES = ("ADD", "ADDI", "AND", "BEQ", "JAL", "LI", "LW", "MV", "SLL", "SUB", "SW", "XOR")
_REGISTERS = ("a0", "a1", "a2", "a3", "s1", "s2", "s3", "t0", "t1", "t2", "ra", "sp")


class JetsLine(NamedTuple):
    """One line with its newline. `type` is the line's; `record` is the record that it concerns."""

    type: str
    record: int | None
    data: bytes


def jets_trace(
    seed: int, *, clusters: int = 1, cores: int = 2, threads: int = 2, instructions: int = 25
) -> Iterator[JetsLine]:
    """Yield a whole trace. Each number counts units in one unit of the level above."""
    random = Random(f"jets/{seed}")  # noqa: S311 - traffic, not secrets
    ids = count(1)
    totals = {"record": 0, "annotation": 0, "event": 0}
    last = 0
    yield _header(clusters=clusters, cores=cores, threads=threads)
    for cluster in range(clusters):
        for line in _cluster(random, ids, cluster, (cores, threads, instructions)):
            if line.type in totals:
                totals[line.type] += 1
            if line.type == "record_end":
                last = max(last, json.loads(line.data)["clk"])
            yield line
    summary = {f"total_{name}s": total for name, total in totals.items()}
    yield _line({"type": "footer", "capture_end_clk": last, **summary}, None)


def _header(**shape: int) -> JetsLine:
    metadata = {
        "hardware_model": "RISC-V SoC",
        "architecture": "RISC-V Pipeline",
        "clock_frequency_mhz": 1000,
        "tool": "tailrace demo",
        **{f"num_{name}": number for name, number in shape.items()},
    }
    return _line({"type": "header", "version": "2.0", "metadata": metadata}, None)


def _cluster(
    random: Random, ids: Iterator[int], number: int, shape: tuple[int, int, int]
) -> Iterator[JetsLine]:
    cores, threads, instructions = shape
    cluster = next(ids)
    yield _begin(0, f"cluster_{number}", "Cluster", cluster, None, f"Cluster {number}")
    cluster_end = 0
    for core_number in range(cores):
        core = next(ids)
        yield _begin(0, f"core_{core_number}", "Core", core, cluster, f"Core {core_number}")
        yield _annotation("Cache", core, "First level, KiB", {"instruction": 32, "data": 32})
        core_end = 0
        for thread_number in range(threads):
            thread = next(ids)
            name = f"thread_{thread_number}"
            yield _begin(0, name, "Thread", thread, core, f"Thread {thread_number}")
            lines, end = _thread(random, ids, thread, instructions)
            yield from lines
            yield _end(end, thread)
            core_end = max(core_end, end)
        yield _end(core_end, core)
        cluster_end = max(cluster_end, core_end)
    yield _end(cluster_end, cluster)


def _thread(
    random: Random, ids: Iterator[int], thread: int, instructions: int
) -> tuple[list[JetsLine], int]:
    """Return the lines of a thread's overlapping instructions in order of clk, and its end's clk."""
    begin, committed = START_CLK, START_CLK
    timed: list[tuple[int, JetsLine]] = []
    for number in range(instructions):
        lines = list(_instruction(random, next(ids), thread, begin, committed, 4 * number))
        committed = lines[-1][0]
        begin += random.randrange(1, 3)
        timed += lines
    timed.sort(
        key=lambda line: line[0]
    )  # stable: at the same clk, the older instruction comes first
    return [line for _, line in timed], committed + 1


def _instruction(
    random: Random, id_: int, thread: int, begin: int, committed: int, address: int
) -> Iterator[tuple[int, JetsLine]]:
    """Yield an instruction's lines with their clk. It commits no earlier than the instruction before it."""
    opcode = random.choice(_OPCODES)
    pc = f"0x{0x8000_0000 + address:08X}"
    disassembly = f"{opcode.lower()}  {', '.join(random.sample(_REGISTERS, 3))}"
    data = {"pc": pc, "opcode": opcode, "disassembly": disassembly}
    yield begin, _begin(begin, f"{pc}-{opcode}", "Instruction", id_, thread, disassembly, data)
    clk = begin
    for stage, description in _STAGES.items():
        if stage == "M" and opcode not in {"LW", "SW"}:
            continue
        if stage == "C":
            clk = max(clk, committed)
        yield clk, _event(clk, stage, id_, description)
        stalled = random.random() < 0.1
        clk += 1 + (random.randrange(1, 6) if stalled else 0)
    yield clk, _end(clk, id_)


def _begin(
    clk: int,
    name: str,
    record_type: str,
    id_: int,
    parent: int | None,
    description: str,
    data: dict[str, str] | None = None,
) -> JetsLine:
    fields: dict[str, object] = {
        "clk": clk,
        "type": "record",
        "name": name,
        "record_type": record_type,
        "id": id_,
        "parent_id": parent,
        "description": description,
    }
    return _line(fields | ({"data": data} if data else {}), id_)


def _end(clk: int, id_: int) -> JetsLine:
    return _line({"clk": clk, "type": "record_end", "record_id": id_}, id_)


def _event(clk: int, name: str, id_: int, description: str) -> JetsLine:
    fields = {
        "clk": clk,
        "type": "event",
        "name": name,
        "record_id": id_,
        "description": description,
    }
    return _line(fields, id_)


def _annotation(name: str, id_: int, description: str, data: object) -> JetsLine:
    fields = {"name": name, "record_id": id_, "description": description, "data": data}
    return _line({"type": "annotation", **fields}, id_)


def _line(fields: dict[str, object], id_: int | None) -> JetsLine:
    return JetsLine(
        str(fields["type"]), id_, json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    )
