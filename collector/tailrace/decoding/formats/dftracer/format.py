"""The facts about DFTracer that the rest of Tailrace needs."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.decoding.contract import Format
from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder, DFTracerState
from tailrace.decoding.formats.dftracer.encoder import DFTracerEncoder
from tailrace.decoding.formats.dftracer.files import FILES

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.dftracer.blocks import DFTracerBlockDecoder

FORMAT = Format(
    name="dftracer",
    decoder=DFTracerBlockDecoder if kernels.active() else DFTracerDecoder,
    state_type=DFTracerState,
    waiting=attrgetter("lines"),
    files=FILES,
    encoder=DFTracerEncoder,
    suffix=".pfw",
    compresses=True,
    flaws=frozenset(
        {
            "backslash",  # has a backslash, which the tracer does not escape: it may stand for itself
            "bare_nan",  # a number is spelled nan or inf
            "duplicate_key",  # two fields have the same key
            "glued",  # begins on a line where another record was cut off
            "invalid_utf8",  # a string is not UTF-8
            "negative_duration",  # ends before it starts: the clock was set back
            "split_line",  # newlines in a string
            "trailing_comma",  # a comma before a closing bracket
            "unescaped",  # quotes, backslashes or control characters in a string
            "unknown_phase",  # the ph is not known
            "unknown_unit",  # the time_metric is not known
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
