"""Where the time goes: flame graph and heat map of durations."""

from __future__ import annotations

from tailrace.analysis.flame import flame as of_spans
from tailrace.analysis.statistics import heat_map
from tailrace.view import wire
from tailrace.view.answering import shown
from tailrace.view.converting import decimal, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfDurations, OfFlame


def flame(turn: DeskTurn, asked: OfFlame) -> wire.Flame:
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    graph = of_spans(snapshot.engine, asked.window, asked.unit)
    nodes, left_out = graph.pruned(asked.limit)
    return wire.Flame(
        version=snapshot.version,
        whole=whole(found),
        unit=graph.unit,
        nodes=[
            wire.ShownFlameNode(
                parent=node.parent,
                name=shown(node.name),
                count=node.spans,
                total=str(node.total),
                self_=str(node.own),
            )
            for node in nodes
        ],
        left_out=left_out,
        open=graph.open,
    )


def durations(turn: DeskTurn, asked: OfDurations) -> wire.HeatMapAnswer:
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    counted = heat_map(snapshot.engine, asked.window, asked.name, asked.columns)
    return wire.HeatMapAnswer(
        version=snapshot.version,
        whole=whole(found),
        from_=decimal(counted.since),
        width=str(counted.width),
        columns=[cell.column for cell in counted.cells],
        rows=[cell.row for cell in counted.cells],
        counts=[cell.spans for cell in counted.cells],
        open=counted.open,
    )
