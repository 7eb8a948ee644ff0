"""Share the time of a lane among its spans: each moment belongs to the innermost span that is open then.

The innermost span is the span that began last. Where spans nest, a span's share is its duration minus the
durations of its direct children. Where spans overlap without nesting, the shares still add up to the time
during which any span was open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class LaneSpan(NamedTuple, Generic[K]):
    """A span that has ended. `owner` receives its share."""

    start: int
    end: int
    owner: K


def shares(spans: Iterable[LaneSpan[K]]) -> dict[K, int]:
    """Return the ticks during which each owner's spans are innermost.

    The spans of the lane come in the order of their starts; of two that begin together, the outer comes
    first. A span that ends before it begins has no share."""
    shared: dict[K, int] = defaultdict(int)
    open_spans: list[LaneSpan[K]] = []
    now = 0
    for span in spans:
        now = _reach(span.start, now, open_spans, shared)
        if span.end > span.start:
            open_spans.append(span)
    if open_spans:
        _reach(max(span.end for span in open_spans), now, open_spans, shared)
    return shared


def _reach(moment: int, now: int, open_spans: list[LaneSpan[K]], shared: dict[K, int]) -> int:
    """Share the time from `now` to `moment`, close spans that end by then, and return `moment`."""
    while open_spans:
        innermost = open_spans[-1]
        until = min(innermost.end, moment)
        if until > now:
            shared[innermost.owner] += until - now
            now = until
        if innermost.end > moment:
            break
        open_spans.pop()
    return moment
