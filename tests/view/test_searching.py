"""Search on axes without wall time: every event is found in both directions, and none of another axis."""

from __future__ import annotations

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import clocked, gap, row, session
from tests.view.viewer import Viewer

TICKS = [0, 3, 3, 10, 1000, 1001, 50_000]
NS = {"slow": 1_000_000, "odd": 1e9 / 3, "bare": 1}
"""Nanoseconds of a tick of each session."""


def rows():
    yield clocked(session="wall", epoch=EPOCH)
    for number, tick in enumerate(TICKS):
        yield row(session="wall", seq=number, offset=number, start=tick, end=tick + 1, name="step")
    yield gap(2, 3, session="wall", offset=1)
    for name, rate in (("slow", 1000), ("odd", 3), ("bare", None)):
        yield session("open", session=name, opened=EPOCH + 5, offset=0)
        yield clocked(session=name, ticks_per_second=rate)
        for number, tick in enumerate(TICKS):
            kind = "instant" if number == 1 else "span"
            yield row(
                kind, session=name, stream=str(number % 2), seq=number, offset=number, start=tick,
                end=None if kind == "instant" else tick + 2, name=f"Step {number}",
            )  # fmt: skip


def commits():
    return [list(rows())]


@pytest.fixture(scope="module")
def viewer(store):
    viewer = Viewer("--store", store)
    yield viewer
    viewer.end()


def axes(viewer):
    return {each["session"]: each["axis"] for each in viewer.get("lanes")["lanes"]}


def walked(viewer, axis, *, backwards=False, **asked):
    """The events that one finds who always asks for the next ones behind the last time."""
    found, after = [], {}
    while True:
        answer = viewer.get(
            "search", name="step", axis=axis, backwards=str(backwards).lower(), limit=3, **after, **asked
        )  # fmt: skip
        if not answer["events"]:
            return found
        last = answer["events"][-1]["time"]
        assert last != after.get("after"), "an answer has what the one before had"
        found += [each for each in answer["events"] if each not in found]
        after = {"after": last}


@pytest.mark.parametrize("name", NS)
@pytest.mark.parametrize("backwards", [False, True])
def test_all_events_of_an_axis_are_found_in_order(viewer, name, backwards):
    found = walked(viewer, axes(viewer)[name], backwards=backwards)
    assert {each["place"]["session"] for each in found} == {name}
    times = [int(each["time"]) for each in found]
    assert times == sorted(times, reverse=backwards)
    expected = sorted(EPOCH + 5 + tick * NS[name] for tick in TICKS)
    assert sorted(times) == pytest.approx(expected, abs=1)
    ended = {each["duration"] for each in found if each["kind"] == "span"}
    assert {int(each) for each in ended} <= {int(2 * NS[name]), int(2 * NS[name]) + 1}


def test_the_axis_of_wall_time_has_no_others(viewer):
    assert {each["place"]["session"] for each in walked(viewer, "wall")} == {"wall"}


def test_streams_are_chosen(viewer):
    found = walked(viewer, axes(viewer)["slow"], stream="1")
    assert {each["stream"] for each in found} == {"1"}
    assert len(found) == len(TICKS) // 2


@pytest.mark.parametrize("name", NS)
def test_only_events_between_two_times_are_found(viewer, name):
    axis = axes(viewer)[name]
    found = [int(each["time"]) for each in walked(viewer, axis)]
    for since, until in [(found[1], found[-1]), (found[1] + 1, found[-1] + 1), (found[-1] + 1, found[-1] + 2)]:  # fmt: skip
        wanted = [each for each in found if since <= each < until]
        for backwards in (False, True):
            some = walked(viewer, axis, backwards=backwards, from_=since, to=until)
            assert sorted(int(each["time"]) for each in some) == wanted


@pytest.mark.parametrize("path", ["search", "gaps/next"])
def test_an_unknown_axis_is_an_error_and_not_an_axis_without_events(viewer, path):
    asked = {"name": "step"} if path == "search" else {"after": 0}
    answer = viewer.ask(path, axis="x y", **asked)
    assert (answer.status, "no axis 'x y'" in answer.body.decode()) == (404, True)


def test_the_next_gap_is_one_of_the_axis(viewer):
    def next_gap(axis):
        return viewer.get("gaps/next", after=0, axis=axis)["gaps"]

    assert [each["session"] for each in next_gap("wall")] == ["wall"]
    assert next_gap(axes(viewer)["slow"]) == []
