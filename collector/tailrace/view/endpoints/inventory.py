"""Serve the contents of a store: its sources, sessions, streams, gaps and users' notes, and its missing events."""

from __future__ import annotations

from itertools import islice
from operator import gt, itemgetter, lt
from typing import Any, Literal

from msgspec import structs

from tailrace import __version__
from tailrace.analysis.losses import COLUMNS
from tailrace.analysis.statistics import FIGURES
from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import UnknownError
from tailrace.export import WRITERS
from tailrace.model.gap import BECAUSE
from tailrace.query.completeness import EVERYTHING, MISSING, Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, all_of
from tailrace.query.views import VIEWS
from tailrace.rollups.gaps import PlacedGap
from tailrace.store.notes import Note
from tailrace.view import wire
from tailrace.view.answers import cut, from_attributes, from_row, whole
from tailrace.view.endpoints.sql import LIMITS, ROWS
from tailrace.view.endpoints.timeline import gaps_within
from tailrace.view.leases import SnapshotLease
from tailrace.view.questions import (
    NewNote,
    OfGaps,
    OfNextGap,
    OfNothing,
    OfSessions,
    OfStreams,
    OldNote,
)

WORST = 20
"""Number of streams with missing events that `overview` lists."""

PLACES = 2000
"""Maximum number of ranks, of nodes and of jobs that the endpoint `store` lists."""

_SOURCES = """
SELECT source, any_value(format), count(DISTINCT session), count(DISTINCT session) FILTER (state = 'open'),
  count(*), sum(events)::HUGEINT, max(last_time)
FROM streams GROUP BY source ORDER BY source
"""

_MISSING = f"""
SELECT source, reason, {MISSING}, count(*) - count(remaining), count(DISTINCT (session, stream))
FROM gaps GROUP BY source, reason ORDER BY 3 DESC, source, reason
"""  # noqa: S608 - our own words


def store(lease: SnapshotLease, _: OfNothing) -> wire.StoreAnswer:
    snapshot = lease.snapshot()
    table = snapshot.engine.table
    files = table.files()
    return wire.StoreAnswer(
        version=snapshot.version,
        tailrace=__version__,
        root=cut(table.root),
        stores=[cut(store.name) for store in lease.stores],
        certified=[store.sessions for store in lease.stores],
        watched=table.watched,
        files=len(files),
        file_bytes=sum(file.size for file in files),
        rows=sum(file.rows for file in files),
        views=[
            from_attributes(
                wire.ViewFacts,
                view,
                columns=[from_attributes(wire.ColumnFacts, column) for column in view.columns],
            )
            for view in VIEWS
        ],
        keys=list(COLUMNS),
        figures=list(FIGURES),
        exports=[
            from_attributes(wire.FormatFacts, writer, name=name) for name, writer in WRITERS.items()
        ],
        ranks=_of_places(snapshot.engine, "rank"),
        nodes=[cut(node) for node in _of_places(snapshot.engine, "node")],
        jobs=[cut(job) for job in _of_places(snapshot.engine, "job")],
        notes=lease.stores[0].notes.refused,
        sql_seconds=LIMITS.seconds or 0.0,
        sql_memory=LIMITS.memory or 0,
        sql_rows=ROWS,
    )


def _of_places(engine: Engine, what: Literal["rank", "node", "job"]) -> list[Any]:
    sql = f"SELECT DISTINCT {what} FROM part.places WHERE {what} IS NOT NULL ORDER BY ALL LIMIT {PLACES}"  # noqa: S608 - our own words
    return [value for (value,) in engine.rows(sql)]


def overview(lease: SnapshotLease, _: OfNothing) -> wire.OverviewAnswer:
    snapshot = lease.snapshot()
    engine = snapshot.engine
    lost = [
        from_row(wire.MissingFacts, (*row, BECAUSE.get(row[1], row[1])))
        for row in engine.rows(_MISSING)
    ]
    by_source: dict[str, list[wire.MissingFacts]] = {}
    for each in lost:
        by_source.setdefault(each.source, []).append(each)
    sources = []
    for source, *counts, last_time in engine.rows(_SOURCES):
        if source != OWN_SOURCE:
            lacks = by_source.get(cut(source), [])
            missing = sum(each.missing for each in lacks), any(each.unknown for each in lacks)
            sources.append(from_row(wire.SourceFacts, (source, *counts, *missing, last_time)))
    worst = streams_of(lease, OfStreams(limit=WORST))
    return wire.OverviewAnswer(
        version=snapshot.version,
        whole=whole(snapshot.whole(EVERYTHING)),
        missing=lost,
        worst=[each for each in worst if each.missing or each.completeness is None],
        sources=sources,
    )


_SEARCHED = """(
  contains(lower(concat_ws(chr(31), source, format, session, stream, state)), lower(?))
  OR (source, session) IN (
    SELECT source, session FROM part.session_names
    WHERE contains(lower(concat_ws(chr(31), process, host, file, labels ->> '$')), lower(?)))
  OR (source, session, stream) IN (
    SELECT source, session, stream FROM part.thread_names WHERE contains(lower(thread), lower(?)))
)"""

_STREAMS = ", ".join(wire.Stream.__struct_fields__[:-2])

