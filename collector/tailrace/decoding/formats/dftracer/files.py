"""Which files are DFTracer's: by name, by content, and pieces that its tools cut."""

from __future__ import annotations

import re

from tailrace.decoding.contract import Files
from tailrace.decoding.lines import BYTE_ORDER_MARK

_BEGINNING = re.compile(
    rb"""[\s\[,]*(?:\{\s*"(?:args|cat|id|name)"\s*:|\x1a*\Z"""
    rb"""|\{(?![^\n]*"traceEvents"\s*:)(?=[^\n]*"(?:args|cat|id|name)"\s*:))"""
)
"""The beginning of a trace: brackets, then a record, whose members a filter may have put in any order. A Chrome trace does not
match."""

_RECORD = re.compile(
    rb"""[\s\[]*\{\s*(?:"id"\s*:\s*"?\d+"?\s*,\s*)?"name"\s*:\s*"[^\n]*?"\s*,\s*"cat"\s*:\s*"[^"\n]*"\s*,\s*"""
    rb"""(?:"type"\s*:\s*\d+\s*,\s*)?"pid"\s*:\s*"?\d+"?\s*,\s*"tid"\s*:\s*"?\d+"?\s*,"""
)
_PIECE = re.compile(r"(?:\A|/)split/[^/]*\Z|_chunk\d+\.pfw(?:\.gz)?\Z")
"""A file in the directory that dftracer_split writes to by default, and the names that it gives."""


def _is_trace(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith((".pfw", ".pfw.gz")) and not name.startswith(".")


def _recognises(path: str, head: bytes) -> bool:
    """Recognise a trace, which may be empty until the first buffer is full; its brackets come first. Under another name,
    recognise a whole record in the tracer's own order of members."""
    text = head.removeprefix(BYTE_ORDER_MARK)
    return (_BEGINNING if _is_trace(path) else _RECORD).match(text) is not None


FILES = Files(
    stream=_is_trace,
    recognises=_recognises,
    pieces=lambda path: _PIECE.search(path) is not None,
)
