"""Traces of DFTracer and ET3, written again, and repaired as their readers want them.

dftracer-utils 0.0.14 accepted 15 of the 20 real traces of DFTracer, and all 20 once they were repaired (2026-11-25). It
is not installed here, so these tests demand what it demands: lines that are JSON.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.decoding.formats import FORMATS
from tailrace.spool.payloads import FileFacts, Rest
from tests.cli.command import run
from tests.decoding.dftracer_lines import event
from tests.decoding.test_conformance import ALL, VECTORS
from tests.export.again import play, rebuild, told
from tests.export.exports import export_original
from tests.forms import examples
from tests.ingest.log import Log, log_of_file

TRACES = sorted((VECTORS / "dftracer/traces").iterdir())


def rows_of(format_, data, path, documents=()):
    return play(log_of_file(format_, data, path, documents))


def repaired(format_, data, path, *, repair=True):
    return rebuild(FORMATS[format_], *rows_of(format_, data, path), path=path, repair=repair)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_a_real_trace_of_dftracer_comes_back_and_is_json_once_repaired(trace):
    data, path = gzip.decompress(trace.read_bytes()), f"/runs/{trace.name}"
    assert repaired("dftracer", data, path, repair=False).data == data
    lines = repaired("dftracer", data, path).data.splitlines()
    marks = [line for line in lines if line in {b"[", b"]"}]
    assert marks in ([], [b"[", b"]"])
    records = [json.loads(line) for line in lines if line not in marks]
    rows, _ = rows_of("dftracer", data, path)
    assert len(records) == sum(bool(row["stream"]) for row in rows if row["kind"] != "gap")


@pytest.mark.parametrize("end", [{}, {"num_events": 9}])
def test_a_trace_of_dftracer_that_begins_with_its_end_comes_back(end):
    """The rows of a process stand before the record at the same place."""
    line = {
        "id": 4,
        "name": "end",
        "cat": "dftracer",
        "pid": 7,
        "tid": 7,
        "ts": 9,
        "dur": 0,
        "ph": "X",
    }
    data = json.dumps(line | ({"args": end} if end else {})).encode() + b"\n"
    rows, files = rows_of("dftracer", data, "/runs/a.pfw")
    rebuilt = rebuild(FORMATS["dftracer"], rows, files, path="/runs/a.pfw")
    again, _ = rows_of("dftracer", rebuilt.data, "/runs/a.pfw")
    assert told(again) == told(rows)


@pytest.mark.parametrize("totals", ["1", '{"total_events":5}', "{}", "null", '"total_events"'])
@pytest.mark.parametrize("more", ["", ',"total_records":0'])
def test_totals_of_the_producers_own_come_back_in_a_footer(totals, more):
    lines = [
        '{"type":"header","version":"2.0","metadata":{}}',
        f'{{"type":"footer","totals":{totals}{more}}}',
    ]
    data = "".join(f"{line}\n" for line in lines).encode()
    rows, files = rows_of("jets", data, "/runs/a.jets")
    rebuilt = rebuild(FORMATS["jets"], rows, files)
    assert rebuilt.data == data
    assert told(rows_of("jets", rebuilt.data, "/runs/a.jets")[0]) == told(rows)


def test_a_repair_of_dftracer_spells_what_is_no_json_as_json():
    line = b'{"id":%d,"name":"%s","cat":"c","pid":7,"tid":8,"ts":%d,"dur":1,"ph":"X","args":{"v":%s}}\n'
    odd = [
        line % (1, b'a "b"', 5, b"1"),
        line % (2, b"c\xfe", 6, b"-nan"),
        line % (3, b"d", 7, b'"\x01"'),
    ]
    data = b"  " + b"".join(odd) + b'{"id":4,"na'
    found = repaired("dftracer", data, "/runs/t.pfw")
    first, *records, last = found.data.splitlines()
    assert (first, last) == (b"[", b"]")
    read = [json.loads(record) for record in records]
    assert [(each["name"], each["args"]["v"]) for each in read] == [
        ('a "b"', 1), ("c\ufffd", None), ("d", "\x01"),
    ]  # fmt: skip
    assert all(each["ph"] == "X" for each in read)


NUMBERS = {"type": "0", "pid": "7", "tid": "8", "ts": "5", "dur": "3"}
PHASES = ['"X"', '"C"', '"M"', '"B"', "1", "2", "3", "4", "7"]
NOT_JSON = ['{"v":nan}', '{"v":-inf,"w":1}', '{"s":"a"b"}', '{"v":nan,"dft_cnt":3}']


@st.composite
def broken_records(draw):
    """Records that are no JSON, with all fields that the decoder's repair allows, in all orders that it allows."""
    numbers = {key: NUMBERS[key] for key in draw(st.sets(st.sampled_from(sorted(NUMBERS))))}
    numbers |= {key: NUMBERS[key] for key in ("pid", "tid", "ts")} | {
        "ph": draw(st.sampled_from(PHASES))
    }
    first = {"id": draw(st.sampled_from(["4", '"4"']))} if draw(st.booleans()) else {}
    args = draw(st.sampled_from(NOT_JSON))
    fields = first | {"name": '"c"', "cat": '"k"'}
    fields |= {key: numbers[key] for key in draw(st.permutations(sorted(numbers)))} | {"args": args}
    return "{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}\n"


