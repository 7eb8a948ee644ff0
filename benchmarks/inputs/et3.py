"""Generate a trace of ET3 in the agent's form: methods that call one another, allocate objects, and read and set
fields.

The shares of the kinds of lines are those of a real program of four threads: three lines in five enter or leave a
method, one in five allocates, one in five updates or reads a field. With `varied=1`, all object numbers are different,
as in a JVM; with `varied=0`, there are fifty.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.inputs.trace import Written

THREADS = (1766822961, 495053715, 2081303229, 664223387)
DEPTH = 24
_BLOCK = 4096


def write(home: Path, events: int, seed: int, varied: int = 1) -> Written:
    """Write the agent's file. At its end, all open calls return."""
    path, size = home / "trace", 0
    with path.open("wb") as file:
        for lines in _lines(events, random.Random(seed), varied):
            size += file.write("".join(lines).encode())
    return Written((path.name,), size)


def _lines(events: int, rng: random.Random, varied: int) -> Iterator[list[str]]:
    objects = 2**31 - 1 if varied else 50
    frames: dict[int, list[int]] = {thread: [] for thread in THREADS}
    left, opened = events, 0
    block: list[str] = []
    thread = THREADS[0]
    while left > opened:
        if rng.random() < 0.05:
            thread = THREADS[rng.randrange(len(THREADS))]
        stack, kind = frames[thread], rng.random()
        number = 1 + rng.randrange(objects)
        if (kind < 0.31 and len(stack) < DEPTH and left >= opened + 2) or (not stack and left > opened + 1):  # fmt: skip
            method = 21 + rng.randrange(400)
            stack.append(method)
            opened += 1
            block.append(f"M {method} {number if kind < 0.25 else 0} {thread}\n")
        elif stack and kind < 0.60:
            opened -= 1
            block.append(f"E {stack.pop()} {thread}\n")
        else:
            block.append(_inside(kind, number, rng, thread))
        left -= 1
        if len(block) >= _BLOCK:
            yield block
            block = []
    for thread, stack in frames.items():
        block += (f"E {method} {thread}\n" for method in reversed(stack))
    yield block


def _inside(kind: float, number: int, rng: random.Random, thread: int) -> str:
    """Return a line for something that happens within a method: an allocation, or an access to a field."""
    if kind < 0.72:
        return f"N {number} {8 * rng.randrange(2, 12)} {rng.randrange(2, 90)} {rng.randrange(400)} 0 {thread}\n"
    if kind < 0.82:
        return f"A {number} {8 * rng.randrange(2, 512)} {rng.randrange(2, 90)} {rng.randrange(400)} {rng.randrange(64)} {thread}\n"
    if kind < 0.94:
        return f"U {number} {1 + rng.randrange(2**31 - 1)} {rng.randrange(300)} {thread}\n"
    return f"W {number} {rng.randrange(90)} {thread}\n"
