"""Write Chrome's JSON trace format (see `drawing` for the layout of tracks).

Times are microseconds with three decimals, relative to `otherData.base_unix_ns`. Viewers read times as doubles. Times
since 1970 would lose their nanoseconds, and viewers would drop slices. Slices are pairs of begin and end events,
because rounded durations could make slices overlap.
"""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import msgspec

from tailrace.export.drawing import Details, DrawnProcess, DrawnThread, TrackIds, draw
from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected


def write(selected: Selected, output: Output, progress: RowCount) -> Left:
    timeline = DrawnRows(selected, progress)
    out = output.main()
    trace = ChromeTrace(out, timeline.first, TrackIds(timeline.names.pids))
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    draw(timeline, trace)
    about = selected.whole.words | timeline.asked
    words = {
        "base_unix_ns": timeline.first,
        "missing": selected.whole.text,
        "completeness": about,
        "left_out": dict(timeline.left),
    }
    out.write(b'\n],"otherData":' + msgspec.json.encode(words) + b"}\n")
    return timeline.left


class ChromeTrack(NamedTuple):
    """A track of the trace. `ids` are the source, the session and the stream of a track that belongs to a stream."""

    pid: int
    tid: int
    name: str = ""
    ids: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


class ChromeTrace:
    """A `Canvas` that writes Chrome's JSON trace format, one JSON object a line. A track is an index into `_tracks`."""

    def __init__(self, out: BinaryIO, base: int, ids: TrackIds) -> None:
        self._out = out
        self._base = base
        self._ids = ids
        self._tracks: list[ChromeTrack] = []
        self._first = True

    def summary(self, name: str) -> int:
        return self._process(name)

    def process(self, process: DrawnProcess) -> int:
        number = self._process(process.title, process.names.pid)
        self._say(number, "process_labels", {"labels": "; ".join(process.labels)})
        self._say(number, "process_sort_index", {"sort_index": process.names.number})
        return number

    def thread(self, process: int, thread: DrawnThread) -> int:
        session, pid = thread.session, self._tracks[process].pid
        ids = {"source": session.source, "session": session.session, "stream": thread.stream}
        number = self._ids.thread(pid, thread.names.tid)
        return self._thread(ChromeTrack(pid, number, thread.names.title, ids))

    def track(self, parent: int, name: str) -> int:
        of = self._tracks[parent]
        number = self._ids.thread(of.pid)
        return self._thread(of._replace(tid=number, name=f"{of.name} {name}".lstrip()))

    def counter(self, parent: int, name: str) -> int:
        of = self._tracks[parent]
        self._tracks.append(of._replace(name=f"{name} ({of.name})"))
        return len(self._tracks) - 1

    def begin(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._event("B", track, time, _named(name, category) | {"args": of})

    def end(self, track: int, time: int) -> None:
        self._event("E", track, time, {})

    def instant(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._event("i", track, time, _named(name, category) | {"s": "t", "args": of})

    def count(self, track: int, time: int, value: float) -> None:
        name = self._tracks[track].name
        self._event("C", track, time, {"name": name, "args": {"value": value}})

    def _process(self, name: str, pid: int | None = None) -> int:
        number = self._ids.process(pid)
        self._tracks.append(ChromeTrack(number, self._ids.thread(number)))
        self._say(len(self._tracks) - 1, "process_name", {"name": name})
        return len(self._tracks) - 1

    def _thread(self, made: ChromeTrack) -> int:
        track = len(self._tracks)
        self._tracks.append(made)
        self._say(track, "thread_name", {"name": made.name} | made.ids)
        self._say(track, "thread_sort_index", {"sort_index": track})
        return track

    def _say(self, track: int, what: str, words: Details) -> None:
        self._line({"ph": "M", "name": what, "args": words} | self._place(track))

    def _event(self, phase: str, track: int, time: int, words: Details) -> None:
        whole, rest = divmod(time - self._base, 1000)
        micros = msgspec.Raw(b"%d.%03d" % (whole, rest) if rest else b"%d" % whole)
        self._line({"ph": phase, "ts": micros} | self._place(track) | words)

    def _place(self, track: int) -> Details:
        of = self._tracks[track]
        return {"pid": of.pid, "tid": of.tid}

    def _line(self, event: Details) -> None:
        comma, self._first = b"" if self._first else b",\n", False
        self._out.write(comma + msgspec.json.encode(event))


def _named(name: str, category: str | None) -> Details:
    return {"name": name} if category is None else {"name": name, "cat": category}
