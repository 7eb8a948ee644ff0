"""Keep the chunks and packets that a client sends to the collector, until each chunk is durable, without I/O.

    recorder ─ put ─► new ─┐
               packets ────┼─► under way ─► sent ─► durable: let go
                  again ───┘      ▲           │
                    ▲             └── broken ─┤
                    └────── not durable ──────┘

The queue keeps a chunk that is `sent`, or to be sent `again`, until an answer of the collector states that the chunk is
durable. If the buffer is full, the queue forgets the oldest sent chunk (`Forgotten`), never a new one. A chunk without
sequence numbers is released as soon as the kernel has accepted it. If `keep` is False, this is true of every chunk.

The position of an event is the number of bytes that were put into the queue before it, in the order of recording.

To ask which events are durable, the client sends an announcement of the session with a new number (`turn`), which the
collector answers. A forgotten event is lost if the client sent the event before the announcement, and the answer
reports the event in a hole (a range of missing events) or above the highest number that the collector has.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

from tailrace_client._chunk import UNNUMBERED, Chunk, runs
from tailrace_client._session import Answer, Range

_PASTS_MAX = 64
"""If a stream has this many forgotten ranges (`_Past`: events that the queue no longer keeps), a new range is merged
into an adjoining one."""

_RANGES_MAX = 1024
"""Maximum number of forgotten ranges of a stream after an answer has split ranges. Further ranges are merged."""


class _Past(NamedTuple):
    """A range of a stream's events that the queue no longer keeps."""

    begin: int
    """The position (offset in bytes, in the order of recording) of the range's first event."""
    turn: int
    """The highest number of an announcement of the session that may have arrived before the range's events."""
    first: int
    next: int


class Forgotten:
    """For each stream, the ranges of events that the queue no longer keeps and that may or may not have arrived."""

    def __init__(self) -> None:
        self._pasts: dict[int, list[_Past]] = {}

    def __bool__(self) -> bool:
        return bool(self._pasts)

    @property
    def begin(self) -> float:
        """The position of the first forgotten event; infinity if there is none."""
        return min((past.begin for pasts in self._pasts.values() for past in pasts), default=inf)

    def add(self, chunk: Chunk, begin: int, turn: int) -> None:
        """Add a chunk that began at position `begin`. `turn` is the highest number of an announcement of the session
        that may arrive before the chunk."""
        pasts = self._pasts.setdefault(chunk.stream, [])
        for first, next_ in runs(chunk):
            last = pasts[-1] if pasts else None
            if last and last.next == first and (last.turn == turn or len(pasts) >= _PASTS_MAX):
                pasts[-1] = _Past(min(last.begin, begin), max(last.turn, turn), last.first, next_)
            else:
                pasts.append(_Past(begin, turn, first, next_))

    def spans(self, stream: int) -> list[tuple[int, int]]:
        return [(past.first, past.next) for past in self._pasts.get(stream, ())]

    def ends(self, turn: int) -> dict[int, int]:
        """Return, for each stream, the number after the last forgotten event (one that the queue no longer keeps).
        Include only events that the session's announcement number `turn` cannot overtake: the answer to it shows
        whether they have arrived."""
        return {
            stream: max(nexts)
            for stream, pasts in self._pasts.items()
            if (nexts := [past.next for past in pasts if past.turn < turn])
        }

    def all(self) -> list[tuple[int, Range]]:
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream, pasts in self._pasts.items()
            for past in pasts
        ]

    def drop(self, streams: Iterable[int]) -> list[tuple[int, Range]]:
        """Remove the forgotten ranges of the given streams. Return each of these ranges with the position of its first
        event."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream in streams
            for past in self._pasts.pop(stream, ())
        ]

    def clear(self) -> None:
        self._pasts.clear()

    def settle(self, answer: Answer) -> list[tuple[int, Range]]:
        """Remove the forgotten ranges that an answer settles, because it shows whether they have arrived or are lost.
        Return each lost range with the position of its first event."""
        lost: list[tuple[int, Range]] = []
        for stream in self._pasts.keys() & answer.below.keys():
            still: list[_Past] = []
            for past in self._pasts.pop(stream):
                holes, beyond = _missing(past, stream, answer)
                if past.turn < answer.turn:
                    # An answer contains a limited number of holes. If it contains any hole, its number for the stream
                    # may end at a further hole, which it leaves out.
                    gone, holes = holes + ([] if answer.holes else beyond), []
                    lost += [(past.begin, Range(stream, *span)) for span in gone]
                    beyond = beyond if answer.holes else []
                still += [past._replace(first=f, next=n) for f, n in holes + beyond]
            if still:
                self._pasts[stream] = _joined(still)
        return lost


def _joined(pasts: list[_Past]) -> list[_Past]:
    kept, rest = pasts[: _RANGES_MAX - 1], pasts[_RANGES_MAX - 1 :]
    if len(rest) < 2:
        return pasts
    # The events between merged ranges have arrived, so no valid answer reports them as lost.
    begins, turns, firsts, nexts = zip(*rest, strict=True)
    return [*kept, _Past(min(begins), max(turns), min(firsts), max(nexts))]


_Spans = list[tuple[int, int]]
"""Ranges as pairs: the first number, and the last number plus one."""


def _missing(past: _Past, stream: int, answer: Answer) -> tuple[_Spans, _Spans]:
    """Return two lists of events of a range that an answer reports as missing: events in the answer's holes, and events
    from the stream's acknowledged number on."""
    below = answer.below[stream]
    at = past.first
    holes: _Spans = []
    for hole in sorted(answer.holes.get(stream, ())):
        first, next_ = max(hole.first, at), min(hole.next, past.next, below)
        if first < next_:
            holes.append((first, next_))
            at = next_
    first = max(past.first, below)
    return holes, [(first, past.next)] if first < past.next else []


