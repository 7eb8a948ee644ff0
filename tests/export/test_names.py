"""Processes and threads in exports have the names that each format states, and ids where it states none."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from collections import Counter

import duckdb
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tailrace.export.drawing import TrackIds
from tailrace.export.otf2_archive import write as write_otf2
from tailrace.export.output import Directory, RowCount
from tailrace.export.selected import export
from tailrace.query.names import ProgramNames, StatedNames, short_ids
from tests.export.drawn import READERS, asked
from tests.export.exports import make_export
from tests.export.test_otf2 import by_time, noted, printed, select
from tests.export.traces import EPOCH, TEXTS
from tests.query.asking import ask
from tests.query.tables import clocked, make, row, session
from tests.view.traced import of_all_formats

PROCESSES = {
    "import · solver · revision 4f2a": {"stream 7"},
    "import · solver · revision 77c1": {"stream 7"},
    "import · rank 0 · process 4100": {"main thread", "thread 4101", "thread 4102"},
    "import · rank 1 · process 5200": {"main thread", "thread 5201", "thread 5202"},
    "import · python3 train.py": {"main thread", "thread 5000", "thread 5001"},
    "import · Rank 0": {"main thread", "reader", "thread 5011"},
    "import · Rank 1": {"main thread", "reader", "thread 5021"},
    "import · SoC X1": {"records"},
}
PIDS = {"4100", "5200", "4000", "4010", "4020"}
"""The ids of processes with a name of their own; the two runs of `solver` have one id."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return of_all_formats(tmp_path_factory.mktemp("named"))


