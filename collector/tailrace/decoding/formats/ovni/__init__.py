"""The format ovni: a directory tree of binary streams, which the collector follows while they grow."""

from __future__ import annotations

from tailrace import kernels
from tailrace.decoding.contract import Format
from tailrace.decoding.formats.ovni.decoder import OvniBlockDecoder, OvniDecoder, OvniState
from tailrace.decoding.formats.ovni.encoder import OvniEncoder
from tailrace.decoding.formats.ovni.files import FILES

FORMAT = Format(
    name="ovni",
    decoder=OvniBlockDecoder if kernels.active() else OvniDecoder,
    state_type=OvniState,
    flaws=frozenset(
        {
            # The comment at each flaw states why a record has the flaw.
            "bad_clock_offsets",  # The table of clock offsets cannot be read.
            "no_clock_offset",  # The table of clock offsets has no line for this host, or several.
            "bad_metadata",  # The metadata file was never a readable JSON object.
            "bad_payload",  # The payload is too short, or the jumbo flag is wrong for this event.
            "clock_back",  # The clock goes back between two events where the format does not allow it.
            "crossed_end",  # The event ends a span although inner spans are open.
            "duplicate",  # A fork wrote the event a second time.
            "mark_conflict",  # Metadata files give the same program-defined event (mark) different names.
            # The event belongs to an earlier run, whose file a later run overwrote only in part.
            "stale_tail",
            "unknown_event",  # Flaw of an event with an unknown model, category or value.
            "unmatched_end",  # Flaw of an event that ends a span, if no open span matches.
        }
    ),
    malformed=frozenset(
        {
            # The comment at each reason states why bytes are malformed.
            "bad_event",  # No event can begin here.
            "bad_header",  # The file does not begin with ovni's header.
            "bad_size",  # The event is a jumbo larger than the maximum of libovni.
            "too_long",  # The event is larger than the decoder's `limit`.
            "truncated",  # The input ends inside this event.
        }
    ),
    files=FILES,
    encoder=OvniEncoder,
    suffix=".obs",
)
