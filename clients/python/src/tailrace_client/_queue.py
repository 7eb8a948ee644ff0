"""The queue to the collector: what is to be sent, and what may have to be sent again. No I/O.

    recorder ─ put ─► new ─┐
               packets ────┼─► under way ─► sent ─► durable: let go
                  again ───┘      ▲           │
                    ▲             └── broken ─┤
                    └────── not durable ──────┘

The queue keeps a chunk that is `sent`, or to be sent `again`, until an answer calls the chunk
durable. If room runs short, the queue forgets the oldest chunk (`Forgotten`), never a new one. It
lets go of a chunk once the kernel has it if the chunk has no numbers or nobody answers (`keep`).

A position in the order of recording is a number of bytes: all bytes put before.

The events of a forgotten chunk may still have arrived. An answer that calls them durable shows that they have. They are
lost if an answer shows them in a hole or beyond all that the collector has, and the question (`turn`) was asked after
they were sent: the client cannot send them again. The collector cannot name a stream of which nothing came, so
a question states how far the streams go (`ends`).
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
"""Entries of a stream. Beyond that, an entry is joined with the one before, whatever their turns."""

_RANGES_MAX = 1024
"""Ranges of a stream into which answers may cut its entries. The rest is joined."""


class _Past(NamedTuple):
    """A range of a stream's events that are kept nowhere."""

    begin: int
    """The position of the first event in the queue (`_queue`)."""
    turn: int
    """The turn of the last announcement that may have overtaken the events."""
    first: int
    next: int


class Forgotten:
    """By stream, events that may have arrived or not."""

    def __init__(self) -> None:
        self._pasts: dict[int, list[_Past]] = {}

    def __bool__(self) -> bool:
        return bool(self._pasts)

    @property
    def begin(self) -> float:
        """The position of the first forgotten event; infinity if there is none."""
        return min((past.begin for pasts in self._pasts.values() for past in pasts), default=inf)

    def add(self, chunk: Chunk, begin: int, turn: int) -> None:
        """Add a chunk that is let go and began at position `begin`. Announcements up to `turn` may have
        overtaken it; later ones come behind it."""
        pasts = self._pasts.setdefault(chunk.stream, [])
        for first, next_ in runs(chunk):
            last = pasts[-1] if pasts else None
            if last and last.next == first and (last.turn == turn or len(pasts) >= _PASTS_MAX):
                pasts[-1] = _Past(min(last.begin, begin), max(last.turn, turn), last.first, next_)
            else:
                pasts.append(_Past(begin, turn, first, next_))

    def spans(self, stream: int) -> list[tuple[int, int]]:
        """Return a stream's forgotten ranges: the first number, and one more than the last."""
        return [(past.first, past.next) for past in self._pasts.get(stream, ())]

    def ends(self, turn: int) -> dict[int, int]:
        """Return the streams of which the answer to a question is to settle something. By stream: the
        number behind the last such event."""
        return {
            stream: max(nexts)
            for stream, pasts in self._pasts.items()
            if (nexts := [past.next for past in pasts if past.turn < turn])
        }

    def all(self) -> list[tuple[int, Range]]:
        """Return all forgotten ranges, each with its position."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream, pasts in self._pasts.items()
            for past in pasts
        ]

    def drop(self, streams: Iterable[int]) -> list[tuple[int, Range]]:
        """Remove some streams' ranges, and return them as `all` does."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream in streams
            for past in self._pasts.pop(stream, ())
        ]

    def clear(self) -> None:
        """Remove everything, since no answer will come."""
        self._pasts.clear()

    def settle(self, answer: Answer) -> list[tuple[int, Range]]:
        """Remove what an answer settles. Return the ranges that are lost, each with its position."""
        lost: list[tuple[int, Range]] = []
        for stream in self._pasts.keys() & answer.below.keys():
            still: list[_Past] = []
            for past in self._pasts.pop(stream):
                holes, beyond = _missing(past, stream, answer)
                if past.turn < answer.turn:
                    # An answer names only so many holes. A hole that it does not name may be the
                    # reason why the stream's number goes no further.
                    gone, holes = holes + ([] if answer.holes else beyond), []
                    lost += [(past.begin, Range(stream, *span)) for span in gone]
                    beyond = beyond if answer.holes else []
                still += [past._replace(first=f, next=n) for f, n in holes + beyond]
            if still:
                self._pasts[stream] = _joined(still)
        return lost


def _joined(pasts: list[_Past]) -> list[_Past]:
    """Return at most `_RANGES_MAX` entries. Events between joined entries have arrived, so no later
    answer that is true can call them lost."""
    kept, rest = pasts[: _RANGES_MAX - 1], pasts[_RANGES_MAX - 1 :]
    if len(rest) < 2:
        return pasts
    begins, turns, firsts, nexts = zip(*rest, strict=True)
    return [*kept, _Past(min(begins), max(turns), min(firsts), max(nexts))]


