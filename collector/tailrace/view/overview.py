"""Show what there is: the store, its sources, and what is missing from them."""

from __future__ import annotations

from typing import Any, Literal

from tailrace import __version__
from tailrace.analysis.statistics import COLUMNS, FIGURES
from tailrace.config.schema import OWN_SOURCE
from tailrace.export import WRITERS
from tailrace.query.completeness import EVERYTHING, MISSING
from tailrace.query.engine import Engine
from tailrace.query.views import VIEWS
from tailrace.view import wire
from tailrace.view.answering import cut, decimal, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfNothing, OfStreams
from tailrace.view.sql import LIMITS, ROWS
from tailrace.view.streams import streams_of

WORST = 20
"""Streams of `overview` that lack most."""

PLACES = 2000
"""Ranks, nodes and jobs of `store`, at most so many of each."""

_SOURCES = """
SELECT source, any_value(format), count(DISTINCT session), count(DISTINCT session) FILTER (state = 'open'),
  count(*), sum(events)::HUGEINT, max(last_time)
FROM streams GROUP BY source ORDER BY source
"""

_MISSING = f"""
SELECT source, reason, {MISSING}, count(*) - count(remaining), count(DISTINCT (session, stream))
FROM gaps GROUP BY source, reason ORDER BY 3 DESC, source, reason
"""  # noqa: S608 - our own words


def store(turn: DeskTurn, _: OfNothing) -> wire.StoreAnswer:
    snapshot = turn.snapshot()
    table = snapshot.engine.table
    files = table.files()
    return wire.StoreAnswer(
        version=snapshot.version,
        tailrace=__version__,
        root=cut(table.root),
        stores=[cut(shelf.name) for shelf in turn.shelves],
        certified=[shelf.sessions for shelf in turn.shelves],
        watched=table.watched,
        files=len(files),
        file_bytes=sum(file.size for file in files),
        rows=sum(file.rows for file in files),
        views=[
            wire.ViewFacts(
                name=view.name,
                meaning=view.meaning,
                columns=[
                    wire.ColumnFacts(name=c.name, type=c.type, meaning=c.meaning)
                    for c in view.columns
                ],
            )
            for view in VIEWS
        ],
        keys=list(COLUMNS),
        figures=list(FIGURES),
        exports=[
            wire.FormatFacts(name=name, meaning=writer.meaning) for name, writer in WRITERS.items()
        ],
        ranks=_of_places(snapshot.engine, "rank"),
        nodes=[cut(node) for node in _of_places(snapshot.engine, "node")],
        jobs=[cut(job) for job in _of_places(snapshot.engine, "job")],
        notes=turn.shelves[0].notes.refused,
        sql_seconds=LIMITS.seconds or 0.0,
        sql_memory=LIMITS.memory or 0,
        sql_rows=ROWS,
    )


def _of_places(engine: Engine, what: Literal["rank", "node", "job"]) -> list[Any]:
    """Return the ranks, nodes or jobs that sessions have."""
    sql = f"SELECT DISTINCT {what} FROM part.places WHERE {what} IS NOT NULL ORDER BY ALL LIMIT {PLACES}"  # noqa: S608 - our own words
    return [value for (value,) in engine.rows(sql)]


def overview(turn: DeskTurn, _: OfNothing) -> wire.OverviewAnswer:
    snapshot = turn.snapshot()
    engine = snapshot.engine
    lost = [
        wire.MissingFacts(source=cut(s), reason=cut(r), missing=missing, unknown=unknown, streams=n)
        for s, r, missing, unknown, n in engine.rows(_MISSING)
    ]
    by_source: dict[str, list[wire.MissingFacts]] = {}
    for each in lost:
        by_source.setdefault(each.source, []).append(each)
    sources = [
        wire.SourceFacts(
            source=cut(source),
            format=cut(format_),
            sessions=sessions,
            open_sessions=open_sessions,
            streams=streams,
            events=events,
            missing=sum(each.missing for each in by_source.get(cut(source), [])),
            unknown=any(each.unknown for each in by_source.get(cut(source), [])),
            last_time=decimal(last_time),
        )
        for source, format_, sessions, open_sessions, streams, events, last_time in engine.rows(
            _SOURCES
        )
        if source != OWN_SOURCE
    ]
    worst = streams_of(engine, OfStreams(limit=WORST))
    return wire.OverviewAnswer(
        version=snapshot.version,
        whole=whole(snapshot.whole(EVERYTHING)),
        missing=lost,
        worst=[each for each in worst if each.missing or each.completeness is None],
        sources=sources,
    )
