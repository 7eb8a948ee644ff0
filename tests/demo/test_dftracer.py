from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise

from tailrace.demo.lines import dftracer_trace, gzip_writes, hashed, plain_writes

EPOCH_US = 1_700_000_000_000_000


def read(file):
    return [json.loads(line.data) for line in file.lines]


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    assert dftracer_trace(1, EPOCH_US) == dftracer_trace(1, EPOCH_US)
    assert dftracer_trace(1, EPOCH_US) != dftracer_trace(2, EPOCH_US)


def test_a_hash_is_the_one_that_the_library_gives():
    assert hashed("vm") == "6882804a826580cd"
    assert hashed("../venv/bin/python;basic.py") == "fbd54bfff219d1b3"


def test_each_process_numbers_its_events_without_holes_and_not_in_order():
    for file in dftracer_trace(1, EPOCH_US):
        lines = read(file)
        numbers = [line["id"] for line in lines if "id" in line]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert any(a > b for a, b in pairwise(numbers))
        events = [line for line in lines if "id" in line]
        assert (events[0]["name"], events[-1]["name"]) == ("start", "end")
        assert events[-1]["args"]["num_events"] == events[-1]["id"] - 1
        assert {line["pid"] for line in lines} == {file.pid}
        assert [line.id for line in file.lines] == [line.get("id") for line in lines]


def test_lines_have_the_members_of_the_release_in_its_order():
    members = {True: [], False: []}
    for file in dftracer_trace(1, EPOCH_US):
        for line in read(file):
            members["id" in line].append(tuple(line))
    events = "id", "name", "cat", "type", "pid", "tid", "ts", "dur", "ph", "args"
    assert set(members[True]) == {events}
    assert set(members[False]) == {("name", "cat", "type", "pid", "tid", "ph", "args")}


def test_every_hash_is_named_before_it_is_used_but_for_what_a_parent_named():
    files = dftracer_trace(3, EPOCH_US)
    named_by = []
    for file in files:
        known, unknown = set(), set()
        for line in read(file):
            args = line["args"]
            if line["ph"] == 4:
                known.add(args["value"])
                assert args["value"] in {hashed(args["name"]), "US", "thread_name"}
            else:
                keys = {"hhash", "fhash", "cmd_hash", "exec_hash", "cwd"} & args.keys()
                unknown |= {args[key] for key in keys} - known
        named_by.append((known, unknown))
    *own, fork = named_by
    assert all(not unknown for _, unknown in own)
    assert fork[1] <= own[0][0]
    assert len(fork[1]) > 3
    assert len(fork[0] & own[0][0]) > 10, "what either read first after the fork is told by both"


def test_children_lie_within_their_parents_and_come_before_them():
    for file in dftracer_trace(4, EPOCH_US, steps=20):
        lines = read(file)
        for step in (line for line in lines if line["name"] == "load"):
            inside = [
                line
                for line in lines
                if line["cat"] == "POSIX"
                and line["tid"] == step["tid"]
                and step["ts"] <= line["ts"] <= step["ts"] + step["dur"]
            ]
            assert [line["name"] for line in inside][:2] == ["open64", "lseek64"]
            assert all(line["id"] < step["id"] for line in inside)


def test_a_plain_file_is_cut_anywhere_and_a_compressed_one_holds_the_same():
    file = dftracer_trace(5, EPOCH_US)[0]
    data = b"".join(line.data for line in file.lines)
    writes = list(plain_writes(file.name, file.lines))
    assert b"".join(write.data for write in writes) == data
    assert any(not write.data.endswith(b"\n") for write in writes)
    written = b""
    torn = 0
    members = list(gzip_writes(file.name, file.lines))
    for write in members:
        assert write.path == file.name + ".gz"
        written += write.data
        try:
            gzip.decompress(written)
        except (EOFError, zlib.error):
            torn += 1
    assert torn > len(members) / 2
    assert gzip.decompress(written) == data
