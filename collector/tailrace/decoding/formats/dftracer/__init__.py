"""The format DFTracer: lines of JSON in files, which the collector follows while they grow."""

from __future__ import annotations

import re
from operator import attrgetter

from tailrace import kernels
from tailrace.decoding.contract import Files, Format
from tailrace.decoding.formats.dftracer.decoder import (
    DFTracerBlockDecoder,
    DFTracerDecoder,
    DFTracerState,
)
from tailrace.decoding.formats.dftracer.encoder import DFTracerEncoder
from tailrace.decoding.lines import BYTE_ORDER_MARK

_BEGINNING = re.compile(
    rb"""[\s\[\],\x1a]*(?:\{\s*"(?:args|cat|id|name)"\s*:|\Z"""
    rb"""|\{(?![^\n]*"traceEvents"\s*:)(?=[^\n]*"(?:args|cat|id|name)"\s*:))"""
)
"""The beginning of a trace: brackets, commas or Ctrl-Zs, then a record with members in any order. Chrome traces do not
match."""

_RECORD = re.compile(
    rb"""[\s\[\],\x1a]*\{\s*(?:"id"\s*:\s*"?\d+"?\s*,\s*)?"name"\s*:\s*"[^\n]*?"\s*,\s*"cat"\s*:\s*"[^"\n]*"\s*,\s*"""
    rb"""(?:"type"\s*:\s*\d+\s*,\s*)?"pid"\s*:\s*"?\d+"?\s*,\s*"tid"\s*:\s*"?\d+"?\s*,"""
)
_PIECE = re.compile(r"(?:\A|/)split/[^/]*\Z|_chunk\d+\.pfw(?:\.gz)?\Z")
"""Pattern of the paths of parts of traces, as the tool dftracer_split writes them: with its default directory or its
default file names."""

_TIME = re.compile(rb"""[{,]\s*"ts"\s*:\s*"?\d{15}""")
"""Pattern of the time of an event by the wall clock: microseconds since 1970, in 15 digits or more."""


def _is_trace(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith((".pfw", ".pfw.gz")) and not name.startswith(".")


def _recognises(path: str, head: bytes) -> bool:
    """Recognise a trace by its first bytes.

    A file with the name of a trace may be empty or contain only brackets so far. In any other file, the members of the
    first record must have the tracer's order. So must those of the second line, if the first one is the rest of a
    record that was cut."""
    text = head.removeprefix(BYTE_ORDER_MARK)
    if (_BEGINNING if _is_trace(path) else _RECORD).match(text):
        return True
    first, _, rest = text.partition(b"\n")
    return b'"traceEvents"' not in first and _RECORD.match(rest) is not None


FORMAT = Format(
    name="dftracer",
    decoder=DFTracerBlockDecoder if kernels.active() else DFTracerDecoder,
    state_type=DFTracerState,
    waiting=attrgetter("lines"),
    files=Files(
        stream=_is_trace,
        recognises=_recognises,
        pieces=lambda path: _PIECE.search(path) is not None,
        dated=lambda head: _TIME.search(head) is not None,
    ),
    encoder=DFTracerEncoder,
    suffix=".pfw",
    compresses=True,
    flaws=frozenset(
        {
            # Each comment describes a record with the flaw. "backslash": a string has a backslash. Because the tracer
            # does not escape backslashes, this one may be a character of the string or begin an escape.
            "backslash",
            "bare_nan",  # A number is nan or inf.
            "duplicate_key",  # Two fields have the same key.
            "glued",  # The record follows a truncated record on the same line.
            "invalid_utf8",  # A string is not UTF-8.
            "negative_duration",  # The event's end is before its start, because the clock was set back.
            "split_line",  # A string has newlines, so that the record takes several lines.
            "trailing_comma",  # A comma stands before a closing bracket.
            "unescaped",  # A string has quotes, backslashes or control characters without an escape.
            "unknown_phase",  # No release of the tracer writes this value of `ph`.
            "unknown_unit",  # No release of the tracer writes this value of time_metric.
        }
    ),
    malformed=frozenset(
        {
            "bad_field",
            "bad_json",
            "bad_number",
            "cut",
            "missing_key",
            "not_an_object",
            "too_deep",
            "too_long",
            "truncated",
        }
    ),
)
