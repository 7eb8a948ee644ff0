"""Generate a trace of JETS: a core that executes instructions. There is a line for each instruction that begins, ends,
or enters a stage.

The shares of lines are those of `jets-tracegen`: for each instruction a record, its end and up to ten stages, in the
order of the clock. One instruction in twenty has an annotation. A line has 130 bytes on average.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.inputs.trace import Written

_STAGES = {
    "F1": "Fetch 1. First half of reading the instruction cache",
    "F2": "Fetch 2. Second half of reading the instruction cache",
    "D": "Decode. The instruction is split into micro operations",
    "RN": "Rename. Architectural registers become physical ones",
    "DS": "Dispatch. The instruction enters an issue queue",
    "IS": "Issue. All operands are ready",
    "RR": "Register read. Operands are read or forwarded",
    "EX": "Execute",
    "WB": "Write back. The result is in the register file",
    "C": "Commit. The instruction leaves the reorder buffer",
}
_MNEMONICS = ("add  s3, t1, t4", "ld   a0, 16(sp)", "sd   a1, 24(sp)", "bne  t0, t2, -32", "mul  a4, a5, a6",
              "addi sp, sp, -48", "lui  t3, 0x80", "jal  ra, 1044")  # fmt: skip
_HEADER = '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000,"generator":"jets-tracegen"}}'
_RECORD = '{"clk":%d,"type":"record","name":"%s","record_type":"%s","id":%d,"parent_id":%s,"description":"%s"%s}'
_DATA = ',"data":{"pc":"0x%016X","opcode":"%s","disassembly":"%s"}'
_EVENT = '{"clk":%d,"type":"event","name":"%s","record_id":%d,"description":"%s"}'
_END = '{"clk":%d,"type":"record_end","record_id":%d}'
_ANNOTATION = '{"type":"annotation","name":"miss","record_id":%d,"description":"Data cache miss","data":{"level":%d,"cycles":%d}}'
_FOOTER = '{"type":"footer","capture_end_clk":%d,"total_records":%d,"total_annotations":%d,"total_events":%d}'

LONGEST = len(_STAGES) + 3
"""Maximum number of lines for one instruction: those of an instruction with an annotation."""


def write(home: Path, events: int, seed: int) -> Written:
    """Write one trace: a core with one thread of instructions."""
    path, size = home / "core.jets", 0
    with path.open("wb") as file:
        for lines in _lines(events, seed):
            size += file.write("".join(f"{line}\n" for line in lines).encode())
    return Written((path.name,), size)


def _lines(events: int, seed: int) -> Iterator[list[str]]:
    """Yield lines until the given number of events is written. The last instruction may be incomplete."""
    rng = random.Random(seed)
    around = [_RECORD % (0, "core_0", "Core", 1, "null", "Core 0", ""), _RECORD % (0, "thread_0", "Thread", 2, "1", "Hart 0", "")]  # fmt: skip
    yield [_HEADER, *around]
    left, number, clock, annotations = events - 2, 3, 1000, 0
    records, stages = 2, 0
    while left >= LONGEST + 2:
        lines = _instruction(rng, number, clock)
        annotated = sum(line.startswith('{"type":"annotation"') for line in lines)
        annotations += annotated
        records, stages = records + 1, stages + len(lines) - 2 - annotated
        left -= len(lines)
        number, clock = number + 1, clock + rng.choice((0, 1, 1, 2))
        yield lines
    yield [_EVENT % (clock, "C", 2, "Commit") for _ in range(max(left - 2, 0))]
    yield [_END % (clock + 20, 2), _END % (clock + 20, 1)][: max(left, 0)]
    yield [_FOOTER % (clock + 20, records, annotations, stages + max(left - 2, 0))]


def _instruction(rng: random.Random, number: int, clock: int) -> list[str]:
    pc = 0x80000000 + 4 * (number % 512)
    text = _MNEMONICS[rng.randrange(8)]
    opcode = text.partition(" ")[0].upper()
    data = _DATA % (pc, opcode, text)
    lines = [_RECORD % (clock, f"0x{pc:016X}-{opcode}", "Instruction", number, "2", text, data)]
    for stage, meaning in _STAGES.items():
        if stage != "EX" or opcode != "JAL":
            lines.append(_EVENT % (clock, stage, number, meaning))
        clock += 1 if rng.random() < 0.8 else 3
    if rng.random() < 0.05:
        lines.append(_ANNOTATION % (number, rng.randrange(1, 4), rng.randrange(12, 200)))
    return [*lines, _END % (clock, number)]