_PACKET, _FIRST, _LAST = -2, -3, -4
"""Stream numbers for packets about the session itself, which contain no recorded events."""

_OVERHEAD_BYTES = 256
"""Approximate memory (bytes) of a kept chunk in addition to its data."""

_UNREACHABLE_MAX = 64
"""Maximum number of ranges in one report of events that the client cannot send again. The collector asks again for
further ranges."""

_SPANS_MAX = 64
"""Maximum number of acknowledged ranges of event numbers that the queue remembers for each stream."""

_DOUBTFUL_MAX = 4
"""Maximum number of remembered ranges of each stream in which a collector may have given up events. Another collector
misses the events of all these ranges, and accepts later events of a stream only if few earlier ranges are missing.
Further ranges are therefore merged."""

_PIECES_MAX = 512
"""Maximum number of buffers that one system call sends. Linux accepts up to 1024."""


class _Item:
    """A chunk or a session packet in the queue."""

    __slots__ = ("at", "chunk", "repeated", "since", "turn")

    def __init__(self, chunk: Chunk, at: int) -> None:
        self.chunk = chunk
        self.at = at
        """The position (bytes) of the chunk's end."""
        self.turn = -1
        """The number (turn) of the last announcement of the session that was sent before the chunk; -1 if the chunk was
        never sent."""
        self.since = 0.0
        """The time at which the chunk was last sent (seconds, on the link's clock)."""
        self.repeated = False
        """Whether the chunk was sent more than once."""

    @property
    def begin(self) -> int:
        return self.at - len(self.chunk.data)

    @property
    def room(self) -> int:
        return len(self.chunk.data) + _OVERHEAD_BYTES

    @property
    def is_packet(self) -> bool:
        return self.chunk.stream <= _PACKET


