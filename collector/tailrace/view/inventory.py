"""Show what a store has: its sources, sessions, streams, gaps and notes, and what is missing from it."""

from __future__ import annotations

from typing import Any, Literal

from tailrace import __version__
from tailrace.analysis.statistics import COLUMNS, FIGURES
from tailrace.clock import Clock
from tailrace.config.schema import OWN_SOURCE
from tailrace.errors import UnknownError
from tailrace.export import WRITERS
from tailrace.query.completeness import EVERYTHING, MISSING, Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection, all_of
from tailrace.query.views import VIEWS
from tailrace.rollups.gaps import PlacedGap
from tailrace.store.notes import Note
from tailrace.view import wire
from tailrace.view.answers import cut, decimal, members, shown, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import (
    NewNote,
    OfGaps,
    OfNextGap,
    OfNothing,
    OfSelection,
    OfSessions,
    OfStreams,
    OldNote,
)
from tailrace.view.sql import LIMITS, ROWS

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


_SEARCHED = "contains(lower(concat_ws(chr(31), source, format, session, stream, state)), lower(?))"

_STREAMS = (
    "source, format, session, stream, first_seq, last_seq, events, missing, completeness, first_time, last_time,"
    " open_spans, state, silent_since"
)

_SESSIONS = """
SELECT s.source, s.format, s.session, s.opened, s.closed, s.closed_at, s.continues, s.peer, s.transport, s.run,
  s.clock, s.ticks_per_second, s.epoch, s.clock_offset, s.producer, s.totals, s.rows, s.events, s.missing, s.unknown,
  s.state, t.begins, t.ends
FROM sessions AS s LEFT JOIN part.session_times AS t USING (source, session)
WHERE {} ORDER BY source, opened, session LIMIT {}
"""

SESSIONS_MAX = 10_000


def streams(turn: DeskTurn, asked: OfStreams) -> wire.Streams:
    snapshot = turn.snapshot()
    selection = _selection(asked)
    found = snapshot.whole(Scope.of(selection))
    condition = _matching(asked)
    counting = f"SELECT count(*) FROM streams WHERE {condition.sql}"  # noqa: S608 - our own words
    ((total,),) = snapshot.engine.rows(counting, condition.values)
    return wire.Streams(
        version=snapshot.version,
        whole=whole(found),
        total=total,
        offset=asked.offset,
        streams=streams_of(snapshot.engine, asked),
    )


def streams_of(engine: Engine, asked: OfStreams) -> list[wire.Stream]:
    """Return a page of the streams. Whatever is unknown comes last, in either direction of sorting by it."""
    condition = _matching(asked)
    direction = "DESC" if asked.descending else "ASC"
    sql = (
        f"SELECT {_STREAMS} FROM streams WHERE {condition.sql}"  # noqa: S608 - our own words
        f' ORDER BY "{asked.sort}" {direction} NULLS LAST, source, session, stream LIMIT ? OFFSET ?'
    )
    return [
        _stream(*row) for row in engine.rows(sql, (*condition.values, asked.limit, asked.offset))
    ]


def sessions(turn: DeskTurn, asked: OfSessions) -> wire.Sessions:
    snapshot = turn.snapshot()
    selection = _selection(asked)
    found = snapshot.whole(Scope.of(selection))
    condition = selection.condition
    sql = _SESSIONS.format(condition.sql.replace("(session,", "(s.session,"), SESSIONS_MAX)
    return wire.Sessions(
        version=snapshot.version,
        whole=whole(found),
        sessions=[_session(*row) for row in snapshot.engine.rows(sql, condition.values)],
    )


def _selection(asked: OfStreams | OfSessions) -> Selection:
    return Selection(tuple(asked.source) or None, tuple(asked.session) or None, job=asked.places)


def _matching(asked: OfStreams) -> RowCondition:
    conditions = [_selection(asked).condition]
    if asked.search:
        conditions.append(RowCondition(_SEARCHED, (asked.search,)))
    return all_of(conditions)


def _stream(source: str, format_: str, session: str, stream: str, *rest: Any) -> wire.Stream:  # noqa: ANN401 - a row
    first_seq, last_seq, events, missing, completeness, first, last, open_spans, state, silent = (
        rest
    )
    return wire.Stream(
        source=cut(source),
        format=cut(format_),
        session=cut(session),
        stream=cut(stream),
        first_seq=decimal(first_seq),
        last_seq=decimal(last_seq),
        events=events,
        missing=missing,
        completeness=completeness,
        first_time=decimal(first),
        last_time=decimal(last),
        open_spans=open_spans,
        state=state,
        silent_since=decimal(silent),
    )


