"""The format Elephant Tracks 3 (ET3): lines of text in files, which the collector follows while they grow."""

from __future__ import annotations

from operator import attrgetter

from tailrace import kernels
from tailrace.decoding.contract import Format
from tailrace.decoding.formats.et3.decoder import Et3BlockDecoder, Et3Decoder, Et3State
from tailrace.decoding.formats.et3.encoder import Et3Encoder
from tailrace.decoding.formats.et3.form import AGENT, SPECIFICATION
from tailrace.decoding.formats.et3.maps import FILES

FORMAT = Format(
    name="et3",
    decoder=Et3BlockDecoder if kernels.active() else Et3Decoder,
    state_type=Et3State,
    waiting=attrgetter("lines"),
    flaws=frozenset(
        {
            # Flaws (broken rules) of a record. The comment at each name states which records have the flaw.
            "et1_shape",  # A line in an ET3 file with the fields of ET1 (its ancestor).
            "hex_numbers",  # A line with hexadecimal numbers, where ET3 has decimal ones.
            # A line whose time is earlier than a time that the trace's clock had already reached.
            "late",
            "repeated_time",  # An entry or exit with the time of an earlier entry or exit.
            "unknown_record",  # A line whose letter no version of the format has.
            "unmatched_end",  # An exit from a method that has no open frame.
        }
    ),
    malformed=frozenset(
        {
            "bad_number",
            "field_count",
            "invalid_utf8",
            "not_a_record",
            "nul_bytes",
            "other_form",
            "too_long",
            "truncated",
        }
    ),
    files=FILES,
    encoder=Et3Encoder,
    suffix=".et3",
    dialects=(SPECIFICATION, AGENT),
)
