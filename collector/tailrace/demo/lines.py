"""Generate traces of text lines: JETS, DFTracer and Elephant Tracks 3 (ET3).

The JETS traces (2.0, the dialect with `clk` first) resemble those of a processor simulator. As in the reference
generator, `clk` goes back to 0 at each new thread.

The DFTracer traces resemble those of release 2.2.0, for processes that train a model. The `id` numbers a process's
events in the order in which they end. A forked process uses hashes of names that only its parent's file explains.

The ET3 traces record the calls of a Java program and its use of objects. In the form of the agents, the last field
of each line is the thread, and no line reports the death of an object. In the form of the specification, the last
field is a logical clock that counts entries and exits.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import md5
from itertools import count
from random import Random
from typing import NamedTuple

from tailrace.demo.traffic import Write

START_CLK = 1000
"""`clk` at which the first instruction of each thread begins. The thread itself begins at clk 0."""

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
    """One line of a JETS trace, including its newline."""

    type: str
    data: bytes


def jets_trace(
    seed: int, *, cores: int = 2, threads: int = 2, instructions: int = 25
) -> Iterator[JetsLine]:
    """Yield the lines of a JETS trace of one cluster. The parameters are the numbers of cores, of threads in a core,
    and of instructions in a thread."""
    random = Random(f"jets/{seed}")  # noqa: S311 - traffic, not secrets
    metadata = {
        "hardware_model": "RISC-V SoC",
        "architecture": "RISC-V Pipeline",
        "clock_frequency_mhz": 1000,
        "tool": "tailrace demo",
        "num_clusters": 1,
        "num_cores": cores,
        "num_threads": threads,
    }
    yield _jets_line("header", version="2.0", metadata=metadata)
    totals: Counter[str] = Counter()
    last = 0
    for line in _cluster(random, cores, threads, instructions):
        totals[line.type] += 1
        if line.type == "record_end":
            last = max(last, json.loads(line.data)["clk"])
        yield line
    summary = {f"total_{name}s": totals[name] for name in ("record", "annotation", "event")}
    yield _jets_line("footer", capture_end_clk=last, **summary)


def _cluster(random: Random, cores: int, threads: int, instructions: int) -> Iterator[JetsLine]:
    ids = count(1)
    cluster = next(ids)
    yield _begin_line(0, "cluster_0", "Cluster", cluster, None, "Cluster 0")
    cluster_end = 0
    for core_number in range(cores):
        core = next(ids)
        yield _begin_line(0, f"core_{core_number}", "Core", core, cluster, f"Core {core_number}")
        yield _jets_line(
            "annotation",
            name="Cache",
            record_id=core,
            description="First level, KiB",
            data={"instruction": 32, "data": 32},
        )
        core_end = 0
        for thread_number in range(threads):
            thread = next(ids)
            name = f"thread_{thread_number}"
            yield _begin_line(0, name, "Thread", thread, core, f"Thread {thread_number}")
            lines, end = _thread(random, ids, thread, instructions)
            yield from lines
            yield _jets_line("record_end", end, record_id=thread)
            core_end = max(core_end, end)
        yield _jets_line("record_end", core_end, record_id=core)
        cluster_end = max(cluster_end, core_end)
    yield _jets_line("record_end", cluster_end, record_id=cluster)


def _thread(
    random: Random, ids: Iterator[int], thread: int, instructions: int
) -> tuple[list[JetsLine], int]:
    """Return the lines of a thread's overlapping instructions in the order of clk, and the thread's end."""
    begin, committed = START_CLK, START_CLK
    timed: list[tuple[int, JetsLine]] = []
    for number in range(instructions):
        lines = list(_instruction(random, next(ids), thread, begin, committed, 4 * number))
        committed = lines[-1][0]
        begin += random.randrange(1, 3)
        timed += lines
    # Lines with the same clk stay in the order of their instructions, because Python's sort is stable.
    timed.sort(key=lambda line: line[0])
    return [line for _, line in timed], committed + 1


def _instruction(
    random: Random, id_: int, thread: int, begin: int, committed: int, address: int
) -> Iterator[tuple[int, JetsLine]]:
    """Yield the lines of one instruction, each with its clk. The instruction commits at `committed` or later."""
    opcode = random.choice(_OPCODES)
    pc = f"0x{0x8000_0000 + address:08X}"
    disassembly = f"{opcode.lower()}  {', '.join(random.sample(_REGISTERS, 3))}"
    data = {"pc": pc, "opcode": opcode, "disassembly": disassembly}
    name = f"{pc}-{opcode}"
    yield begin, _begin_line(begin, name, "Instruction", id_, thread, disassembly, data=data)
    clk = begin
    for stage, description in _STAGES.items():
        if stage == "M" and opcode not in {"LW", "SW"}:
            continue
        if stage == "C":
            clk = max(clk, committed)
        line = _jets_line("event", clk, name=stage, record_id=id_, description=description)
        yield clk, line
        stalled = random.random() < 0.1
        clk += 1 + (random.randrange(1, 6) if stalled else 0)
    yield clk, _jets_line("record_end", clk, record_id=id_)


def _begin_line(
    clk: int, name: str, kind: str, id_: int, parent: int | None, description: str, **more: object
) -> JetsLine:
    fields = {"name": name, "record_type": kind, "id": id_, "parent_id": parent}
    return _jets_line("record", clk, **fields, description=description, **more)


def _jets_line(type_: str, clk: int | None = None, **members: object) -> JetsLine:
    first = {} if clk is None else {"clk": clk}
    return JetsLine(type_, _json_line({**first, "type": type_, **members}))


BLOCK_BYTES = 4096
"""Size (bytes) of one write to a DFTracer file, as with DFTracer's own buffer."""

