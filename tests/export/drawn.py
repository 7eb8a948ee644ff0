"""Read drawn exports back with readers of other projects, and ask the same questions in SQL."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from decimal import Decimal
from typing import NamedTuple

from tests.query.asking import ask

SUMMARY = "what is missing from this export"
LATEST = 2**63 - 1
"""The latest time that is drawn; the earliest is 0."""


class Drawn(NamedTuple):
    """A drawn event. `length` is None for an open span. Slices named LOST have the kind lost."""

    source: str
    session: str
    stream: str
    kind: str
    name: str
    begin: int
    length: int | None


class Track(NamedTuple):
    """A stream of a session, or the track of a gap of no known stream, whose stream is ""."""

    source: str
    session: str
    stream: str = ""


_IDS = re.compile("source (.*); session (.*); stream (.*)", re.DOTALL)


def of_perfetto(path) -> Counter[Drawn]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    tracks, parents, names = {}, {}, {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            names[track.uuid] = track.name
            if track.HasField("process"):
                labels = "; ".join(track.process.process_labels)
                tracks[track.uuid] = _process(track.process.process_name, labels)
            elif track.HasField("thread"):
                tracks[track.uuid] = Track(*_IDS.fullmatch(track.description).groups())
            if track.parent_uuid:
                parents[track.uuid] = track.parent_uuid
    words = {TrackEvent.TYPE_SLICE_BEGIN: "B", TrackEvent.TYPE_SLICE_END: "E",
             TrackEvent.TYPE_INSTANT: "i", TrackEvent.TYPE_COUNTER: "C"}  # fmt: skip
    events = []
    texts, categories = {}, {}
    for packet in trace.packet:
        if packet.sequence_flags & 1:
            texts, categories = {}, {}
        texts |= {each.iid: each.name for each in packet.interned_data.event_names}
        categories |= {each.iid: each.name for each in packet.interned_data.event_categories}
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        line = [event.track_uuid]
        while line[-1] in parents:
            line.append(parents[line[-1]])
        place = next((tracks[each] for each in line if each in tracks), None)
        category = categories[event.category_iids[0]] if event.category_iids else None
        counter = names[event.track_uuid] if event.type == TrackEvent.TYPE_COUNTER else None
        name = texts[event.name_iid] if event.name_iid else counter
        events.append(
            (event.track_uuid, place or _alone(names[line[-1]]), words[event.type], packet.timestamp, name, category)
        )  # fmt: skip
    return _matched(events)


def of_chrome(path) -> Counter[Drawn]:
    trace = json.loads(path.read_bytes(), parse_float=Decimal)
    base = trace["otherData"]["base_unix_ns"]
    processes, labels, threads = {}, {}, {}
    for event in trace["traceEvents"]:
        pid, its = event["pid"], event.get("args", {})
        match event["ph"] == "M" and event["name"]:
            case "process_name":
                processes[pid] = its["name"]
            case "process_labels":
                labels[pid] = its["labels"]
            case "thread_name" if "stream" in its:
                threads[pid, event["tid"]] = Track(its["source"], its["session"], its["stream"])
    events = []
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            continue
        place = event["pid"], event["tid"]
        nanoseconds = Decimal(event["ts"]) * 1000
        assert nanoseconds == int(nanoseconds)
        name = event.get("name")
        if event["ph"] == "C":
            name = name.rpartition(" (")[0]
        process = processes[event["pid"]]
        track = threads.get(place) or (
            _process(process, labels[event["pid"]]) if event["pid"] in labels else _alone(process)
        )
        events.append((place, track, event["ph"], base + int(nanoseconds), name, event.get("cat")))
    return _matched(events)


def of_otlp(path) -> Counter[Drawn]:
    """Read each line as the message that it contains. Protobuf's own JSON reader refuses unknown fields."""
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    found = Counter()
    ids = set()

    def words(attributes):
        return {
            each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes
        }

    def add(resource, attributes, kind, name, begin, length):
        about, its = words(resource.attributes), words(attributes)
        place = about["tailrace.source"], about["service.instance.id"], its["tailrace.stream"]
        found[Drawn(*place, kind, name, begin, length)] += 1

    for line in path.read_bytes().splitlines():
        for each in Parse(_hex_as_base64(line), TracesData()).resource_spans:
            for span in each.scope_spans[0].spans:
                its = words(span.attributes)
                is_open = its.get("tailrace.open") is True
                kind = "lost" if span.status.code else "span"
                length = None if is_open else span.end_time_unix_nano - span.start_time_unix_nano
                begin = its.get("tailrace.begins", span.start_time_unix_nano)
                if not is_open and kind == "span":
                    length = its.get("tailrace.ends", span.end_time_unix_nano) - begin
                assert span.start_time_unix_nano > 0
                add(each.resource, span.attributes, kind, span.name, begin, length)
                assert (span.trace_id, span.span_id) not in ids
                ids.add((span.trace_id, span.span_id))
    for line in path.with_name(f"{path.stem}.logs{path.suffix}").read_bytes().splitlines():
        for each in Parse(_hex_as_base64(line), LogsData()).resource_logs:
            for log in each.scope_logs[0].log_records:
                begin = words(log.attributes).get("tailrace.begins", log.time_unix_nano)
                add(each.resource, log.attributes, "instant", log.event_name, begin, 0)
    for line in path.with_name(f"{path.stem}.metrics{path.suffix}").read_bytes().splitlines():
        for each in Parse(line, MetricsData()).resource_metrics:
            for metric in each.scope_metrics[0].metrics:
                (point,) = metric.gauge.data_points
                begin = words(point.attributes).get("tailrace.begins", point.time_unix_nano)
                add(each.resource, point.attributes, "counter", metric.name, begin, 0)
    return found