def test_perfetto_shows_names_and_true_ids(store, tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    make_export(store, "perfetto", tmp_path / "trace")
    trace = Trace.FromString((tmp_path / "trace").read_bytes())
    tracks = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    names = {each.process.pid: each.process.process_name for each in tracks if each.HasField("process")}  # fmt: skip
    threads = [each.thread for each in tracks if each.HasField("thread")]
    assert {name: {t.thread_name for t in threads if t.pid == pid} for pid, name in names.items()} == PROCESSES  # fmt: skip
    assert {str(pid) for pid in names} >= PIDS
    for each in threads:
        if each.thread_name.startswith("thread "):
            assert each.thread_name == f"thread {each.tid}"
    assert len({each.tid for each in threads}) == len(threads)
    order = sorted((t.process.legacy_sort_index, t.process.process_name) for t in tracks if t.HasField("process"))  # fmt: skip
    assert [name for _, name in order][:3] == ["import · Rank 0", "import · Rank 1", "import · python3 train.py"]  # fmt: skip


def test_chrome_shows_the_same(store, tmp_path):
    make_export(store, "chrome", tmp_path / "trace")
    said = [e for e in json.loads((tmp_path / "trace").read_bytes())["traceEvents"] if e["ph"] == "M"]  # fmt: skip
    names = {e["pid"]: e["args"]["name"] for e in said if e["name"] == "process_name" and "import" in e["args"]["name"]}  # fmt: skip
    threads = {name: {e["args"]["name"] for e in said if e["pid"] == pid and e["name"] == "thread_name"} for pid, name in names.items()}  # fmt: skip
    assert {name: PROCESSES[name] - found for name, found in threads.items()} == {key: set() for key in PROCESSES}  # fmt: skip
    assert {str(pid) for pid in names} >= PIDS


def test_opentelemetry_has_attributes_of_its_conventions(store, tmp_path):
    make_export(store, "otlp", tmp_path / "trace")
    found, threads = set(), set()
    for line in (tmp_path / "trace").read_bytes().splitlines():
        (each,) = json.loads(line)["resourceSpans"]
        about = _words(each["resource"]["attributes"])
        found.add((about["service.name"], about.get("process.pid"), about.get("host.name")))
        for span in each["scopeSpans"][0]["spans"]:
            its = _words(span["attributes"])
            threads.add((its.get("thread.id"), its.get("thread.name")))
    solvers = {each for each in found if each[0] == "solver"}
    assert len(solvers) == 1
    assert found - solvers == {
        ("import", "4100", "node1"), ("import", "5200", "node2"), ("python3 train.py", "4000", "demo"),
        ("Rank 0", "4010", "demo"), ("Rank 1", "4020", "demo"), ("SoC X1", None, None),
    }  # fmt: skip
    assert threads >= {(None, None), ("5010", "reader"), ("5020", "reader"), ("4101", "thread 4101")}  # fmt: skip


def test_an_events_own_attributes_are_kept_beside_its_thread_in_opentelemetry(tmp_path):
    mine = {"format": "dftracer", "stream": "1/2", "attributes": {"thread.name": "mine"}}
    rows = [row(start=1, end=2, **mine), row("instant", start=3, offset=9, **mine)]
    make_export(make(tmp_path / "store", [clocked(epoch=EPOCH, format="dftracer"), *rows]), "otlp", tmp_path / "trace")  # fmt: skip
    (spans,) = json.loads((tmp_path / "trace").read_bytes())["resourceSpans"]
    (logs,) = json.loads((tmp_path / "trace.logs").read_bytes())["resourceLogs"]
    for each in (spans["scopeSpans"][0]["spans"][0], logs["scopeLogs"][0]["logRecords"][0]):
        its = _words(each["attributes"])
        assert (its["thread.id"], its["thread.name"]) == ("2", "mine")


def _words(attributes):
    return {each["key"]: next(iter(each["value"].values())) for each in attributes}


@pytest.mark.skipif(
    shutil.which("otf2-print") is None, reason="needs otf2-print: apt install otf2-tools"
)
def test_otf2_has_a_tree_of_nodes_processes_and_threads(store, tmp_path):
    with Directory(str(tmp_path / "archive")) as output:
        export(write_otf2, lambda: select(store), output, RowCount(None))
    done = subprocess.run(
        ["otf2-print", "-G", str(tmp_path / "archive" / "traces.otf2")], capture_output=True, check=True, text=True
    )  # fmt: skip
    for node, name in [("node1", "rank 0 · process 4100"), ("node2", "rank 1 · process 5200"), ("demo", "Rank 0")]:  # fmt: skip
        (group,) = (
            line for line in done.stdout.splitlines() if f'Name: "import · {name} (' in line
        )
        assert f'Parent: "node::{node}"' in group
    for thread in {each for threads in PROCESSES.values() for each in threads}:
        assert f'"{thread}' in done.stdout


@pytest.mark.parametrize("to", ["parquet", "arrow", "csv", "jsonl"])
def test_a_table_beside_the_rows_has_the_names_of_their_streams(store, tmp_path, to):
    make_export(store, to, tmp_path / f"trace.{to}")
    path = tmp_path / f"trace.programs.{to}"
    rows = {
        "parquet": lambda: pyarrow.parquet.read_table(path).to_pylist(),
        "arrow": lambda: pyarrow.ipc.open_file(path).read_all().to_pylist(),
        "csv": lambda: list(csv.DictReader(io.StringIO(path.read_text(), newline=""))),
    }.get(to, lambda: [json.loads(line) for line in path.read_bytes().splitlines()])()
    found = {(each["process"] or None, str(each["pid"] or ""), each["thread"] or None) for each in rows}  # fmt: skip
    assert found >= {
        ("Rank 0", "4010", "reader"), ("python3 train.py", "4000", "5000"), (None, "4100", "4101"), ("SoC X1", "", None),
    }  # fmt: skip
    streams = ask(store, "SELECT DISTINCT source, session, stream FROM events WHERE kind = 'span'")
    assert set(streams) <= {(each["source"], each["session"], each["stream"]) for each in rows}


def test_awkward_names_come_back(tmp_path):
    texts = [text for text in TEXTS if text] + ["x" * 2**20]
    rows = []
    for number, text in enumerate(texts):
        mine = {"session": f"s{number}", "format": "dftracer"}
        rows += [
            session("open", opened=EPOCH, **mine),
            clocked(epoch=EPOCH, producer={"process_name": text, "hostname": text}, **mine),
            *(
                row("session", stream=f"1/{tid}", name="thread", attributes={"thread_name": text}, **mine)
                for tid in (2, 3)
            ),
            *(row(stream=f"1/{tid}", start=tid, end=9, name="n", offset=tid, **mine) for tid in (2, 3)),
        ]  # fmt: skip
    store = make(tmp_path / "store", rows)
    make_export(store, "chrome", tmp_path / "chrome")
    said = [e for e in json.loads((tmp_path / "chrome").read_bytes())["traceEvents"] if e["ph"] == "M"]  # fmt: skip
    processes = [e["args"]["name"] for e in said if e["name"] == "process_name"]
    assert sorted(processes[1:]) == sorted(f"sim · {text}" for text in texts)
    threads = [e["args"]["name"] for e in said if e["name"] == "thread_name"]
    assert sorted(threads) == sorted(texts * 2)
    for to, read in READERS.items():
        make_export(store, to, tmp_path / to)
        assert read(tmp_path / to) == asked(store)
    make_export(store, "otlp", tmp_path / "otlp")
    services = Counter()
    for line in (tmp_path / "otlp").read_bytes().splitlines():
        about = _words(json.loads(line)["resourceSpans"][0]["resource"]["attributes"])
        services[about["service.name"], about["host.name"]] += 1
    assert services == Counter((text, text) for text in texts)
    for to in ("parquet", "csv"):
        make_export(store, to, tmp_path / "rows")
        sql = "SELECT process, thread, host FROM read_{}(?{})"
        how = "" if to == "parquet" else ", all_varchar = true, header = true, max_line_size = 8000000, delim = ',', quote = '\"', escape = '\"'"  # fmt: skip
        with duckdb.connect() as connection:
            found = connection.execute(sql.format(to, how), [str(tmp_path / "rows.programs")])
            assert Counter(found.fetchall()) == Counter((text,) * 3 for text in texts * 2)
    if shutil.which("otf2-print"):
        assert by_time(printed(store, tmp_path / "archive")) == +noted(store).events


def test_threads_with_one_name_have_a_location_each_in_otf2(tmp_path):
    """The library has one writer for locations of one group and name, which refuses times that go back."""
    pytest.importorskip("otf2")
    mine = {"format": "dftracer"}
    rows = [
        row("session", stream=f"1/{tid}", name="thread", attributes={"thread_name": name}, **mine)
        for tid, name in enumerate(["pool", "pool", "pool", "nul\0", "nul\N{SYMBOL FOR NULL}"], 1)
    ] + [row(stream=f"1/{tid}", start=6 - tid, end=9, name="n", **mine) for tid in range(1, 6)]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH, **mine), *rows])
    with Directory(str(tmp_path / "archive")) as output:
        export(write_otf2, lambda: select(store), output, RowCount(None))
    with otf2_reader(tmp_path / "archive") as archive:
        names = [location.name for location in archive.definitions.locations]
    assert names[1:] == ["pool", "pool · 1/2", "pool · 1/3", "nul\u2400", "nul\u2400 (2)"]


