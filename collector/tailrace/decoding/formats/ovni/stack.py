"""Match the end events of one thread to its begin events, with a stack of the open spans.

Each kind of span belongs to a channel, such as the calls of one library. An end matches the last open begin of its
channel with the same key. Spans about the work of the thread form one stack, whatever their channels: a call to MPI in
the body of a task is a child of the body. Channels about something else (`table.OWN`) are separate. If an end
matches a begin that is not the last of its channel, the later spans are closed, too: otherwise later ends would be
`crossed_end`, too."""

from __future__ import annotations

import msgspec

from tailrace.model.holding import Evicted

OPEN_MAX = 512
"""Maximum number of open spans on each of the two stacks of a thread. Beyond it, the oldest span is removed."""

Open = tuple[str, str, int]
"""An open span: its channel, the key that its end must have, and its id. Keys of different channels differ."""


class StackState(msgspec.Struct):
    """The open spans of one thread. Spans of most channels nest in each other, and `nested` is their common stack.
    `alone` has the open spans of the other channels, whose spans nest only in spans of the same channel. `begun` is the
    number of spans that have begun."""

    nested: list[Open] = []
    alone: list[Open] = []
    begun: int = 0


OPEN_BYTES = 256
"""Memory (bytes) of one open span."""


class Stack:
    """The open spans of one thread. Spans have the ids 1, 2, 3 … in the order of their begins."""

    what = Evicted.FRAMES

    def __init__(self, state: StackState) -> None:
        self.state = state
        self.evicted = 0

    @property
    def held(self) -> int:
        return OPEN_BYTES * (len(self.state.nested) + len(self.state.alone))

    def give_way(self, size: int) -> None:
        """Evict the oldest open spans until `size` bytes are free, first those in `StackState.alone`."""
        for spans in (self.state.alone, self.state.nested):
            given = min(len(spans), -(-max(size, 0) // OPEN_BYTES))
            del spans[:given]
            size -= OPEN_BYTES * given
            self.evicted += given

    def begin(self, channel: str, key: str, *, own: bool) -> tuple[int, int | None]:
        """Open a span. Return its id, and the id of its parent or None. `own` states that the span nests only in spans
        of its own channel."""
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
        """Close a span. Return the span's id (None if no open span matches), and the end's flaw (None without one)."""
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
        return self.state.nested[-1][2] if self.state.nested else None

    def clear(self) -> None:
        """Remove all open spans, because the next events belong to another run."""
        self.state.nested.clear()
        self.state.alone.clear()
