"""The format JETS 2.0: lines of JSON, over sockets and in files."""

from __future__ import annotations

import re
from operator import attrgetter

from tailrace import kernels
from tailrace.decoding.contract import Files, Format
from tailrace.decoding.formats.jets.decoder import JetsBlockDecoder, JetsDecoder, JetsState
from tailrace.decoding.formats.jets.encoder import JetsEncoder
from tailrace.decoding.formats.jets.line import read_line
from tailrace.decoding.lines import BYTE_ORDER_MARK
from tailrace.model.record import Kind

_FIRST = re.compile(
    rb"""\{\s*(?:"[a-z]+"\s*:.*)?"type"\s*:\s*"(?:header"|footer"\s*,.*"capture_end_clk"\s*:)"""
)
_RECORDS = frozenset({Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.ANNOTATION})


def _is_jets(path: str, head: bytes) -> bool:  # noqa: ARG001 - the path says nothing
    """Recognise a file by its first line: a header or the beginning of a header, or the footer of a reversed file. A
    file that is only a part of a trace has a record in its first line or, if the trace was split within a line, in its
    second line."""
    first, *more = head.removeprefix(BYTE_ORDER_MARK).lstrip().split(b"\n", 2)
    if _FIRST.match(first):
        return True
    whole = [first, *more[:-1]] if more else []
    return any(read_line(0, line).kind in _RECORDS for line in whole)


FORMAT = Format(
    name="jets",
    transports=("udp", "tcp", "unix", "tail"),
    decoder=JetsBlockDecoder if kernels.active() else JetsDecoder,
    state_type=JetsState,
    waiting=attrgetter("lines"),
    encoder=JetsEncoder,
    suffix=".jets",
    files=Files(recognises=_is_jets),
    flaws=frozenset(
        {
            # The comment at each flaw states why a record has the flaw.
            "after_footer",  # The line comes after the footer.
            "bad_frequency",  # A frequency is not a positive number, or two frequencies differ.
            "bad_parent",  # The parent_id is not an id, for example -1: the record has no parent.
            "bad_total",  # A total in the footer is not a count.
            "byte_order_mark",  # A line, usually the first line of a file, begins with a byte order mark.
            "duplicate_key",  # Two fields have the same key.
            "header_not_first",  # A header comes after other lines, so that a new producer run begins.
            "no_header",  # The first line is not a header.
            "unknown_type",  # The specification has no such type of line.
            "version",  # The version is not 2.
        }
    ),
    malformed=frozenset(
        {
            "bad_clk",
            "bad_field",
            "bad_id",
            "bad_json",
            "invalid_utf8",
            "lone_surrogate",
            "hex_number",  # A line is malformed for this reason if it has a number such as 0x1F.
            "missing_key",
            "not_a_number",
            "not_an_object",
            "nul_bytes",  # A line is malformed for this reason if it begins with NUL bytes.
            "too_deep",
            "too_long",
            "truncated",
        }
    ),
)