class Queue:
    """The send queue of a client, for one caller at a time. It takes chunks, and returns buffers for system calls."""

    def __init__(self, room: int, release: Callable[[int], None], *, late: int = 0) -> None:
        """Keep at most `room` bytes, and call `release(size)` for each chunk that is dropped. `late` is the number of
        announcements of the session that may arrive before an event although they were sent after the event."""
        self.keep = True
        """Whether the client asks the collector which events are durable."""
        self.put_bytes = 0
        """Total number of recorded bytes that were put into the queue."""
        self.kept_bytes = 0
        """Number of bytes of sent chunks that are not durable yet, including `_OVERHEAD_BYTES` for each chunk."""
        self.in_flight_bytes = 0
        """Number of kept bytes that may still be on their way, without the chunks that will be sent again."""
        self.sent: dict[int, int] = {}
        """For each stream, the highest number plus one of the events that the kernel has accepted."""
        self.recorded: dict[int, int] = {}
        """For each stream, the highest number plus one of the events that were put into the queue."""
        self.forgotten = Forgotten()
        self._durable: dict[int, list[tuple[int, int]]] = {}
        """Acknowledged ranges by stream, in ascending order: the first number, and the last number plus one."""
        self._doubtful: dict[int, list[tuple[int, int]]] = {}
        """By stream, acknowledged ranges in which the collector has given up some events. Its answers do not state
        which events."""
        self._doubt_below: dict[int, int] = {}
        """For each stream, the number below which the collector may have given up an event."""
        self.lost_at = inf
        """The position (bytes) of the first event that is lost and cannot be sent again; infinity if there is none."""
        self._room = room
        self._late = late
        self._release = release
        self._packets: deque[_Item] = deque()
        self._again: deque[_Item] = deque()
        self._new: deque[_Item] = deque()
        self._under_way: deque[_Item] = deque()
        self._part = 0
        """Number of accepted bytes of the first item that is being sent: the kernel may have accepted only a part of
        the item."""
        self._kept: deque[_Item] = deque()

    def put(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.put_bytes += len(chunk.data)
            self.recorded[chunk.stream] = chunk.next
            self._new.append(_Item(chunk, self.put_bytes))

    def first_packet(self, data: bytes) -> None:
        """Queue a packet that is sent before all other data. The packet replaces an earlier first packet."""
        self._withdraw(_FIRST)
        self._packets.appendleft(self._packet(data, _FIRST))

    def packet(self, data: bytes) -> None:
        self._packets.append(self._packet(data, _PACKET))

    def last_packets(self, packets: Iterable[bytes]) -> None:
        """Queue packets that are sent after all chunks in the queue. The packets replace earlier last packets."""
        self._withdraw(_LAST)
        self._new.extend(self._packet(data, _LAST) for data in packets)

    def _packet(self, data: bytes, stream: int) -> _Item:
        return _Item(Chunk(data, stream, 0, 0), self.put_bytes)

    def _withdraw(self, stream: int) -> None:
        self._packets = deque(item for item in self._packets if item.chunk.stream != stream)
        self._new = deque(item for item in self._new if item.chunk.stream != stream)

    @property
    def idle(self) -> bool:
        return not (self._under_way or self._packets or self._again or self._new)

    def pieces(self, size: int, *, only_packets: bool = False) -> list[bytes]:
        """Return the buffers to offer to the kernel next: chunks of at most `size` bytes together, or one longer chunk."""
        under_way = self._under_way
        total = sum(len(item.chunk.data) for item in under_way)
        sources = (self._packets,) if only_packets else (self._packets, self._again, self._new)
        for source in sources:
            while source and len(under_way) < _PIECES_MAX:
                total += len(source[0].chunk.data)
                if total > size and under_way:
                    break
                # With this order of statements, an exception of a signal handler can duplicate a chunk, but cannot lose
                # one.
                under_way.append(source[0])
                source.popleft()
            if source:
                break
        pieces = [item.chunk.data for item in under_way]
        if self._part:
            pieces[0] = pieces[0][self._part :]
        return pieces

    def speaks(self, *, only_packets: bool) -> bool:
        """Return whether the data to be sent next contains a session packet other than the first packet."""
        new = () if only_packets else islice(self._new, 1)
        ahead = (*islice(self._under_way, 1), *islice(self._packets, 2), *new)
        return any(item.chunk.stream in (_PACKET, _LAST) for item in ahead)

    @property
    def announces_alone(self) -> bool:
        """Whether only the session's first packet is offered to the kernel, although more data waits."""
        waits = bool(self._packets or self._again or self._new)
        return waits and [item.chunk.stream for item in self._under_way] == [_FIRST]

    @property
    def repeats(self) -> bool:
        return bool(self._again)

    @property
    def waiting_packets(self) -> int:
        return len(self._packets)

    @property
    def unsettled(self) -> bool:
        """Whether the queue has a sent event that is neither known to be durable nor known to be lost."""
        return self.kept_bytes > 0 or bool(self.forgotten)

    @property
    def oldest(self) -> float:
        """The time at which the oldest unsettled event was sent; 0 if some event is forgotten, infinity if no event is
        unsettled."""
        if self.forgotten:
            return 0.0
        return self._kept[0].since if self._kept else inf

    def through(self, size: int, turn: int, now: float) -> None:
        """Record that the kernel accepted `size` bytes of the offered buffers. `turn` is the number of the session's
        last announcement before these bytes."""
        self._part += size
        under_way = self._under_way
        while under_way and self._part >= len(under_way[0].chunk.data):
            item = under_way[0]
            if not item.is_packet:
                self._keep(item, turn, now)
            self._part -= len(item.chunk.data)
            under_way.popleft()

    def refused(self) -> list[Chunk]:
        """Drop the items that were offered to the kernel, because it will never accept them. Return the chunks that
        were never sent before."""
        lost = [item for item in self._under_way if not item.is_packet]
        self._under_way.clear()
        self._part = 0
        for item in lost:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in lost if item.turn < 0]

    def back(self) -> None:
        """Put the offered items that the kernel has not accepted back into the queue."""
        for item in reversed(self._under_way):
            early = item.is_packet and item.chunk.stream != _LAST
            again = self._new if item.turn < 0 else self._again
            (self._packets if early else again).appendleft(item)
        self._under_way.clear()
        self._part = 0

    def broken(self) -> None:
        """Put back all chunks that were offered to the kernel, to send them again from their first byte on, and drop
        the session packets. The connection has broken."""
        if self._part and not self._under_way[0].is_packet:
            chunk = self._under_way[0].chunk
            self.sent[chunk.stream] = max(chunk.whole(self._part), self.sent.get(chunk.stream, 0))
        self.back()
        self._packets.clear()
        self._withdraw(_LAST)

    def settle(self, answer: Answer, given_up: Iterable[int] = ()) -> tuple[bool, Sequence[Range]]:
        """Release the chunks that are durable according to an answer, and send the missing ones again.

        A chunk is missing in two cases: it was sent before the announcement that is answered, and has not arrived; or
        it has events in a hole (a range that the answer reports as missing), and was not sent again. The durable
        beginning of a chunk is released, so that each connection makes progress. In the streams `given_up`, the
        collector also acknowledges events that it has given up; these are not durable. Return whether any event was
        missing, and the ranges of lost events that the queue no longer keeps.
        """
        doubts = self._doubt_below
        doubts |= {s: max(answer.below.get(s, 0), doubts.get(s, 0)) for s in given_up}
        again: list[_Item] = []
        for item in self._again:
            if answer.has(*item.chunk[1:]):
                self._settle(item)
            else:
                again.append(item)
        waiting = len(again)
        self._shorten([*again, *islice(self._new, 1)], answer)
        kept: deque[_Item] = deque()
        for item in self._kept:
            chunk = item.chunk
            if answer.has(*chunk[1:]):
                self._settle(item)
            elif item.turn < answer.turn or (answer.lacks(*chunk[1:]) and not item.repeated):
                item.repeated = True
                again.append(item)
                self._shorten([item], answer)
            else:
                kept.append(item)
        self._wait(again, kept)
        lost = self._lost(self.forgotten.settle(answer))
        return len(again) > waiting or bool(lost), lost

    def _shorten(self, items: Iterable[_Item], answer: Answer) -> None:
        """Remove the durable events at the beginning of chunks that wait to be sent."""
        for item in items:
            chunk = item.chunk
            holes = (h.first for h in answer.holes.get(chunk.stream, ()) if h.next > chunk.first)
            durable = min([answer.below.get(chunk.stream, 0), *holes])
            if item.is_packet or not chunk.first < durable < chunk.next:
                continue
            self._note_settled(chunk.stream, chunk.first, durable)
            item.chunk = chunk.behind(durable)
            size = len(chunk.data) - len(item.chunk.data)
            self.kept_bytes -= size if item.turn >= 0 else 0
            self._release(size)

    def _settle(self, item: _Item) -> None:
        self._note_settled(item.chunk.stream, item.chunk.first, item.chunk.next)
        self._let_go(item)

    def _note_settled(self, stream: int, first: int, next_: int) -> None:
        """Record a range that an answer has acknowledged. Keep at most `_SPANS_MAX` durable ranges and `_DOUBTFUL_MAX`
        doubtful ranges (in which the collector may have given up events) of the stream."""
        if first >= self._doubt_below.get(stream, 0):
            _insert(self._durable.setdefault(stream, []), first, next_)
            del self._durable[stream][:-_SPANS_MAX]
            return
        doubtful = self._doubtful.setdefault(stream, [])
        _insert(doubtful, first, next_)
        if len(doubtful) > _DOUBTFUL_MAX:
            doubtful[:2] = [(doubtful[0][0], max(doubtful[0][1], doubtful[1][1]))]

    def unreachable(self, answer: Answer) -> tuple[list[Range], list[Range]]:
        """Return two lists of events that an answer reports as missing and that the client cannot send again: events
        that it has discarded, and events that another collector has acknowledged. Leave out ranges in which a collector
        may have given up events (`_doubtful`), and ranges in `forgotten`."""
        discarded, durable = list[Range](), list[Range]()
        for gone in islice(self._unreachable(answer), _UNREACHABLE_MAX):
            spans = self._durable.get(gone.stream, ())
            lost = list(_without(gone, spans))
            discarded += lost
            durable += _without(gone, [(each.first, each.next) for each in lost])
        return discarded, durable

    def _unreachable(self, answer: Answer) -> Iterator[Range]:
        for stream, holes in answer.holes.items():
            if stream not in answer.below:
                continue  # The answer names holes of this stream, but not its acknowledged number.
            items = (*self._kept, *self._again, *self._under_way, *self._new)
            ours = [item.chunk[2:] for item in items if item.chunk.stream == stream]
            unknown = [*self.forgotten.spans(stream), *self._doubtful.get(stream, ())]
            spans = sorted(ours + unknown)
            for hole in holes:
                yield from _without(hole, spans)

    def repeat(self, before: int) -> None:
        """Send again, in the order of recording, all chunks that were sent before the session's announcement number
        `before`."""
        again = [item for item in self._kept if item.turn < before]
        self._wait([*self._again, *again], deque(i for i in self._kept if i.turn >= before))

    def abandon(self, streams: Collection[int]) -> tuple[Sequence[Chunk], Sequence[Range]]:
        """Drop the sent events of the given streams, which the collector does not count. Return the dropped chunks, and
        the forgotten ranges of these streams."""
        gone = [item for item in (*self._again, *self._kept) if item.chunk.stream in streams]
        if gone:
            again = [item for item in self._again if item.chunk.stream not in streams]
            self._wait(again, deque(i for i in self._kept if i.chunk.stream not in streams))
        for item in gone:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in gone], self._lost(self.forgotten.drop(streams))

    def lose_some(self, stream: int) -> None:
        """Record that an event of a stream is lost. It is unknown which event, so assume the oldest unsettled one."""
        begins = [item.begin for item in (*self._again, *self._kept) if item.chunk.stream == stream]
        begins += [begin for begin, range_ in self.forgotten.all() if range_.stream == stream]
        self.lost_at = min([self.lost_at, *begins])
        if not begins:
            self.lose_handed()

    def lose(self) -> Sequence[Range]:
        """Remove and return the forgotten ranges (events that the queue no longer keeps), because no collector has
        received these events."""
        lost = self._lost(self.forgotten.all())
        self.forgotten.clear()
        return lost

    def lose_handed(self) -> None:
        """Record that an event is lost. It is unknown which event this is, and the queue does not keep it. Assume that
        it is the last event that the kernel has accepted."""
        if handed := self.handed():
            self.lost_at = min(self.lost_at, handed - 1)

    def clear(self) -> None:
        if (settled := self.settled()) < self.put_bytes:
            self.lost_at = min(self.lost_at, settled)
        for items in (self._under_way, self._kept, self._again, self._new):
            for item in items:
                self._let_go(item)
            items.clear()
        self._packets.clear()
        self._part = self.in_flight_bytes = 0
        self.forgotten.clear()

    def handed(self) -> int:
        """Return the position of the first byte that must still be sent, or sent again."""
        unsent = (*self._under_way, *self._again, *self._new)
        begins = (item.begin for item in unsent if not item.is_packet)
        return min(begins, default=self.put_bytes)

    def settled(self) -> float:
        """Return the position of the first event of which it is unknown whether it is durable or lost."""
        return min([self.handed(), self.forgotten.begin, *(item.begin for item in self._kept)])

    def unsent(self) -> list[Chunk]:
        """Return all data that the kernel has never accepted: whole chunks, and the rest of a chunk that it has
        accepted in part."""
        accepted, rest = self._parted()
        items = (*self._under_way, *self._new)
        chunks = [item.chunk for item in items if item.turn < 0 and not item.is_packet]
        return [*rest, *chunks[len(accepted) :]]

    def unanswered(self) -> list[Chunk]:
        """Return all data that the kernel has accepted and no answer has settled: whole chunks, and the accepted part
        of a chunk."""
        accepted, _ = self._parted()
        items = (*self._under_way, *self._again, *self._kept)
        return [*accepted, *(item.chunk for item in items if item.turn >= 0)]

    def _parted(self) -> tuple[list[Chunk], list[Chunk]]:
        """Return, in two parts, the new chunk of which the kernel has accepted only some events: these events, and the
        rest. Both parts are empty if there is no such chunk."""
        first = self._under_way[0] if self._part else None
        if first is None or first.turn >= 0 or first.is_packet:
            return [], []
        chunk = first.chunk
        rest = chunk.behind(chunk.whole(self._part))
        if rest is chunk:
            return [], []
        return [chunk._replace(data=chunk.data.removesuffix(rest.data), next=rest.first)], [rest]

    def _keep(self, item: _Item, turn: int, now: float) -> None:
        chunk = item.chunk
        self.sent[chunk.stream] = max(chunk.next, self.sent.get(chunk.stream, 0))
        if not self.keep or chunk.stream == UNNUMBERED:
            self._let_go(item)
            return
        if item.turn < 0:
            self.kept_bytes += item.room
        item.turn, item.since = turn, now
        self.in_flight_bytes += item.room
        self._kept.append(item)
        while self.kept_bytes > self._room and self._kept:
            oldest = self._kept.popleft()
            self.in_flight_bytes -= oldest.room
            self.forgotten.add(oldest.chunk, oldest.begin, oldest.turn + self._late)
            self._let_go(oldest)

    def _lost(self, found: Sequence[tuple[int, Range]]) -> Sequence[Range]:
        self.lost_at = min([self.lost_at, *(begin for begin, _ in found)])
        return [missing for _, missing in found]

    def _wait(self, again: list[_Item], kept: deque[_Item]) -> None:
        """Set the items that must be sent again, and the items that wait for an answer."""
        self._again = deque(sorted(again, key=lambda item: item.at))
        self._kept = kept
        self.in_flight_bytes = sum(item.room for item in kept)

    def _let_go(self, item: _Item) -> None:
        if item.turn >= 0:
            self.kept_bytes -= item.room
        if not item.is_packet:
            self._release(len(item.chunk.data))


def _insert(spans: _Spans, first: int, next_: int) -> None:
    """Add a range to sorted ranges. Merge it with the last ranges of the list, as far as it touches them."""
    while spans and first <= spans[-1][1] and spans[-1][0] <= next_:
        first, next_ = min(first, spans[-1][0]), max(next_, spans[-1][1])
        del spans[-1]
    insort(spans, (first, next_))


def _without(hole: Range, spans: Iterable[tuple[int, int]]) -> Iterator[Range]:
    """Yield the parts of a hole (a range of missing events) that are in none of the ranges `spans`. These must be
    sorted."""
    at = hole.first
    for first, next_ in spans:
        if at < min(first, hole.next):
            yield hole._replace(first=at, next=min(first, hole.next))
        at = max(at, next_)
    if at < hole.next:
        yield hole._replace(first=at)