PIECE_BYTES = 1000
"""Size (bytes) of one write to an ET3 trace. Real agents write one line at a time."""

HOST = "demo"
_DIRECTORY = "/scratch/demo"
_COMMAND = "python3;train.py"
_APPLICATION, _LIBC, _PYTHON = 1, 3, 6
_EVENT, _METADATA = 1, 4
_CONFIGURATION = {"enable": 1, "metadata": 1, "time_metric": "US", "aggregation_enable": 0}

FORK_US = 50_000
"""Time (microseconds) between the start of the first process and its fork."""


class TraceLine(NamedTuple):
    """One line of a DFTracer file, including its newline. `id` is the number of the event, or None."""

    id: int | None
    data: bytes


class TraceFile(NamedTuple):
    name: str
    pid: int
    lines: list[TraceLine]


class _TracedCall(NamedTuple):
    end_us: int
    tid: int
    name: str
    category: str
    layer: int
    start_us: int
    path: str | None
    args: Mapping[str, object]


def dftracer_trace(
    seed: int, epoch_us: int, *, processes: int = 2, steps: int = 60
) -> list[TraceFile]:
    """Return the DFTracer files of `processes` processes, and of one more process, which the first process forks.
    `epoch_us` is the time at which the processes start (Unix microseconds)."""
    random = Random(f"dftracer/{seed}")  # noqa: S311 - traffic, not secrets
    pids = [4000 + 10 * number for number in range(processes)]
    known: list[dict[str, int]] = [{} for _ in pids]
    files = [
        _dftracer_process(random, pid, 3999, epoch_us, steps, names, "app")
        for pid, names in zip(pids, known, strict=True)
    ]
    forked_us = epoch_us + FORK_US
    inherited = {text: at_us for text, at_us in known[0].items() if at_us <= forked_us}
    fork = _dftracer_process(random, pids[0] + 1, pids[0], forked_us, steps, inherited, "fork")
    return [*files, fork]


def plain_writes(
    path: str, lines: Iterable[TraceLine | AgentLine], size: int = BLOCK_BYTES
) -> Iterator[Write]:
    """Yield the writes to an uncompressed file. Each write has `size` bytes, so most writes end within a line."""
    data = b"".join(line.data for line in lines)
    for at in range(0, len(data), size):
        yield Write(path, data[at : at + size])


