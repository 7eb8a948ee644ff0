"""Generate an ovni trace as libovni 1.14 writes it: a task-parallel program on two nodes.

In each process the main thread creates tasks, in phases that it marks, and its workers run them (events
of nOS-V). Each thread has a stream: a header of 8 bytes, then events in the order of its node's clock.
The stream is written one buffer at a time, and the next buffer begins with the pair of events of the
flush. `stream.json` is rewritten when the thread begins and ends, and once in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from random import Random
from struct import pack
from typing import NamedTuple

from tailrace.demo.traffic import Write

HEADER = b"ovni\1\0\0\0"
BLOCK_BYTES = 4096
"""A reader sees a large write arrive in multiples of this size."""

_PHASE, _ITERATION = 1, 2
_MARKS = {
    str(_PHASE): {
        "title": "Phase",
        "chan_type": "stack",
        "labels": {"1": "compute", "2": "exchange"},
    },
    str(_ITERATION): {"title": "Iteration", "chan_type": "single"},
}
_TYPES = {1: "stencil", 2: "reduce", 3: "räumlich"}
_WORKERS = 2


_ENDS = frozenset({"VAR", "VAS", "VU]", "VSf", "VS]", "VTe", "VMA", "VTr", "VHW", "OM]"})
_NAMES = frozenset({"VYc", "VTc"})
"""Codes that end a span or give a name. Neither is an event by itself."""


class Event(NamedTuple):
    """One event. `code` is its model, category and value."""

    code: str
    clock: int
    data: bytes


class Thread(NamedTuple):
    """One stream: its directory, its events, and its final metadata."""

    path: str
    events: list[Event]
    metadata: dict[str, object]


def ovni_trace(seed: int, *, iterations: int = 20) -> list[Thread]:
    """Return the threads of two nodes with one process each. The clocks of the nodes differ."""
    random = Random(f"ovni/{seed}")  # noqa: S311 - traffic, not secrets
    threads: list[Thread] = []
    for node, pid in (("node1", 4100), ("node2", 5200)):
        clock = random.randrange(10**12, 10**13)
        threads += _process(random, f"{node}.demo", pid, clock, iterations)
    return threads


def offsets(threads: list[Thread]) -> bytes:
    """Return clock-offsets.txt for these nodes: how far each clock is behind the first."""
    begun: dict[str, int] = {}
    for thread in threads:
        node = thread.path.removeprefix("loom.").partition(".")[0]
        clock = thread.events[0].clock
        begun[node] = min(clock, begun.get(node, clock))
    lines = [f"{'rank':10} {'hostname':20} offset_median offset_mean offset_std"]
    first = next(iter(begun.values()))
    for rank, (node, clock) in enumerate(begun.items()):
        offset = first - clock
        lines.append(f"{rank:<10} {node:20} {offset} {offset}.000000 0.000000")
    return "\n".join(lines).encode() + b"\n"


def writes(thread: Thread, buffer_bytes: int) -> Iterator[Write]:
    """Yield what the thread writes, buffer by buffer."""
    stream, document = f"{thread.path}/stream.obs", f"{thread.path}/stream.json"
    known = {"version": 3, "ovni": _known_at_first(thread.metadata)}
    yield Write(stream, HEADER)
    yield Write(document, _json(known), anew=True)
    for number, buffer in enumerate(_buffers(thread.events, buffer_bytes)):
        for at in range(0, len(buffer), BLOCK_BYTES):
            yield Write(stream, buffer[at : at + BLOCK_BYTES])
        if number == 0:
            yield Write(document, _json(known | {"nosv": thread.metadata["nosv"]}), anew=True)
    whole = _json(thread.metadata)
    yield Write(document, b"", anew=True)
    yield Write(document, whole[: len(whole) // 2])
    yield Write(document, whole[len(whole) // 2 :])


def events(thread: Thread, buffer_bytes: int) -> int:
    """Return how many events the thread writes: spans, instants and counters."""
    flushes = sum(1 for _ in _buffers(thread.events, buffer_bytes)) - 1
    return flushes + sum(event.code not in _ENDS | _NAMES for event in thread.events)


def event(code: str, clock: int, payload: bytes = b"") -> Event:
    """Return an event with a payload of up to 16 bytes, but not of 1 byte."""
    flags = max(len(payload) - 1, 0)
    return Event(code, clock, pack("<B3sQ", flags, code.encode(), clock) + payload)


def jumbo(code: str, clock: int, payload: bytes) -> Event:
    """Return an event with a payload of any size."""
    return Event(code, clock, pack("<B3sQI", 0x13, code.encode(), clock, len(payload)) + payload)


def _process(random: Random, loom: str, pid: int, clock: int, iterations: int) -> Iterator[Thread]:
    """Yield the main thread's stream, then the streams of the workers, which share its tasks."""
    tids = [pid + 1 + number for number in range(_WORKERS)]
    main, tasks, over = _main(random, clock, tids, iterations)
    yield _thread(loom, pid, pid, main)
    for number, tid in enumerate(tids):
        mine = tasks[number::_WORKERS]
        yield _thread(loom, pid, tid, _worker(random, clock + 900, tid, number, mine, over))


