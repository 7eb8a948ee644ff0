"""Generate an ovni trace: a process of nOS-V, in which one thread creates tasks and three threads run them.

The order and the sizes of events are those of a program of nOS-V with 200 tasks: a worker is hungry, serves the
scheduler, takes a task and runs it. Here a task also allocates, locks, and submits another task.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from benchmarks.inputs.trace import Written

THREADS = 4
TYPES = ("main", "gemm", "potrf", "trsm", "syrk", "halo", "reduce", "write")
_PLAIN, _TASK, _CREATED = Struct("<B3sQ"), Struct("<B3sQI"), Struct("<B3sQII")
_HEADER = b"ovni\1\0\0\0"
_RUNS, _LABEL = Struct("<B3sQIiQ"), Struct("<B3sQII")

_WORK = (
    # The code (model, category and value) of each event, and the time until the next one (ns). Events of the category
    # VT also have the number of the task.
    (b"VSh", 240), (b"VS[", 330), (b"VS@", 40), (b"VS]", 50), (b"VSf", 80), (b"VTx", 900),
    (b"VMa", 120), (b"VMA", 700), (b"VAl", 90), (b"VAL", 400), (b"VU[", 150), (b"VU]", 2500),
    (b"VMf", 60), (b"VMF", 300), (b"VTe", 150),
)  # fmt: skip


def write(home: Path, events: int, seed: int) -> Written:
    """Write one stream for each thread. The first thread creates the tasks."""
    rng = random.Random(seed)
    created = max(events // 8, 2 + len(TYPES))
    shares = [created, *_split(events - created, THREADS - 1)]
    streams, size = [], 0
    for number, share in enumerate(shares):
        name = f"ovni/loom.node1.1/proc.7/thread.{7 + number}/stream.obs"
        stream = home / name
        stream.parent.mkdir(parents=True)
        pieces = _creator(share, rng) if number == 0 else _worker(share, number, rng)
        with stream.open("wb") as file:
            size += file.write(_HEADER) + sum(file.write(piece) for piece in pieces)
        stream.with_name("stream.json").write_text(json.dumps(_metadata(7 + number)))
        streams.append(name)
    return Written(tuple(streams), size)


def _split(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


def _creator(share: int, rng: random.Random) -> Iterator[bytes]:
    """Yield the events of the thread that creates tasks: first the types of tasks, then the tasks, each created and
    submitted.
    """
    clock = 1000
    yield _RUNS.pack(0x0F, b"OHx", clock, 0, -1, 0)
    for number, label in enumerate(TYPES, 1):
        text = label.encode() + b"\0"
        yield _LABEL.pack(0x13, b"VYc", clock, 4 + len(text), number) + text
    left, task = share - 2 - len(TYPES), 0
    while left > 0:
        task += 1
        clock += 180 + rng.randrange(40)
        parts = [
            _CREATED.pack(0x07, b"VTc", clock, task, 1 + rng.randrange(len(TYPES))),
            _PLAIN.pack(0, b"VU[", clock + 40), _PLAIN.pack(0, b"VU]", clock + 90),
        ]  # fmt: skip
        yield b"".join(parts[:left])
        left -= 3
    yield _PLAIN.pack(0, b"OHe", clock + 500)


def _worker(share: int, number: int, rng: random.Random) -> Iterator[bytes]:
    """Yield the events of one of the three threads that run tasks. It runs every third task."""
    clock, task, left = 2000, number, share - 2
    yield _RUNS.pack(0x0F, b"OHx", clock, number, 7, number)
    while left > 0:
        parts = []
        for mcv, pause in _WORK[:left]:
            clock += pause + rng.randrange(32)
            if mcv in {b"VTx", b"VTe"}:
                parts.append(_TASK.pack(0x03, mcv, clock, task))
            else:
                parts.append(_PLAIN.pack(0, mcv, clock))
        yield b"".join(parts)
        left -= len(parts)
        task += THREADS - 1
    yield _PLAIN.pack(0, b"OHe", clock + 500)


def _metadata(thread: int) -> dict[str, object]:
    library = {"version": "1.14.0", "commit": "cf025e242f45fc43f62165cbf07f6f2077d53747"}
    ovni = {
        "lib": library, "part": "thread", "tid": thread, "pid": 7, "loom": "node1.1",
        "app_id": 1, "require": {"ovni": "1.1.0", "nosv": "2.7.0"}, "finished": 1,
    }  # fmt: skip
    return {"version": 3, "ovni": ovni, "nosv": {"can_breakdown": False, "lib_version": "4.1.0"}}
