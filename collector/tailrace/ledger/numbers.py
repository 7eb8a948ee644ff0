"""Answers questions about the numbers that a session counted, and changes nothing.

`ingest.owning` asks here which of two incarnations an event is of, `ingest.siblings`
what a session accounts for, and `handover` which events it can give up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from tailrace.ledger.stream import NEVER, StreamCounter

Fit = Literal["same", "near", "old", "far"]
"""How an event may belong to an incarnation. `same`: the event is remembered. `near`: the number is missing, or
soon due. `old`: it is not remembered which event came under the number. `far`: nothing speaks
against it, since the stream is new or the number far ahead."""


class Numbers:
    """The numbers of one session's streams, to be asked."""

    def __init__(self, streams: Mapping[str, StreamCounter], window: int, bits: int) -> None:
        """Ask streams that remember the marks of their last `window` numbers; counters have `bits` bits."""
        self._streams = streams
        self._window = window
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)

    def fits(self, name: str, count: int, mark: int) -> Fit | None:
        """Return how an event may belong to these streams although another incarnation has begun, or None."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return "far"
        distance = (count - stream.next) & self._mask
        if distance < self._half:
            if stream.fallen(mark, self._window):
                return None
            return "near" if distance < self._window else "far"
        seq = stream.next - (self._mask + 1 - distance)
        if stream.suits(seq, mark, self._window):
            return "near"
        if stream.had(seq, mark, self._window):
            return "same"
        unknown = not (seq < stream.base or stream.lacks(seq) or stream.tells(seq, self._window))
        return "old" if unknown else None

    def contradicts(self, name: str, count: int, mark: int) -> bool:
        """Return whether another event is remembered under this event's number."""
        stream = self._streams.get(name)
        distance = (count - stream.next) & self._mask if stream and stream.counted else 0
        if stream is None or distance < self._half:
            return False
        seq = stream.next - (self._mask + 1 - distance)
        if seq < stream.base or stream.lacks(seq):
            return False
        return stream.tells(seq, self._window) and not stream.had(seq, mark, self._window)

    def expects(self, name: str, count: int) -> bool:
        """Return whether a number is a stream's next one."""
        stream = self._streams.get(name)
        return count == (stream.next & self._mask if stream else 0)

    def remembered(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, number on the wire and mark of the newest events, as many as are remembered."""
        window = self._window
        for name, stream in self._streams.items():
            for seq in range(max(stream.base, stream.next - window), stream.next):
                if not stream.lacks(seq):
                    yield name, seq & self._mask, stream.mark_of(seq, window)

    def ends(self) -> dict[str, tuple[int, int]]:
        """Return each stream's next number and the mark of its last event."""
        window = self._window
        streams = self._streams.items()
        return {name: (s.next, s.last_mark(window)) for name, s in streams if s.counted and s.next}

    def end_of(self, name: str) -> tuple[int, int] | None:
        """Return a stream's next number, behind the client's last discarded range, and the mark of its
        last event. Return None if neither is known."""
        stream = self._streams.get(name)
        if stream is None or not stream.counted:
            return None
        following = max([stream.next, *(said.last + 1 for said in stream.discarded)])
        return (following, stream.last_mark(self._window)) if following else None

    def accounts_for(self, name: str) -> range:
        """Return the numbers of a stream that came, are missing, or were discarded."""
        end = self.end_of(name)
        return range(self._streams[name].base, end[0]) if end else range(0)

    def last_mark(self, name: str) -> int:
        """Return the mark of a stream's last number, 0 for a stream of which nothing came."""
        stream = self._streams.get(name)
        return stream.last_mark(self._window) if stream else NEVER
