"""Write an archive of OTF2, which Vampir and other viewers of HPC traces open (see `drawing` for the layout of
tracks).

A process is a location group below its node or host, and a track is a location. A slice is a pair of an enter event and
a leave event of a region. A gap is a region whose name begins with LOST, during which measurement is off. An instant is
a region without a duration, at a location of its own, so that the events of each location are in order of time.
Attributes are not written.
"""

from __future__ import annotations

from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.errors import ExportError
from tailrace.export.drawing import Details, DrawnProcess, DrawnThread, draw
from tailrace.export.drawn_rows import DrawnRows
from tailrace.export.output import Directory, RowCount
from tailrace.export.selected import Left, Selected

if TYPE_CHECKING:
    from types import ModuleType

NANOSECONDS = 10**9
BUFFER = 256 * 2**10
"""Size (bytes) of the memory buffer of one location, the minimum that the library `otf2` accepts."""

LOST = "lost"
"""Category of the slices that stand for missing events (gaps)."""

_LACKS = "OTF2 needs the package otf2: python -m pip install 'tailrace[otf2]'"


def write(selected: Selected, output: Directory, progress: RowCount) -> Left:
    """Write the archive `traces.otf2` into the output directory. Raise ExportError if the package `otf2` is missing."""
    try:
        otf2 = import_module("otf2")
    except ImportError as error:
        raise ExportError(_LACKS) from error
    timeline = DrawnRows(selected, progress)
    with otf2.writer.open(
        str(output.place("traces.otf2").parent),
        chunk_size_events=BUFFER,
        timer_resolution=NANOSECONDS,
    ) as archive:
        trace = Otf2Trace(otf2, archive)
        draw(timeline, trace)
        trace.finish()
    return timeline.left


class GroupTrack(NamedTuple):
    """The location group and the name of a track, whose location is created with its first event."""

    group: Any
    name: str


class Otf2Trace:
    """An implementation of `Canvas` that writes an OTF2 archive. A track is an index into the list `_tracks`."""

    def __init__(self, otf2: ModuleType, archive: Any) -> None:  # noqa: ANN401 - the library has no types
        self._modes = otf2.MeasurementMode
        self._archive = archive
        self._root = archive.definitions.system_tree_node("tailrace")
        self._nodes: dict[str, Any] = {}
        self._tracks: list[GroupTrack] = []
        self._writers: dict[tuple[int, str], Any] = {}
        self._titles: set[tuple[Any, str]] = set()
        self._named: set[tuple[Any, str]] = set()
        self._regions: dict[str, Any] = {}
        self._metrics: dict[int, Any] = {}
        self._inside: dict[int, list[tuple[Any, bool]]] = {}
        self._latest: dict[int, int] = {}

    def summary(self, name: str) -> int:
        return self._add(
            self._archive.definitions.location_group(name, system_tree_parent=self._root), name
        )

    def process(self, process: DrawnProcess) -> int:
        definitions, place = self._archive.definitions, process.names.names.place
        if place is not None and place not in self._nodes:
            self._nodes[place] = definitions.system_tree_node(_text(place), "node", self._root)
        group = definitions.location_group(
            _text(f"{process.title} ({process.clock})"),
            system_tree_parent=self._root if place is None else self._nodes[place],
        )
        for name, value in process.facts.items():
            definitions.location_group_property(
                group, _text(f"TAILRACE::{name}"), value=_text(value)
            )
        return self._add(group, "")

    def thread(self, process: int, thread: DrawnThread) -> int:
        group, title = self._tracks[process].group, thread.names.title
        if (group, title) in self._titles:
            title = f"{title} · {thread.stream}"
        self._titles.add((group, title))
        return self._add(group, title)

    def track(self, parent: int, name: str) -> int:
        of = self._tracks[parent]
        return self._add(of.group, f"{of.name} {name}".strip())

    def counter(self, parent: int, name: str) -> int:
        number = self.track(parent, name)
        self._metrics[number] = self._archive.definitions.metric(_text(name), unit="1")
        return number

    def begin(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:  # noqa: ARG002 - attributes have no place
        region, lost = self._region(name), category == LOST
        writer = self._writer(track)
        writer.enter(time, region)
        if lost:
            writer.measurement_on_off(time, self._modes.OFF)
        self._inside.setdefault(track, []).append((region, lost))
        self._latest[track] = time

    def end(self, track: int, time: int) -> None:
        region, lost = self._inside[track].pop()
        writer = self._writer(track)
        if lost:
            writer.measurement_on_off(time, self._modes.ON)
        writer.leave(time, region)
        self._latest[track] = time

    def instant(self, track: int, time: int, name: str, category: str | None, of: Details) -> None:  # noqa: ARG002 - attributes have no place
        writer, region = self._writer(track, " instants"), self._region(name)
        writer.enter(time, region)
        writer.leave(time, region)

    def count(self, track: int, time: int, value: float) -> None:
        self._writer(track).metric(time, self._metrics[track], float(value))

    def finish(self) -> None:
        for track, inside in self._inside.items():
            while inside:
                self.end(track, self._latest[track])

    def _add(self, group: Any, name: str) -> int:  # noqa: ANN401 - the library has no types
        self._tracks.append(GroupTrack(group, _text(name)))
        return len(self._tracks) - 1

    def _writer(self, track: int, beside: str = "") -> Any:  # noqa: ANN401 - the library has no types
        key = (track, beside)
        if key not in self._writers:
            of = self._tracks[track]
            name = f"{of.name}{beside}"
            # The library returns the same writer for two locations with the same group and the same name. Give each
            # location a name of its own, because events of different tracks may overlap in time.
            for number in count(2):
                if (of.group, name) not in self._named:
                    break
                name = f"{of.name}{beside} ({number})"
            self._named.add((of.group, name))
            self._writers[key] = self._archive.event_writer(name, group=of.group)
        return self._writers[key]

    def _region(self, name: str) -> Any:  # noqa: ANN401 - the library has no types
        if name not in self._regions:
            self._regions[name] = self._archive.definitions.region(_text(name))
        return self._regions[name]


def _text(text: str) -> str:
    """Return a text with a visible character in place of each NUL, at which the library would cut the text off."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
