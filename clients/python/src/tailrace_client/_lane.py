"""A thread's lane, and the stream that it writes to: numbers, waiting packets, discarded events, and its grants of memory."""

from __future__ import annotations

import threading
from typing import Any

from tailrace_client._chunk import number

REASONS = (
    "full", "oversize", "nested", "encoding", "unconnected", "closed", "refused", "lost", "given_up",
    "uncounted",
)  # fmt: skip

DOUBT = [-1, 0]
"""Among a stream's holes: some numbers may be neither in a packet nor in a hole (`Lane.account`)."""

_NUMBERS_END = 2**62
"""More events than a stream can ever have."""


class Stream:
    """A stream's counter, and the packets that nobody has taken yet."""

    __slots__ = ("counter", "holes", "lock", "number", "packets", "taken", "user")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counter: Any = iter(range(_NUMBERS_END))
        """The numbers of the events to come. `next` takes one number in one call in C."""
        self.packets: list[bytes] = []
        self.taken = 0
        """The number behind that of the last event taken."""
        self.holes: list[list[int]] = []
        """Discarded events that no report has named yet: first number, how many."""
        self.user: Lane | None = None
        """The only lane that writes here. A stream with several users has a lock."""
        self.lock: threading.Lock | None = None

    @property
    def next(self) -> int:
        """The number that the next event will have."""
        left: int = self.counter.__length_hint__()  # exact, and of any size
        return _NUMBERS_END - left


class Lane:
    """The recorder's state for one thread. A later thread takes it over when the thread has ended."""

    __slots__ = ("discarded", "due", "inside", "owed", "own", "room", "stream")

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.own: Stream | None = None
        self.room = 0
        """Bytes that the lane may fill before it asks for more (`Memory`)."""
        self.inside = False
        """Whether the thread is recording: a nested event is discarded."""
        self.owed = 0
        """Nested events that came before the lane had a stream to number them."""
        self.due = False
        """Whether the recorder has to call `filled`."""
        self.discarded = dict.fromkeys(REASONS, 0)

    def lose(self, stream: Stream, first: int, reason: str, lost: int = 1) -> None:
        """Count events as discarded: `lost` numbers from `first` on."""
        self.discarded[reason] += lost
        holes = stream.holes
        at = len(holes)
        while at and holes[at - 1][0] > first:  # a signal handler came between
            at -= 1
        if at and sum(holes[at - 1]) == first:
            holes[at - 1][1] += lost
        else:
            holes.insert(at, [first, lost])

    def account(self, stream: Stream, until: int) -> None:
        """Discard every number below `until` that is neither in a packet nor in a hole.

        An exception in the middle of an event leaves such numbers. If this call fails, too (the
        stack may be full), the doubt remains and the next event calls again.
        """
        following = stream.next
        waiting = stream.packets[-1:]
        at = number(waiting[0], following) + 1 if waiting else stream.taken
        for first, lost in [*sorted(hole for hole in stream.holes if hole[1]), [until, 0]]:
            if at < first:
                self.lose(stream, at, "nested", first - at)
            at = max(at, first + lost)
        while DOUBT in stream.holes:
            stream.holes.remove(DOUBT)


_SHARES = 8
"""All lanes' unused grants are at most one part in so many of the memory."""


class Memory:
    """Bytes that may be recorded and not released."""

    __slots__ = ("_chunk", "_free", "_granted", "_limit", "_lock", "_longest", "_released")

    def __init__(self, limit: int, chunk: int, longest: int) -> None:
        """Grant at most `limit` bytes in all, and no lane more room than the `longest` packet takes.
        After each `chunk` granted bytes a lane is `due`."""
        self._limit, self._chunk, self._longest = limit, chunk, longest
        self._lock = threading.Lock()
        self._free = limit
        self._granted = 0
        """Bytes granted since the last lane was due."""
        self._released: list[int] = []

    def release(self, size: int) -> None:
        """Take back the bytes of chunks that their taker has let go."""
        self._released.append(size)

    def draw(self, lane: Lane, size: int, lanes: int) -> bool:
        """Grant one of `lanes` lanes room for a packet of `size` bytes, at most the longest, and for
        more like it if there is enough. Return False, and grant nothing, if the packet does not fit."""
        with self._lock:
            while self._released:
                self._free += self._released.pop()
            least = size - lane.room
            share = min(self._chunk, self._limit // (_SHARES * lanes))
            # A packet that has room is not compared with the longest.
            grant = min(self._free, max(least, min(share, self._longest - lane.room)))
            if grant < least:
                return False
            self._free -= grant
            lane.room += grant
            lane.due = lane.due or self._granted >= self._chunk
            self._granted = grant + (0 if lane.due else self._granted)
        return True
