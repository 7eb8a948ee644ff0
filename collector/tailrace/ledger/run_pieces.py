"""Hold the pieces of a producer's runs, and find them by their ids and times.

A piece is the part of a run (one execution of a program) in one file. `split_runs` joins the pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter, itemgetter

import msgspec

from tailrace.model.record import RunPiece

first_of = attrgetter("first")

PiecePlace = tuple[int, int, int, int]
"""First id, last id, start time and end time of a piece (the part of a run in one file)."""


class IdRange(msgspec.Struct, array_like=True):
    """A range of received ids of a run. The ids may be in several pieces (parts of the run in one file each): `since`
    is the latest time at which such a piece starts, `until` the earliest time at which such a piece ends."""

    first: int
    last: int
    since: int = 0
    until: int = 0


class HeldPiece(msgspec.Struct, array_like=True):
    """The piece of a run in one session's file, with the times of its first and last event. If `open` is true, more
    events may arrive. If `copy` is true, other sessions delivered some of these ids before."""

    piece: RunPiece
    since: int
    until: int
    open: bool = True
    copy: bool = False


class SplitRun(msgspec.Struct, omit_defaults=True):
    """A run of a producer, and its pieces (the parts in one file each) by session.

    - `ranges`: the received ids.
    - `ends`: the session whose file contains the last event of the run, or "".
    - `claims`: the missing ids that were reported in the session `ends` and have not arrived.
    - `late`, `cut`: the sessions that report missing events before or after their piece.
    """

    pid: str
    host: str
    pieces: dict[str, HeldPiece] = {}
    ranges: list[IdRange] = []
    claims: list[IdRange] = []
    late: list[str] = []
    cut: list[str] = []
    ends: str = ""
    last: int = 0
    open: int = 0
    """Number of sessions of this run that may receive more data."""
    judged: bool = False
    """Whether the run's missing ids have been reported."""
    doubted: bool = False
    """Whether a piece (the run's part in one file) has no ids. Missing ids are then not reported, because not every
    event has an id."""

    @property
    def begins(self) -> bool:
        return bool(self.ranges) and self.ranges[0].first == 1

    @property
    def whole(self) -> bool:
        return self.begins and bool(self.ends)

    @property
    def is_complete(self) -> bool:
        """Return whether no id is missing between the first and the last event, or a file with both of these events
        reports the missing ids."""
        if not self.whole:
            return False
        if self.pieces[self.ends].piece.settled:
            return True
        return len(self.ranges) == 1 and self.ranges[0].last == self.last


class DoneRun(msgspec.Struct, array_like=True):
    """A complete run whose files are all closed. `pieces` has the ids and times of the part in each file."""

    pid: str
    host: str
    last: int
    pieces: list[PiecePlace]


class SplitRunsState(msgspec.Struct, omit_defaults=True):
    """The runs of a source.

    - `runs`: the incomplete runs and the runs with an open file, by number, oldest first.
    - `following`: the number of the next new run.
    - `done`: the runs without a missing id whose files are all closed.
    """

    runs: dict[int, SplitRun] = {}
    following: int = 0
    done: list[DoneRun] = []


REBUILD_FACTOR = 8
"""Maximum number of comparisons per piece of a run (its part in one file), to correct the times of the run's id ranges
after one piece has changed. If more comparisons are necessary, all id ranges of the run are computed anew."""


