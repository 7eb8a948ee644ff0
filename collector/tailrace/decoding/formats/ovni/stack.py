"""Which end belongs to which begin: the spans of one thread that are open.

Ends match begins channel by channel, the last begun first. The channels of what the thread is doing
enclose one another and are one stack, so that a span's parent is the innermost one that is open,
whatever library it is of: a call to MPI in a task's body is that body's. Channels that tell of
something else (`table.OWN`) stand alone.

An end that matches no open begin is unmatched. One that matches, but not the last of its channel,
closes all that were begun after it on the channel, too: their ends are missing, and would else keep
every later end of the thread from its begin.
"""

from __future__ import annotations

import msgspec

from tailrace.model.holding import Evicted

OPEN_MAX = 512
"""Spans that are open at once in one thread, on either stack; the oldest is given up beyond."""

Open = tuple[str, str, int]
"""Channel, what the end must be (no other channel has the same), id."""


class StackState(msgspec.Struct):
    """Spans that enclose one another and those that do not; how many were ever begun."""

    nested: list[Open] = []
    alone: list[Open] = []
    begun: int = 0


OPEN_BYTES = 256
"""What an open span takes."""


class Stack:
    """Spans of one thread get the ids 1, 2, 3 … in the order of their begins."""

    what = Evicted.FRAMES

    def __init__(self, state: StackState) -> None:
        self.state = state
        self.evicted = 0

    @property
    def held(self) -> int:
        return OPEN_BYTES * (len(self.state.nested) + len(self.state.alone))

    def give_way(self, size: int) -> None:
        """Give up the spans that began first, those that stand alone before others."""
        for spans in (self.state.alone, self.state.nested):
            given = min(len(spans), -(-max(size, 0) // OPEN_BYTES))
            del spans[:given]
            size -= OPEN_BYTES * given
            self.evicted += given

    def begin(self, channel: str, key: str, *, own: bool) -> tuple[int, int | None]:
        """Open a span; give its id and its parent's."""
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
        """Close a span; give its id, None where there is none to close, and the flaw."""
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
        """The id of the span that encloses what happens now."""
        return self.state.nested[-1][2] if self.state.nested else None

    def clear(self) -> None:
        """What was open is another run's."""
        self.state.nested.clear()
        self.state.alone.clear()
