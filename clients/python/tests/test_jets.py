from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from enum import IntEnum
from unittest.mock import MagicMock

import numpy as np
import pytest

from clients.python.tests.collectors import TcpCollector, until
from tailrace_client import JetsWriter


def read(data):
    """Return the lines of a trace. Fail if a line is not standard JSON, which has no NaN."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert data.endswith(b"\n")
    return [json.loads(line, parse_constant=refuse) for line in data.splitlines()]


def write(trace):
    """Write a small trace with all kinds of lines."""
    trace.header(hardware_model="SoC", clock_frequency_mhz=1000)
    with trace.record(0, "core 0", "Core") as core:
        with trace.record(5, "ADD", "Instruction", "add a0, a1", pc="0x80") as add:
            trace.event(6, "F1", "Fetch", port=1)
            trace.annotation("operands", {"a1": 1}, "What goes in")
            trace.event(7, "busy", record=core)
            add.end(10)
        with trace.record(8, "MV", "Instruction", parent=add):
            trace.event(12, "C")
    trace.footer(note="done")


EXPECTED = [
    {"type": "header", "version": "2.0", "metadata": {"hardware_model": "SoC", "clock_frequency_mhz": 1000}},
    {"clk": 0, "type": "record", "name": "core 0", "record_type": "Core", "id": 1, "parent_id": None, "description": ""},
    {"clk": 5, "type": "record", "name": "ADD", "record_type": "Instruction", "id": 2, "parent_id": 1,
     "description": "add a0, a1", "data": {"pc": "0x80"}},
    {"clk": 6, "type": "event", "name": "F1", "record_id": 2, "description": "Fetch", "data": {"port": 1}},
    {"type": "annotation", "name": "operands", "record_id": 2, "description": "What goes in", "data": {"a1": 1}},
    {"clk": 7, "type": "event", "name": "busy", "record_id": 1, "description": ""},
    {"clk": 10, "type": "record_end", "record_id": 2},
    {"clk": 8, "type": "record", "name": "MV", "record_type": "Instruction", "id": 3, "parent_id": 2, "description": ""},
    {"clk": 12, "type": "event", "name": "C", "record_id": 3, "description": ""},
    {"clk": 12, "type": "record_end", "record_id": 3},
    {"clk": 12, "type": "record_end", "record_id": 1},
    {"type": "footer", "capture_end_clk": 12, "total_records": 3, "total_annotations": 1, "total_events": 3,
     "note": "done"},
]  # fmt: skip


def test_a_trace_goes_to_a_file_a_connection_and_an_open_file_alike(tmp_path):
    path = tmp_path / "trace.jets"
    path.write_text("of an earlier run\n")
    with JetsWriter(f"file://{path}") as trace:
        write(trace)
    assert read(path.read_bytes()) == EXPECTED

    memory = io.BytesIO()
    with JetsWriter(memory) as trace:
        write(trace)
    assert memory.getvalue() == path.read_bytes()

    with TcpCollector() as collector:
        with JetsWriter(collector.address) as trace:
            write(trace)
        until(lambda: collector.ended)
        assert bytes(collector.sessions[0]) == memory.getvalue()
    assert trace.dropped == 0


def test_a_trace_gets_a_header_and_a_footer_by_itself():
    memory = io.BytesIO()
    with JetsWriter(memory):
        pass
    header, footer = read(memory.getvalue())
    assert header == {"type": "header", "version": "2.0", "metadata": {}}
    assert footer["total_records"] == footer["total_annotations"] == footer["total_events"] == 0


def test_a_record_that_an_exception_leaves_ends():
    memory = io.BytesIO()
    with pytest.raises(KeyError), JetsWriter(memory) as trace, trace.record(3, "r", "R"):
        raise KeyError
    assert [line["type"] for line in read(memory.getvalue())] == [
        "header",
        "record",
        "record_end",
        "footer",
    ]


def test_after_a_reconnection_the_header_comes_again_and_the_footer_has_no_totals():
    with TcpCollector() as collector:
        trace = JetsWriter(collector.address)
        trace.header(tool="test")
        core = trace.record(0, "core", "Core")
        until(lambda: collector.sessions and collector.sessions[0].count(b"\n") == 2)
        collector.hang_up()
        until(lambda: collector.ended == 1)
        core.end(9)
        assert trace.close(20)
        until(lambda: collector.ended == 2)
        first, second = (read(bytes(session)) for session in collector.sessions)
    assert [line["type"] for line in first] == ["header", "record"]
    assert second == [
        first[0],
        {"clk": 9, "type": "record_end", "record_id": 1},
        {"type": "footer", "capture_end_clk": 9},
    ]


def test_what_does_not_fit_is_counted_and_still_in_the_totals():
    with TcpCollector() as closed:
        port = closed.port
    trace = JetsWriter(f"tcp://127.0.0.1:{port}", buffer_bytes=2000)
    record = trace.record(0, "core", "Core")
    for clk in range(100):
        trace.event(clk, "tick", record=record)
    assert 0 < trace.dropped < 100
    dropped = trace.dropped
    with TcpCollector(port) as collector:
        assert not trace.flush(20)
        assert not trace.close(20)
        until(lambda: collector.ended)
        lines = read(bytes(collector.sessions[0]))
    assert lines[-1]["total_events"] == 100
    assert sum(line["type"] == "event" for line in lines) == 100 - dropped


class Raising:
    def __repr__(self):
        raise LookupError


RAISING = Raising()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"x": math.nan, "y": 1}, {"x": "nan", "y": 1}),
        ([1, math.inf], "[1, inf]"),
        ({1, 2}, "{1, 2}"),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ("\udc80é", "\udc80é"),
        (2**64, 2**64),
        ({"n": 16**4000, "y": 1}, {"n": hex(16**4000), "y": 1}),
        ({"x": RAISING, "y": 1}, {"x": "<Raising>", "y": 1}),
        ({RAISING: 1}, {"<Raising>": 1}),
        ([RAISING], "<list>"),
        (np.int64(5), 5),
        ({"x": np.arange(3), "y": np.float32(0.5)}, {"x": [0, 1, 2], "y": 0.5}),
    ],
)
def test_data_that_json_has_no_spelling_for_is_written_as_text(value, written):
    memory = io.BytesIO()
    with JetsWriter(memory) as trace, trace.record(0, "r", "R"):
        trace.annotation("a", value)
    assert read(memory.getvalue())[2]["data"] == written


class Numbered(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "key",
    ["a", 1, -5, 10**30, True, False, None, 1.5, math.inf, Numbered.ONE, (1, 2)],
    ids=repr,
)
def test_a_key_is_written_alike_whatever_stands_beside_it(key):
    """A value that JSON lacks has the other values of its mapping converted one by one."""
    memory = io.BytesIO()
    with JetsWriter(memory) as trace, trace.record(0, "r", "R"):
        trace.annotation("plain", {key: 1})
        trace.annotation("beside", {key: 1, "lacks": math.nan})
    plain, beside = (line["data"] for line in read(memory.getvalue())[2:4])
    assert beside == plain | {"lacks": "nan"}


def cycles(kind):
    item = kind()
    if kind is list:
        item.append(item)
        return item
    item |= {"it": item, "more": 1}
    return item


def deep(levels):
    item = {}
    for _ in range(levels):
        item = {"it": item}
    return item


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (cycles(list), "[[...]]"),
        (cycles(dict), {"it": "{'it': {...}, 'more': 1}", "more": 1}),
        ({f"m{n}": cycles(dict) for n in range(100)}, None),
        (deep(5000), None),
    ],
)
def test_data_that_contains_itself_is_written_as_text(value, written):
    memory = io.BytesIO()
    with JetsWriter(memory) as trace, trace.record(0, "r", "R"):
        trace.annotation("a", value)
    data = read(memory.getvalue())[2]["data"]
    assert data == written if written else data


def test_a_mock_is_written_as_text_at_once():
    """The methods of a mock return mocks, whose methods also return mocks."""
    mock, memory = MagicMock(), io.BytesIO()
    with JetsWriter(memory) as trace, trace.record(0, "r", "R"):
        trace.annotation("a", mock)
    assert read(memory.getvalue())[2]["data"] == str(mock)
    assert not mock.tolist.return_value.tolist.called


def test_a_clock_may_be_a_number_of_numpy():
    """If the clock were written as text, the collector could not read the line, and would miss every line. This also
    applies to an event with data that JSON cannot represent."""
    memory = io.BytesIO()
    with JetsWriter(memory) as trace, trace.record(np.int64(3), "r", "R"):
        trace.event(np.uint32(4), "e", share=np.float32(0.5), rate=math.nan)
    lines = read(memory.getvalue())
    assert [line.get("clk") for line in lines] == [None, 3, 4, 4, None]
    assert lines[2]["data"] == {"share": 0.5, "rate": "nan"}
    assert read(memory.getvalue())[-1]["capture_end_clk"] == 4


def test_a_full_disk_under_an_open_file_is_counted_and_does_not_stop_the_program():
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - unbuffered
        trace = JetsWriter(full)
        trace.record(0, "r", "R").end(1)
        assert not trace.close()
    assert trace.dropped == 4


FULL = """
import resource, sys
from tailrace_client import JetsWriter

