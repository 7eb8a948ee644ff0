from __future__ import annotations

import json
from collections import Counter

from tailrace.decoding.formats.jets import FORMAT
from tailrace.demo.lines import jets_trace

SHAPE = {"cores": 2, "threads": 3, "instructions": 10}


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    assert list(jets_trace(1)) == list(jets_trace(1))
    assert list(jets_trace(1)) != list(jets_trace(2))


def test_a_trace_is_readable_without_a_flaw():
    decoder = FORMAT.decoder(65_536, None)
    lines = list(jets_trace(1, **SHAPE))
    records = decoder.feed(b"".join(line.data for line in lines))
    assert len(records) == len(lines)
    assert {record.flaw for record in records} == {None}
    assert [record.size for record in records] == [len(line.data) for line in lines]


def test_the_footer_counts_what_was_written():
    lines = list(jets_trace(2, **SHAPE))
    footer = json.loads(lines[-1].data)
    written = Counter(line.type for line in lines)
    assert footer["type"] == "footer"
    assert [footer[f"total_{kind}s"] for kind in ("record", "annotation", "event")] == [
        written["record"], written["annotation"], written["event"],
    ]  # fmt: skip
    assert written["record"] == written["record_end"] == 1 + 2 + 6 + 60
    assert footer["capture_end_clk"] == max(
        json.loads(line.data).get("clk", 0) for line in lines[:-1]
    )


def test_the_trace_is_a_tree_whose_records_come_before_all_that_refers_to_them():
    lines = [json.loads(line.data) for line in jets_trace(3, **SHAPE)]
    kinds, parents, ended = {}, {}, set()
    for line in lines[1:-1]:
        if line["type"] == "record":
            assert line["id"] == len(kinds) + 1
            kinds[line["id"]] = line["record_type"]
            parents[line["id"]] = line["parent_id"]
            assert line["parent_id"] is None or line["parent_id"] in kinds.keys() - ended
        else:
            assert line["record_id"] in kinds.keys() - ended
            if line["type"] == "record_end":
                ended.add(line["record_id"])
    assert ended == set(kinds)
    levels = {(kinds[id_], kinds.get(parent)) for id_, parent in parents.items()}
    assert levels == {
        ("Cluster", None),
        ("Core", "Cluster"),
        ("Thread", "Core"),
        ("Instruction", "Thread"),
    }


def test_each_instruction_has_its_ten_or_eleven_events_in_time():
    lines = [json.loads(line.data) for line in jets_trace(4, **SHAPE)]
    clks, opcodes, begun = {}, {}, {}
    for line in lines:
        if line.get("record_type") == "Instruction":
            opcodes[line["id"]], begun[line["id"]] = line["data"]["opcode"], line["clk"]
        elif line["type"] == "event":
            clks.setdefault(line["record_id"], []).append(line["clk"])
    assert set(clks) == set(opcodes)
    for id_, opcode in opcodes.items():
        assert len(clks[id_]) == (11 if opcode in {"LW", "SW"} else 10)
        assert clks[id_] == sorted(clks[id_])
        assert clks[id_][0] == begun[id_]


def test_a_thread_commits_its_instructions_in_program_order():
    lines = [json.loads(line.data) for line in jets_trace(5, **SHAPE)]
    threads = {line["id"]: line["parent_id"] for line in lines if line["type"] == "record"}
    commits = {}
    for line in sorted(
        (line for line in lines if line.get("name") == "C"), key=lambda line: line["record_id"]
    ):
        commits.setdefault(threads[line["record_id"]], []).append(line["clk"])
    assert len(commits) == 6
    assert all(clks == sorted(clks) for clks in commits.values())