def test_names_in_otf2_are_whole_though_texts_of_c_end_at_nul(tmp_path):
    pytest.importorskip("otf2")
    hello = session("tailrace.session", value={}, process="p\0q", host="h\0i", labels={"a\0b": "c\0d"})  # fmt: skip
    rows = [row(start=1, end=2, name="a\0b"), row("counter", start=3, name="c\0d", attributes={"value": 1}, offset=9)]  # fmt: skip
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), hello, *rows])
    with Directory(str(tmp_path / "archive")) as output:
        export(write_otf2, lambda: select(store), output, RowCount(None))
    with otf2_reader(tmp_path / "archive") as archive:
        its = archive.definitions
        assert [each.name for each in its.regions][1:] == ["a␀b"]
        assert [each.name for each in its.metric_members] == ["c␀d"]
        assert [each.name for each in its.system_tree_nodes] == ["tailrace", "h␀i"]
        group = list(its.location_groups)[1]
        assert group.name == "sim · p␀q (heph; wall time)"
        properties = {each.name: str(each.value) for each in its.location_group_properties}
        assert properties["TAILRACE::label a␀b"] == "c␀d"


def otf2_reader(directory):
    import otf2

    return otf2.reader.open(str(directory / "traces.otf2"))


def test_titles_that_are_alike_get_what_tells_them_apart():
    sessions = [
        StatedNames("a", "1", process="p", host="h", labels='{"rev":1}'),
        StatedNames("a", "2", process="p", host="h", labels='{"rev":2}'),
        StatedNames("a", "3", process="p", host="g", pid="7"),
        StatedNames("b", "4", process="p", host="h"),
        StatedNames("b", "5", file="/x/t.jets", opened=0),
        StatedNames("b", "6", file="/y/t.jets", opened=0),
        StatedNames("b", "7", labels="no json"),
        StatedNames("b", "8", process="q"),
        StatedNames("b", "9", process="q"),
    ]
    names = ProgramNames(sessions)
    assert [names.process(each.source, each.session).title for each in sessions] == [
        "p · h · rev 1", "p · h · rev 2", "p · g", "p", "t.jets · x", "t.jets · y", "7", "q · 8", "q · 9",
    ]  # fmt: skip
    assert names.process("c", "new").title == "new"
    assert names.pids == {7}


