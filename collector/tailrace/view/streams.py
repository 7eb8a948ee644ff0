"""Streams and sessions: pages of the views of these names."""

from __future__ import annotations

from typing import Any

from tailrace.query.completeness import Scope
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection, all_of
from tailrace.view import wire
from tailrace.view.answering import cut, decimal, members, shown, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfSessions, OfStreams

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
