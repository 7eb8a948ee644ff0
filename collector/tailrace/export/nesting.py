"""Spread the spans of a lane over tracks, since viewers demand that the slices of a track nest."""

from __future__ import annotations

from collections.abc import Iterator

DEEPEST = 256
"""Spans inside each other on one track. Perfetto gives up at 512."""

_NEVER = 2**63


class Track:
    """The ends of the spans that have begun on a track and not ended, the innermost last."""

    __slots__ = ("ends", "latest")

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.latest = 0


class Nesting:
    """The tracks of one lane. A span goes to the first one on which it nests.

    Spans come by their begins and, of equal begins, the longer one first. One that comes out of order, or
    overlaps another, gets a further track."""

    __slots__ = ("_tracks",)

    def __init__(self) -> None:
        self._tracks: list[Track] = []

    def begin(self, begin: int, end: int | None) -> tuple[int, list[tuple[int, int]]]:
        """Take a span; an open one has no end. Return the number of its track, and which spans end before
        it, as track and time, in order."""
        ends = _NEVER if end is None else end
        ended: list[tuple[int, int]] = []
        for number, track in enumerate(self._tracks):
            if begin < track.latest:
                continue
            stack = track.ends
            while stack and stack[-1] <= begin:
                track.latest = stack.pop()
                ended.append((number, track.latest))
            if not stack or (ends <= stack[-1] and len(stack) < DEEPEST):
                break
        else:
            number, track = len(self._tracks), Track()
            self._tracks.append(track)
        track.ends.append(ends)
        track.latest = begin
        return number, ended

    def rest(self) -> Iterator[tuple[int, int]]:
        """Yield the spans that end after the last one began, as track and time, in order."""
        for number, track in enumerate(self._tracks):
            for end in reversed(track.ends):
                if end != _NEVER:
                    yield number, end
