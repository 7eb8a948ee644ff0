"""The map of rank and time, beside the same counted from the rows one by one."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from tailrace.job import rank_map
from tailrace.job.presence import Presence, RankPresence, RankState
from tailrace.job.rank_map import drawn
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter
from tests.query.tables import gap, make, row, session

NOBODY = Presence([], [], {})
BEGIN, TICKS = 10**18, 1000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three ranks with events at random times; rank 1 lacks 40 of them behind number 5, rank 2 was killed."""
    chance = random.Random(5)
    times = {rank: sorted(chance.sample(range(TICKS), 30)) for rank in range(3)}
    times[0][0], times[0][-1] = 0, TICKS - 1
    rows = [
        session("tailrace.session", session=str(r), rank=r, node=f"n{r}", job="7") for r in times
    ]
    for rank, at in times.items():
        for number, time in enumerate(at):
            seq = number if number <= 5 or rank != 1 else number + 40
            rows.append(row(session=str(rank), name="x", seq=seq, start=seq, time=BEGIN + time))
    rows += [
        gap(40, 6, session="1"),
        gap(0, session="2", stream=""),
        row(session="2", name="untimed", start=99),
    ]
    rows.append(row(session="elsewhere", name="no rank", time=BEGIN - 500))
    return Engine(make(tmp_path_factory.mktemp("map"), rows)), times


@pytest.mark.parametrize("columns", [1, 7, 60, 1000])
def test_each_event_is_in_the_column_of_its_time(table, columns):
    engine, times = table
    found = drawn(engine, NOBODY, JobFilter(), columns)
    assert (found.begin, found.end) == (BEGIN, BEGIN + TICKS - 1)
    for lane in found.ranks:
        wanted = [0] * columns
        for time in times[lane.rank]:
            wanted[time * columns // TICKS] += 1
        assert (lane.events, lane.node) == (wanted, f"n{lane.rank}")


def test_ranks_whose_events_have_no_time_are_there_with_what_they_lack(tmp_path):
    rows = [session("tailrace.session", rank=3), row(name="x", seq=0, start=1), gap(5, 1)]
    found = drawn(Engine(make(tmp_path, rows)), NOBODY, JobFilter(), 4)
    [lane] = found.ranks
    assert (found.begin, found.end) == (None, None)
    assert (lane.rank, lane.events, lane.untimed) == (3, [0] * 4, 1)
    assert (lane.missing, lane.unplaced) == ([0] * 4, 5)
    [line] = rank_map.text(found)
    assert line.endswith("| 0, 1 without a time, 5 missing")
    assert len(list(ElementTree.fromstring(rank_map.svg(found)))) > 1  # noqa: S314 - our own


def test_what_is_missing_is_behind_the_event_before_it(table):
    engine, times = table
    lanes = drawn(engine, NOBODY, JobFilter(), TICKS).ranks
    assert {at: n for at, n in enumerate(lanes[1].missing) if n} == {times[1][5]: 40}
    assert [at for at, each in enumerate(lanes[2].unknown) if each] == [times[2][-1]]
    assert (sum(lanes[0].missing), any(lanes[0].unknown), any(lanes[1].unknown)) == (
        0,
        False,
        False,
    )
    assert [lane.untimed for lane in lanes] == [0, 0, 1]


def test_ranks_that_never_came_are_empty_lanes(table):
    engine, _ = table
    there = Presence([], [RankPresence("7", 9, None, RankState.MISSING)], {"7": 10})
    found = drawn(engine, there, JobFilter(jobs=("7",)), 10)
    assert [(lane.rank, lane.state) for lane in found.ranks][-1] == (9, RankState.MISSING)
    assert drawn(engine, there, JobFilter(ranks=(1,)), 10).ranks[0].node == "n1"
    assert len(drawn(engine, there, JobFilter(nodes=("n1", "n2")), 10).ranks) == 2


def test_the_picture_and_the_text_say_the_same(table):
    engine, _ = table
    found = drawn(engine, NOBODY, JobFilter(), 40)
    *lines, _ = rank_map.text(found)
    root = ElementTree.fromstring(rank_map.svg(found))  # noqa: S314 - our own
    shapes = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert shapes.count("l") == sum(line.partition("|")[2].count("x") for line in lines) == 2
    assert [line.rpartition("| ")[2] for line in lines] == [
        "30", "30, 40 missing", "30, 1 without a time, an unknown number missing",
    ]  # fmt: skip
    assert all(len(line.partition("|")[2].partition("|")[0]) == 40 for line in lines)
