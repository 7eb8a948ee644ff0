"""The gaps of a frame. Those of one stream that begin in one bucket and end in one bucket are one, and it says how
many they are and how much is missing; so there are few, however many the table has, and none is out of sight."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tailrace.export.lost import Gap
from tailrace.rollups.places import Longs, Truths
from tailrace.rollups.scale import Range

SEVERAL = "several gaps"


class PlacedGap(NamedTuple):
    """A gap, and between which times it lies; None where nothing tells."""

    gap: Gap
    begin: int | None
    end: int | None
    placed: str


class SeenGap(NamedTuple):
    """One gap, or `gaps` of one stream that are in the same place of a frame.

    `first` is one of them, which has all that can be said of a single one. `remaining` is the sum of what is missing, as far as it is
    known; None if nothing is. `unknown` gaps lack an unknown number of events. `reason` is None of several reasons."""

    first: PlacedGap
    gaps: int
    begin: int | None
    end: int | None
    remaining: int | None
    unknown: int
    reason: str | None


Stream = tuple[str, str, str]


class GapTable:
    """All gaps of a snapshot, stream by stream."""

    def __init__(self, gaps: Sequence[PlacedGap]) -> None:
        self.gaps = gaps
        self._streams: dict[Stream, int] = {}
        of = [self._streams.setdefault(each.gap.place, len(self._streams)) for each in gaps]
        self._stream = np.array(of, np.int64)
        self._nowhere: Truths = np.array([each.begin is None or each.end is None for each in gaps], np.bool_)  # fmt: skip
        self._begin: Longs = np.array([each.begin or 0 for each in gaps], np.int64)
        self._end: Longs = np.array([each.end or 0 for each in gaps], np.int64)

    def within(self, window: Range, log: int, streams: Collection[Stream]) -> Iterator[SeenGap]:
        """Yield what some streams lack in a window with buckets of 2 ** `log` ns; gaps without a place are in any."""
        wanted = np.zeros(len(self._streams), np.bool_)
        wanted[[number for stream, number in self._streams.items() if stream in streams]] = True
        seen = wanted[self._stream] if len(self.gaps) else np.zeros(0, np.bool_)
        seen &= self._nowhere | ((self._begin < window.end) & (self._end >= window.begin))
        chosen = np.flatnonzero(seen)
        begins = np.clip(self._begin[chosen], window.begin - 1, None) >> log
        ends = np.clip(self._end[chosen], None, window.end) >> log
        nowhere = self._nowhere[chosen]
        keys = np.stack((self._stream[chosen], nowhere, np.where(nowhere, 0, begins), np.where(nowhere, 0, ends)))  # fmt: skip
        _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        limits = np.cumsum(np.bincount(group.reshape(-1), minlength=len(first)))[:-1]
        for members in np.split(chosen[order], limits) if len(chosen) else ():
            yield _seen([self.gaps[number] for number in members.tolist()])


def _seen(gaps: Sequence[PlacedGap]) -> SeenGap:
    known = [each.gap.remaining for each in gaps if each.gap.remaining is not None]
    reasons = {each.gap.reason for each in gaps}
    placed = [(each.begin, each.end) for each in gaps if each.begin is not None and each.end is not None]  # fmt: skip
    return SeenGap(
        gaps[0],
        len(gaps),
        min((begin for begin, _ in placed), default=None),
        max((end for _, end in placed), default=None),
        sum(known) if known else None,
        len(gaps) - len(known),
        reasons.pop() if len(reasons) == 1 else None,
    )
