"""A trace that a generator made, and the cache of those that were made before.

A generator is `write(home, events, seed, **shape)` of a module of this package. It writes the files of a
trace below `home`, and returns what it wrote. `events` counts the packets, lines or binary events by
which a producer says that something happened or is called something; headers, footers and the tracer's
remarks about itself come on top of that and are not counted.
"""

from __future__ import annotations

import hashlib
import inspect
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from benchmarks.places import CACHE

_FILES, _SAID = "files", "trace.json"


class Written(NamedTuple):
    """The output of a generator: streams by their paths, and how many of their bytes decoders see."""

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
        """Return the only stream."""
        (path,) = self.paths
        return path


def trace(format_: str, events: int, *, seed: int = 1, cache: Path = CACHE, **shape: int) -> Trace:
    """Return a trace, made now unless the same generator made it before."""
    module = import_module(f"benchmarks.inputs.{format_}")
    source = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:10]
    words = [f"{key}{value}" for key, value in sorted(shape.items())]
    home = cache / "-".join([format_, str(events), f"seed{seed}", *words, source])
    if not home.exists():
        _make(home, format_, events, seed, shape)
    made = msgspec.json.decode((home / _SAID).read_bytes(), type=Trace)
    return msgspec.structs.replace(made, home=str(home / _FILES))  # the checkout may have moved


def _make(home: Path, format_: str, events: int, seed: int, shape: dict[str, int]) -> None:
    """Make a trace beside its place, and move it there whole: others may make it at the same time."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home.parent) as directory:
        unnamed = Path(directory) / home.name
        (unnamed / _FILES).mkdir(parents=True)
        module = import_module(f"benchmarks.inputs.{format_}")
        written: Written = module.write(unnamed / _FILES, events, seed, **shape)
        made = Trace(format_, str(home / _FILES), written.streams, events, written.content, seed)
        (unnamed / _SAID).write_bytes(msgspec.json.encode(made))
        with suppress(OSError):  # another was faster
            unnamed.rename(home)