class RunIndex:
    """Finds pieces of a run (its parts in one file each) by time, and the pieces that may be the first or last one,
    because no ids before or after them are known. `counting` is the number of pieces in which missing ids certainly
    show missing events."""

    def __init__(self, run: SplitRun) -> None:
        self.run = run
        self.counting = sum(held.piece.counts for held in run.pieces.values())
        self._begins = sorted((held.since, name) for name, held in run.pieces.items())
        self._ends = sorted((held.until, name) for name, held in run.pieces.items())
        self._order = {name: number for number, name in enumerate(run.pieces)}
        self._files = {name.partition(".")[0] for name in run.pieces}
        self._before, self._behind = _Side(), _Side()
        for session in run.pieces:
            self.place(session)

    def meets(self, other: RunIndex) -> bool:
        """Return whether the periods from the first to the last event of two runs overlap."""
        return self._begins[0][0] <= other._ends[-1][0] and other._begins[0][0] <= self._ends[-1][0]

    def goes_on(self, session: str) -> bool:
        """Return whether the piece of a session (the part of the run in its file) needs no neighbour: on each side,
        events of the run are known, or cannot exist."""
        return session not in self._before.alone and session not in self._behind.alone

    def has_file(self, session: str) -> bool:
        """Return whether one of the run's pieces is in the file of `session`. Ids begin at 1 in each run of a file, so
        equal ids do not show that two pieces of one file belong to the same run."""
        return session.partition(".")[0] in self._files

    def likely(self, since: int) -> Iterator[HeldPiece]:
        """Yield the run's pieces (parts in one file each) that have ids. Pieces that start at the time `since` come
        first, because a copy starts at the same time as its original."""
        at = bisect_left(self._begins, (since, ""))
        for _, session in chain(islice(self._begins, at, None), islice(self._begins, at)):
            if self.run.pieces[session].piece.ranges:
                yield self.run.pieces[session]

    def put(self, session: str, before: HeldPiece | None) -> None:
        """Index a session's piece by its times. `before` is its earlier state, or None for a new piece."""
        held = self.run.pieces[session]
        self._order.setdefault(session, len(self._order))
        self._files.add(session.partition(".")[0])
        if before:
            del self._begins[bisect_left(self._begins, (before.since, session))]
            del self._ends[bisect_left(self._ends, (before.until, session))]
        insort(self._begins, (held.since, session))
        insort(self._ends, (held.until, session))
        if before and (held.since, held.until) != (before.since, before.until):
            self._retime(before, held)

    def _retime(self, before: HeldPiece, held: HeldPiece) -> None:
        """Correct the times of the run's id ranges after a piece (the part of the run in one file) has changed from
        `before` to `held`."""
        left = REBUILD_FACTOR * len(self._begins)
        for each in self._ranges_of(before):
            if each.since == before.since != held.since:
                for at, of in reversed(self._begins):
                    left -= 1
                    if self._is_in(each, of):
                        each.since = at
                        break
            if each.until == before.until != held.until:
                for at, of in self._ends:
                    left -= 1
                    if self._is_in(each, of):
                        each.until = at
                        break
            if left < 0:
                self.run.ranges = ranges_of(self.run)
                return

    def _ranges_of(self, held: HeldPiece) -> Iterator[IdRange]:
        """Yield the run's id ranges that contain ids of a piece (the part of the run in one file)."""
        last = 0
        for first, _ in held.piece.ranges:
            if first > last:
                each = self.run.ranges[bisect_right(self.run.ranges, first, key=first_of) - 1]
                last = each.last
                yield each

    def place(self, session: str) -> list[str]:
        """Record whether the run has known ids below those in a session's file, and whether it has known ids above
        them. Return the other sessions that now have known ids on both sides, or need none (`goes_on`), in the order in
        which they joined. Since the last call, ids may only have been added to the run."""
        run, ids = self.run, self.run.pieces[session].piece.ranges
        low, high = (run.ranges[0].first, run.ranges[-1].last) if run.ranges else (0, 0)
        freed = self._before.place(session, ids[0][0] if ids else None, None if run.begins else low)
        # `_Side` looks for lower ids. Negate the ids, so that it looks for higher ones.
        freed |= self._behind.place(
            session, -ids[-1][1] if ids else None, None if run.ends else -high
        )
        found = (name for name in freed if name != session and self.goes_on(name))
        return sorted(found, key=self._order.__getitem__)

    def _is_in(self, range_: IdRange, session: str) -> bool:
        """Return whether the part of the run in a session's file contains an id of `range_`."""
        ids = self.run.pieces[session].piece.ranges
        at = bisect_right(ids, range_.last, key=itemgetter(0))
        return at > 0 and ids[at - 1][1] >= range_.first


