"""Trace a pipelined processor as hardware:

    tailrace run --store /tmp/pipeline -- python examples/rtl_jets.py

The pipeline has five stages, in order. An instruction waits for a cycle if it needs what the one before
it loads. Each instruction is a JETS record inside its core's record. Its events are the stages that it
enters, its annotation holds its operands, and times are clock cycles. Instructions overlap, so the
program names their records (`record=`) instead of entering them with `with`, as it does for the core.
The footer's totals tell the collector whether the whole trace came.

The trace goes to the collector that `tailrace run` starts, or to the address that you give, such as
`tcp://127.0.0.1:7702` (`tailrace serve`), or a file:

    python examples/rtl_jets.py file:///tmp/pipeline.jets
    tailrace import --store /tmp/imported /tmp/pipeline.jets

Afterwards, ask how long instructions took:

    tailrace query --store /tmp/pipeline "
        SELECT name, count(*), avg(ticks) AS cycles, max(ticks) FROM spans
        WHERE category = 'Instruction' GROUP BY name"
"""

from __future__ import annotations

import os
import random
import sys
from typing import NamedTuple

from tailrace_client import JetsWriter

STAGES = ("fetch", "decode", "execute", "memory", "write-back")
DECODE, EXECUTE = STAGES.index("decode"), STAGES.index("execute")
INSTRUCTIONS = 300


class Instruction(NamedTuple):
    pc: int
    name: str
    target: int
    sources: tuple[int, int]


class Flight:
    """An instruction on its way through the stages."""

    def __init__(self, trace: JetsWriter, clk: int, instruction: Instruction) -> None:
        pc, name, target, sources = self.instruction = instruction
        self.record = trace.record(clk, name, "Instruction", f"{name} x{target}", pc=f"{pc:#x}")
        trace.annotation("operands", {"target": target, "sources": sources}, record=self.record)


class Core:
    """The stages, each with the instruction in it."""

    def __init__(self, trace: JetsWriter, program: list[Instruction]) -> None:
        self._trace = trace
        self._program = iter(program)
        self._stages: list[Flight | None] = [None] * len(STAGES)

    def step(self, clk: int) -> bool:
        """Simulate a cycle, and return whether any instruction is still on its way."""
        *staying, leaving = self._stages
        if leaving:
            leaving.record.end(clk)
        waiting = self._waiting()
        if waiting:
            self._trace.event(clk, "stall", "what it needs is still loading", record=waiting.record)
            self._stages = [*staying[:EXECUTE], None, *staying[EXECUTE:]]
        else:
            self._stages = [self._fetched(clk), *staying]
        for number, flight in enumerate(self._stages):
            if flight and not (waiting and number < EXECUTE):
                self._trace.event(clk, STAGES[number], record=flight.record)
        return any(self._stages)

    def _fetched(self, clk: int) -> Flight | None:
        instruction = next(self._program, None)
        return Flight(self._trace, clk, instruction) if instruction else None

    def _waiting(self) -> Flight | None:
        """Return the instruction that waits in decoding for what is being loaded, or None."""
        load, flight = self._stages[EXECUTE], self._stages[DECODE]
        if load and flight and load.instruction.name == "lw":
            return flight if load.instruction.target in flight.instruction.sources else None
        return None


def program(rng: random.Random) -> list[Instruction]:
    names = rng.choices(("add", "mul", "lw"), weights=(6, 1, 3), k=INSTRUCTIONS)
    return [
        Instruction(0x8000 + 4 * i, name, rng.randrange(8), (rng.randrange(8), rng.randrange(8)))
        for i, name in enumerate(names)
    ]


def main() -> None:
    if len(sys.argv) > 1:
        sink = sys.argv[1]
    elif "TAILRACE_JETS_TCP" in os.environ:
        sink = f"tcp://{os.environ['TAILRACE_JETS_TCP']}"
    else:
        sys.exit(
            "no collector: run this with `tailrace run -- `, or give an address, such as tcp://127.0.0.1:7702"
        )
    with JetsWriter(sink) as trace:
        trace.header(hardware_model="five stages, rv32", clock_frequency_mhz=500)
        with trace.record(0, "core 0", "Core"):
            core = Core(trace, program(random.Random(1)))
            clk = 0
            while core.step(clk):
                clk += 1
    print(f"{INSTRUCTIONS} instructions in {clk} cycles")


if __name__ == "__main__":
    main()
