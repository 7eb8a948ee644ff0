"""A pipelined processor, traced as hardware: `tailrace run -- python examples/rtl_jets.py`.

Five stages, in order; an instruction that needs what the one before it loads waits for a cycle. Each
instruction is a JETS record in its core's; the stages that it enters are its events, its operands an
annotation; times are clock cycles. Instructions overlap, so that they are named (`record=`) and not
entered with `with`, as the core is. The footer's totals tell the collector whether all of it came.

The trace goes to the address given, or to the collector that `tailrace run` names:

    python examples/rtl_jets.py tcp://127.0.0.1:7702
    python examples/rtl_jets.py file:///tmp/pipeline.jets && tailrace import /tmp/pipeline.jets

How long instructions took, afterwards:

    tailrace query "SELECT name, count(*), avg(ticks) AS cycles, max(ticks) FROM spans
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
    """The stages, each with what is in it."""

    def __init__(self, trace: JetsWriter, program: list[Instruction]) -> None:
        self._trace = trace
        self._program = iter(program)
        self._stages: list[Flight | None] = [None] * len(STAGES)

    def step(self, clk: int) -> bool:
        """Simulate a cycle; whether anything is still on its way."""
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
        """What cannot go on from decoding, because it needs what is being loaded."""
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
    sink = sys.argv[1] if len(sys.argv) > 1 else f"tcp://{os.environ['TAILRACE_JETS_TCP']}"
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
