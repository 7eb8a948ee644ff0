"""Match ends to begins: the open spans of one thread.

Ends match begins channel by channel, the last begun first. The channels that tell what the thread is
doing enclose one another and form one stack. So a span's parent is the innermost open span, whatever its
library: a call to MPI in a task's body belongs to that body. Channels that tell of something else
(`table.OWN`) stand alone.

An end that matches no open begin is unmatched. An end that matches, but not the last span of its
channel, also closes the spans that were begun after it on the channel: their ends are missing, and they
would keep every later end of the thread from its begin.
"""

from __future__ import annotations

import msgspec

from tailrace.model.holding import Evicted

OPEN_MAX = 512
"""How many spans may be open at once in one thread, on either stack; beyond, the oldest is forgotten."""

Open = tuple[str, str, int]
"""Channel, the key that the end must have (no other channel uses it), id."""


class StackState(msgspec.Struct):
    """Spans that enclose one another, spans that stand alone, and how many were ever begun."""

    nested: list[Open] = []
    alone: list[Open] = []
    begun: int = 0


OPEN_BYTES = 256
"""The size of an open span."""


class Stack:
    """The spans of one thread, with the ids 1, 2, 3 … in the order of their begins."""

    what = Evicted.FRAMES

    def __init__(self, state: StackState) -> None:
        self.state = state
        self.evicted = 0

    @property
    def held(self) -> int:
        return OPEN_BYTES * (len(self.state.nested) + len(self.state.alone))

    def give_way(self, size: int) -> None:
        """Evict the spans that began first, those that stand alone before others."""
        for spans in (self.state.alone, self.state.nested):
            given = min(len(spans), -(-max(size, 0) // OPEN_BYTES))
            del spans[:given]
            size -= OPEN_BYTES * given
            self.evicted += given

    def begin(self, channel: str, key: str, *, own: bool) -> tuple[int, int | None]:
        """Open a span; return its id and its parent's."""
        state = self.state
        spans = state.alone if own else state.nested
        around = (id_ for other, _, id_ in reversed(spans) if not own or other == channel)
        parent = next(around, None)
        state.begun += 1
        spans.append((channel, key, state.begun))
        if len(spans) > OPEN_MAX:
            del spans[0]
        return state.begun, parent

    def end(self, channel: str, key: str, *, own: bool) -> tuple[int | None, str | None]:
        """Close a span; return its id, None if no span matches, and the flaw."""
        spans = self.state.alone if own else self.state.nested
        crossed = None
        for i in range(len(spans) - 1, -1, -1):
            other, begun, id_ = spans[i]
            if other != channel:
                continue
            if begun == key:
                spans[i:] = [later for later in spans[i + 1 :] if later[0] != channel]
                return id_, crossed
            crossed = "crossed_end"
        return None, "unmatched_end"

    @property
    def innermost(self) -> int | None:
        """The id of the innermost open span."""
        return self.state.nested[-1][2] if self.state.nested else None

    def clear(self) -> None:
        """Forget all open spans: they belong to another run."""
        self.state.nested.clear()
        self.state.alone.clear()
