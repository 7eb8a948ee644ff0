"""Generate traces of binary records: Heph packets and ovni events.

The Heph traffic (trace format 0.1.0) resembles that of a parallel solver. A worker writes a part of a step when the
part ends, so end times grow within a stream, and start times do not.

The ovni traces resemble those of libovni 1.14 for a program with tasks on two nodes. Each thread has a stream: a
header of 8 bytes, then events in the order of its node's clock, written one buffer at a time. `stream.json` is
written when the thread begins, once later, and when the thread ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random
from struct import pack, unpack_from
from typing import NamedTuple

from tailrace.demo.traffic import Write

EVENT_MAGIC, METADATA_MAGIC = 0xC1FC1FB7, 0x75D11D4D
DATAGRAM_BYTES = 1432
"""Maximum size (bytes) of a datagram: the payload of an Ethernet frame without the headers of IPv6 and of a tunnel."""

Value = int | float | str | Sequence[int]
Attributes = Mapping[str, Value]


class Packet(NamedTuple):
    """One Heph event. `counter` is its number; the packet contains this number modulo 2^32."""

    stream: int
    counter: int
    data: bytes


def epoch(unix_ns: int) -> bytes:
    """Return the Heph metadata packet that states the time of tick 0 (Unix ns)."""
    return pack(">IIH5sQ", METADATA_MAGIC, 23, 5, b"epoch", unix_ns)


def heph_events(
    seed: int, n: int, streams: Sequence[int] = (0, 1, 2, 3), *, first: int = 0
) -> Iterator[Packet]:
    """Yield `n` Heph events, each on a stream chosen at random. The event numbers of each stream begin at `first`."""
    order = Random(f"{seed}/order")  # noqa: S311 - traffic, not secrets
    workers = {stream: _worker(seed, stream, first) for stream in streams}
    for _ in range(n):
        yield next(workers[order.choice(streams)])


def datagrams(packets: Iterator[bytes], limit: int = DATAGRAM_BYTES) -> Iterator[bytes]:
    """Yield datagrams of at most `limit` bytes with the packets in order. A packet above the limit is a datagram of its
    own."""
    datagram = b""
    for packet in packets:
        if datagram and len(datagram) + len(packet) > limit:
            yield datagram
            datagram = b""
        datagram += packet
    if datagram:
        yield datagram


def numbers(datagram: bytes) -> list[tuple[int, int]]:
    """Return stream and number (modulo 2^32) of each Heph event in a datagram."""
    found = []
    at = 0
    while at < len(datagram):
        magic, size = unpack_from(">II", datagram, at)
        if magic == EVENT_MAGIC:
            found.append(unpack_from(">II", datagram, at + 8))
        at += size
    return found


def event(
    stream: int, counter: int, start: int, end: int, description: str, attributes: Attributes
) -> bytes:
    """Return one Heph event packet. `start` and `end` are nanoseconds since the trace's epoch."""
    body = _text(description) + b"".join(_text(n) + _value(v) for n, v in attributes.items())
    head = pack(">IIIIQQQ", EVENT_MAGIC, 40 + len(body), stream, counter % 2**32, 0, start, end)
    return head + body


def _worker(seed: int, stream: int, first: int) -> Iterator[Packet]:
    """Yield the Heph events of one simulated worker, without end."""
    random = Random(f"{seed}/{stream}")  # noqa: S311 - traffic, not secrets
    counters = count(first)
    now = random.randrange(1_000_000)
    for step in count():
        begun = now
        for description, attributes in _parts(random, step):
            start = now
            now += random.randrange(20_000, 400_000)
            counter = next(counters)
            yield Packet(
                stream, counter, event(stream, counter, start, now, description, attributes)
            )
        counter = next(counters)
        yield Packet(stream, counter, event(stream, counter, begun, now, "step", {"number": step}))
        now += random.randrange(1_000, 20_000)


def _parts(random: Random, step: int) -> Iterator[tuple[str, Attributes]]:
    yield (
        "receive halo",
        {"neighbours": [random.randrange(64) for _ in range(random.randrange(1, 5))]},
    )
    for _ in range(random.randrange(1, 4)):
        yield (
            "solve",
            {"residual": random.random() / (step + 1), "iterations": random.randrange(1, 40)},
        )
    if random.random() < 0.2:
        yield "rebalance", {"cells moved": random.randrange(-500, 500)}
    if step % 10 == 9:
        yield (
            "write checkpoint",
            {"path": f"step-{step:06}.h5", "bytes": random.randrange(2**20, 2**24)},
        )
    yield "send halo", {}