with open(sys.argv[1], "wb", buffering=0) as file:
    trace = JetsWriter(file)
    trace.header()
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.tell() + 20, resource.RLIM_INFINITY))
    record = trace.record(0, "lost", "R")
    record.end(1)
    assert not trace.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    trace.record(2, "kept", "R")
    assert not trace.close()
    assert trace.dropped == 2
"""


def test_a_line_after_one_that_a_full_disk_has_torn_is_whole(tmp_path):
    subprocess.run([sys.executable, "-c", FULL, tmp_path / "trace"], check=True)
    header, torn, *lines = (tmp_path / "trace").read_bytes().splitlines()
    assert json.loads(header)["type"] == "header"
    assert len(torn) == 20
    assert [json.loads(line)["type"] for line in lines] == ["record", "footer"]


def test_a_forked_child_states_no_totals_because_its_trace_has_none_of_its_parents_lines(tmp_path):
    path = tmp_path / "trace.jets"
    trace = JetsWriter(f"file://{path}")
    core = trace.record(0, "core", "Core")
    assert trace.flush(20)
    child = os.fork()
    if child == 0:
        trace.event(1, "e", record=core)
        os._exit(0 if trace.close(20) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert trace.close(20)
    assert read(path.read_bytes())[-1]["total_records"] == 1
    lines = read((tmp_path / f"trace.jets.{child}").read_bytes())
    assert [line["type"] for line in lines] == ["header", "event", "footer"]
    assert lines[-1] == {"type": "footer", "capture_end_clk": 1}


def test_misuse_is_an_error_of_the_program():
    memory = io.BytesIO()
    trace = JetsWriter(memory)
    with pytest.raises(ValueError, match="outside of every record"):
        trace.event(0, "e")
    with pytest.raises(ValueError, match="outside of every record"):
        trace.annotation("a", 1)
    record = trace.record(0, "r", "R")
    with pytest.raises(ValueError, match="its header is written"):
        trace.header()
    record.end(5)
    record.end(6)
    trace.footer()
    with pytest.raises(ValueError, match="its footer is written"):
        trace.event(7, "e", record=record)
    with pytest.raises(ValueError, match="its footer is written"):
        trace.footer()
    with pytest.raises(ValueError, match="datagrams"):
        JetsWriter("udp://127.0.0.1:1")
    footer = read(memory.getvalue())[-1]
    assert (footer["total_events"], footer["total_annotations"]) == (0, 0)
    assert sum(line["type"] == "record_end" for line in read(memory.getvalue())) == 1
