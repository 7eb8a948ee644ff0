"""Draw a timeline: rows as slices, instants and counters on tracks, and gaps on separate tracks.

- Each process has a title that names it (`query.names`), and each stream is a thread of its process. Each substream has
  a separate track.
- Each stream with gaps has a track LOST EVENTS; for gaps whose stream is unknown, each process has one.
- An open span has a begin and no end. Ends without a begin, annotations, and counters without a number are instants.
- One instant on a separate track describes all missing events. Users' notes are on one more track.

Viewers require that the slices of a track nest, so spans that overlap get further tracks (`Nesting`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from tailrace.export.drawn_rows import DrawnRows, Item, Lane
from tailrace.export.lost import lost
from tailrace.query.names import ProcessNames, ProgramNames, ThreadNames
from tailrace.timeline import DEEPEST, SessionClock

_NEVER = 2**63


class Track:
    """The end times of the open spans on one track (innermost last), and the time of the latest begin or end."""

    __slots__ = ("ends", "latest")

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.latest = 0


class Nesting:
    """Distributes the spans of one lane (a stream or substream) over tracks, so that the spans of a track nest.
    Spans must come ordered by begin, and the longer span first if two begin together."""

    __slots__ = ("_tracks",)

    def __init__(self) -> None:
        self._tracks: list[Track] = []

    def begin(self, begin: int, end: int | None) -> tuple[int, list[tuple[int, int]]]:
        """Put the next span on a track; `end` is None if the end of the span is unknown. Return the number of the
        track, and the spans that end before the new one begins, as pairs of track number and end time."""
        ends = _NEVER if end is None else end
        ended: list[tuple[int, int]] = []
        for number, track in enumerate(self._tracks):
            if begin < track.latest:
                continue
            stack = track.ends
            while stack and stack[-1] <= begin:
                track.latest = stack.pop()
                ended.append((number, track.latest))
            if not stack or (ends <= stack[-1] and len(stack) < DEEPEST):
                break
        else:
            number, track = len(self._tracks), Track()
            self._tracks.append(track)
        track.ends.append(ends)
        track.latest = begin
        return number, ended

    def rest(self) -> Iterator[tuple[int, int]]:
        """Yield the spans that are still on a track, as pairs of track number and end time. On each track, the
        innermost span comes first. Leave out spans whose end is unknown."""
        for number, track in enumerate(self._tracks):
            for end in reversed(track.ends):
                if end != _NEVER:
                    yield number, end


Details = dict[str, Any]

SUMMARY = "what is missing from this export"
NOTES = "notes"


class DrawnProcess(NamedTuple):
    """A process to draw. `title` begins with the source, `clock` names the format and the clock, and `facts` has all
    other facts by name."""

    title: str
    clock: str
    facts: dict[str, str]
    names: ProcessNames

    @property
    def labels(self) -> list[str]:
        return [self.clock, *(f"{name} {value}" for name, value in self.facts.items())]


class DrawnThread(NamedTuple):
    """A stream to draw below its process."""

    names: ThreadNames
    session: SessionClock
    stream: str


class TrackIds:
    """Assigns unique numbers to processes and threads, for formats that need them as ids. A process or thread keeps its
    own id, unless another one has the same id; then it gets the next free number."""

    def __init__(self, pids: set[int]) -> None:
        """`pids` are the process ids that are exported unchanged, because each belongs to only one process."""
        self._pids = pids
        self._taken: set[int] = set()
        self._last = 0

    def process(self, pid: int | None = None) -> int:
        return pid if pid is not None and pid in self._pids else self._free()

    def thread(self, pid: int, tid: int | None = None) -> int:
        """Return the number of a thread of the process with the number `pid`."""
        if tid is None or tid in self._taken or (tid in self._pids and tid != pid):
            return self._free()
        self._taken.add(tid)
        return tid

    def _free(self) -> int:
        self._last += 1
        while self._last in self._taken or self._last in self._pids:
            self._last += 1
        self._taken.add(self._last)
        return self._last


class Canvas(Protocol):
    """A writer of one trace format, which draws events on tracks. The begins and ends on one track must nest."""

    def summary(self, name: str) -> int:
        """Create a track for the whole export, which belongs to no session, and return it."""

    def process(self, process: DrawnProcess) -> int:
        """Create the track of a process, and return it."""

    def thread(self, process: int, thread: DrawnThread) -> int:
        """Create a track for a stream of the process with the track `process`, and return it."""

    def track(self, parent: int, name: str) -> int:
        """Create a further track below the track of a stream or process, and return it."""

    def counter(self, parent: int, name: str) -> int:
        """Create a track for the values of a counter below the track `parent`, and return it."""

    def begin(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        """Begin a slice of a track at `time` (ns). `of` has the attributes of the slice."""

    def end(self, track: int, time: int) -> None:
        """End the innermost slice of a track at `time` (ns)."""

    def instant(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:
        """Draw an event without a duration on a track at `time` (ns). `of` has the event's attributes."""

    def count(self, track: int, time: int, value: float) -> None:
        """Set the value of the counter that `track` shows, from `time` (ns) on."""


