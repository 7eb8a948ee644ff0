"""Build a flame graph: distribute the time of all lanes (a stream and substream of a session) among the names of
spans, separately for each sequence of enclosing names.

The time of a lane always counts for the innermost open span (see `innermost`). Where spans overlap without nesting, the
shares still add up to the time during which any span was open. Spans with one name, whose enclosing spans have the same
names, form one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.analysis.innermost import LONG, DivisionRules, NumberedRows, divide, division
from tailrace.query.completeness import Window
from tailrace.query.filters import RowCondition, all_of

if TYPE_CHECKING:
    from tailrace.query.engine import Engine

DEEPEST = 200
"""Maximum depth of the nodes of a flame graph. A deeper span's time is assigned to its ancestor at this depth."""

UNITS = ("ns", "ticks")

_PLACED = """
SELECT s.source, s.session, s.stream, s.substream, s.format, c.ticks_per_second, s.name, s.open, s.depth, s."offset",
  CASE WHEN part.ticks_ns(0, 0, c.ticks_per_second) IS NULL THEN 'ticks' ELSE 'ns' END AS unit,
  coalesce(s.time, part.ticks_ns(s.start, 0, c.ticks_per_second), s.start) AS begins,
  CASE WHEN NOT s.open THEN coalesce(s.duration::HUGEINT, s."end"::HUGEINT - s.start) END AS length,
  s.time
FROM spans AS s LEFT JOIN part.clocks AS c USING (source, session)
"""

_ENDED = f"""
SELECT *, begins + length AS ends, true AS inside
FROM ({_PLACED}) WHERE NOT open AND begins IS NOT NULL AND length IS NOT NULL AND {{chosen}}
"""  # noqa: S608 - our own words


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


def flame(engine: Engine, window: Window, unit: str = "ns") -> FlameGraph:
    """Return the flame graph of the spans that overlap a window, without their parts outside of the window. Spans whose
    time is not in `unit` (`ns` or `ticks`) are left out. Raise QueryError or StoreError if the table cannot be read."""
    # An open span overlaps each window that ends after its begin.
    conditions = [RowCondition("unit = ?", (unit,)), window.selection.condition]
    if window.since is not None:
        conditions.append(RowCondition("(open OR time + length >= ?)", (window.since,)))
        conditions.append(RowCondition("time IS NOT NULL"))
    if window.until is not None:
        conditions.append(RowCondition("time < ?", (window.until,)))
    chosen = all_of(conditions)
    counting = f"SELECT count(*) FROM ({_PLACED}) WHERE open AND {chosen.sql}"  # noqa: S608 - our own words
    ((still_open,),) = engine.rows(counting, chosen.values)
    ended = RowCondition(_ENDED.format(chosen=chosen.sql), chosen.values)
    found = list(engine.rows(f"SELECT name, {LONG} FROM ({ended.sql}) GROUP BY 1", ended.values))  # noqa: S608 - our own words
    names = [(name,) for name, _ in found]
    among = division(
        DivisionRules(window.since, window.until, DEEPEST), long=any(long for _, long in found)
    )
    own: Counter[int] = Counter()
    for _, times in divide(engine, ended, NumberedRows((("name", "VARCHAR"),), names), among):
        own.update(times)
    return FlameGraph(unit, _whole(among.nodes(), names, own), still_open)


def _whole(
    nodes: list[tuple[int, int, int]], names: list[tuple[str | None]], own: Mapping[int, int]
) -> list[FlameNode]:
    """Return nodes with the sums of their times. `nodes` has the parent (-1: none), the number of the name and the
    number of spans of each node."""
    totals = [own.get(place, 0) for place in range(len(nodes))]
    for place in reversed(range(len(nodes))):
        parent = nodes[place][0]
        if parent >= 0:
            totals[parent] += totals[place]
    return [
        FlameNode(
            None if parent < 0 else parent, *names[name], spans, totals[place], own.get(place, 0)
        )
        for place, (parent, name, spans) in enumerate(nodes)
    ]
