"""Measure the answers to a page's zooms and pans over a large store."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlencode

from benchmarks.inputs import spans
from benchmarks.options import Options
from benchmarks.places import CACHE
from benchmarks.processes.usage import Watch, cpu_seconds
from benchmarks.results import Case, Role, Run, Side
from benchmarks.suite.benchmark import Benchmark
from tests.program import COMMAND
from tests.view.viewer import Viewer

PAGE_LANES = 40
"""Number of lanes that a page requests: those in sight, and one screen above and below."""
PAGE_PIXELS = 2200
"""Width (pixels) that a page of 1,280 pixels requests: the part in sight, and half as much on both sides."""
ALL_PIXELS = 1500

FACTOR = 4
NARROWEST = 1000
"""Length (ns) of the last window of a zoom."""
PANS = (0.5, -0.9)
"""Moves after each zoom, in widths of the window."""

BANDS = (10**10, 10**8, 10**6, 0)
"""Lower bounds (ns) of the lengths of windows that form one case."""
_ALL = "all steps"


class Asked(NamedTuple):
    """The question that one kind of reader asks at each step."""

    name: str
    lanes: int | None
    pixels: int


READERS = (
    Asked("the page", PAGE_LANES, PAGE_PIXELS),
    Asked("all lanes", None, ALL_PIXELS),
)


class Step(NamedTuple):
    """The answer to a step: the length of its window (ns), its duration, and the CPU time of the viewer."""

    length: int
    seconds: float
    cpu: float


class Reader:
    """Asks a viewer over one connection, as a page does."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._connection = HTTPConnection(viewer.host, viewer.port, timeout=600)
        lanes = [each for each in self._get("lanes", ())["lanes"] if each["first"] is not None]
        self.begin = min(int(each["first"]) for each in lanes)
        self.end = max(int(each["last"]) for each in lanes)
        names = ("source", "session", "stream", "substream")
        self._lanes = [json.dumps([each[name] for name in names]) for each in lanes]

    def step(self, begin: int, length: int, asked: Asked) -> Step:
        """Request a frame of the timeline."""
        window = [("from", begin), ("to", begin + length), ("pixels", asked.pixels)]
        lanes = self._lanes[: asked.lanes or 0]
        cpu, begun = cpu_seconds(self._viewer.pid), time.monotonic()
        self._get("frame", [*window, *(("lanes", lane) for lane in lanes)])
        return Step(length, time.monotonic() - begun, cpu_seconds(self._viewer.pid) - cpu)

    def close(self) -> None:
        self._connection.close()

    def _get(self, path: str, parameters: Sequence[tuple[str, object]]) -> Any:  # noqa: ANN401 - JSON
        query = f"/api/v1/{path}?{urlencode(parameters)}"
        headers = {"Authorization": f"Bearer {self._viewer.token}"}
        self._connection.request("GET", query, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {body[:500]!r}")
        return json.loads(body) if path != "frame" else None


def windows(begin: int, end: int, chosen: random.Random) -> Iterator[tuple[int, int]]:
    """Yield the windows of a zoom from the whole range into one place, as begins and lengths."""
    length, place = end - begin, chosen.randrange(begin, end)
    while length >= NARROWEST:
        for pan in (0.0, *PANS):
            at = place - length // 2 + int(pan * length) + chosen.randrange(length // 100 + 1)
            yield min(max(at, begin - length // 2), end - length // 2), length
        length //= FACTOR


def store_of(options: Options) -> Path:
    """Return a store with the given number of spans, merged and with roll-ups.

    Use an existing one if it was made before.
    """
    source = hashlib.sha256(inspect.getsource(spans).encode()).hexdigest()[:10]
    home = CACHE / f"spans-{options.spans}-{source}"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as directory:
            store = Path(directory) / "store"
            spans.write(store, spans.Shape(options.spans))
            subprocess.run([*COMMAND, "upkeep", "--all", "--store", str(store)], check=True)
            shutil.move(store, home)
    return home


@contextmanager
def viewed(options: Options) -> Iterator[Viewer]:
    viewer = Viewer("--store", store_of(options))
    try:
        yield viewer
    finally:
        viewer.end()


def zoom(options: Options) -> list[Case]:
    """Measure the steps of each kind of reader. Each run has a viewer of its own."""
    found = {asked: [_case(asked, band) for band in (_ALL, *map(_words, BANDS))] for asked in READERS}  # fmt: skip
    for number in range(options.runs):
        for asked, cases in found.items():
            print(f"  {asked.name}, {number + 1} of {options.runs}", flush=True)
            with viewed(options) as viewer, closing(Reader(viewer)) as reader:
                steps, resident = _steps(reader, viewer, asked, options.zooms, seed=number)
            for case, band in zip(cases, (None, *BANDS), strict=True):
                if some := [each for each in steps if band is None or _band(each.length) == band]:
                    case.sides[0].runs.append(_run(some, resident))
    return [case for cases in found.values() for case in cases if case.sides[0].runs]


def _steps(
    reader: Reader, viewer: Viewer, asked: Asked, zooms: int, seed: int
) -> tuple[list[Step], int]:
    """Zoom to several places. Return the maximum memory, and all steps after the first one, which opens the files."""
    chosen = random.Random(seed)
    reader.step(reader.begin, reader.end - reader.begin, asked)
    with Watch(viewer.pid) as watch:
        steps = [
            reader.step(begin, length, asked)
            for _ in range(zooms)
            for begin, length in windows(reader.begin, reader.end, chosen)
        ]
    return steps, watch.usage.resident


def _run(steps: Sequence[Step], resident: int) -> Run:
    seconds = sorted(each.seconds for each in steps)
    cpu = statistics.median(each.cpu for each in steps)
    last = len(seconds) - 1
    return {"step50": seconds[last // 2], "step99": seconds[last * 99 // 100], "step": cpu, "resident": resident}  # fmt: skip


def _case(asked: Asked, band: str) -> Case:
    lanes = "all lanes" if asked.lanes is None else f"{asked.lanes} lanes"
    does = f"`tailrace view`, asked for frames of {lanes} and {asked.pixels} pixels"
    side = Side(name="Tailrace", role=Role.OURS, does=does, runs=[])
    return Case(label=f"{asked.name}, {band}", sides=[side])


def _band(length: int) -> int:
    return next(band for band in BANDS if length >= band)


def _words(band: int) -> str:
    return {10**10: "10 s and more", 10**8: "0.1 to 10 s", 10**6: "1 to 100 ms", 0: "below 1 ms"}[band]  # fmt: skip


_STORE = (
    "A store of two hundred million spans (`--spans`) of 20 sessions with 8 streams each, with gaps, counters and open "
    "spans, written by the store's own writer, merged and given roll-ups by `tailrace upkeep --all`."
)

BENCHMARKS = {
    "zoom": Benchmark(
        "Zooming",
        f"{_STORE} A reader zooms from the whole range into {Options().zooms} places, by a factor of {FACTOR}, down to a microsecond, "
        "and moves twice after each zoom. A step is from the request until the last byte of the answer, over HTTP.",
        zoom,
    ),
}
