"""Make a trace with a generator, and keep it in a cache.

A generator is the function `write(home, events, seed, **shape)` of a module of this package. It writes the files of a
trace below `home`, and returns a description of them. `events` is the number of packets, lines or binary events by
which a producer states that something happened or has a name. Headers, footers and the tracer's remarks about itself
are written in addition and not counted.
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
    """A description of a generator's output: the paths of the streams, and the number of their bytes that decoders
    read.
    """

    streams: tuple[str, ...]
    content: int


class Trace(msgspec.Struct, frozen=True):
    """A trace on disk.

    `content` is the size (bytes) of its streams after decompression. `seed` is the seed with which it was generated.
    """

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
        """Return the path of the only stream."""
        (path,) = self.paths
        return path


def trace(format_: str, events: int, *, seed: int = 1, cache: Path = CACHE, **shape: int) -> Trace:
    """Return a trace. Take it from the cache if the same generator has made it before."""
    module = import_module(f"benchmarks.inputs.{format_}")
    source = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:10]
    words = [f"{key}{value}" for key, value in sorted(shape.items())]
    home = cache / "-".join([format_, str(events), f"seed{seed}", *words, source])
    if not home.exists():
        _make(home, format_, events, seed, shape)
    made = msgspec.json.decode((home / _SAID).read_bytes(), type=Trace)
    # The directory of the repository may have been moved since then.
    return msgspec.structs.replace(made, home=str(home / _FILES))


def _make(home: Path, format_: str, events: int, seed: int, shape: dict[str, int]) -> None:
    """Make a trace beside its place in the cache, and then move it there as a whole: another process may make the same
    trace at the same time.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home.parent) as directory:
        unnamed = Path(directory) / home.name
        (unnamed / _FILES).mkdir(parents=True)
        module = import_module(f"benchmarks.inputs.{format_}")
        written: Written = module.write(unnamed / _FILES, events, seed, **shape)
        made = Trace(format_, str(home / _FILES), written.streams, events, written.content, seed)
        (unnamed / _SAID).write_bytes(msgspec.json.encode(made))
        with suppress(OSError):  # Another process has made the trace first.
            unnamed.rename(home)
