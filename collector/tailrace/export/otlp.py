"""Write the OpenTelemetry protocol (OTLP) as JSON lines, with one file for each kind of telemetry.

The file that the user names has the spans, and each gap as a span LOST with the status error. The file `logs` has
instants, annotations, ends without a begin, and users' notes; `metrics` has counters. Each session is one resource and
one trace, but a span with ids of W3C Trace Context as attributes keeps these ids. An open span has its begin time as
its end time, and the attribute `tailrace.open`. OpenTelemetry's time 0 means unknown: time 0 is written as 1, with the
attribute `tailrace.begins` or `tailrace.ends`.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from tailrace import __version__
from tailrace.export.drawn_rows import DrawnRows, Item, Lane
from tailrace.export.lost import Lost, lost
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected
from tailrace.query.names import ProgramNames
from tailrace.query.views import SPANS
from tailrace.store.notes import Note
from tailrace.timeline import SessionClock

LINE_RECORDS = 1000
"""Maximum number of telemetry records (spans, log records or metrics) in one line of an output file."""

ERROR = 2
_KINDS = {"SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES = {"OK": 1, "ERROR": ERROR}
_INTERNAL = 1

_UNLINKED = ("heph",)
"""Formats without ids of their own for parent spans. In these formats, spans may have ids of W3C Trace Context as
attributes."""
_IDS = {
    "traceId": ("trace_id", re.compile("(?!0{32})[0-9a-f]{32}")),
    "spanId": ("span_id", re.compile("(?!0{16})[0-9a-f]{16}")),
    "parentSpanId": ("parent_id", re.compile("(?!0{16})[0-9a-f]{16}")),
}
"""For each id of a span in OTLP, the name of the attribute that has the id, and the pattern of valid ids."""

DEEPEST = 16
"""Maximum number of levels of nested values in an attribute; deeper values are JSON text. Readers of protocol
buffers refuse more than 100 nested messages, and each level takes up to three."""

_SHARED = """
SELECT source, session, id FROM spans WHERE id IS NOT NULL AND ({}) GROUP BY ALL HAVING count(*) > 1
"""
"""SQL for the ids that several spans of one session share. No unique span id can be derived from such an id."""

_NOTES = SessionClock("notes", "", "")
"""An invented session, the OpenTelemetry resource of all notes of users."""
_SCOPE = {"name": "tailrace", "version": __version__}

Object = dict[str, Any]


def write(selected: Selected, output: Output, progress: RowCount) -> Left:
    timeline = DrawnRows(selected, progress)
    spans = TelemetryLines(output.main(), timeline, "resourceSpans", "scopeSpans", "spans")
    logs = TelemetryLines(
        output.beside("logs"), timeline, "resourceLogs", "scopeLogs", "logRecords"
    )
    metrics = TelemetryLines(
        output.beside("metrics"), timeline, "resourceMetrics", "scopeMetrics", "metrics"
    )
    chosen = selected.condition(SPANS)
    shared = set(selected.few(_SHARED.format(chosen.sql), chosen.values))
    lane: Lane | None = None
    thread: Object = {}
    for number, item in enumerate(timeline.items()):
        session = item.lane.session
        if item.lane is not lane:
            lane, thread = item.lane, _thread(timeline.names, item.lane)
        values = item.values() if item.kind == "counter" else {}
        if item.is_span:
            named = item.id if (session.source, session.session, item.id) not in shared else None
            id_ = _span_id(session, *(("row", number) if named is None else ("id", named)))
            spans.add(session, _span(item, id_, thread))
        elif not values:
            logs.add(session, _log(item, thread))
        for name, value in values.items():
            metrics.add(session, _metric(item, name, value, thread))
    for number, each in enumerate(lost(timeline)):
        spans.add(each.session, _lost(each, number))
    for note in timeline.notes:
        logs.add(_NOTES, _noted(note))
    for lines in (spans, logs, metrics):
        lines.end()
    return timeline.left


class TelemetryLines:
    """Collects telemetry records of one kind. It writes the records of one session as one line."""

    def __init__(self, out: BinaryIO | None, timeline: DrawnRows, *levels: str) -> None:
        self._out = out
        self._names = timeline.names
        self._missing = timeline.selected.whole.text
        self._levels = levels
        self._session: SessionClock | None = None
        self._records: list[Object] = []

    def add(self, session: SessionClock, record: Object) -> None:
        if self._session is not session or len(self._records) == LINE_RECORDS:
            self.end()
            self._session = session
        self._records.append(record)

    def end(self) -> None:
        if self._session is None or self._out is None or not self._records:
            return
        resources, scopes, records = self._levels
        line = {
            resources: [
                {
                    "resource": {"attributes": _attributes(self._about(self._session))},
                    scopes: [{"scope": _SCOPE, records: self._records}],
                }
            ]
        }
        self._out.write(msgspec.json.encode(line) + b"\n")
        self._records = []

    def _about(self, session: SessionClock) -> Object:
        process = self._names.process(session.source, session.session)
        names = process.names
        labels = {f"tailrace.label.{name}": value for name, value in names.label_values.items()}
        return {
            "service.name": names.process or session.source,
            "service.instance.id": session.session,
            "process.pid": process.pid,
            "host.name": names.host,
            "tailrace.source": session.source,
            "tailrace.process": process.title,
            "tailrace.node": names.node,
            "tailrace.rank": names.rank,
            "tailrace.job": names.job,
            "tailrace.format": session.format,
            "tailrace.peer": session.peer,
            "tailrace.clock": session.clock_words,
            "tailrace.missing": self._missing,
        } | labels


def _span(item: Item, id_: str, thread: Object) -> Object:
    session = item.lane.session
    own = {"tailrace.open": True} if item.open else {}
    members = item.members()
    end = item.begin if item.end is None else item.end
    span = {
        "traceId": _trace_id(session),
        "spanId": id_,
        "name": item.name,
        "kind": _KINDS.get(str(members.get("otel.kind")), _INTERNAL),
        "startTimeUnixNano": _time(item.begin),
        "endTimeUnixNano": _time(end),
        "attributes": _attributes(thread | members | _ours(item) | own | _at_zero(item.begin, end)),
    }
    if item.parent is not None:
        span["parentSpanId"] = _span_id(session, "id", item.parent)
    if code := _STATUSES.get(str(members.get("otel.status"))):
        span["status"] = {"code": code, "message": str(members.get("otel.status_description", ""))}
    return span | (_given_ids(members) if session.format in _UNLINKED else {})


def _given_ids(members: Object) -> Object:
    """Return the valid ids of W3C Trace Context among the attributes of a span. Without a trace id, return an empty dict."""
    found = {
        id_: members[name]
        for id_, (name, valid) in _IDS.items()
        if isinstance(members.get(name), str) and valid.fullmatch(members[name])
    }
    return found if "traceId" in found else {}


def _lost(each: Lost, number: int) -> Object:
    words = {f"tailrace.{name}": value for name, value in each.members.items()}
    return {
        "traceId": _trace_id(each.session),
        "spanId": _span_id(each.session, "lost", number),
        "name": each.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _time(each.begin),
        "endTimeUnixNano": _time(each.end),
        "attributes": _attributes({"tailrace.stream": each.stream} | words),
        "status": {"code": ERROR, "message": each.name},
    }


def _log(item: Item, thread: Object) -> Object:
    log = {
        "timeUnixNano": _time(item.begin),
        "observedTimeUnixNano": _time(item.begin),
        "eventName": item.name,
        "body": {"stringValue": item.name},
        "attributes": _attributes(thread | item.members() | _ours(item) | _at_zero(item.begin)),
    }
    if item.parent is not None:
        log["traceId"] = _trace_id(item.lane.session)
        log["spanId"] = _span_id(item.lane.session, "id", item.parent)
    return log


def _noted(note: Note) -> Object:
    about = {name: getattr(note, name) for name in ("source", "session", "stream")}
    return {
        "timeUnixNano": _time(note.from_),
        "observedTimeUnixNano": _time(note.made),
        "eventName": "note",
        "body": {"stringValue": note.text},
        "attributes": _attributes(
            {f"tailrace.{name}": value for name, value in about.items()}
            | {"tailrace.to": note.to}
            | _at_zero(note.from_)
        ),
    }


def _metric(item: Item, name: str, value: float, thread: Object) -> Object:
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    point = {
        "timeUnixNano": _time(item.begin),
        "asInt" if whole else "asDouble": str(value) if whole else float(value),
        "attributes": _attributes(thread | _ours(item) | _at_zero(item.begin)),
    }
    return {"name": name, "gauge": {"dataPoints": [point]}}


def _time(nanoseconds: int) -> str:
    return str(max(nanoseconds, 1))


def _at_zero(begin: int, end: int = 1) -> Object:
    """Return attributes that mark a begin or an end at time 0, which means unknown in OpenTelemetry."""
    times = {"tailrace.begins": begin, "tailrace.ends": end}
    return {name: time for name, time in times.items() if time == 0}


def _thread(names: ProgramNames, lane: Lane) -> Object:
    """Return the attributes that name the thread of a lane, in formats with a stream for each thread."""
    session = lane.session
    thread = names.thread(session.source, session.session, lane.stream, session.format)
    return {"thread.id": thread.tid, "thread.name": thread.title} if thread.tid else {}


def _ours(item: Item) -> Object:
    return {
        "tailrace.kind": item.kind,
        "tailrace.stream": item.lane.stream,
        "tailrace.substream": item.lane.substream,
        "tailrace.seq": item.seq,
        "tailrace.id": item.id,
        "tailrace.parent": item.parent,
        "tailrace.category": item.category,
    }


def _trace_id(session: SessionClock) -> str:
    return blake2b(f"{session.source}\0{session.session}".encode(), digest_size=16).hexdigest()


def _span_id(session: SessionClock, kind: str, number: int) -> str:
    """Return a span id. If `kind` is `id`, `number` is the span's id in the table, to which the span's children
    refer."""
    named = f"{session.source}\0{session.session}\0{kind}\0{number}"
    return blake2b(named.encode(), digest_size=8).hexdigest()


def _attributes(values: Object, level: int = 0) -> list[Object]:
    return [
        {"key": name, "value": _value(value, level)}
        for name, value in values.items()
        if value is not None
    ]


def _value(value: object, level: int) -> Object:
    """Return a JSON value in OpenTelemetry's encoding. A 64-bit integer becomes an `intValue`."""
    found: Object = {}
    match value:
        case list() | dict() if level == DEEPEST:
            found["stringValue"] = msgspec.json.encode(value).decode()
        case list():
            found["arrayValue"] = {"values": [_value(each, level + 1) for each in value]}
        case dict():
            found["kvlistValue"] = {"values": _attributes(value, level + 1)}
        case bool():
            found["boolValue"] = value
        case float():
            found["doubleValue"] = value
        case int() if -(2**63) <= value < 2**63:
            found["intValue"] = str(value)
        case None:
            pass
        case _:
            found["stringValue"] = str(value)
    return found