_Spans = list[tuple[int, int]]
"""The first number, and one more than the last."""


def _missing(past: _Past, stream: int, answer: Answer) -> tuple[_Spans, _Spans]:
    """Return the events that are in holes, and those beyond the stream's number."""
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
"""The streams of a session's own packets, which do not count as recorded bytes."""

_OVERHEAD_BYTES = 256
"""About what it takes to keep a chunk beside its bytes."""

_UNREACHABLE_MAX = 64
"""Ranges at a time. A collector asks again for what it still lacks."""

_SPANS_MAX = 64
"""Spans of numbers that are remembered of a stream as acknowledged."""

_PIECES_MAX = 512
"""Buffers in one system call. Linux takes 1024."""


class _Item:
    """A chunk in the queue, or a packet of the session."""

    __slots__ = ("at", "chunk", "repeated", "since", "turn")

    def __init__(self, chunk: Chunk, at: int) -> None:
        self.chunk = chunk
        self.at = at
        """The position of the chunk's end."""
        self.turn = -1
        """The turn of the last announcement before it was sent; -1: not sent yet."""
        self.since = 0.0
        """When it was sent last."""
        self.repeated = False
        """Whether it was sent more than once."""

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
    """Takes chunks, and returns pieces for system calls. One caller at a time."""

    def __init__(self, room: int, release: Callable[[int], None], *, late: int = 0) -> None:
        """Keep at most `room` bytes, and call `release(size)` for chunks that are let go. `late` is
        how many questions may overtake an event."""
        self.keep = True
        """Whether a collector is asked what is durable."""
        self.put_bytes = 0
        """Bytes ever put."""
        self.kept_bytes = 0
        """Bytes that are sent or to be sent again, and not durable, with the overhead of keeping."""
        self.in_flight_bytes = 0
        """The kept bytes that are not to be sent again, as far as is known."""
        self.sent: dict[int, int] = {}
        """By stream, one more than the highest number that the kernel has."""
        self.forgotten = Forgotten()
        self._durable: dict[int, list[tuple[int, int]]] = {}
        """By stream, what was acknowledged, in order: the first number, and one more than the last."""
        self.lost_at = inf
        """The position of the first event that is lost for good; infinity if there is none."""
        self._room = room
        self._late = late
        self._release = release
        self._packets: deque[_Item] = deque()
        self._again: deque[_Item] = deque()
        self._new: deque[_Item] = deque()
        self._under_way: deque[_Item] = deque()
        self._part = 0
        """How many bytes of the first item under way the kernel has."""
        self._kept: deque[_Item] = deque()

    def put(self, chunks: Iterable[Chunk]) -> None:
        """Append chunks that were never sent before."""
        for chunk in chunks:
            self.put_bytes += len(chunk.data)
            self._new.append(_Item(chunk, self.put_bytes))

    def first_packet(self, data: bytes) -> None:
        """Send a packet of the session before all else, in place of an earlier first packet."""
        self._withdraw(_FIRST)
        self._packets.appendleft(self._packet(data, _FIRST))

    def packet(self, data: bytes) -> None:
        """Send a packet of the session before any chunk."""
        self._packets.append(self._packet(data, _PACKET))

    def last_packets(self, packets: Iterable[bytes]) -> None:
        """Send packets of the session after all chunks so far, in place of earlier last packets."""
        self._withdraw(_LAST)
        self._new.extend(self._packet(data, _LAST) for data in packets)

    def _packet(self, data: bytes, stream: int) -> _Item:
        return _Item(Chunk(data, stream, 0, 0), self.put_bytes)

    def _withdraw(self, stream: int) -> None:
        self._packets = deque(item for item in self._packets if item.chunk.stream != stream)
        self._new = deque(item for item in self._new if item.chunk.stream != stream)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send."""
        return not (self._under_way or self._packets or self._again or self._new)

    def pieces(self, size: int, *, only_packets: bool = False) -> list[bytes]:
        """Return the pieces to offer to the kernel next: whole chunks of at most `size` bytes in all,
        or one longer chunk. The first piece lacks what the kernel has of it already."""
        under_way = self._under_way
        total = sum(len(item.chunk.data) for item in under_way)
        sources = (self._packets,) if only_packets else (self._packets, self._again, self._new)
        for source in sources:
            while source and len(under_way) < _PIECES_MAX:
                total += len(source[0].chunk.data)
                if total > size and under_way:
                    break
                # In this order an exception of a signal handler repeats a chunk, and loses none.
                under_way.append(source[0])
                source.popleft()
            if source:
                break
        pieces = [item.chunk.data for item in under_way]
        if self._part:
            pieces[0] = pieces[0][self._part :]
        return pieces

    def speaks(self, *, only_packets: bool) -> bool:
        """Return whether a packet of the session other than the first is sent next."""
        new = () if only_packets else islice(self._new, 1)
        ahead = (*islice(self._under_way, 1), *islice(self._packets, 2), *new)
        return any(item.chunk.stream in (_PACKET, _LAST) for item in ahead)

    @property
    def announces_alone(self) -> bool:
        """Return whether the kernel is offered the session's first packet alone although more waits."""
        waits = bool(self._packets or self._again or self._new)
        return waits and [item.chunk.stream for item in self._under_way] == [_FIRST]

    @property
    def repeats(self) -> bool:
        """Whether a chunk that was sent before is to be sent next."""
        return bool(self._again)

    @property
    def waiting_packets(self) -> int:
        """The number of packets that wait to be sent before any chunk."""
        return len(self._packets)

    @property
    def unsettled(self) -> bool:
        """Whether the fate of a sent event is not known yet."""
        return self.kept_bytes > 0 or bool(self.forgotten)

    @property
    def oldest(self) -> float:
        """When the oldest unsettled event was sent, or an earlier time; infinity if there is none."""
        if self.forgotten:
            return 0.0
        return self._kept[0].since if self._kept else inf

    def through(self, size: int, turn: int, now: float) -> None:
        """Take note that the kernel took `size` bytes of the pieces after the announcement of `turn`."""
        self._part += size
        under_way = self._under_way
        while under_way and self._part >= len(under_way[0].chunk.data):
            item = under_way[0]
            if not item.is_packet:
                self._keep(item, turn, now)
            self._part -= len(item.chunk.data)
            under_way.popleft()

    def refused(self) -> list[Chunk]:
        """Let go of what is under way, since the kernel will never take it. Return the chunks of it
        that were never sent."""
        lost = [item for item in self._under_way if not item.is_packet]
        self._under_way.clear()
        self._part = 0
        for item in lost:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in lost if item.turn < 0]

    def back(self) -> None:
        """Put back what was offered and not taken, to be offered anew."""
        for item in reversed(self._under_way):
            early = item.is_packet and item.chunk.stream != _LAST
            again = self._new if item.turn < 0 else self._again
            (self._packets if early else again).appendleft(item)
        self._under_way.clear()
        self._part = 0

    def broken(self) -> None:
        """Put back the whole chunks under way, since the connection is gone, and drop its packets."""
        if self._part and not self._under_way[0].is_packet:
            chunk = self._under_way[0].chunk
            self.sent[chunk.stream] = max(chunk.whole(self._part), self.sent.get(chunk.stream, 0))
        self.back()
        self._packets.clear()
        self._withdraw(_LAST)

    def settle(self, answer: Answer) -> tuple[bool, Sequence[Range]]:
        """Let go of what an answer calls durable, and send again what it shows to be missing.

        Missing is what was sent before the announcement that is answered and has not arrived, and
        what is in a hole, unless it was repeated already and may be on its way. The queue lets go of the
        durable beginning of a chunk, so that each connection goes further than the last. Return whether
        anything was missing, and which events are lost because they are kept no more.
        """
        again: list[_Item] = []
        for item in self._again:
            if answer.has(*item.chunk[1:]):
                self._settle(item, item.chunk.next)
            else:
                again.append(item)
        waiting = len(again)
        self._shorten([*again, *islice(self._new, 1)], answer)
        kept: deque[_Item] = deque()
        for item in self._kept:
            chunk = item.chunk
            if answer.has(*chunk[1:]):
                self._settle(item, chunk.next)
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
        """Remove from chunks that are to be sent the events at their beginning that are durable."""
        for item in items:
            chunk = item.chunk
            holes = (h.first for h in answer.holes.get(chunk.stream, ()) if h.next > chunk.first)
            durable = min([answer.below.get(chunk.stream, 0), *holes])
            if item.is_packet or not chunk.first < durable < chunk.next:
                continue
            self._note_durable(chunk.stream, chunk.first, durable)
            item.chunk = chunk.behind(durable)
            size = len(chunk.data) - len(item.chunk.data)
            self.kept_bytes -= size if item.turn >= 0 else 0
            self._release(size)

    def _settle(self, item: _Item, durable: int) -> None:
        self._note_durable(item.chunk.stream, item.chunk.first, durable)
        self._let_go(item)

    def _note_durable(self, stream: int, first: int, next_: int) -> None:
        """Note what was acknowledged, in at most `_SPANS_MAX` spans: those with the lowest numbers are forgotten."""
        spans = self._durable.setdefault(stream, [])
        while spans and first <= spans[-1][1] and spans[-1][0] <= next_:
            first, next_ = min(first, spans[-1][0]), max(next_, spans[-1][1])
            del spans[-1]
        insort(spans, (first, next_))
        del spans[:-_SPANS_MAX]

    def unreachable(self, answer: Answer) -> tuple[list[Range], list[Range]]:
        """Return the parts of an answer's holes that can no more be sent and are not on their way, at
        most the first `_UNREACHABLE_MAX`: discarded events that the collector does not know of, and events that
        another collector has acknowledged."""
        discarded: list[Range] = []
        durable: list[Range] = []
        for gone in islice(self._unreachable(answer), _UNREACHABLE_MAX):
            spans = self._durable.get(gone.stream, ())
            lost = list(_without(gone, spans))
            discarded += lost
            durable += _without(gone, [(each.first, each.next) for each in lost])
        return discarded, durable

    def _unreachable(self, answer: Answer) -> Iterator[Range]:
        for stream, holes in answer.holes.items():
            if stream not in answer.below:
                continue  # what the answer says of this stream cannot be true
            items = (*self._kept, *self._again, *self._under_way, *self._new)
            ours = [item.chunk[2:] for item in items if item.chunk.stream == stream]
            spans = sorted(ours + self.forgotten.spans(stream))
            for hole in holes:
                yield from _without(hole, spans)

    def repeat(self, before: int) -> None:
        """Send again, in the order of recording, what was sent before the announcement of turn `before`."""
        again = [item for item in self._kept if item.turn < before]
        self._wait([*self._again, *again], deque(i for i in self._kept if i.turn >= before))

    def abandon(self, streams: Collection[int]) -> tuple[Sequence[Chunk], Sequence[Range]]:
        """Let go of what was sent of streams that no collector will answer for. Return the chunks that
        were kept and the ranges that were forgotten."""
        gone = [item for item in (*self._again, *self._kept) if item.chunk.stream in streams]
        if gone:
            again = [item for item in self._again if item.chunk.stream not in streams]
            self._wait(again, deque(i for i in self._kept if i.chunk.stream not in streams))
        for item in gone:
            self.lost_at = min(self.lost_at, item.begin)
            self._let_go(item)
        return [item.chunk for item in gone], self._lost(self.forgotten.drop(streams))

    def lose_some(self, stream: int) -> None:
        """Take note that an event of a stream is lost for good: its oldest unsettled one, or a later."""
        begins = [item.begin for item in (*self._again, *self._kept) if item.chunk.stream == stream]
        begins += [begin for begin, range_ in self.forgotten.all() if range_.stream == stream]
        self.lost_at = min([self.lost_at, *begins])
        if not begins:
            self.lose_handed()

    def lose(self) -> Sequence[Range]:
        """Give up and return what was forgotten, since it is known that nobody received it."""
        lost = self._lost(self.forgotten.all())
        self.forgotten.clear()
        return lost

    def lose_handed(self) -> None:
        """Take note that the last event handed to the kernel is lost, and that nothing is kept."""
        if handed := self.handed():
            self.lost_at = min(self.lost_at, handed - 1)

    def clear(self) -> None:
        """Let go of everything, which is lost as far as is known."""
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
        """Return the position of the first byte that the kernel does not have or is to get again."""
        unsent = (*self._under_way, *self._again, *self._new)
        begins = (item.begin for item in unsent if not item.is_packet)
        return min(begins, default=self.put_bytes)

    def settled(self) -> float:
        """Return the position of the first byte that is not known to be durable or lost."""
        return min([self.handed(), self.forgotten.begin, *(item.begin for item in self._kept)])

    def unsent(self) -> list[Chunk]:
        """Return the chunks that the kernel has never had as a whole."""
        items = (*self._under_way, *self._new)
        return [item.chunk for item in items if item.turn < 0 and not item.is_packet]

    def unanswered(self) -> list[Chunk]:
        """Return the chunks that the kernel has had and that are not known to be durable."""
        items = (*self._under_way, *self._again, *self._kept)
        return [item.chunk for item in items if item.turn >= 0]

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
        """Set which sent items are to be sent again, and which wait for an answer."""
        self._again = deque(sorted(again, key=lambda item: item.at))
        self._kept = kept
        self.in_flight_bytes = sum(item.room for item in kept)

    def _let_go(self, item: _Item) -> None:
        if item.turn >= 0:
            self.kept_bytes -= item.room
        if not item.is_packet:
            self._release(len(item.chunk.data))


def _without(hole: Range, spans: Iterable[tuple[int, int]]) -> Iterator[Range]:
    """Yield the parts of a hole that lie in none of the sorted spans."""
    at = hole.first
    for first, next_ in spans:
        if at < min(first, hole.next):
            yield hole._replace(first=at, next=min(first, hole.next))
        at = max(at, next_)
    if at < hole.next:
        yield hole._replace(first=at)
