"""Generate a DFTracer trace as release 2.2.0 writes it: training processes, and the files they read and
save.

Each process writes one file, with one JSON object a line. Numbers (`id`) count a process's events in the
order in which they end; lines of different threads may stand in another order. Files, commands and
directories have names by hash. A forked process refers to names that only its parent's file contains.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import md5
from random import Random
from typing import NamedTuple

from tailrace.demo.traffic import Write

HOST = "demo"
_DIRECTORY = "/scratch/demo"
_COMMAND = "python3;train.py"
_APPLICATION, _LIBC, _PYTHON = 1, 3, 6
_EVENT, _METADATA = 1, 4
_CONFIGURATION = {"enable": 1, "metadata": 1, "time_metric": "US", "aggregation_enable": 0}

FORK_US = 50_000
"""Microseconds after which a process forks."""

BLOCK_BYTES = 4096
"""The producer's buffer reaches the file in writes of this size."""


class TraceLine(NamedTuple):
    """One line with its newline. `id` is None unless the line is an event."""

    id: int | None
    data: bytes


class TraceFile(NamedTuple):
    """The file that one process writes."""

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
    """Return the files of `processes` processes, and of one more that the first of them forks.

    `epoch_us` is when they start, in Unix microseconds."""
    random = Random(f"dftracer/{seed}")  # noqa: S311 - traffic, not secrets
    pids = [4000 + 10 * number for number in range(processes)]
    known: list[dict[str, int]] = [{} for _ in pids]
    files = [
        _process(random, pid, 3999, epoch_us, steps, names, "app")
        for pid, names in zip(pids, known, strict=True)
    ]
    forked_us = epoch_us + FORK_US
    inherited = {text: told for text, told in known[0].items() if told <= forked_us}
    fork = _process(random, pids[0] + 1, pids[0], forked_us, steps, inherited, "fork")
    return [*files, fork]


def plain(name: str, lines: Iterable[TraceLine]) -> Iterator[Write]:
    """Yield the writes of an uncompressed file, block by block, so that lines are cut."""
    data = b"".join(line.data for line in lines)
    for at in range(0, len(data), BLOCK_BYTES):
        yield Write(name, data[at : at + BLOCK_BYTES])


def in_members(name: str, lines: list[TraceLine], size: int = 100) -> Iterator[Write]:
    """Yield the writes of a file of gzip members with `size` lines each.

    Bytes of a member after its last newline byte wait for the next member, as in the producer's
    line-buffered file."""
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
    """Return the name that stands for a string: every other byte of its MD5."""
    return md5(text.encode(), usedforsecurity=False).digest()[::2].hex()


def _process(
    random: Random,
    pid: int,
    ppid: int,
    began_us: int,
    steps: int,
    known: dict[str, int],
    kind: str,
) -> TraceFile:
    """Return a process's file. `known` holds the strings whose hashes were written before, with the time;
    it grows."""
    host = hashed(HOST)
    lines = [_metadata(pid, pid, "HH", HOST, host), _metadata(pid, pid, "thread_name", str(pid))]
    lines.append(_metadata(pid, pid, "CM", "time_metric", "US"))
    for key, text in (("FH", _DIRECTORY), ("SH", _COMMAND), ("SH", "DEFAULT")):
        if text not in known:
            lines.append(_metadata(pid, pid, key, text, hashed(text)))
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
            written.append((tid, _metadata(pid, tid, "thread_name", str(tid))))
        if event.path is not None and event.path not in known:
            known[event.path] = event.end_us
            written.append((tid, _metadata(pid, tid, "FH", event.path, hashed(event.path))))
        written.append((tid, _line(pid, number, event)))
    last = _TracedCall(over, pid, "end", "dftracer", _APPLICATION, over, None, end)
    lines += [*_disordered(random, written), _line(pid, len(events) + 1, last)]
    return TraceFile(f"train-{hashed(f'train-{HOST}-{pid}')}-{kind}.pfw", pid, lines)


def _loader(random: Random, pid: int, thread: int, now: int, steps: int) -> Iterator[_TracedCall]:
    """Yield the events of a thread that reads samples."""
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
    """Yield the events of the main thread, which computes and sometimes saves."""
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


def _disordered(random: Random, lines: list[tuple[int, TraceLine]]) -> Iterator[TraceLine]:
    """Return the lines with some neighbours of different threads swapped: a thread may take its number
    before, and write its line after, another thread."""
    for at in range(1, len(lines) - 1):
        (tid, line), (other_tid, other) = lines[at : at + 2]
        events = line.id is not None and other.id is not None
        if events and tid != other_tid and random.random() < 0.1:
            lines[at : at + 2] = lines[at + 1], lines[at]
    return (line for _, line in lines)


def _line(pid: int, number: int, event: _TracedCall) -> TraceLine:
    args = {"hhash": hashed(HOST), **event.args}
    if event.path is not None:
        args["fhash"] = hashed(event.path)
    fields = {"id": number, "name": event.name, "cat": event.category, "type": event.layer}
    fields |= {"pid": pid, "tid": event.tid, "ts": event.start_us}
    fields |= {"dur": event.end_us - event.start_us, "ph": _EVENT, "args": args}
    return TraceLine(number, _json(fields))


def _metadata(pid: int, tid: int, key: str, name: str, value: str = "thread_name") -> TraceLine:
    args = {"hhash": hashed(HOST), "name": name, "value": value}
    fields = {"name": key, "cat": "dftracer", "type": _APPLICATION}
    return TraceLine(None, _json({**fields, "pid": pid, "tid": tid, "ph": _METADATA, "args": args}))


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