def draw(timeline: DrawnRows, canvas: Canvas) -> None:
    whole = timeline.selected.whole
    canvas.instant(
        canvas.summary(SUMMARY), timeline.first, whole.text, None, whole.words | timeline.asked
    )
    threads = Threads(canvas, timeline.names)
    for lane, items in groupby(timeline.items(), attrgetter("lane")):
        drawn = DrawnLane(canvas, threads, lane)
        for item in items:
            drawn.add(item)
        drawn.slices.finish()
    for (session, stream), gaps in groupby(lost(timeline), attrgetter("session", "stream")):
        parent = threads.thread(session, stream) if stream else threads.process(session)
        slices = Slices(canvas, parent, "LOST EVENTS")
        for gap in gaps:
            slices.add(gap.begin, gap.end, gap.name, "lost", gap.members)
        slices.finish()
    if timeline.notes:
        _draw_notes(timeline, canvas)


def _draw_notes(timeline: DrawnRows, canvas: Canvas) -> None:
    track = canvas.summary(NOTES)
    slices = Slices(canvas, track, NOTES, track)
    for note in timeline.notes:
        of = {
            name: value
            for name in ("source", "session", "stream")
            if (value := getattr(note, name))
        }
        if note.from_ == note.to:
            canvas.instant(track, note.from_, note.text, "note", of)
        else:
            slices.add(note.from_, note.to, note.text, "note", of)
    slices.finish()


class Threads:
    """The tracks of the processes and streams in a drawing. Each track is created when it is first needed."""

    def __init__(self, canvas: Canvas, names: ProgramNames) -> None:
        self._canvas = canvas
        self._names = names
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[str, str, str], int] = {}

    def process(self, session: SessionClock) -> int:
        found = self._names.process(session.source, session.session)
        title = f"{session.source} · {found.title}"
        if title not in self._processes:
            clock = f"{session.format}; {session.clock_words}"
            names = found.names
            facts = {
                "from": found.directory or session.peer,
                "host": names.host,
                "node": names.node,
                "job": names.job,
                **{f"label {name}": str(value) for name, value in names.label_values.items()},
                "session": found.session,
            }
            known = {name: value for name, value in facts.items() if value is not None}
            drawn = DrawnProcess(title, clock, known, found)
            self._processes[title] = self._canvas.process(drawn)
        return self._processes[title]

    def thread(self, session: SessionClock, stream: str) -> int:
        key = (session.source, session.session, stream)
        if key not in self._threads:
            drawn = DrawnThread(self._names.thread(*key, session.format), session, stream)
            self._threads[key] = self._canvas.thread(self.process(session), drawn)
        return self._threads[key]


class Slices:
    """Draws slices below a parent track, on several tracks if necessary, so that the slices on each track nest."""

    def __init__(self, canvas: Canvas, parent: int, name: str, first: int | None = None) -> None:
        """Use the track `first` as the first track. If it is None, create a track called `name` when one is needed."""
        self._canvas = canvas
        self._parent = parent
        self._name = name
        self._tracks = [] if first is None else [first]
        self._nesting = Nesting()

    def track(self, number: int = 0) -> int:
        """Return the track with a number. Create the track if it is the next one."""
        if number == len(self._tracks):
            name = f"{self._name} overlapping {number}".lstrip() if number else self._name
            self._tracks.append(self._canvas.track(self._parent, name))
        return self._tracks[number]

    def add(
        self, begin: int, end: int | None, name: str, category: str | None, of: Details
    ) -> None:
        number, ended = self._nesting.begin(begin, end)
        for other, time in ended:
            self._canvas.end(self._tracks[other], time)
        self._canvas.begin(self.track(number), begin, name, category, of)

    def finish(self) -> None:
        for number, time in self._nesting.rest():
            self._canvas.end(self._tracks[number], time)


class DrawnLane:
    def __init__(self, canvas: Canvas, threads: Threads, lane: Lane) -> None:
        self._canvas = canvas
        self._thread = threads.thread(lane.session, lane.stream)
        self._name = "" if lane.substream is None else f"substream {lane.substream}"
        first = None if self._name else self._thread
        self.slices = Slices(canvas, self._thread, self._name, first)
        self._counters: dict[str, int] = {}

    def add(self, item: Item) -> None:
        values = item.values() if item.kind == "counter" else {}
        for name, value in values.items():
            if name not in self._counters:
                shown = f"{name} {self._name}" if self._name else name
                self._counters[name] = self._canvas.counter(self._thread, shown)
            self._canvas.count(self._counters[name], item.begin, value)
        if item.is_span:
            self.slices.add(item.begin, item.end, item.name, item.category, _members(item))
        elif not values:
            track = self.slices.track()
            self._canvas.instant(track, item.begin, item.name, item.category, _members(item))


def _members(item: Item) -> Details:
    members = item.members()
    for name, value in (("seq", item.seq), ("id", item.id), ("parent", item.parent)):
        if value is not None:
            members.setdefault(name, value)
    if not item.is_span and item.kind != "instant":
        members.setdefault("kind", item.kind)
    return members
