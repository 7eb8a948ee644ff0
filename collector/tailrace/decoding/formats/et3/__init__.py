"""Elephant Tracks 3: lines of text in files, followed while they grow."""

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
            "et1_shape",  # a line that only ET1, the ancestor of ET3, would write
            "hex_numbers",  # hexadecimal numbers where ET3 has decimal ones
            "late",  # the clock had passed its time before it came
            "repeated_time",  # an entry or exit with the time of an earlier one
            "unknown_record",  # a letter that no version has used
            "unmatched_end",  # an exit whose entry is not on its stack
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