class _Side:
    """Holds the sessions whose files may have the beginning of the run: no earlier events of the run are known. `alone`
    has the lowest id in each of these files, or None without ids. For the end of the run, ids are negated. The class
    then holds the sessions whose files may have the run's end."""

    def __init__(self) -> None:
        self.alone: dict[str, int | None] = {}
        self._edge: int | None = None

    def place(self, session: str, own: int | None, edge: int | None) -> set[str]:
        """Add a session, or remove it if events of the run before those in its file are known. `own` is the lowest id
        in the session's file, or None without ids. `edge` is the lowest known id of the run, or None if the run's first
        event has arrived. Return the other sessions that this call removes, because earlier events are known now."""
        freed: set[str] = set()
        self.alone.pop(session, None)
        if edge != self._edge:
            self._edge = edge
            freed = {name for name, id_ in self.alone.items() if self._is_inside(id_)}
            for name in freed:
                del self.alone[name]
        if not self._is_inside(own):
            self.alone[session] = own
        return freed

    def _is_inside(self, id_: int | None) -> bool:
        return self._edge is None or (id_ is not None and id_ > self._edge)


def has_grown(before: HeldPiece, held: HeldPiece) -> bool:
    ids = held.piece.ranges
    for first, last in before.piece.ranges:
        at = bisect_right(ids, first, key=itemgetter(0))
        if not at or ids[at - 1][1] < last:
            return False
    return held.since <= before.since and before.until <= held.until


def place_of(held: HeldPiece) -> PiecePlace:
    """Return the first and last id of a piece (the part of a run in one file), and the times of its first and last
    event. The piece must have an id."""
    return held.piece.ranges[0][0], held.piece.ranges[-1][1], held.since, held.until


def overlaps(ranges: list[IdRange], more: Iterable[tuple[int, int]]) -> bool:
    """Return whether an id of `more` lies in one of the sorted `ranges`."""
    for first, last in more:
        at = bisect_right(ranges, last, key=first_of)
        if at and ranges[at - 1].last >= first:
            return True
    return False


def put(ranges: list[IdRange], new: IdRange) -> None:
    """Add a range of ids to sorted ranges. Join it with ranges that overlap it or are adjacent to it."""
    begin = stop = bisect_right(ranges, new.first, key=first_of)
    if begin and ranges[begin - 1].last + 1 >= new.first:
        begin -= 1
    while stop < len(ranges) and ranges[stop].first <= new.last + 1:
        stop += 1
    for each in ranges[begin:stop]:
        new.first, new.last = min(new.first, each.first), max(new.last, each.last)
        new.since, new.until = max(new.since, each.since), min(new.until, each.until)
    ranges[begin:stop] = [new]


def put_all(ranges: list[IdRange], pieces: Iterable[HeldPiece]) -> None:
    for each in pieces:
        for first, last in each.piece.ranges:
            put(ranges, IdRange(first, last, each.since, each.until))


def ranges_of(run: SplitRun) -> list[IdRange]:
    found: list[IdRange] = []
    put_all(found, run.pieces.values())
    return found


def fill(claims: list[IdRange], first: int, last: int) -> list[IdRange]:
    """Remove the ids from `first` to `last` from `claims`, the ids reported as missing. Return the removed ids as
    ranges."""
    begin = max(bisect_right(claims, first, key=first_of) - 1, 0)
    stop = bisect_right(claims, last, key=first_of)
    found, left = [], []
    for claim in claims[begin:stop]:
        low, high = max(first, claim.first), min(last, claim.last)
        parts = (claim.first, min(claim.last, first - 1)), (max(claim.first, last + 1), claim.last)
        left += [IdRange(a, b) for a, b in parts if a <= b]
        found += [IdRange(low, high)] if low <= high else []
    claims[begin:stop] = left
    return found
