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
            # The comment at each flaw states why a record has the flaw.
            "et1_shape",  # The shape of the line is known only from ET1, the ancestor of ET3.
            "hex_numbers",  # The line has hexadecimal numbers where ET3 has decimal ones.
            # The line's time is earlier than the time that the clock had reached when the line arrived.
            "late",
            "repeated_time",  # Flaw of an entry or exit with the time of an earlier one.
            "unknown_record",  # Flaw of a line with a letter that no version has.
            "unmatched_end",  # Flaw of an exit whose method no open frame has.
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