def _session(source: str, format_: str, session: str, *rest: Any) -> wire.ShownSession:  # noqa: ANN401 - a row
    opened, closed, closed_at, continues, peer, transport, run, clock, rate, *more = rest
    epoch, offset, producer, totals, rows, events, missing, unknown, state, begins, ends = more
    return wire.ShownSession(
        source=cut(source),
        format=cut(format_),
        session=cut(session),
        opened=decimal(opened),
        closed=shown(closed),
        closed_at=decimal(closed_at),
        continues=shown(continues),
        peer=shown(peer),
        transport=shown(transport),
        run=shown(run),
        clock=shown(clock),
        ticks_per_second=rate,
        epoch=decimal(epoch),
        clock_offset=decimal(offset),
        producer=members(producer),
        totals=members(totals),
        rows=rows,
        events=events,
        missing=missing,
        unknown=unknown,
        state=state,
        begins=decimal(begins),
        ends=decimal(ends),
    )


def gaps(turn: DeskTurn, asked: OfGaps) -> wire.Gaps:
    """Return the gaps that may lie within the times; one whose place nobody knows lies within any."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = _within(turn, asked)
    within.sort(key=lambda each: (each.begin is not None, each.begin or 0))
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(within),
        gaps=[_gap(each) for each in within[: asked.limit]],
    )


def next_gap(turn: DeskTurn, asked: OfNextGap) -> wire.Gaps:
    """Return the gap that begins next after a time, or before it; none if there is none."""
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    within = _within(turn, asked)
    if asked.axis:
        sessions = turn.timeline().on(asked.axis)
        within = [each for each in within if each.gap.place[:2] in sessions]
    begins = [(each.begin, each) for each in within if each.begin is not None]
    if asked.backwards:
        there = [(begin, each) for begin, each in begins if begin < asked.after]
        chosen = max(there, key=lambda pair: pair[0], default=None)
    else:
        there = [(begin, each) for begin, each in begins if begin > asked.after]
        chosen = min(there, key=lambda pair: pair[0], default=None)
    return wire.Gaps(
        version=snapshot.version,
        whole=whole(found),
        total=len(there),
        gaps=[] if chosen is None else [_gap(chosen[1])],
    )


def _within(turn: DeskTurn, asked: OfSelection) -> list[PlacedGap]:
    """Return the gaps that may concern what is selected."""
    placed = asked.placed(turn.snapshot().engine)
    return [
        each
        for each in turn.timeline().gaps
        if asked.concerns(*each.gap.place, placed) and _overlaps(each, asked.from_, asked.to)
    ]


def _overlaps(each: PlacedGap, since: int | None, until: int | None) -> bool:
    if each.begin is None or each.end is None:
        return True
    return (since is None or each.end >= since) and (until is None or each.begin < until)


def _gap(each: PlacedGap) -> wire.ShownGap:
    gap = each.gap
    return wire.ShownGap(
        source=cut(gap.source),
        format=cut(gap.format),
        session=cut(gap.session),
        stream=cut(gap.stream),
        reason=cut(gap.reason),
        detail=shown(gap.detail),
        first=decimal(gap.first),
        last=decimal(gap.last),
        remaining=gap.remaining,
        of=shown(gap.of),
        id=decimal(gap.id),
        begins=decimal(each.begin),
        ends=decimal(each.end),
        placed=each.placed,
    )


def notes(turn: DeskTurn, _: OfNothing) -> wire.NoteList:
    kept = turn.shelves[0].notes
    found = kept.list()
    return wire.NoteList(
        version=turn.snapshot().version,
        notes=[_facts(note) for note in found.notes],
        refused=kept.refused,
        unreadable=found.unreadable,
    )


def add(turn: DeskTurn, asked: NewNote) -> wire.NoteList:
    shelf = turn.shelves[0]
    shelf.notes.add(_note(asked, shelf.clock))
    return notes(turn, OfNothing())


def remove(turn: DeskTurn, asked: OldNote) -> wire.NoteList:
    if not turn.shelves[0].notes.remove(asked.id):
        raise UnknownError(f"there is no note {asked.id!r}")
    return notes(turn, OfNothing())


def _note(asked: NewNote, clock: Clock) -> Note:
    return Note(
        made=clock.wall_ns(),
        from_=min(asked.from_, asked.to),
        to=max(asked.from_, asked.to),
        text=asked.text,
        source=asked.source,
        session=asked.session,
        stream=asked.stream,
    )


def _facts(note: Note) -> wire.NoteFacts:
    return wire.NoteFacts(
        id=note.id,
        made=str(note.made),
        from_=str(note.from_),
        to=str(note.to),
        text=cut(note.text),
        source=cut(note.source),
        session=cut(note.session),
        stream=cut(note.stream),
    )
