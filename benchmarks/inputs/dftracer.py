"""Generate files of DFTracer, release 2.2.0 with arguments: calls of a training program that reads many files.

`varied=1` has the calls, arguments and files of such a program: opens, reads with their results and offsets, seeks,
closes, and regions of the program around them, from eight threads. `varied=0` repeats one call, as a loop over one file
would write it. `gz=1` compresses as the tracer does.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.inputs.trace import Written

PID, THREADS, FILES = 4000, 8, 60
MEMBER = 2**20
"""Size (bytes) of the lines in one gzip member of a compressed file."""
_BEGUN = 1_795_287_728_000_000
_HOST = "6882804a826580cd"
_NAMED = '{"name":"%s","cat":"dftracer","type":1,"pid":4000,"tid":4000,"ph":4,"args":{"hhash":"6882804a826580cd","name":"%s","value":"%s"}}'
_START = '{"id":1,"name":"start","cat":"dftracer","type":1,"pid":4000,"tid":4000,"ts":1795287728000000,"dur":0,"ph":1,"args":{"hhash":"6882804a826580cd","ppid":1,"cmd_hash":"626683c619316fbd","version":20003}}'
_END = '{"id":%d,"name":"end","cat":"dftracer","type":1,"pid":4000,"tid":4000,"ts":%d,"dur":0,"ph":1,"args":{"hhash":"6882804a826580cd","num_events":%d}}'
_CALL = '{"id":%d,"name":"%s","cat":"%s","type":%d,"pid":4000,"tid":%d,"ts":%d,"dur":%d,"ph":1,"args":{"hhash":"6882804a826580cd",%s}}'


class Call(NamedTuple):
    """A call within a step: its name, its duration, and its arguments."""

    name: str
    category: str
    type: int
    duration: int
    arguments: str


def write(home: Path, events: int, seed: int, varied: int = 1, gz: int = 0) -> Written:
    """Write the file of one process. Lines that give names of files count as events, too."""
    path = home / ("train.pfw.gz" if gz else "train.pfw")
    content = 0

    def pieces() -> Iterator[bytes]:
        nonlocal content
        for lines in _lines(events, random.Random(seed), varied):
            piece = "".join(f"{line}\n" for line in lines).encode()
            content += len(piece)
            yield piece

    with path.open("wb") as file:
        for piece in _members(pieces()) if gz else pieces():
            file.write(piece)
    return Written((path.name,), content)


def _members(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield gzip members with the lines. Each member holds about `MEMBER` bytes of lines."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= MEMBER:
            yield zlib.compress(held, 6, wbits=31)
            held.clear()
    yield zlib.compress(held, 6, wbits=31)


def _lines(events: int, rng: random.Random, varied: int) -> Iterator[list[str]]:
    files = [f"{rng.getrandbits(64):016x}" for _ in range(FILES if varied else 1)][:events]
    names = [("HH", "node1", _HOST), ("SH", "python;train.py;--epochs;30", "626683c619316fbd")][: max(events - len(files), 0)]  # fmt: skip
    yield [_NAMED % ("CM", "time_metric", "US"), *(_NAMED % name for name in names)]
    yield [
        _NAMED % ("FH", f"/scratch/imagenet/train/part_{n:05d}.h5", hash_)
        for n, hash_ in enumerate(files)
    ]
    yield [_START]
    left, number, step, clock = events - len(files) - len(names), 2, 0, _BEGUN
    while left > 0:
        file = files[rng.randrange(len(files))]
        calls = (_step(rng, file, step) if varied else _repeated(file, step))[:left]
        thread = PID + step % THREADS
        lines, end = [], clock
        for offset, call in enumerate(calls):
            start = end if call.type == 3 else clock - 2
            lines.append(_CALL % (number + offset, call.name, call.category, call.type, thread, start, call.duration, call.arguments))  # fmt: skip
            end += call.duration + 3
        yield lines
        number, left, step = number + len(calls), left - len(calls), step + 1
        clock += rng.randrange(60, 400)
    yield [_END % (number, clock + 1000, number - 1)]


def _repeated(file: str, step: int) -> list[Call]:
    arguments = f'"fhash":"{file}","size":4096,"offset":{4096 * step}'
    return [Call("pwrite", "POSIX", 3, step % 97, arguments)]


def _step(rng: random.Random, file: str, step: int) -> list[Call]:
    """Return the calls for one sample, within a region of the program: its file is opened, read in pieces, and closed."""
    hashed = f'"fhash":"{file}"'
    size = rng.choice((4096, 65536, 262144, 1048576))
    base = 1048576 * rng.randrange(512)
    calls = [
        Call("open64", "POSIX", 3, rng.randrange(4, 60), f'"ret":{rng.randrange(20, 90)},"flags":524288,"mode":438,{hashed}'),
        Call("lseek64", "POSIX", 3, rng.randrange(3), f'"ret":{base},"whence":0,"offset":{base},{hashed}'),
    ]  # fmt: skip
    for n in range(rng.randrange(2, 7)):
        got = f'"ret":{size},"offset":{base + n * size},"count":{size},{hashed}'
        calls.append(Call("pread64" if step % 3 else "read", "POSIX", 3, rng.randrange(2, 900), got))  # fmt: skip
    calls.append(Call("close", "POSIX", 3, rng.randrange(1, 30), f'"ret":0,{hashed}'))
    calls.append(Call("preprocess", "DATA", 6, rng.randrange(900, 4000), f'"step":{step},"epoch":{step // 5000},"image_idx":{rng.randrange(1281167)}'))  # fmt: skip
    if step % 8 == 0:
        calls.append(Call("train_step", "TORCH", 6, rng.randrange(4000, 9000), f'"step":{step},"loss":{rng.random() * 3:.6f}'))  # fmt: skip
    return calls
