"""Write OpenTelemetry's protocol as JSON lines, one kind of telemetry a file, as its file exporter does.

The named file has the spans, and each gap as a span LOST with the status error; its neighbour `logs` has
instants, annotations, ends without a begin, and notes; `metrics` has the values of counters. A resource is a
session, whose attribute `tailrace.clock` says what its times are. A session is one trace. OpenTelemetry has
no open spans: one ends where it begins, and its attribute `tailrace.open` is true.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from tailrace import __version__
from tailrace.export.clocks import SessionClock
from tailrace.export.lost import Lost, lost
from tailrace.export.output import Output
from tailrace.export.progress import RowCount
from tailrace.export.selected import Left, Selected
from tailrace.export.timeline import DrawnRows, Item
from tailrace.store.notes import Note

LINE_RECORDS = 1000
"""Records of one session that share a line at most."""

ERROR = 2
_NOTES = SessionClock("notes", "", "")
"""The resource of what people wrote."""
_SCOPE = {"name": "tailrace", "version": __version__}

Object = dict[str, Any]


def write(selected: Selected, output: Output, progress: RowCount) -> Left:
    timeline = DrawnRows(selected, progress)
    missing = selected.whole.text
    spans = TelemetryLines(output.main(), missing, "resourceSpans", "scopeSpans", "spans")
    beside = {word: output.beside(word) for word in ("logs", "metrics")}
    logs = TelemetryLines(beside["logs"], missing, "resourceLogs", "scopeLogs", "logRecords")
    metrics = TelemetryLines(
        beside["metrics"], missing, "resourceMetrics", "scopeMetrics", "metrics"
    )
    for number, item in enumerate(timeline.items()):
        session = item.lane.session
        values = item.values() if item.kind == "counter" else {}
        if item.is_span:
            spans.add(session, _span(item, number))
        elif not values:
            logs.add(session, _log(item))
        for name, value in values.items():
            metrics.add(session, _metric(item, name, value))
    for number, each in enumerate(lost(timeline)):
        spans.add(each.session, _lost(each, number))
    for note in timeline.notes:
        logs.add(_NOTES, _noted(note))
    for lines in (spans, logs, metrics):
        lines.end()
    return timeline.left


class TelemetryLines:
    """Records of one kind of telemetry, collected to lines."""

    def __init__(self, out: BinaryIO | None, missing: str, *levels: str) -> None:
        self._out = out
        self._missing = missing
        self._levels = levels
        self._session: SessionClock | None = None
        self._records: list[Object] = []

    def add(self, session: SessionClock, record: Object) -> None:
        if self._session is not session or len(self._records) == LINE_RECORDS:
            self.end()
            self._session = session
        self._records.append(record)

    def end(self) -> None:
        """Write the records that wait."""
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
        return {
            "service.name": session.source,
            "service.instance.id": session.session,
            "tailrace.format": session.format,
            "tailrace.peer": session.peer,
            "tailrace.clock": session.clock_words,
            "tailrace.missing": self._missing,
        }


def _span(item: Item, number: int) -> Object:
    session = item.lane.session
    own = {"tailrace.open": True} if item.open else {}
    end = item.begin if item.end is None else item.end
    span = {
        "traceId": _trace_id(session),
        "spanId": _span_id(session, "row", number)
        if item.id is None
        else _span_id(session, "id", item.id),
        "name": item.name,
        "kind": 1,
        "startTimeUnixNano": str(item.begin),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(item.members() | _ours(item) | own),
    }
    if item.parent is not None:
        span["parentSpanId"] = _span_id(session, "id", item.parent)
    return span


def _lost(each: Lost, number: int) -> Object:
    words = {f"tailrace.{name}": value for name, value in each.members.items()}
    return {
        "traceId": _trace_id(each.session),
        "spanId": _span_id(each.session, "lost", number),
        "name": each.name,
        "kind": 1,
        "startTimeUnixNano": str(each.begin),
        "endTimeUnixNano": str(each.end),
        "attributes": _attributes({"tailrace.stream": each.stream} | words),
        "status": {"code": ERROR, "message": each.name},
    }


def _log(item: Item) -> Object:
    log = {
        "timeUnixNano": str(item.begin),
        "observedTimeUnixNano": str(item.begin),
        "eventName": item.name,
        "body": {"stringValue": item.name},
        "attributes": _attributes(item.members() | _ours(item)),
    }
    if item.parent is not None:
        log["traceId"] = _trace_id(item.lane.session)
        log["spanId"] = _span_id(item.lane.session, "id", item.parent)
    return log


def _noted(note: Note) -> Object:
    about = {name: getattr(note, name) for name in ("source", "session", "stream")}
    return {
        "timeUnixNano": str(note.from_),
        "observedTimeUnixNano": str(note.made),
        "eventName": "note",
        "body": {"stringValue": note.text},
        "attributes": _attributes(
            {f"tailrace.{name}": value for name, value in about.items()} | {"tailrace.to": note.to}
        ),
    }


def _metric(item: Item, name: str, value: float) -> Object:
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    point = {
        "timeUnixNano": str(item.begin),
        "asInt" if whole else "asDouble": str(value) if whole else float(value),
        "attributes": _attributes(_ours(item)),
    }
    return {"name": name, "gauge": {"dataPoints": [point]}}


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
    """Return the id of a span: of one with an id, what others say of it as their parent."""
    named = f"{session.source}\0{session.session}\0{kind}\0{number}"
    return blake2b(named.encode(), digest_size=8).hexdigest()


def _attributes(values: Object) -> list[Object]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: object) -> Object:
    """Return a value of JSON as OpenTelemetry spells it: whole numbers of 64 bits as text, others as strings."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, float):
        return {"doubleValue": value}
    fits = isinstance(value, int) and -(2**63) <= value < 2**63
    return {"intValue" if fits else "stringValue": str(value)}