@examples(200)
@given(broken_records())
def test_a_record_that_is_no_json_is_read_again_in_whichever_order_it_was(line):
    rows, files = rows_of("dftracer", line.encode(), "/runs/t.pfw")
    again = rebuild(FORMATS["dftracer"], rows, files, path="/runs/t.pfw")
    others, _ = rows_of("dftracer", again.data, "/runs/t.pfw")
    assert told(others) == told(rows)


def test_a_compressed_trace_of_dftracer_is_compressed_again(tmp_path):
    (trace,) = (path for path in TRACES if path.name.startswith("v220_kill9_gz"))
    torn = trace.read_bytes()[:-1000]  # inside of the only member
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/t.pfw.gz").write_bytes(torn)
    run("import", "--store", tmp_path / "store", tmp_path / "runs")
    added = Counter()
    export_original(tmp_path / "store", tmp_path / "out", added=added)
    again = gzip.decompress((tmp_path / "out/import/t.pfw.gz").read_bytes())
    whole = gzip.decompress(trace.read_bytes())
    assert whole.startswith(again)
    assert len(again) > len(whole) / 2
    assert again.endswith(b"}\n")


def test_open_frames_of_et3_end_at_the_next_times():
    data = b"M 1 0 1\nM 2 0 2\nM 3 0 3\nE 2 4\nN 10 16 5 7 0 4\nM 4 9 5\nE 4"
    found = repaired("et3", data, "/runs/trace")
    assert found.data == data.removesuffix(b"E 4") + b"E 4 6\nE 1 7\n"


def test_open_frames_of_an_agent_end_in_their_threads():
    data = b"M 1 0 100\nM 2 0 200\nM 3 0 100\nE 3 100\nM 4 0 100\n"
    assert repaired("et3", data, "/runs/trace").data == data + b"E 4 100\nE 1 100\nE 2 200\n"


def test_an_exit_without_a_frame_does_not_change_the_order_of_threads():
    data = b"M 1 0 100\nE 1 100\nE 9 200\nM 3 0 300\nM 2 0 200\n"
    assert repaired("et3", data, "/runs/trace").data == data + b"E 3 300\nE 2 200\n"


def test_open_frames_of_et1_end_in_hexadecimal():
    data = b"N a 18 Lx; 0 0 1f\nM 1a 0 1f\nM 1b 2c 1f\n"
    assert repaired("et3", data, "/runs/trace").data == data + b"E 1b 2c 1f\nE 1a 0 1f\n"


@pytest.mark.parametrize("name", ["et3/maps_agent", "et3/maps_specification"])
def test_maps_of_et3_give_the_names_that_they_gave_at_last(name):
    (vector,) = (each for each in ALL if each.name == name)
    path = vector.beside["path"]
    documents = [
        (n, text.encode(errors="surrogateescape")) for n, text in vector.beside["documents"]
    ]
    rows, files = rows_of("et3", vector.data, path, documents)
    rebuilt = rebuild(vector.format, rows, files, path=path)
    again, _ = rows_of("et3", rebuilt.data, path, rebuilt.documents.items())
    assert names(again) == names(rows)
    assert told(events(again)) == told(events(rows))


def names(rows):
    keys = [
        (json.loads(row["attributes"])["$key"], row["name"])
        for row in rows
        if row["kind"] == "name"
    ]
    assert keys
    return dict(keys)


def events(rows):
    return [row for row in rows if row["kind"] != "name" and row["name"] != "bad_map_lines"]


@pytest.mark.parametrize("format_", ["jets", "dftracer"])
def test_lines_that_were_read_before_their_newlines_come_back(format_):
    lines = {
        "jets": [
            '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}',
            '{"clk":1,"type":"event","name":"e","record_id":1,"description":""}',
        ],
        "dftracer": ["[", event(1), event(2)],
    }[format_]
    data = "".join(line + "\n" for line in lines).encode()
    path = f"/runs/a.{format_}"
    log = Log()
    session = log.open_file(format_, path)
    rest = Rest(why="silent", since=1)
    facts = FileFacts(path=path, device=1, inode=2, birth=3, rest=rest)
    for at, line in enumerate(data.splitlines()):
        log.data(session, b"\n" * bool(at) + line)
        log.file(session, facts)
    log.data(session, b"\n")
    log.close(session)
    rows, files = play(log)
    again = rebuild(FORMATS[format_], rows, files, path=path).data
    assert [line for line in again.splitlines() if line] == data.splitlines()
    (row,) = [row for row in rows if row["name"] == "rest"][-1:]
    assert json.loads(row["attributes"])["rest"] == ""
