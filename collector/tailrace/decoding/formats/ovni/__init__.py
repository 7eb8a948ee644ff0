"""The format ovni: a directory tree of binary streams, which the collector follows while they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace import kernels
from tailrace.decoding.contract import Format
from tailrace.decoding.formats.ovni.decoder import OvniDecoder, OvniState
from tailrace.decoding.formats.ovni.encoding import OvniEncoder
from tailrace.decoding.formats.ovni.files import FILES

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.ovni.blocks import OvniBlockDecoder

FORMAT = Format(
    name="ovni",
    decoder=OvniBlockDecoder if kernels.active() else OvniDecoder,
    state_type=OvniState,
    flaws=frozenset(
        {
            "bad_clock_offsets",  # the table of clock offsets cannot be read
            "no_clock_offset",  # the table of clock offsets has no line for this host, or several
            "bad_metadata",  # the metadata file was never a readable JSON object
            "bad_payload",  # the payload is too short, or the jumbo flag is wrong for this event
            "clock_back",  # the clock goes back at a place where the format does not allow it
            "crossed_end",  # the event ends a span although inner spans are open
            "duplicate",  # a fork wrote the event a second time
            "mark_conflict",  # two metadata files give the same mark different names
            # the event belongs to an earlier run, whose file a later run overwrote only in part
            "stale_tail",
            "unknown_event",  # the event's model, category and value are unknown
            "unmatched_end",  # no open span matches the end
        }
    ),
    malformed=frozenset(
        {
            "bad_event",  # no event can begin here
            "bad_header",  # the file does not begin with ovni's header
            "bad_size",  # the event is a jumbo larger than the maximum of libovni
            "too_long",  # the event is larger than the limit
            "truncated",  # the input ends inside this event
        }
    ),
    files=FILES,
    encoder=OvniEncoder,
    suffix=".obs",
)
