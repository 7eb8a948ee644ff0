"""Tell when a client's goodbye has come as a whole.

A goodbye that is too long for one packet comes in numbered parts, of which the last one says that no more
follow. Datagrams overtake one another and get lost, so the last part may come before others, or without
them. Then the ends of the streams that the others name are not known, and the session goes on.
"""

from __future__ import annotations

from tailrace.ingest.state import IncarnationState
from tailrace.model.record import Goodbye


def is_whole(state: IncarnationState, said: Goodbye) -> bool:
    """Take a goodbye, or a part of one. Return whether all of it has come by now."""
    if said.part is None:
        return not said.more
    came = int.from_bytes(state.goodbye_parts, "little") | 1 << said.part
    state.goodbye_parts = came.to_bytes(-(-came.bit_length() // 8), "little")
    if not said.more:
        state.goodbye_last = said.part
    last = state.goodbye_last
    return last is not None and not ~came & ((2 << last) - 1)