def _text(string: str) -> bytes:
    data = string.encode()
    return pack(">H", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return b"\x04" + _text(value)
    if isinstance(value, float):
        return pack(">Bd", 3, value)
    if isinstance(value, int):
        return pack(">BQ", 1, value) if value >= 0 else pack(">Bq", 2, value)
    return pack(f">BH{len(value)}Q", 0x81, len(value), *value)


OVNI_HEADER = b"ovni\1\0\0\0"
BLOCK_BYTES = 4096
"""Size (bytes) of one write to a stream file. A larger buffer is written by several writes."""

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
"""Codes of ovni events that assign a name to something. Like those in `_ENDS`, they do not become events in the
table."""


class OvniEvent(NamedTuple):
    code: str
    clock: int
    data: bytes


class OvniThread(NamedTuple):
    """One thread of an ovni trace: the directory of its stream, its events, and its metadata at its end."""

    path: str
    events: list[OvniEvent]
    metadata: dict[str, object]


def ovni_trace(seed: int, *, iterations: int = 20) -> list[OvniThread]:
    """Return the threads of an ovni trace of two nodes with one process each. The clocks of the nodes differ."""
    random = Random(f"ovni/{seed}")  # noqa: S311 - traffic, not secrets
    threads: list[OvniThread] = []
    for node, pid in (("node1", 4100), ("node2", 5200)):
        clock = random.randrange(10**12, 10**13)
        tids = [pid + 1 + number for number in range(_WORKERS)]
        main, tasks, over = _main(random, clock, tids, iterations)
        threads.append(_ovni_thread(f"{node}.demo", pid, pid, main))
        for number, tid in enumerate(tids):
            recorder = _ThreadRecorder(random, clock + 900)
            _work(recorder, tid, number, tasks[number::_WORKERS], over)
            threads.append(_ovni_thread(f"{node}.demo", pid, tid, recorder.events))
    return threads


def ovni_offsets(threads: list[OvniThread]) -> bytes:
    """Return the content of clock-offsets.txt: by how many ns the first node's clock is ahead of each clock."""
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


def ovni_writes(thread: OvniThread, buffer_bytes: int) -> Iterator[Write]:
    """Yield the writes of an ovni thread to its two files, in order. Each flushed buffer becomes one or more writes."""
    stream, document = f"{thread.path}/stream.obs", f"{thread.path}/stream.json"
    about = thread.metadata["ovni"]
    assert isinstance(about, dict)  # noqa: S101 - `_ovni_thread` makes it a dict
    first = {key: about[key] for key in ("lib", "part", "tid", "pid", "loom", "app_id")}
    known = {"version": 3, "ovni": first}
    yield Write(stream, OVNI_HEADER)
    yield Write(document, _document(known), anew=True)
    for number, buffer in enumerate(_buffers(thread.events, buffer_bytes)):
        for at in range(0, len(buffer), BLOCK_BYTES):
            yield Write(stream, buffer[at : at + BLOCK_BYTES])
        if number == 0:
            yield Write(document, _document(known | {"nosv": thread.metadata["nosv"]}), anew=True)
    whole = _document(thread.metadata)
    yield Write(document, b"", anew=True)
    yield Write(document, whole[: len(whole) // 2])
    yield Write(document, whole[len(whole) // 2 :])


def ovni_event_count(thread: OvniThread, buffer_bytes: int) -> int:
    """Return how many events of an ovni thread the table must contain: spans, instants and counters."""
    flushes = sum(1 for _ in _buffers(thread.events, buffer_bytes)) - 1
    return flushes + sum(event.code not in _ENDS | _NAMES for event in thread.events)


def ovni_event(code: str, clock: int, payload: bytes = b"") -> OvniEvent:
    """Return an ovni event with a payload of 0 or 2 to 16 bytes."""
    flags = max(len(payload) - 1, 0)
    return OvniEvent(code, clock, pack("<B3sQ", flags, code.encode(), clock) + payload)


def ovni_jumbo(code: str, clock: int, payload: bytes) -> OvniEvent:
    """Return an ovni event with a payload of any size. Such an event is called a jumbo event."""
    return OvniEvent(
        code, clock, pack("<B3sQI", 0x13, code.encode(), clock, len(payload)) + payload
    )


def _ovni_thread(loom: str, pid: int, tid: int, events: list[OvniEvent]) -> OvniThread:
    about: dict[str, object] = {
        "lib": {"version": "1.14.0", "commit": "demo"},
        "part": "thread",
        "tid": tid,
        "pid": pid,
        "loom": loom,
        "app_id": 1,
        "require": {"ovni": "1.1.0", "nosv": "2.7.0"},
    }
    if tid == pid:
        about["mark"] = _MARKS
        about["loom_cpus"] = [{"index": n, "phyid": n} for n in range(_WORKERS + 1)]
    about["finished"] = 1
    nosv = {"can_breakdown": False, "lib_version": "4.1.0"}
    metadata: dict[str, object] = {"version": 3, "ovni": about, "nosv": nosv}
    return OvniThread(f"loom.{loom}/proc.{pid}/thread.{tid}", events, metadata)


def _main(
    random: Random, clock: int, tids: list[int], iterations: int
) -> tuple[list[OvniEvent], list[tuple[int, int]], int]:
    """Return the events of a main thread, its tasks with the earliest start of each, and its end time."""
    thread = _ThreadRecorder(random, clock)
    thread.add("OHx", pack("<iiQ", 0, -1, 0))
    for tid in tids:
        thread.add("OHC", pack("<iQ", -1, tid))
    for number, label in _TYPES.items():
        text = pack("<I", number) + label.encode() + b"\0"
        thread.events.append(ovni_jumbo("VYc", thread.tick(), text))
    ids = count(1)
    tasks = []
    for iteration in range(1, iterations + 1):
        thread.add("OM=", pack("<qi", iteration, _ITERATION))
        for phase in (1, 2):
            thread.add("OM[", pack("<qi", phase, _PHASE))
            for _ in range(random.randrange(4, 9)):
                task = next(ids)
                thread.add("VAr")
                type_ = random.choice(list(_TYPES))
                thread.add("VTc", pack("<II", task, type_))
                for code in ("VAR", "VAs", "VU[", "VU]"):
                    thread.add(code)
                tasks.append((task, thread.tick()))
                thread.add("VAS")
            thread.add("OM]", pack("<qi", phase, 1), more=random.randrange(90_000))
    thread.add("OHe", more=10_000_000)
    return thread.events, tasks, thread.now


def _work(
    thread: _ThreadRecorder, tid: int, cpu: int, tasks: list[tuple[int, int]], over: int
) -> None:
    """Record the events of a worker thread that executes `tasks` and ends after the time `over`."""
    random = thread.random
    thread.add("OHx", pack("<iiQ", cpu + 1, tid, 7))
    thread.add("VHw")
    for task, ready in tasks:
        thread.add("VSh")
        thread.now = max(thread.now, ready)
        for code in ("VSf", "VS[", "VSr", "VS]"):
            thread.add(code)
        body = pack("<II", task, 1)
        thread.add("VTx", body)
        if random.random() < 0.3:
            thread.add("VMa")
            thread.add("VMA", more=300)
        if random.random() < 0.1:
            thread.add("VTp", body)
            thread.add("VTr", body, more=20_000)
        thread.add("VTe", body, more=random.randrange(5_000, 200_000))
    thread.now = max(thread.now, over)
    thread.add("VHW")
    thread.add("OHe")


class _ThreadRecorder:
    """Records the events of one thread, and advances the thread's clock by a random time before each."""

    def __init__(self, random: Random, now: int) -> None:
        self.random = random
        self.now = now
        self.events: list[OvniEvent] = []

    def tick(self, more: int = 0) -> int:
        """Advance the clock by a random time of at least `more` nanoseconds. Return the new time."""
        self.now += more + self.random.randrange(30, 400)
        return self.now

    def add(self, code: str, payload: bytes = b"", *, more: int = 0) -> None:
        self.events.append(ovni_event(code, self.tick(more), payload))


def _buffers(events: list[OvniEvent], buffer_bytes: int) -> Iterator[bytes]:
    """Yield the buffers that an ovni thread writes; each but the first begins with two events about a flush."""
    buffer = b""
    for this in events:
        buffer += this.data
        if len(buffer) >= buffer_bytes and this is not events[-1]:
            yield buffer
            buffer = ovni_event("OF[", this.clock).data + ovni_event("OF]", this.clock + 20).data
    yield buffer


def _document(document: object) -> bytes:
    return json.dumps(document, indent=4).encode()
