"""Which files belong to DFTracer."""

from __future__ import annotations

import re

from tailrace.decoding.contract import Files

_BEGINNING = re.compile(rb'[\s\[,]*(?:\{\s*"(?:args|cat|id|name)"\s*:|\Z)')


def _is_trace(path: str) -> bool:
    """Return whether the tracer wrote a file: dftracer-utils adds an index beside it, and copies in split/."""
    *directories, name = path.split("/")
    copied = ".dftindex" in directories or directories[-1:] == ["split"]
    return name.endswith((".pfw", ".pfw.gz")) and not name.startswith(".") and not copied


def _recognises(path: str, head: bytes) -> bool:
    """Recognise a trace, which may be empty until the first buffer is full; its brackets come first."""
    return _is_trace(path) and _BEGINNING.match(head) is not None


FILES = Files(stream=_is_trace, recognises=_recognises)