def gzip_writes(name: str, lines: list[TraceLine], size: int = 100) -> Iterator[Write]:
    """Yield the writes to a compressed file of gzip members with `size` lines each. Like the real producer, end each
    write but the last at a newline byte of the compressed data."""
    held = b""
    for at in range(0, len(lines), size):
        member = zlib.compressobj(wbits=31)
        held += member.compress(b"".join(line.data for line in lines[at : at + size]))
        held += member.flush()
        cut = held.rfind(b"\n") + 1 if at + size < len(lines) else len(held)
        if cut:
            yield Write(name + ".gz", held[:cut])
        held = held[cut:]


def hashed(text: str) -> str:
    """Return DFTracer's hash of a string: every second byte of its MD5 digest."""
    return md5(text.encode(), usedforsecurity=False).digest()[::2].hex()


def _dftracer_process(
    random: Random, pid: int, ppid: int, began_us: int, steps: int, known: dict[str, int], kind: str
) -> TraceFile:
    """Return the DFTracer file of one process. `known` has the time (Unix µs) of each string whose hash the parent
    process has already explained; add this file's strings to it."""
    lines = [
        _metadata_line(pid, pid, "HH", HOST, hashed(HOST)),
        _metadata_line(pid, pid, "thread_name", str(pid)),
        _metadata_line(pid, pid, "CM", "time_metric", "US"),
    ]
    for key, text in (("FH", _DIRECTORY), ("SH", _COMMAND), ("SH", "DEFAULT")):
        if text not in known:
            lines.append(_metadata_line(pid, pid, key, text, hashed(text)))
            known[text] = began_us
    start: dict[str, object] = {"ppid": ppid, "cmd_hash": hashed(_COMMAND)}
    start |= {"exec_hash": hashed("DEFAULT"), "version": 20003, "cwd": hashed(_DIRECTORY)}
    events = [_TracedCall(began_us, pid, "start", "dftracer", _APPLICATION, began_us, None, start)]
    for thread in range(2):
        events += _loader(random, pid, thread, began_us, steps)
    events += _trainer(random, pid, began_us, steps)
    events.sort(key=lambda event: event.end_us)
    over = events[-1].end_us + 1000
    end: dict[str, object] = {"used": {"LIBC_IO": 1, "PYTHON": 1}, "cfg": _CONFIGURATION}
    end["num_events"] = len(events)
    threads = {pid}
    written: list[tuple[int, TraceLine]] = []
    for number, event in enumerate(events, 1):
        tid = event.tid
        if tid not in threads:
            threads.add(tid)
            written.append((tid, _metadata_line(pid, tid, "thread_name", str(tid))))
        if event.path is not None and event.path not in known:
            known[event.path] = event.end_us
            written.append((tid, _metadata_line(pid, tid, "FH", event.path, hashed(event.path))))
        written.append((tid, _call_line(pid, number, event)))
    # Swap some adjacent events of different threads, as in real processes, where a thread may write late.
    for at in range(1, len(written) - 1):
        (tid, line), (other_tid, other) = written[at : at + 2]
        calls = line.id is not None and other.id is not None
        if calls and tid != other_tid and random.random() < 0.1:
            written[at : at + 2] = written[at + 1], written[at]
    last = _TracedCall(over, pid, "end", "dftracer", _APPLICATION, over, None, end)
    lines += [*(line for _, line in written), _call_line(pid, len(events) + 1, last)]
    return TraceFile(f"train-{hashed(f'train-{HOST}-{pid}')}-{kind}.pfw", pid, lines)


def _loader(random: Random, pid: int, thread: int, now: int, steps: int) -> Iterator[_TracedCall]:
    tid = pid + 1000 + thread
    for step in range(steps):
        path = f"{_DIRECTORY}/data/sample-{random.randrange(64):03}.npz"
        begun = now = now + random.randrange(50, 900)
        calls: list[tuple[str, Mapping[str, object]]] = [("open64", {"flags": 524288})]
        calls.append(("lseek64", {"ret": 0, "whence": 1, "offset": 0}))
        calls += [("read", {"ret": 65536, "count": 65536})] * random.randrange(1, 5)
        calls += [("read", {"ret": 0, "count": 65536}), ("close", {"ret": 0})]
        for name, args in calls:
            end = now + random.randrange(1, 400)
            yield _TracedCall(end, tid, name, "POSIX", _LIBC, now, path, args)
            now = end + random.randrange(1, 30)
        yield _TracedCall(now, tid, "load", "IO", _PYTHON, begun, None, {"step": step})