def test_files_of_one_ovni_process_are_its_threads_whatever_the_version():
    old = [f"loom.n1/proc.7/thread.{tid}.obs" for tid in (7, 8)]
    new = [f"/t/loom.n2/proc.7/thread.{tid}/stream.obs.gz" for tid in (7, 9)]
    sessions = [
        StatedNames("a", str(n), pid="7", file=file) for n, file in enumerate([*old, *new, "/t/proc.7/x"])
    ]  # fmt: skip
    names = ProgramNames(sessions)
    assert [names.session("a", each.session) for each in sessions] == [
        "process 7 · loom.n1 · thread 7", "process 7 · loom.n1 · thread 8",
        "process 7 · loom.n2 · thread 7", "process 7 · loom.n2 · thread 9", "process 7 · proc.7",
    ]  # fmt: skip
    directories = [names.process("a", each.session).directory for each in sessions]
    assert directories == ["loom.n1/proc.7"] * 2 + ["/t/loom.n2/proc.7"] * 2 + [None]


def test_sessions_of_one_file_have_titles_of_their_own():
    """A program that runs again writes the files of its threads anew, with the same process id in a container."""
    file = "loom.n1/proc.7/thread.9/stream.obs"
    opened = [EPOCH, EPOCH + 10**9, EPOCH + 10**9]
    names = ProgramNames(StatedNames("a", f"s{n}", pid="7", file=file, opened=at) for n, at in enumerate(opened))  # fmt: skip
    titles = [names.session("a", f"s{n}") for n in range(3)]
    assert all(title.startswith("process 7 · thread 9 · ") for title in titles)
    assert len(set(titles)) == 3
    assert titles[2].endswith(" · s2")
    assert len({names.process("a", f"s{n}") for n in range(3)}) == 1


def test_ids_are_shortened_as_far_as_they_differ():
    assert short_ids(["b" * 20, "b" * 19 + "c", "a" * 30, "short"]) == {
        "b" * 20: "b" * 20, "b" * 19 + "c": "b" * 19 + "c", "a" * 30: "a" * 12, "short": "short",
    }  # fmt: skip
    names = ProgramNames([StatedNames("a", "x" * 30), StatedNames("a", "y" * 30)])
    assert [names.process("a", each * 30).title for each in "xy"] == ["x" * 12, "y" * 12]


def test_numbers_of_processes_and_threads_are_unique():
    numbers = TrackIds({1, 5})
    given = [numbers.process(None), numbers.process(5), numbers.process(9)]
    threads = [numbers.thread(5, 5), numbers.thread(5, 1), numbers.thread(5, 5), numbers.thread(5, 70), numbers.thread(5)]  # fmt: skip
    assert given == [2, 5, 3]
    assert threads == [5, 4, 6, 70, 7]
