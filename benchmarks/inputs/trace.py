"""A trace that a generator made, and the cache of those that were made before.

A generator is `write(home, events, seed, **shape)` of a module of this package. It writes the files of a
trace below `home`, and returns what it wrote. `events` counts the packets, lines or binary events by
which a producer says that something happened or is called something; headers, footers and the tracer's
remarks about itself come on top of that and are not counted.
"""

from __future__ import annotations

import hashlib
import inspect
import shutil
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.places import CACHE


class Written(NamedTuple):
    """What a generator wrote: streams by their paths, and the bytes that decoders get to see of them."""

    streams: tuple[str, ...]
    content: int


class Trace(msgspec.Struct, frozen=True):
    """A trace on disk. `content` is the size of its streams, inflated; `seed` what it was made from."""

    format: str
    home: str
    streams: tuple[str, ...]
    events: int
    content: int
    seed: int

    @property
    def paths(self) -> list[Path]:
        return [Path(self.home) / stream for stream in self.streams]

    @property
    def path(self) -> Path:
        """The only stream."""
        (path,) = self.paths
        return path


def trace(format_: str, events: int, *, seed: int = 1, cache: Path = CACHE, **shape: int) -> Trace:
    """Return a trace, made now unless the same generator made it before."""
    module = import_module(f"benchmarks.inputs.{format_}")
    source = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:10]
    words = [f"{key}{value}" for key, value in sorted(shape.items())]
    home = cache / "-".join([format_, str(events), f"seed{seed}", *words, source])
    said = home / "trace.json"
    if not said.exists():
        shutil.rmtree(home, ignore_errors=True)
        (home / "files").mkdir(parents=True)
        written: Written = module.write(home / "files", events, seed, **shape)
        made = Trace(format_, str(home / "files"), written.streams, events, written.content, seed)
        said.write_bytes(msgspec.json.encode(made))
    return msgspec.json.decode(said.read_bytes(), type=Trace)
