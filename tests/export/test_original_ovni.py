"""Traces of ovni, written again: real ones byte for byte, and repaired ones as ovni's emulator wants them.

The emulator of ovni 1.14.0 accepted 90 of 94 repaired traces that were cut at random; the others ran a task whose creation
was cut off (2026-11-25). It is not installed here, so these tests demand what it demands.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.encoder import Loom
from tailrace.model.record import Kind
from tests.cli.command import run
from tests.decoding.ovni_bytes import HEADER, ends, event, mark, starts, u32
from tests.decoding.ovni_traces import NAMES, TRACES, streams
from tests.export.again import play, rebuild
from tests.export.exports import export_original
from tests.ingest.log import log_of_file

PATH = "/runs/ovni/loom.node1.0/proc.7/thread.8/stream.obs"
STREAMS = [stream.read_bytes() for name in NAMES for stream in streams(name)]


def files_below(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """All real traces, and a store that has imported them."""
    place = tmp_path_factory.mktemp("ovni")
    for name in NAMES:
        shutil.copytree(TRACES / name / "ovni", place / "traces" / name / "ovni")
    run("import", "--store", place / "store", place / "traces")
    return place


def test_real_traces_come_back_byte_for_byte(imported, tmp_path):
    exported = export_original(imported / "store", tmp_path / "out")
    given = files_below(imported / "traces")
    assert len(given) > 60
    assert files_below(tmp_path / "out/import") == given
    assert not exported.left
    facts = [
        json.loads(line) for line in (tmp_path / "out/sessions.jsonl").read_text().splitlines()
    ]
    assert len(facts) == len([name for name in given if name.endswith(".obs")])


def test_a_killed_process_gets_the_ends_and_the_metadata_that_it_lacks(imported, tmp_path):
    added = Counter()
    exported = export_original(imported / "store", tmp_path / "out", added=added)
    killed = tmp_path / "out/import/truncated-kill9/ovni/loom.vm.live/proc.26096"
    assert {path.name for path in killed.iterdir()} == {"thread.26096"}  # the other has no event
    assert exported.left == {"session without events, which readers refuse": 2}
    ovni = json.loads((killed / "thread.26096/stream.json").read_bytes())["ovni"]
    assert ovni["finished"] == 1
    assert ovni["require"] == {"ovni": "1.1.0", "nosv": "2.7.0"}
    assert ovni["loom_cpus"] == [{"index": 0, "phyid": 0}]
    assert (killed / "thread.26096/stream.obs").read_bytes()[-11:-8] == b"OHe"
    facts = [
        json.loads(line) for line in (tmp_path / "out/sessions.jsonl").read_text().splitlines()
    ]
    changed = {each["session"]: each["added"] for each in facts if each["added"]}
    assert Counter() + sum(map(Counter, changed.values()), Counter()) == added
    whole = Path("nosv-l2/ovni")
    assert files_below(tmp_path / "out/import" / whole) == files_below(imported / "traces" / whole)


def rows_of(data, path=PATH, documents=()):
    return play(log_of_file("ovni", data, path, documents, record_max=1 << 21))


def repaired(data):
    """The stream and documents that a repair makes of a stream."""
    return rebuild(FORMAT, *rows_of(data), path=PATH, repair=True)


def flaws(rows):
    return [row for row in rows if '"$flaw"' in (row["attributes"] or "") or row["kind"] == "gap"]


@settings(deadline=None)
@given(
    st.sampled_from(STREAMS).flatmap(
        lambda data: st.tuples(st.just(data), st.integers(8, len(data)))
    )
)
def test_a_stream_that_was_cut_is_whole_when_it_is_repaired(cut):
    data = cut[0][: cut[1]]
    found = repaired(data)
    if not found.data:
        return  # no event
    rows, _ = rows_of(found.data, documents=found.documents.items())
    assert not flaws(rows)
    assert not [row for row in rows if row["kind"] in {Kind.BEGIN, Kind.END}]
    clocks = [row["start"] for row in rows if row["name"] in {"thread runs", "thread ends"}]
    assert len(clocks) % 2 == 0
    if not flaws(rows_of(data)[0]):
        assert found.data.startswith(data)


def test_spans_end_in_order_and_a_paused_thread_resumes():
    data = (
        HEADER + starts(10) + event("VTx", 11, u32(5, 0)) + mark("OM[", 12, 1, 7) + event("VMa", 13)
        + event("KCO", 14) + event("OHp", 15)
    )  # fmt: skip
    end = event("KCI", 15) + event("VMA", 15) + mark("OM]", 15, 1, 7) + event("VTe", 15, u32(5, 0))
    assert repaired(data).data == data + end + event("OHr", 15) + ends(15)


def test_an_end_that_crosses_others_is_put_behind_them():
    begin = HEADER + starts(10) + event("VMa", 11) + event("VMf", 12)
    rest = event("VMA", 13) + ends(14)
    found = repaired(begin + rest)
    assert found.data == begin + event("VMF", 13) + rest


def test_what_tools_refuse_is_left_out():
    unmatched, unknown, short = event("VMA", 11), event("?zz", 12), event("OHx", 13, b"\0\0")
    back, stale = event("VS@", 12), event("VS@", 9)
    begin = HEADER + starts(10)
    found = repaired(
        begin + unmatched + unknown + short + event("VS@", 14) + back + ends(15) + stale
    )
    assert found.data == begin + event("VS@", 14) + ends(15)


def test_a_thread_without_readable_metadata_gets_some_from_its_path():
    (text,) = repaired(HEADER + starts(10) + event("MW[", 11)).documents.values()
    assert json.loads(text) == {
        "version": 3,
        "ovni": {
            "lib": {"version": "unknown", "commit": "unknown"}, "part": "thread", "tid": 8, "pid": 7,
            "loom": "node1.0", "app_id": 1, "require": {"ovni": "1.1.0", "mpi": "1.0.0"},
            "loom_cpus": [{"index": 0, "phyid": 0}], "finished": 1,
        },
    }  # fmt: skip


def test_a_loom_has_all_cpus_up_to_the_highest():
    loom = Loom()
    cpus = [{"index": 1, "phyid": 0}, {"index": -1}, 5, {"index": 2**40, "phyid": 1}]
    loom.declare(msgspec.Raw(json.dumps(cpus).encode()))
    loom.declare(None)
    for index in (-1, 3, 2**31 - 1):
        loom.use(index)
    found = [(cpu["index"], cpu["phyid"]) for cpu in loom.lacking()]
    assert found == [(0, 1), (2, 2), (3, 3)]
    assert loom.lacking() == []


def test_a_damaged_header_is_kept_and_repaired():
    data = b"0123" + HEADER[4:] + starts(10) + ends(11)
    assert rebuild(FORMAT, *rows_of(data), path=PATH).data == data
    assert repaired(data).data == HEADER + starts(10) + ends(11)