_SESSIONS = f"""
SELECT {", ".join(wire.ShownSession.__struct_fields__[:-1])}
FROM sessions AS s LEFT JOIN (SELECT source, session, begins, ends FROM part.session_times) AS t USING (source, session)
WHERE {{}} ORDER BY source, opened, session LIMIT {{}}
"""  # noqa: S608 - our own words

SESSIONS_MAX = 10_000


def streams(lease: SnapshotLease, asked: OfStreams) -> wire.Streams:
    snapshot = lease.snapshot()
    found = snapshot.whole(Scope.of(asked.selection))
    condition = _matching(asked)
    counting = f"SELECT count(*) FROM streams WHERE {condition.sql}"  # noqa: S608 - our own words
    ((total,),) = snapshot.engine.rows(counting, condition.values)
    return wire.Streams(
        version=snapshot.version,
        whole=whole(found),
        total=total,
        offset=asked.offset,
        streams=streams_of(lease, asked),
    )


def streams_of(lease: SnapshotLease, asked: OfStreams) -> list[wire.Stream]:
    """Return a part of the list of streams. In both sort orders, unknown values come last."""
    condition = _matching(asked)
    direction = "DESC" if asked.descending else "ASC"
    sql = (
        f"SELECT {_STREAMS} FROM streams WHERE {condition.sql}"  # noqa: S608 - our own words
        f' ORDER BY "{asked.sort}" {direction} NULLS LAST, source, session, stream LIMIT ? OFFSET ?'
    )
    rows = lease.snapshot().engine.rows(sql, (*condition.values, asked.limit, asked.offset))
    names = lease.names()
    found = []
    for source, format_, session, stream, *rest in rows:
        titles = (
            names.session(source, session),
            names.thread(source, session, stream, format_).title,
        )
        found.append(from_row(wire.Stream, (source, format_, session, stream, *rest, *titles)))
    return found


def sessions(lease: SnapshotLease, asked: OfSessions) -> wire.Sessions:
    snapshot = lease.snapshot()
    found = snapshot.whole(Scope.of(asked.selection))
    condition = asked.selection.condition
    sql = _SESSIONS.format(condition.sql.replace("(session,", "(s.session,"), SESSIONS_MAX)
    return wire.Sessions(
        version=snapshot.version,
        whole=whole(found),
        sessions=[
            from_row(wire.ShownSession, (*row, lease.names().session(row[0], row[2])))
            for row in snapshot.engine.rows(sql, condition.values)
        ],
    )


def names(lease: SnapshotLease, _: OfNothing) -> wire.NameList:
    found = lease.names()
    return wire.NameList(
        version=lease.snapshot().version,
        sessions=[
            from_row(wire.SessionNames, (*each, found.session(each.source, each.session)))
            for each in islice(found.sessions, SESSIONS_MAX)
        ],
    )


def _matching(asked: OfStreams) -> RowCondition:
    search = [RowCondition(_SEARCHED, (asked.search,) * 3)] if asked.search else []
    return all_of([asked.selection.condition, *search])


def gaps(lease: SnapshotLease, asked: OfGaps) -> wire.Gaps:
    """Serve the gaps that may lie within a range of time. A gap whose time is unknown may lie within any range."""
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = gaps_within(lease, asked)
    within.sort(key=lambda each: (each.begin is not None, each.begin or 0))
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(within),
        gaps=[_gap(each) for each in within[: asked.limit]],
    )


def next_gap(lease: SnapshotLease, asked: OfNextGap) -> wire.Gaps:
    """Serve the first gap that begins after a time or, with `backwards`, the last one before it, if there is one."""
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = gaps_within(lease, asked)
    if asked.axis:
        sessions = lease.timeline().on(asked.axis)
        within = [each for each in within if each.gap.place[:2] in sessions]
    begins = [(each.begin, each) for each in within if each.begin is not None]
    compare, nearest = (lt, max) if asked.backwards else (gt, min)
    there = [pair for pair in begins if compare(pair[0], asked.after)]
    chosen = nearest(there, key=itemgetter(0), default=None)
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(there),
        gaps=[] if chosen is None else [_gap(chosen[1])],
    )


def _gap(each: PlacedGap) -> wire.ShownGap:
    return from_attributes(
        wire.ShownGap, each.gap, begins=each.begin, ends=each.end, placed=each.placed
    )


def notes(lease: SnapshotLease, _: OfNothing) -> wire.NoteList:
    kept = lease.stores[0].notes
    found = kept.list()
    return wire.NoteList(
        version=lease.snapshot().version,
        notes=[from_attributes(wire.NoteFacts, note) for note in found.notes],
        refused=kept.refused,
        unreadable=found.unreadable,
    )


def add(lease: SnapshotLease, asked: NewNote) -> wire.NoteList:
    store = lease.stores[0]
    since, until = sorted((asked.from_, asked.to))
    given = structs.asdict(asked) | {"from_": since, "to": until}
    store.notes.add(Note(made=store.clock.wall_ns(), **given))
    return notes(lease, OfNothing())


def remove(lease: SnapshotLease, asked: OldNote) -> wire.NoteList:
    if not lease.stores[0].notes.remove(asked.id):
        raise UnknownError(f"there is no note {asked.id!r}")
    return notes(lease, OfNothing())