READERS = {"perfetto": of_perfetto, "chrome": of_chrome, "otlp": of_otlp}


def _hex_as_base64(line):
    """OpenTelemetry writes ids in hexadecimal, where the JSON form of protocol buffers has base64."""
    import base64

    def walk(value):
        if isinstance(value, dict):
            return {
                k: base64.b64encode(bytes.fromhex(v)).decode()
                if k in {"traceId", "spanId", "parentSpanId"}
                else walk(v)
                for k, v in value.items()
            }
        return [walk(each) for each in value] if isinstance(value, list) else value

    return json.dumps(walk(json.loads(line)))


def _process(name, labels):
    """Return the place of a gap of no known stream: the label of its process names the session."""
    return Track(name.partition(" · ")[0], re.search("(?:^|; )session ([^;]*)", labels)[1])


def _alone(name):
    """Return the place of what belongs to no session: the summary and users' notes."""
    return Track(name, "")


def _matched(events) -> Counter[Drawn]:
    """Match begins with their ends, in the order of time as a viewer sorts them. Equal times keep their order."""
    found = Counter()
    stacks = defaultdict(list)
    for place, track, phase, time, name, category in sorted(events, key=lambda each: each[3]):
        if track.source == SUMMARY:
            continue
        source, session, stream = track
        if phase == "B":
            kind = "lost" if category == "lost" else "span"
            stacks[place].append((source, session, stream, kind, name, time))
        elif phase == "E":
            *about, begin = stacks[place].pop()
            found[Drawn(*about, begin, time - begin)] += 1
        else:
            kind = {"i": "instant", "C": "counter"}[phase]
            found[
                Drawn(source, session, stream, kind, name.removesuffix(" substream 4"), time, 0)
            ] += 1
    for stack in stacks.values():
        for *about, begin in stack:
            found[Drawn(*about, begin, None)] += 1
    return found


