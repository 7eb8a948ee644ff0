"""Build a flame graph: distribute the time of all lanes (a stream and substream of a session) among the names of
spans, separately for each sequence of enclosing names.

The time of a lane always counts for the innermost open span, which is the span that began last. Where spans overlap
without nesting, the shares still add up to the time during which any span was open. Spans with one name, whose
enclosing spans have the same names, form one node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tailrace.query.completeness import Window
from tailrace.query.filters import RowCondition, all_of

if TYPE_CHECKING:
    from tailrace.query.engine import Engine

K = TypeVar("K")


class LaneSpan(NamedTuple, Generic[K]):
    """A span that has ended, in a lane. `owner` is the key under which its time is summed, such as a node's index."""

    start: int
    end: int
    owner: K


def shares(spans: Iterable[LaneSpan[K]]) -> dict[K, int]:
    """Return for each `owner` (a key of `LaneSpan`) the time during which the innermost open span has this owner. The
    spans must be sorted by start. Among spans with the same start, the outer span must come first. A span that ends
    before it begins gets no time."""
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
    """Divide the time from `now` to `moment` among the innermost open spans: add each part of this time to the sum in
    `shared` of the `owner` of the span that is innermost then. Remove the spans that end by `moment` from `open_spans`.
    Return `moment`."""
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


DEEPEST = 200
"""Maximum depth of the nodes of a flame graph. A deeper span's time is assigned to its ancestor at this depth."""

UNITS = ("ns", "ticks")

_PLACED = """
SELECT s.source, s.session, s.stream, s.substream, s.name, s.open, s.depth, s."offset",
  CASE WHEN part.ticks_ns(0, 0, c.ticks_per_second) IS NULL THEN 'ticks' ELSE 'ns' END AS unit,
  coalesce(s.time, part.ticks_ns(s.start, 0, c.ticks_per_second), s.start) AS begins,
  CASE WHEN NOT s.open THEN coalesce(s.duration::HUGEINT, s."end"::HUGEINT - s.start) END AS length,
  s.time
FROM spans AS s LEFT JOIN part.clocks AS c USING (source, session)
"""


class FlameNode(NamedTuple):
    """A node. `parent` is the index of the enclosing node, which comes earlier. `own` is the time during which a span
    of the node is the innermost open span, `total` the sum over the node and all below it."""

    parent: int | None
    name: str | None
    spans: int
    total: int
    own: int


class FlameGraph(NamedTuple):
    """A flame graph whose times have one unit. `open` is the number of selected spans that have not ended."""

    unit: str
    nodes: list[FlameNode]
    open: int

    def pruned(self, most: int) -> tuple[list[FlameNode], int]:
        """Return the `most` nodes with the largest totals, which include all parents, and the number of nodes left
        out."""
        if len(self.nodes) <= most:
            return self.nodes, 0
        ranked = sorted(range(len(self.nodes)), key=lambda place: (-self.nodes[place].total, place))
        kept = sorted(ranked[:most])
        places = {old: new for new, old in enumerate(kept)}
        chosen = [self.nodes[old] for old in kept]
        moved = [
            node if node.parent is None else node._replace(parent=places[node.parent])
            for node in chosen
        ]
        return moved, len(self.nodes) - most


class _Nodes:
    def __init__(self) -> None:
        self._places: dict[tuple[int | None, str | None], int] = {}
        """Index of each node by its parent and name, in the order of the nodes."""
        self.counts: list[int] = []

    def count(self, parent: int | None, name: str | None) -> int:
        """Count a span for the node with this name and parent, which is added if it is new. Return the node's index."""
        place = self._places.setdefault((parent, name), len(self.counts))
        if place == len(self.counts):
            self.counts.append(0)
        self.counts[place] += 1
        return place

    def whole(self, own: Mapping[int, int]) -> list[FlameNode]:
        totals = [own.get(place, 0) for place in range(len(self.counts))]
        for (parent, _), place in reversed(self._places.items()):
            if parent is not None:
                totals[parent] += totals[place]
        return [
            FlameNode(parent, name, self.counts[place], totals[place], own.get(place, 0))
            for (parent, name), place in self._places.items()
        ]


def flame(engine: Engine, window: Window, unit: str = "ns") -> FlameGraph:
    """Return the flame graph of the spans that overlap a window, without their parts outside of the window. Spans whose
    time is not in `unit` (`ns` or `ticks`) are left out. Raise QueryError or StoreError if the table cannot be read."""
    nodes = _Nodes()
    own: dict[int, int] = defaultdict(int)
    # An open span overlaps each window that ends after its begin.
    conditions = [window.selection.condition]
    if window.since is not None:
        conditions.append(RowCondition("(open OR time + length >= ?)", (window.since,)))
        conditions.append(RowCondition("time IS NOT NULL"))
    if window.until is not None:
        conditions.append(RowCondition("time < ?", (window.until,)))
    chosen = all_of(conditions)
    values = (unit, *chosen.values)
    sql = (
        f"SELECT source, session, stream, substream, begins, length, name FROM ({_PLACED})"  # noqa: S608 - our own words
        f" WHERE NOT open AND begins IS NOT NULL AND length IS NOT NULL AND unit = ? AND {chosen.sql}"
        ' ORDER BY source, session, stream, substream, begins, length DESC, depth, "offset"'
    )
    for _, rows in groupby(engine.rows(sql, values), itemgetter(0, 1, 2, 3)):
        for place, time in shares(_lane(rows, window, nodes)).items():
            own[place] += time
    counting = f"SELECT count(*) FROM ({_PLACED}) WHERE open AND unit = ? AND {chosen.sql}"  # noqa: S608 - our own words
    ((still_open,),) = engine.rows(counting, values)
    return FlameGraph(unit, nodes.whole(own), still_open)


def _lane(rows: Iterable[Any], window: Window, nodes: _Nodes) -> Iterator[LaneSpan[int]]:
    """Yield the spans of one lane, cut off at the bounds of the window. A span's `owner` is the index of its node."""
    enclosing: list[tuple[int, int]] = []
    for row in rows:
        begin, length, name = row[4:]
        end = begin + length
        while enclosing and enclosing[-1][0] <= begin:
            enclosing.pop()
        above = enclosing[-1][1] if enclosing else None
        if len(enclosing) < DEEPEST or above is None:
            above = nodes.count(above, name)
        else:
            nodes.counts[above] += 1
        if end > begin:
            enclosing.append((end, above))
        since = begin if window.since is None else max(begin, window.since)
        until = end if window.until is None else min(end, window.until)
        yield LaneSpan(since, until, above)