def _thread(loom: str, pid: int, tid: int, events: list[Event]) -> Thread:
    about: dict[str, object] = {"lib": {"version": "1.14.0", "commit": "demo"}, "part": "thread"}
    about |= {"tid": tid, "pid": pid, "loom": loom, "app_id": 1}
    about["require"] = {"ovni": "1.1.0", "nosv": "2.7.0"}
    if tid == pid:
        about["mark"] = _MARKS
        about["loom_cpus"] = [{"index": n, "phyid": n} for n in range(_WORKERS + 1)]
    about["finished"] = 1
    nosv = {"can_breakdown": False, "lib_version": "4.1.0"}
    metadata: dict[str, object] = {"version": 3, "ovni": about, "nosv": nosv}
    return Thread(f"loom.{loom}/proc.{pid}/thread.{tid}", events, metadata)


def _main(
    random: Random, clock: int, tids: list[int], iterations: int
) -> tuple[list[Event], list[tuple[int, int]], int]:
    """Return the main thread's events, its tasks with the earliest time for each, and its end."""
    now = _Clock(random, clock)
    events = [event("OHx", now.tick(), pack("<iiQ", 0, -1, 0))]
    events += [event("OHC", now.tick(), pack("<iQ", -1, tid)) for tid in tids]
    for number, label in _TYPES.items():
        events.append(jumbo("VYc", now.tick(), pack("<I", number) + label.encode() + b"\0"))
    ids = count(1)
    tasks = []
    for iteration in range(1, iterations + 1):
        events.append(event("OM=", now.tick(), pack("<qi", iteration, _ITERATION)))
        for phase in (1, 2):
            events.append(event("OM[", now.tick(), pack("<qi", phase, _PHASE)))
            for _ in range(random.randrange(4, 9)):
                task = next(ids)
                events.append(event("VAr", now.tick()))
                created = pack("<II", task, random.choice(list(_TYPES)))
                events.append(event("VTc", now.tick(), created))
                events += [event("VAR", now.tick()), event("VAs", now.tick())]
                events += [event("VU[", now.tick()), event("VU]", now.tick())]
                tasks.append((task, now.tick()))
                events.append(event("VAS", now.tick()))
            events.append(event("OM]", now.tick(random.randrange(90_000)), pack("<qi", phase, 1)))
    over = now.tick(10_000_000)
    events.append(event("OHe", over))
    return events, tasks, over


def _worker(
    random: Random, clock: int, tid: int, cpu: int, tasks: list[tuple[int, int]], over: int
) -> list[Event]:
    """Return a worker's events: it waits until there is a task, runs it, and repeats."""
    now = _Clock(random, clock)
    events = [event("OHx", now.tick(), pack("<iiQ", cpu + 1, tid, 7)), event("VHw", now.tick())]
    for task, ready in tasks:
        events.append(event("VSh", now.tick()))
        now.at_least(ready)
        events += [event("VSf", now.tick()), event("VS[", now.tick()), event("VSr", now.tick())]
        events.append(event("VS]", now.tick()))
        body = pack("<II", task, 1)
        events.append(event("VTx", now.tick(), body))
        if random.random() < 0.3:
            events += [event("VMa", now.tick()), event("VMA", now.tick(300))]
        if random.random() < 0.1:
            events += [event("VTp", now.tick(), body), event("VTr", now.tick(20_000), body)]
        events.append(event("VTe", now.tick(random.randrange(5_000, 200_000)), body))
    now.at_least(over)
    return [*events, event("VHW", now.tick()), event("OHe", now.tick())]


class _Clock:
    def __init__(self, random: Random, now: int) -> None:
        self._random = random
        self._now = now

    def tick(self, more: int = 0) -> int:
        """Return the time of the next event, at least `more` nanoseconds later."""
        self._now += more + self._random.randrange(30, 400)
        return self._now

    def at_least(self, time: int) -> None:
        self._now = max(self._now, time)


def _buffers(events: list[Event], buffer_bytes: int) -> Iterator[bytes]:
    """Yield the flushed buffers. Each buffer but the first begins with the pair of events about the flush
    before it."""
    buffer = b""
    for this in events:
        buffer += this.data
        if len(buffer) >= buffer_bytes and this is not events[-1]:
            yield buffer
            buffer = event("OF[", this.clock).data + event("OF]", this.clock + 20).data
    yield buffer


def _known_at_first(metadata: dict[str, object]) -> dict[str, object]:
    """Return what the first stream.json contains: no models, no marks, no `finished`."""
    about = metadata["ovni"]
    assert isinstance(about, dict)  # noqa: S101 - `_thread` makes it a dict
    return {key: about[key] for key in ("lib", "part", "tid", "pid", "loom", "app_id")}


def _json(document: object) -> bytes:
    return json.dumps(document, indent=4).encode()
