"""Which files are DFTracer's."""

from __future__ import annotations

import re

from tailrace.decoding.contract import Files

_BEGINNING = re.compile(rb'[\s\[]*(?:\{"(?:id|name)":|\Z)')


def _is_trace(path: str) -> bool:
    """A file of the tracer's own: dftracer-utils puts an index beside them, and copies in split/."""
    *directories, name = path.split("/")
    copied = ".dftindex" in directories or directories[-1:] == ["split"]
    return name.endswith((".pfw", ".pfw.gz")) and not name.startswith(".") and not copied


def _recognises(path: str, head: bytes) -> bool:
    """A trace has no bytes until the first buffer is full, and no record before its brackets."""
    return _is_trace(path) and _BEGINNING.match(head) is not None


FILES = Files(stream=_is_trace, recognises=_recognises)
