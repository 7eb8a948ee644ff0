"""The page is a function of the results: `sample` has a small one, and the published one is up to date.

After a change of the page's writer, write both anew and read the difference:

    python -m benchmarks.report tests/benchmarks/sample
    python -m benchmarks.report docs
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.comparisons import Spread, ratios
from benchmarks.places import CONFIGURATIONS, PUBLISHED
from benchmarks.report import brief, goals
from benchmarks.report.page import PAGE, RESULTS, files, write
from benchmarks.report.tables import number
from benchmarks.results import Case, Result, Results, Role, Side

SAMPLE = Path(__file__).parent / "sample"
PAGES = [SAMPLE, PUBLISHED]


@pytest.mark.parametrize("directory", PAGES, ids=["sample", "published"])
def test_a_page_is_what_its_results_make(directory):
    made = files(Results.load(directory / RESULTS))
    assert made == {name: (directory / name).read_text() for name in made}
    drawn = {str(path.relative_to(directory)) for path in directory.glob("performance/*.svg")}
    assert drawn == made.keys() - {PAGE}


@pytest.mark.parametrize("directory", PAGES, ids=["sample", "published"])
def test_the_page_shows_its_plots_and_they_are_svg(directory):
    made = files(Results.load(directory / RESULTS))
    shown = set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", made[PAGE]))
    assert shown == made.keys() - {PAGE}
    for name in shown:
        assert ET.fromstring(made[name]).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - ours


def test_results_survive_being_written(tmp_path):
    results = Results.load(SAMPLE / RESULTS)
    write(results, tmp_path)
    again = Results.load(tmp_path / RESULTS)
    assert again == results
    assert files(again) == files(results)


def test_no_results_make_a_page_without_figures(tmp_path):
    assert list(files(Results.load(tmp_path / "none.json"))) == [PAGE]


def test_the_published_page_begins_with_ten_sentences_and_a_plot():
    page = files(Results.load(PUBLISHED / RESULTS))[PAGE]
    said = [*brief.sentences(Results.load(PUBLISHED / RESULTS))]
    assert len(said) == len(brief.SENTENCES) == 10
    beginning = page.partition("\n## ")[0]
    assert all(f"- {sentence}\n" in beginning for sentence in said)
    assert beginning.count("![") == 1


def test_a_figure_that_was_not_measured_is_in_no_sentence():
    said = [*brief.sentences(Results.load(SAMPLE / RESULTS))]
    assert len(said) < len(brief.SENTENCES)
    assert not any("None" in sentence for sentence in said)


def test_an_absent_peer_is_named_with_what_installs_it():
    page = files(Results.load(SAMPLE / RESULTS))[PAGE]
    assert "**Other**: nothing here. **Absent** when this was measured: `make peers`" in page


def side(role, *rates):
    return Side(name=role, role=role, does="", runs=[{"rate": rate} for rate in rates])


def test_ratios_are_of_runs_beside_one_another():
    case = Case(label="", sides=[side(Role.PEER, 1.0, 2.0, 4.0), side(Role.OURS, 2.0, 1.0, 4.0)])
    (ratio,) = ratios(case)
    assert ratio.spread == Spread(0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    "sides",
    [
        [side(Role.OURS, 1.0)],
        [side(Role.OURS), side(Role.PEER, 1.0)],
        [side(Role.OURS, 1.0), side(Role.PEER)],
        [side(Role.OURS, 1.0), side(Role.PEER, 0.0)],
        [side(Role.PEER, 1.0)],
    ],
)
def test_without_two_figures_there_is_no_ratio(sides):
    assert list(ratios(Case(label="", sides=sides))) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.6, "1235"), (12.345, "12.3"), (0.01234, "0.0123"), (0.000012, "<0.0001")],
)
def test_figures_have_three_digits(value, text):
    assert number(value) == text


def test_configurations_of_peers_are_in_the_repository():
    for directory in PAGES:
        for result in Results.load(directory / RESULTS).found.values():
            for case in result.cases:
                for one in case.sides:
                    path = CONFIGURATIONS / one.configuration
                    assert not one.configuration or path.is_file()


def test_memory_is_compared_with_peers_alone_since_no_reference_says_how_much_is_needed():
    sides = [side(role) for role in (Role.OURS, Role.PEER, Role.REFERENCE, Role.BASE)]
    for one in sides:
        one.runs = [{"resident": 2.0, "cpu": 2.0}]
    found = [(ratio.measure, ratio.other.role) for ratio in ratios(Case(label="", sides=sides))]
    assert found == [
        ("cpu", Role.PEER), ("cpu", Role.REFERENCE), ("cpu", Role.BASE),
        ("resident", Role.PEER), ("resident", Role.BASE),
    ]  # fmt: skip


def goals_of(*runs, measure):
    """The table of goals where Heph over TCP had these figures."""
    ours = Side(name="Tailrace", role=Role.OURS, does="", runs=[{measure: value} for value in runs])
    machine = Results.load(SAMPLE / RESULTS).found.popitem()[1].machine
    case = Case(label="Heph over TCP", sides=[ours])
    result = Result(title="", about="", machine=machine, cases=[case])
    lines = list(goals.section(Results({"heph-tcp": result})))
    return [line for line in lines if line.startswith("| `")]


@pytest.mark.parametrize(
    ("measure", "runs", "cells"),
    [
        ("rate", [1e6, 3.3e6, 5e6], "events a second, k/s | 3300 | 3300 | yes |"),
        ("rate", [1e6, 3.2e6, 5e6], "events a second, k/s | 3300 | 3200 | no |"),
        ("cpu", [0.3e-6], "CPU an event, µs | 0.35 | 0.3 | yes |"),
        ("cpu", [0.4e-6], "CPU an event, µs | 0.35 | 0.4 | no |"),
    ],
)
def test_a_goal_is_reached_by_the_median(measure, runs, cells):
    (line,) = goals_of(*runs, measure=measure)
    assert line == f"| `heph-tcp` | Heph over TCP | {cells}"


def distances(benchmark, case):
    """The sentences about the goals that were not reached."""
    machine = Results.load(SAMPLE / RESULTS).found.popitem()[1].machine
    result = Result(title="", about="", machine=machine, cases=[case])
    lines = list(goals.section(Results({benchmark: result})))
    return [line for line in lines if line.startswith("**")]


def test_the_size_of_chunks_says_why_many_connections_cost_more():
    sides = [
        Side(name="Tailrace", role=Role.OURS, does="", runs=[{"cpu": 3e-6, "chunk": 10 * 1024}]),
        Side(name="with 1", role=Role.BASE, does="", runs=[{"cpu": 2e-6, "chunk": 400 * 1024}]),
    ]
    (said,) = distances("connections", Case(label="1000 connections", sides=sides))
    assert said == (
        "**1000 connections**, CPU an event: A chunk of received bytes has 10 KiB, and 400 KiB with 1."
    )


def test_the_memory_of_libraries_stands_beside_an_idle_collectors():
    sides = [
        Side(name="Tailrace", role=Role.OURS, does="", runs=[{"resident": 130e6}]),
        Side(name="libraries", role=Role.REFERENCE, does="", runs=[{"resident": 90e6}]),
    ]
    said, _ = distances("idle", Case(label="no sender", sides=sides))
    assert said == (
        "**no sender**, resident memory: In its own run, the references take: libraries 90 MB."
    )


def test_no_figure_of_a_goal_makes_no_section():
    assert goals_of(1.0, measure="p99") == []


def test_each_goal_is_about_a_published_figure():
    page = files(Results.load(PUBLISHED / RESULTS))[PAGE].partition("## Goals")[2]
    for goal in goals.GOALS:
        assert f"| `{goal.benchmark}` | {goal.case}" in page
