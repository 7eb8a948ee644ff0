"""Measure what a person waits for on the timeline: the first drawing of a store, and each step of zooming and moving.

Chromium shows the page. Each run also compares what the page got with SQL, and fails if they differ or if the browser
prints a message.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.inputs import spans
from benchmarks.options import Options
from benchmarks.places import CACHE
from benchmarks.results import Case, Role, Run, Side
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.zoom import store_of
from tests.query.tables import ask, clocked, gap, make, row, session
from tests.view.viewer import Viewer

FRESH = 12_800_000
SOURCES = 200
RANKS = 64
FORMATS = ("heph", "jets", "ovni", "dftracer", "et3")
EPOCH = 1_790_000_000_000_000_000
YEARS = 6 * 365 * 86_400 * 10**9
MILLISECOND = 10**6

KEYS = (*["+"] * 8, "ArrowRight", "ArrowLeft", "-", "0")
"""The keys that a run presses again and again: zoom in, move, zoom out, and show everything."""
ASKED_SECONDS = 0.15
"""Time after the press of a key within which the page requests what it lacks."""
DRAWN_SECONDS = 60.0
SUMMED_SECONDS = 300.0

TOGETHER_MILLISECONDS = 5
STEP = f"""
({{ pressed, quiet }}) => {{
  const asked = performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/v1/frame?') && each.startTime >= pressed);
  if (!asked.length && !quiet) return null;
  const first = Math.min(...asked.map((each) => each.startTime));
  const answers = asked.filter((each) => each.startTime < first + {TOGETHER_MILLISECONDS}).map((each) => each.responseEnd);
  const needed = Math.max(pressed, ...answers);
  const drawn = performance.getEntriesByName('tailrace.draw').map((each) => each.startTime + each.duration);
  const after = drawn.filter((each) => each > needed);
  const settled = performance.now() > needed + 1000 ? drawn.slice(-1) : [];
  return after.length ? Math.min(...after) - pressed : settled.length ? settled[0] - pressed : null;
}}
"""
"""Return the time (ms) from the press of a key to the first drawing after the answer to what the press requested, or null
if nothing is drawn yet. A window is requested in pieces at once. Later requests follow news of the store. If the answer
changed nothing, it is the time to the last drawing. Without a request (`quiet`), the page has all that the step shows."""
FORGET = """
() => {
  performance.clearResourceTimings();
  performance.clearMeasures('tailrace.draw');
  return performance.now();
}
"""


class Store(NamedTuple):
    """A store to look at. If it is `fresh`, nothing was prepared before the page opens."""

    label: str
    path: Path
    fresh: bool


def looking(options: Options) -> list[Case]:
    """Measure the first drawing and the steps of each store, with a viewer and a browser of its own in each run."""
    cases: list[Case] = []
    with TemporaryDirectory(dir=_cache()) as directory:
        for store in _stores(options, Path(directory)):
            side = Side(
                name="the page in Chromium",
                role=Role.OURS,
                does="reads and draws what is in sight",
                runs=[],
            )
            cases.append(Case(label=store.label, sides=[side]))
            if find_spec("playwright") is None or shutil.which("chromium") is None:
                side.absent = "make dev && apt-get install chromium"
                continue
            for number in range(options.runs):
                print(f"  {store.label}, {number + 1} of {options.runs}", flush=True)
                side.runs.append(_run(store, len(KEYS) * options.zooms))
    return cases


def _cache() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


def _stores(options: Options, directory: Path) -> Iterator[Store]:
    fresh = min(FRESH, options.spans)
    spans.write(directory / "fresh", spans.Shape(fresh))
    yield Store(f"{fresh} spans straight after import", directory / "fresh", fresh=True)
    yield Store(f"{options.spans} spans with roll-ups", store_of(options), fresh=False)
    path = make(directory / "sources", list(_sources()))
    yield Store(f"{SOURCES} sources of all formats, six years apart", Path(path), fresh=True)
    path = make(directory / "ranks", list(_ranks()))
    yield Store(f"a job of {RANKS} ranks", Path(path), fresh=True)


def _sources() -> Iterator[dict[str, Any]]:
    """Yield the rows of sources of which half ran years before the others. Every tenth lacks events."""
    for number in range(SOURCES):
        place = {
            "source": f"source {number:03}",
            "format": FORMATS[number % len(FORMATS)],
            "session": f"s{number}",
        }
        yield clocked(epoch=EPOCH - YEARS * (number % 2), **place)
        yield from _steps(200, random.Random(number), place, lost=7 if number % 10 == 0 else 0)


def _ranks() -> Iterator[dict[str, Any]]:
    """Yield the rows of a job on eight nodes. One rank lacks events."""
    for rank in range(RANKS):
        place = {"session": f"s{rank:02}"}
        where = {"rank": rank, "node": f"n{rank // 8}", "job": "7", "process": f"solver {rank}"}
        yield clocked(epoch=EPOCH, **place)
        yield session("tailrace.session", session=place["session"], **where)
        yield from _steps(400, random.Random(rank), place, lost=9 if rank == 10 else 0)


def _steps(
    count: int, chosen: random.Random, place: dict[str, str], lost: int
) -> Iterator[dict[str, Any]]:
    at = 0
    for number in range(count):
        missed = lost if number >= count // 2 else 0
        at += chosen.randrange(MILLISECOND)
        end = at + chosen.randrange(MILLISECOND, 9 * MILLISECOND)
        name = ("assemble", "exchange", "solve")[number % 3]
        yield row(
            seq=number + missed, offset=10 * number + 1, start=at, end=end, name=name, **place
        )
        at = end
    if lost:
        yield gap(lost, count // 2, offset=10 * (count // 2), **place)


def _run(store: Store, presses: int) -> Run:
    from playwright.sync_api import sync_playwright

    from tests.view.browser.pages import Watched

    with _viewed(store) as viewer, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        # The first page loads Chromium's own parts.
        Watched(browser, viewer, "").close()
        begun = time.monotonic()
        page = Watched(browser, viewer, "#/timeline")
        page.until(page.page.locator(".message[data-state=drawn]").count, "the first drawing")
        first = time.monotonic() - begun
        steps = _zoom(page.page, presses)
        page.close()
        page.check()
        _compare(viewer, store)
        browser.close()
    cuts = statistics.quantiles(steps, n=20)
    return {"first": first, "step50": cuts[9], "step95": cuts[18]}


@contextmanager
def _viewed(store: Store) -> Iterator[Viewer]:
    if store.fresh:
        shutil.rmtree(store.path / "rollups", ignore_errors=True)
    with TemporaryDirectory(dir=CACHE) as cache:
        viewer = Viewer("--store", store.path, env=os.environ | {"XDG_CACHE_HOME": cache})
        try:
            yield viewer
        finally:
            viewer.end()


def _zoom(page: Any, presses: int) -> list[float]:  # noqa: ANN401 - a page of Playwright, which is imported late
    """Press keys. Return the time (seconds) from each press to the drawing of what it shows."""
    waiting: set[object] = set()
    page.on("request", lambda each: waiting.add(each) if "/api/v1/frame?" in each.url else None)

    def end(request: object) -> None:
        waiting.discard(request)

    page.on("requestfinished", end)
    page.on("requestfailed", end)
    found = []
    for number in range(presses):
        key = KEYS[number % len(KEYS)]
        begun, pressed, step = time.monotonic(), page.evaluate(FORGET), None
        page.keyboard.press(key)
        while step is None:
            page.wait_for_timeout(1000 * ASKED_SECONDS)
            step = page.evaluate(STEP, {"pressed": pressed, "quiet": not waiting})
            if time.monotonic() - begun > DRAWN_SECONDS:
                raise RuntimeError(
                    f"Nothing was drawn within {DRAWN_SECONDS:.0f} s of key {key!r}."
                )
        found.append(step / 1000)
    return found


def _compare(viewer: Viewer, store: Store) -> None:
    """Compare the frame of all time with SQL: the spans of each lane, and the missing events of each stream."""
    lanes = [each for each in viewer.get("lanes")["lanes"] if each["first"] is not None][:40]
    names = ("source", "session", "stream", "substream")
    for clock in {each.get("clock") for each in lanes}:
        some = [each for each in lanes if each.get("clock") == clock]
        begin, end = (
            min(int(each["first"]) for each in some),
            max(int(each["last"]) for each in some) + 1,
        )
        ids = [json.dumps([each[name] for name in names]) for each in some]
        frame = _exact(viewer, {"from": begin, "to": end, "pixels": 1500, "lanes": ids})
        drawn = Counter()
        for lane, count in zip(frame["spans"]["lane"], frame["spans"]["count"], strict=True):
            drawn[_stream(frame["lanes"][lane])] += count
        stored = _asked(
            store.path,
            "SELECT source, session, stream, count(*) AS n FROM spans GROUP BY ALL",
            some,
        )
        _same(f"spans of {store.label}", drawn, stored)
        lacking = Counter()
        for each in frame["gaps"]:
            lacking[_stream(each)] += each["remaining"] or 0
        sql = "SELECT source, session, stream, sum(remaining)::BIGINT AS n FROM gaps GROUP BY ALL HAVING n > 0"
        _same(f"missing events of {store.label}", lacking, _asked(store.path, sql, some))


def _exact(viewer: Viewer, asked: dict[str, Any]) -> dict[str, Any]:
    """Return a frame once it counts every row. Until the viewer has summed the rows, it counts a sample."""
    begun = time.monotonic()
    while (frame := viewer.get("frame", **asked))["one_in"] > 1:
        if time.monotonic() - begun > SUMMED_SECONDS:
            raise RuntimeError(f"The viewer has not summed the rows within {SUMMED_SECONDS:.0f} s.")
        time.sleep(1)
    return frame  # type: ignore[no-any-return] # JSON


def _stream(of: dict[str, Any]) -> tuple[str, str, str]:
    return of["source"], of["session"], of["stream"]


def _asked(store: Path, sql: str, lanes: Sequence[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    shown = {_stream(each) for each in lanes}
    return Counter(
        {_stream(each): each["n"] for each in ask(str(store), sql) if _stream(each) in shown}
    )


def _same(what: str, drawn: Counter[Any], stored: Counter[Any]) -> None:
    if +drawn != +stored:
        odd = [
            (key, drawn[key], stored[key]) for key in drawn | stored if drawn[key] != stored[key]
        ][:3]
        raise RuntimeError(f"The frame and SQL differ about {what}: {odd}")


BENCHMARKS = {
    "looking": Benchmark(
        "Looking at real runs",
        "The timeline in Chromium, 1280 by 800 pixels. The first drawing is from the request of the page until lanes show events. "
        "A step is from the press of a key (zoom in, move, zoom out, show all) until the frame that it needs is drawn. Each run "
        "compares the drawn counts with SQL, and fails if the browser prints a message.",
        looking,
    ),
}
