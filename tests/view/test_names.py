"""People call processes and threads by names, which each format has elsewhere."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits
from tailrace.query.names import ProgramNames, StatedNames
from tailrace.store.presence import DirectoryLock
from tailrace.view.endpoints.timeline import TITLE_MAX, shortened
from tailrace.view.leases import ServedStore
from tests.export.test_names import PROCESSES
from tests.query.tables import make, row, session
from tests.view.traced import of_all_formats
from tests.view.viewer import Viewer


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    viewer = Viewer("--store", of_all_formats(tmp_path_factory.mktemp("names")))
    yield viewer
    assert viewer.end() == (0, "")


@pytest.fixture(scope="module")
def named(viewer):
    """Return the names of sessions by format."""
    formats = {each["session"]: each["format"] for each in viewer.get("sessions")["sessions"]}
    found = {}
    for each in viewer.get("names")["sessions"]:
        found.setdefault(formats[each["session"]], []).append(each)
    return found


def test_a_client_announces_its_process_and_its_labels(named):
    assert {each["process"] for each in named["heph"]} == {"solver"}
    assert sorted(each["labels"]["revision"] for each in named["heph"]) == ["4f2a", "77c1"]
    assert all(each["host"] and each["pid"].isdecimal() for each in named["heph"])
    assert {each["file"].split("/")[-1] for each in named["heph"]} == {"run0.heph", "run1.heph"}


def test_ovni_states_rank_process_and_host(named):
    found = {(each["rank"], each["pid"], each["host"]) for each in named["ovni"]}
    assert found == {(0, "4100", "node1"), (1, "5200", "node2")}
    assert len(named["ovni"]) > len(found)


def test_dftracer_states_the_command_or_the_names_of_processes_and_threads(named):
    found = {each["process"]: each for each in named["dftracer"]}
    assert found.keys() == {"python3 train.py", "Rank 0", "Rank 1"}
    assert {
        (each["host"], each["file"].split("/")[-1]) for each in (found["Rank 0"], found["Rank 1"])
    } == {("demo", "merged.pfw")}
    assert {name: each["pid"] for name, each in found.items()} == {
        "python3 train.py": "4000",
        "Rank 0": "4010",
        "Rank 1": "4020",
    }


def test_jets_states_the_hardware(named):
    (only,) = named["jets"]
    assert only["process"] == "SoC X1"


def test_answers_have_the_titles_that_exports_have(viewer):
    """Each thread of an ovni process is a session, whose title has the thread, too."""
    lanes = viewer.get("lanes")["lanes"]
    found = {}
    for each in lanes:
        found.setdefault(f"{each['source']} · {each['process']}", set()).add(each["thread"])
    assert {name: found[name] for name in PROCESSES} == PROCESSES
    for each in lanes:
        thread = each["stream"].split("/")[-1]
        suffix = f" · thread {thread}" if each["format"] == "ovni" else ""
        assert each["title"] == each["process"] + suffix
    titles = {(each["source"], each["session"]): each["title"] for each in lanes}
    assert len(set(titles.values())) == len(titles)
    for path in ("names", "sessions"):
        mine = {(e["source"], e["session"]): e["title"] for e in viewer.get(path)["sessions"]}
        assert mine.items() >= titles.items()
    for each in viewer.get("streams", limit=1000)["streams"]:
        assert each["title"] == titles[each["source"], each["session"]]
        assert each["thread"] in found[f"{each['source']} · {each['title']}".split(" · thread ")[0]]


@pytest.mark.parametrize(
    ("text", "streams"), [("SOLVER", 2), ("77c1", 1), ("node2", 3), ("soc x1", 1), ("reader", 2)]
)
def test_streams_are_found_by_the_names_of_their_processes_and_threads(viewer, text, streams):
    assert viewer.get("streams", search=text)["total"] == streams


def test_nobody_expects_events_for_a_collector_that_was_killed(tmp_path):
    """The server keeps names while the version of the table is the same, and such a collector writes no version."""
    make(tmp_path, [session("open", opened=1), row(offset=3)])
    served = ServedStore(choose(None, str(tmp_path)), SystemClock())
    with DirectoryLock(tmp_path):
        engine = Engine(served.store, served.options, Limits())
        assert [each.alive for each in served.names(engine).sessions] == [True]
    with closing(engine):
        engine.refresh()
        assert [each.alive for each in served.names(engine).sessions] == [False]


def test_a_command_line_in_a_title_is_cut_and_still_unlike_others():
    line = "solve " + "--option value " * 200
    names = ProgramNames(StatedNames("a", f"s{n}", process=line, pid=str(n)) for n in range(2))
    titles = [shortened(names.session("a", f"s{n}")) for n in range(2)]
    assert [len(title) for title in titles] == [TITLE_MAX] * 2
    assert [title.split(" · ")[-1] for title in titles] == ["process 0", "process 1"]
    assert shortened("solve") == "solve"