def _trainer(random: Random, pid: int, now: int, steps: int) -> Iterator[_TracedCall]:
    for step in range(steps):
        begun = now = now + random.randrange(10, 100)
        for name in ("forward", "backward"):
            end = now + random.randrange(500, 2500)
            where = {"epoch": step // 20, "step": step}
            yield _TracedCall(end, pid, name, "COMPUTE", _PYTHON, now, None, where)
            now = end + 5
        if step % 10 == 9:
            path = f"{_DIRECTORY}/checkpoint-{step:04}-é.pt"
            size = 2 ** random.randrange(16, 22)
            calls: dict[str, Mapping[str, object]] = {
                "fopen64": {"mode": "w"},
                "fwrite": {"ret": size, "size": 1, "nmemb": size},
                "fclose": {"ret": 0},
            }
            for name, args in calls.items():
                end = now + random.randrange(5, 3000)
                yield _TracedCall(end, pid, name, "STDIO", _LIBC, now, path, args)
                now = end + 2
        yield _TracedCall(now, pid, "step", "TRAIN", _PYTHON, begun, None, {"step": step})


def _call_line(pid: int, number: int, event: _TracedCall) -> TraceLine:
    args = {"hhash": hashed(HOST), **event.args}
    if event.path is not None:
        args["fhash"] = hashed(event.path)
    fields = {"id": number, "name": event.name, "cat": event.category, "type": event.layer}
    fields |= {"pid": pid, "tid": event.tid, "ts": event.start_us}
    fields |= {"dur": event.end_us - event.start_us, "ph": _EVENT, "args": args}
    return TraceLine(number, _json_line(fields))


def _metadata_line(
    pid: int, tid: int, key: str, name: str, value: str = "thread_name"
) -> TraceLine:
    fields = {"name": key, "cat": "dftracer", "type": _APPLICATION, "pid": pid, "tid": tid}
    args = {"hhash": hashed(HOST), "name": name, "value": value}
    return TraceLine(None, _json_line({**fields, "ph": _METADATA, "args": args}))


def _json_line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


_CLASSES = ("Main", "Tree", "Tree$Node", "Räume", "java.util.ArrayList")
_METHODS = ("run", "insert", "find", "rotate", "size", "toArray")
_FIELDS = ("root", "left", "right", "elementData")
_AGENT_THREADS = 3
_DEPTH_MAX = 14
_OBJECTS_MAX = 200


class AgentLine(NamedTuple):
    """One line of an ET3 trace, including its newline. `clock` is the number of entries and exits up to this line."""

    letter: str
    clock: int
    data: bytes


class _AgentEvent(NamedTuple):
    """A line of an ET3 trace without its last field, which is the thread or the logical clock."""

    letter: str
    fields: tuple[int, ...]
    thread: int


def et3_agent_form(seed: int, steps: int = 4000) -> list[AgentLine]:
    """Return an ET3 trace in the form of the Java agents. Its last line enters the method that ends the program."""
    random = Random(f"et3/{seed}")  # noqa: S311 - traffic, not secrets
    ending = _identity(random)
    events = [*_program(random, steps, _AGENT_THREADS), _AgentEvent("M", (1, ending), ending)]
    return _agent_lines((event for event in events if event.letter != "D"), clocks=False)


def et3_specification_form(seed: int, steps: int = 4000) -> list[AgentLine]:
    """Return an ET3 trace in the form of the specification, which has no line for the read of a field."""
    random = Random(f"et3/{seed}")  # noqa: S311 - traffic, not secrets
    events = _program(random, steps, threads=1)
    return _agent_lines((event for event in events if event.letter != "W"), clocks=True)


def _agent_lines(events: Iterable[_AgentEvent], *, clocks: bool) -> list[AgentLine]:
    """Return the lines of events. With `clocks`, the last field of each line is the logical clock, otherwise the
    thread."""
    lines = []
    clock = 0
    for event in events:
        clock += event.letter in "ME"
        fields = " ".join(map(str, (*event.fields, clock if clocks else event.thread)))
        lines.append(AgentLine(event.letter, clock, f"{event.letter} {fields}\n".encode()))
    return lines


def et3_agent_maps() -> dict[str, bytes]:
    """Return the map files that the Java agents of ET3 write, by file name."""
    members = [f"{class_}#{method}" for class_ in _CLASSES for method in _METHODS]
    fields = [f"{_CLASSES[1 + number % 4]}#{field}" for number, field in enumerate(_FIELDS)]
    named = {"methods.list": members, "fields.list": fields, "classs.list": _CLASSES}
    return {
        file: "".join(f"{name},{id_}\n" for id_, name in enumerate(names, 1)).encode()
        for file, names in named.items()
    }


def et3_specification_maps() -> dict[str, bytes]:
    """Return the map files that the specification of ET3 defines, by file name."""
    classes = [name.replace(".", "/") for name in _CLASSES]
    methods = [f"{class_},{name}" for class_ in range(1, len(classes) + 1) for name in _METHODS]
    return {
        file: "".join(f"{id_},{text}\n" for id_, text in enumerate(texts, 1)).encode()
        for file, texts in {"class_list": classes, "method_list": methods}.items()
    }


def _program(random: Random, steps: int, threads: int) -> Iterator[_AgentEvent]:
    """Yield the events of several threads, interleaved at random. At the end, each thread returns from all its
    calls."""
    running = [_TracedThread(random) for _ in range(threads)]
    for _ in range(steps):
        yield from random.choice(running).step()
    for thread in running:
        while thread.calls:
            yield from thread.leave()


class _TracedThread:
    """One thread of the traced program: its open calls, and the objects that it references, with the youngest last."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = _identity(random)
        self.calls: list[int] = []
        self._objects: list[int] = []

    def step(self) -> Iterator[_AgentEvent]:
        """Yield the events of one step: a call, a return, an allocation, or the update or read of a field."""
        draw = self._random.randrange
        chance = self._random.random()
        if not self.calls or (chance < 0.28 and len(self.calls) < _DEPTH_MAX):
            self.calls.append(draw(1, len(_CLASSES) * len(_METHODS) + 1))
            yield self._event("M", self.calls[-1], self._object())
        elif chance < 0.56:
            yield from self.leave()
        elif chance < 0.74:
            self._objects.append(_identity(self._random))
            class_, site = draw(1, len(_CLASSES) + 1), draw(1, 200)
            if self._random.random() < 0.25:
                length = draw(1, 64)
                yield self._event("A", self._objects[-1], 16 + 8 * length, class_, site, length)
            else:
                yield self._event("N", self._objects[-1], 8 * draw(2, 9), class_, site, 0)
        elif chance < 0.87:
            field = draw(1, len(_FIELDS) + 1)
            yield self._event("U", self._object(), self._object(), field)
        else:
            class_ = draw(1, len(_CLASSES) + 1)
            yield self._event("W", self._object(), class_)

    def leave(self) -> Iterator[_AgentEvent]:
        """Yield the return from a call. Sometimes, pretend that an exception has ended the three innermost calls first:
        the trace has no lines for their returns."""
        if len(self.calls) > 4 and self._random.random() < 0.02:
            del self.calls[-3:]
        yield self._event("E", self.calls.pop())
        if len(self._objects) > _OBJECTS_MAX:
            dead = self._objects.pop(self._random.randrange(len(self._objects)))
            yield self._event("D", dead, self._number)

    def _object(self) -> int:
        """Return the id of a referenced object; sometimes 0, which stands for static members and null."""
        if not self._objects or self._random.random() < 0.2:
            return 0
        return self._random.choice(self._objects)

    def _event(self, letter: str, *fields: int) -> _AgentEvent:
        return _AgentEvent(letter, fields, self._number)


def _identity(random: Random) -> int:
    return random.randrange(2**24, 2**31)
