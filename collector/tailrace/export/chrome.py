"""Write Chrome's JSON trace format (see `drawing` for the layout of tracks).

Times are microseconds with three decimals, relative to `otherData.base_unix_ns`. Viewers read times as doubles. Times
since 1970 would lose their nanoseconds, and viewers would drop slices. Slices are pairs of begin and end events,
because rounded durations could make slices overlap.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from tailrace.export.drawing import Details, draw
from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.output import Output, RowCount
from tailrace.export.selected import Left, Selected
from tailrace.timeline import SessionClock


def write(selected: Selected, output: Output, progress: RowCount) -> Left:
    timeline = DrawnRows(selected, progress)
    out = output.main()
    trace = ChromeTrace(out, timeline.first)
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


class ChromeTrace:
    """A `Canvas` that writes Chrome's JSON trace format, one JSON object a line. A track is an index into `_tracks`,
    whose items are process id, thread id and name."""

    def __init__(self, out: BinaryIO, base: int) -> None:
        self._out = out
        self._base = base
        self._tracks: list[tuple[int, int, str]] = []
        self._first = True

    def summary(self, name: str) -> int:
        return self._process(name)

    def process(self, session: SessionClock) -> int:
        number = self._process(f"{session.source} {session.session}")
        words = [session.format, session.clock_words, *([session.peer] if session.peer else [])]
        self._say(number, "process_labels", {"labels": "; ".join(words)})
        return number

    def thread(self, process: int, name: str) -> int:
        return self._thread(self._tracks[process][0], name)

    def track(self, parent: int, name: str) -> int:
        pid, _, beside = self._tracks[parent]
        return self._thread(pid, f"{beside} {name}".lstrip())

    def counter(self, parent: int, name: str) -> int:
        pid, tid, beside = self._tracks[parent]
        self._tracks.append((pid, tid, f"{name} ({beside})"))
        return len(self._tracks) - 1

    def begin(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._event("B", track, time, _named(name, category) | {"args": of})

    def end(self, track: int, time: int) -> None:
        self._event("E", track, time, {})

    def instant(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        self._event("i", track, time, _named(name, category) | {"s": "t", "args": of})

    def count(self, track: int, time: int, value: float) -> None:
        name = self._tracks[track][2]
        self._event("C", track, time, {"name": name, "args": {"value": value}})

    def _process(self, name: str) -> int:
        number = len(self._tracks)
        self._tracks.append((number + 1, number + 1, ""))
        self._say(number, "process_name", {"name": name})
        return number

    def _thread(self, pid: int, name: str) -> int:
        number = len(self._tracks)
        self._tracks.append((pid, number + 1, name))
        self._say(number, "thread_name", {"name": name})
        self._say(number, "thread_sort_index", {"sort_index": number})
        return number

    def _say(self, track: int, what: str, words: Details) -> None:
        self._line({"ph": "M", "name": what, "args": words} | self._place(track))

    def _event(self, phase: str, track: int, time: int, words: Details) -> None:
        whole, rest = divmod(time - self._base, 1000)
        micros = msgspec.Raw(b"%d.%03d" % (whole, rest) if rest else b"%d" % whole)
        self._line({"ph": phase, "ts": micros} | self._place(track) | words)

    def _place(self, track: int) -> Details:
        pid, tid, _ = self._tracks[track]
        return {"pid": pid, "tid": tid}

    def _line(self, event: Details) -> None:
        comma, self._first = b"" if self._first else b",\n", False
        self._out.write(comma + msgspec.json.encode(event))


def _named(name: str, category: str | None) -> Details:
    return {"name": name} if category is None else {"name": name, "cat": category}
