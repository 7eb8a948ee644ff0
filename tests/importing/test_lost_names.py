"""A name that events ask for and that no file has is missing, and is named; a name that another file has is not."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest
from click.testing import CliRunner

from tailrace.cli.commands import tailrace
from tailrace.decoding.formats.dftracer import names as dftracer_names
from tailrace.decoding.formats.et3 import maps
from tailrace.decoding.formats.ovni import names as ovni_names
from tailrace.importing import summary
from tailrace.model import holding
from tailrace.query.completeness import completeness
from tailrace.query.engine import Engine
from tests.decoding import dftracer_lines
from tests.decoding.ovni_bytes import HEADER, ends, event as of_ovni, jumbo, mark, starts, u32
from tests.decoding.test_conformance import VECTORS
from tests.decoding.test_dftracer import TRACES
from tests.ingest.test_dftracer_pieces import traced
from tests.query.asking import ask
from tests.system.collector import until
from tests.system.test_last_records import following

LOST = """SELECT detail, "count", remaining FROM gaps WHERE reason = 'unresolved' AND "of" = 'name' ORDER BY detail"""
GIVEN = [b'{"name":"FH"', b'{"name":"HH"', b'{"name":"SH"']


def trace(name):
    return gzip.decompress((TRACES / f"{name}.pfw.gz").read_bytes()).splitlines(keepends=True)


def imported(store, *paths, code=0, more=()):
    done = CliRunner().invoke(
        tailrace, ["import", "--store", str(store), *more, *map(str, paths)], catch_exceptions=False
    )
    assert done.exit_code == code, done.output
    return done.output


def refused(store):
    """Whether an answer that must be complete is refused."""
    engine = Engine(str(store))
    try:
        return not completeness(engine).complete
    finally:
        engine.close()


def given(line):
    """The key that a line of DFTracer names."""
    read = json.loads(line)
    return f"{read['name']}:{read['args']['value']}"


def test_a_name_of_each_kind_that_is_cut_out_of_a_trace_is_lost_and_named(tmp_path):
    lines = trace("v220_py_plain")
    names = [next(line for line in lines if line.startswith(each)) for each in GIVEN]
    said = imported(tmp_path / "whole", TRACES / "v220_py_plain.pfw.gz", more=["--max-loss", "0"])
    assert "0 of them duplicates, 0 missing\n" in said
    assert ask(tmp_path / "whole", LOST) == []
    assert not refused(tmp_path / "whole")
    for number, name in enumerate(names):
        file, store = tmp_path / f"{number}.pfw", tmp_path / f"store{number}"
        file.write_bytes(b"".join(line for line in lines if line != name))
        said = imported(store, file, code=4, more=["--max-loss", "0"])
        assert f"{file}: 1 (unresolved 1) missing" in said
        assert (
            "98 seen, 0 of them duplicates, 0 missing, and 1 name missing that they ask for" in said
        )
        assert ask(store, LOST) == [(given(name), 1, 1)]
        assert ask(store, "SELECT sum(missing) FROM streams") == [(1,)]
        assert refused(store)


@pytest.mark.parametrize("parent_first", [False, True])
def test_a_child_has_the_names_of_its_parent(tmp_path, parent_first):
    child = TRACES / "v220_fork_undefined_hash.pfw.gz"
    parent = TRACES / "v220_fork_parent.pfw.gz"
    store = tmp_path / "store"
    for file in (parent, child) if parent_first else (child, parent):
        imported(store, file)
    assert ask(store, LOST) == []
    assert not refused(store)
    imported(tmp_path / "child", child)
    assert len(ask(tmp_path / "child", LOST)) > 0
    assert refused(tmp_path / "child")
    imported(tmp_path / "child", parent, more=["--source", "elsewhere"])
    assert len(ask(tmp_path / "child", LOST)) > 0


def test_the_service_that_names_no_host_lacks_nothing(tmp_path):
    imported(tmp_path / "store", TRACES / "v220_service_counters.pfw.gz", more=["--max-loss", "0"])
    assert not refused(tmp_path / "store")


def test_so_many_names_that_nobody_counts_them_are_an_unknown_number(tmp_path, monkeypatch):
    monkeypatch.setattr(holding, "ASKED_MAX", 2)
    lines = [dftracer_lines.event(n, ph='"X"', args=f'"fhash":"{n:016x}"') for n in range(40)]
    (tmp_path / "a.pfw").write_text("\n".join(lines) + "\n")
    said = imported(tmp_path / "store", tmp_path / "a.pfw", code=4, more=["--max-loss", "100"])
    assert "0 missing, and an unknown number of names missing that they ask for" in said
    found = ask(tmp_path / "store", LOST)
    assert sorted(map(str, found)) == sorted(
        map(str, [(f"FH:{0:016x}", 1, 1), (f"FH:{1:016x}", 1, 1), (None, None, None)])
    )


def stream(directory, thread, data, **metadata):
    path = directory / "loom.h.1" / "proc.7" / f"thread.{thread}"
    path.mkdir(parents=True)
    (path / "stream.obs").write_bytes(HEADER + starts(1) + data + ends(99))
    about = {"version": 3, "ovni": {"part": "thread", "tid": thread, "pid": 7, "loom": "h.1", "finished": 1}}  # fmt: skip
    about["ovni"] |= metadata
    (path / "stream.json").write_text(json.dumps(about))


MARKS = {"mark": {"1": {"title": "Phase", "chan_type": "stack", "labels": {"1": "compute"}}}}
CREATES = of_ovni("VTc", 3, u32(5, 9)) + of_ovni("VTx", 4, u32(5, 0)) + of_ovni("VTe", 5, u32(5, 0))
MARKED = mark("OM[", 10, 1, 2) + mark("OM]", 11, 1, 2)
LABEL = jumbo("VYc", 2, u32(9) + b"work\0")


@pytest.mark.parametrize(
    ("first", "second", "marks", "lost"),
    [
        (LABEL + CREATES + MARKED, b"", MARKS, []),
        (CREATES + MARKED, LABEL, MARKS, []),
        (CREATES + MARKED, LABEL, {}, ["mark:1"]),
        (CREATES + MARKED, b"", MARKS, ["task_type:h.1/7:V9"]),
    ],
)
def test_ovni_asks_for_the_labels_of_types_and_the_titles_of_marks(
    tmp_path, first, second, marks, lost
):
    """A value of a mark may lack a label."""
    stream(tmp_path / "run", 1, first)
    stream(tmp_path / "run", 2, second, **marks)
    imported(tmp_path / "store", tmp_path / "run")
    assert ask(tmp_path / "store", LOST) == [(key, 1, 1) for key in lost]
    assert refused(tmp_path / "store") == bool(lost)


def test_et3_asks_for_the_names_in_its_documents(tmp_path):
    documents = ("classs.list", "fields.list", "methods.list")
    for lacking in ("", *documents):
        run = tmp_path / f"run{lacking}"
        run.mkdir()
        shutil.copy(VECTORS / "et3" / "agent_simple.in", run / "trace")
        for document in documents:
            if document != lacking:
                shutil.copy(VECTORS / "et3" / f"agent_simple.{document}", run / document)
        imported(tmp_path / f"store{lacking}", run)
        lost = ask(tmp_path / f"store{lacking}", LOST)
        sort = lacking.removesuffix("s.list")
        assert bool(lost) == bool(lacking)
        assert all(key.startswith(f"{sort}:") and rest == [1, 1] for key, *rest in lost)


def test_a_followed_file_may_give_a_name_later(collectors, tmp_path):
    """Nothing is lost while the file grows. At rest, and after a stop, the name is missing until it comes."""
    (tmp_path / "files").mkdir()
    name = dftracer_lines.metadata("FH", "/data/a", "ab12")
    line = dftracer_lines.event(1, ph='"X"', args='"fhash":"ab12"')
    collector = collectors(sources=following("dftracer", tmp_path / "files", "200 ms")).start()

    def lost():
        done = collector.cli("gaps", "--json")
        gaps = [json.loads(line) for line in done.stdout.splitlines()]
        return [gap["detail"] for gap in gaps if gap["of"] == "name"]

    with (tmp_path / "files" / "a.pfw").open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")
        until(lambda: lost() == ["FH:ab12"], "the gap of a name")
        collector.stop()
        assert lost() == ["FH:ab12"]
        collector.start()
        file.write(name.encode() + b"\n")
        until(lambda: lost() == [], "the end of the gap")
        collector.stop()
        assert lost() == []


def test_a_stop_says_which_names_have_not_come(collectors, tmp_path):
    (tmp_path / "files").mkdir()
    line = dftracer_lines.event(1, ph='"X"', args='"fhash":"ab12"')
    (tmp_path / "files" / "a.pfw").write_text(line + "\n")
    collector = collectors(sources=following("dftracer", tmp_path / "files", "1 h")).start()
    until(lambda: len(collector.rows(["offset", "kind"])) > 2, "the event")
    assert ask(collector.store, LOST) == []
    collector.stop()
    assert ask(collector.store, LOST) == [("FH:ab12", 1, 1)]


def event(number, pid, key, value):
    args = f'"{key}":"{value}"'
    return dftracer_lines.event(number, pid=pid, ph='"X"', args=args)


@pytest.mark.parametrize("pids", [(7, 0), (0, 7)])
def test_a_process_that_lacks_the_name_of_its_host_is_not_the_service(tmp_path, pids):
    (tmp_path / "a.pfw").write_text("".join(event(1, pid, "hhash", "aa") + "\n" for pid in pids))
    imported(tmp_path / "store", tmp_path / "a.pfw")
    assert ask(tmp_path / "store", LOST) == [("HH:aa", 1, 1)]


ASKS = "SELECT attributes ->> '$.asks' FROM events WHERE kind = 'session' AND name = 'close'"


def test_names_that_memory_has_no_more_are_not_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(dftracer_names, "NAMES_MAX", 4)
    names = [dftracer_lines.metadata("FH", f"/data/{n}", f"{n:016x}") for n in range(20)]
    events = [event(n, 7, "fhash", f"{n % 20:016x}") for n in range(1, 60)]
    long = dftracer_lines.metadata("FH", "/data" * 1000, "ab")
    more = [long, event(60, 7, "fhash", "ab"), event(61, 7, "fhash", "ac")]
    (tmp_path / "a.pfw").write_text("\n".join([*names, *events, *more]) + "\n")
    imported(tmp_path / "store", tmp_path / "a.pfw")
    assert ask(tmp_path / "store", ASKS) == [('["FH:ac"]',)]


def test_ovni_asks_for_no_title_that_memory_has_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(ovni_names, "MARKS_MAX", 2)
    titles = {str(n): {"title": f"Phase {n}", "chan_type": "stack"} for n in range(1, 9)}
    marked = b"".join(
        mark("OM[", 10 * n, n, 2) + mark("OM]", 10 * n + 1, n, 2) for n in range(1, 9)
    )
    stream(tmp_path / "run", 1, marked, mark=titles)
    imported(tmp_path / "store", tmp_path / "run")
    assert ask(tmp_path / "store", ASKS) == [(None,)]


def test_et3_asks_for_no_name_that_memory_has_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "NAMES_MAX", 1)
    (tmp_path / "run").mkdir()
    shutil.copy(VECTORS / "et3" / "agent_simple.in", tmp_path / "run" / "trace")
    for document in ("classs.list", "fields.list", "methods.list"):
        shutil.copy(VECTORS / "et3" / f"agent_simple.{document}", tmp_path / "run" / document)
    imported(tmp_path / "store", tmp_path / "run")
    assert ask(tmp_path / "store", ASKS) == [(None,)]


def test_the_keys_in_a_row_are_bounded(tmp_path):
    lines = [event(n, 7, "fhash", "x" * 900 + f"{n:04}") for n in range(200)]
    (tmp_path / "a.pfw").write_text("\n".join(lines) + "\n")
    imported(tmp_path / "store", tmp_path / "a.pfw")
    [(asks,)] = ask(tmp_path / "store", ASKS)
    assert len(asks) < 2**16 + 100
    assert json.loads(asks)[0] == ""
    assert (None, None, None) in map(tuple, ask(tmp_path / "store", LOST))


def test_an_import_that_brings_what_an_earlier_one_missed_misses_nothing(tmp_path):
    parts = {"a": range(1, 101), "b": range(101, 201), "c": range(201, 301)}
    for name, ids in parts.items():
        (tmp_path / f"{name}.pfw").write_bytes(b"".join(traced(ids, last=300, host="")))
    store = tmp_path / "store"
    imported(store, tmp_path / "a.pfw", tmp_path / "c.pfw", code=4, more=["--max-loss", "0"])
    said = imported(store, tmp_path / "b.pfw", more=["--max-loss", "0"])
    assert "100 expected, 100 seen, 0 of them duplicates, 0 missing" in said


def test_the_summary_of_an_import_defines_no_view_that_looks_names_up(tmp_path, monkeypatch):
    """Their definition takes longer than the summary's questions."""
    defined = set()

    class Watched(Engine):
        def close(self):
            views = self.connection.execute("SELECT view_name FROM duckdb_views()").fetchall()
            defined.update(name for (name,) in views)
            super().close()

    monkeypatch.setattr(summary, "Engine", Watched)
    file = tmp_path / "trace.pfw"
    file.write_bytes(b"".join(trace("v220_py_plain")))
    imported(tmp_path / "store", file)
    assert defined > {"session_counts", "gaps"}
    assert not defined & {"events", "spans", "sessions", "learnt"}