PLACED = """
WITH clock AS (
  SELECT source, session, opened, coalesce(run, session) AS run, epoch,
    CASE WHEN part.ticks_ns(0, 0, ticks_per_second) IS NOT NULL THEN ticks_per_second END AS rate,
    coalesce(clock_offset, 0) AS shift
  FROM sessions
),
drawn AS (
  SELECT source, session, stream, 'span' AS kind, name, start, "end", open, time, aligned, attributes FROM spans
  UNION ALL
  SELECT source, session, stream, kind, name, start, "end", false, time, aligned, attributes FROM events
  WHERE kind IN ('instant', 'counter', 'annotation', 'end')
),
zero AS (
  SELECT source, run, min(CASE WHEN rate > 0 THEN part.ticks_ns(aligned, 0, rate) ELSE aligned END) AS first
  FROM (
    SELECT d.*, c.run, c.rate FROM drawn AS d JOIN clock AS c USING (source, session)
    WHERE c.epoch IS NULL OR NOT coalesce(c.rate > 0, false)
  )
  WHERE time IS NULL AND start IS NOT NULL
  GROUP BY ALL
),
arrival AS (SELECT source, run, min(opened) AS opened FROM clock GROUP BY ALL),
placed AS (
  SELECT d.*, c.rate,
    coalesce(time, CASE
      WHEN start IS NULL AND c.epoch IS NOT NULL AND c.rate > 0 THEN part.ticks_ns("end", c.epoch, c.rate)
      WHEN c.epoch IS NOT NULL AND c.rate > 0 THEN NULL
      ELSE a.opened::HUGEINT - z.first + CASE WHEN c.rate > 0
        THEN part.ticks_ns(coalesce(aligned, "end" + c.shift), 0, c.rate)
        ELSE coalesce(aligned, "end" + c.shift) END
    END) AS begins
  FROM drawn AS d JOIN clock AS c USING (source, session)
  LEFT JOIN zero AS z ON z.source = d.source AND z.run = c.run
  LEFT JOIN arrival AS a ON a.source = d.source AND a.run = c.run
  WHERE start IS NOT NULL OR kind = 'end'
)
SELECT source, session, stream, kind, name, begins, open::INTEGER,
  CASE WHEN rate > 0 THEN part.ticks_ns("end", 0, rate)::HUGEINT - part.ticks_ns(start, 0, rate)
    ELSE "end"::HUGEINT - start END,
  attributes
FROM placed WHERE begins IS NOT NULL
"""


def asked(store) -> Counter[Drawn]:
    """Return everything of a store that must be drawn except its gaps, by the views alone."""
    found = Counter()
    for source, session, stream, kind, name, begin, is_open, length, attributes in ask(
        store, PLACED
    ):
        if not 0 <= begin <= LATEST:
            continue
        place = source, session, stream
        shown = f"({kind} without a name)" if name is None else name
        if kind == "span":
            found[Drawn(*place, "span", shown, begin, _cut(length, begin, is_open))] += 1
            continue
        values = _values(shown, attributes) if kind == "counter" else []
        for value in values:
            found[Drawn(*place, "counter", value, begin, 0)] += 1
        if not values:
            found[Drawn(*place, "instant", shown, begin, 0)] += 1
    return found


def _cut(length, begin, is_open):
    return None if is_open else min(max(length, 0), LATEST - begin)


def _values(name, attributes):
    try:
        members = json.loads(attributes or "{}")
    except ValueError:
        return []
    if not isinstance(members, dict):
        return []
    if _is_number(members.get("value")):
        return [name]
    return [f"{name}.{k}" for k, v in members.get("args", {}).items() if _is_number(v)]


def _is_number(value):
    return isinstance(value, int | float) and abs(value) != float("inf")


def gaps_asked(store):
    """Return the gaps by session and stream, with the minimum number of missing events."""
    return Counter(
        {
            (
                source,
                session,
                stream,
                f"LOST {'an unknown number' if n is None else n} ({reason})",
            ): count
            for source, session, stream, reason, n, count in ask(
                store,
                "SELECT source, session, stream, reason, remaining, count(*) FROM gaps GROUP BY ALL",
            )
        }
    )
