"""The generator's output, read by a reader of this test's own (ovni trace specification v3)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from struct import error, unpack_from

import pytest

from tailrace.demo.binary import (
    OVNI_HEADER,
    ovni_event,
    ovni_jumbo,
    ovni_offsets,
    ovni_trace,
    ovni_writes,
)

ENDS = {"VAR": "VAr", "VAS": "VAs", "VU]": "VU[", "VSf": "VSh", "VS]": "VS[", "VTe": "VTx"}
ENDS |= {"VMA": "VMa", "VTr": "VTp", "VHW": "VHw", "OM]": "OM[", "OF]": "OF["}


def files(thread, buffer_bytes=4000):
    """Return what is in each of its files after each write to it."""
    states = defaultdict(list)
    for write in ovni_writes(thread, buffer_bytes):
        before = b"" if write.anew or not states[write.path] else states[write.path][-1]
        states[write.path].append(before + write.data)
    assert set(states) == {f"{thread.path}/stream.obs", f"{thread.path}/stream.json"}
    return states[f"{thread.path}/stream.obs"], states[f"{thread.path}/stream.json"]


def events_of(stream):
    assert stream[:8] == OVNI_HEADER
    at, found = 8, []
    while at < len(stream):
        flags, code, clock = unpack_from("<B3sQ", stream, at)
        at += 12
        size = (flags & 15) + 1 if flags & 15 else 0
        payload = stream[at : at + size]
        at += size
        if flags & 16:
            (size,) = unpack_from("<I", payload)
            payload = stream[at : at + size]
            at += size
        assert len(payload) == size
        found.append((code.decode(), clock, payload))
    return found


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    assert ovni_trace(1) == ovni_trace(1)
    assert ovni_trace(1) != ovni_trace(2)


def test_events_are_laid_out_as_the_specification_shows_them():
    assert ovni_event("OHe", 0x0012D0961DCFC501).data == bytes.fromhex("004f486501c5cf1d96d01200")
    first = ovni_event("OHx", 0x00114395B5B0C158, bytes.fromhex("00000000ffffffff0000000000000000"))
    assert first.data == bytes.fromhex("0f4f487858c1b0b59543110000000000ffffffff0000000000000000")
    type_ = ovni_jumbo("VYc", 0x0012D0961A4BC1EB, b"\1\0\0\0testtype1\0")
    assert type_.data == bytes.fromhex(
        "13565963ebc14b1a96d012000e00000001000000746573747479706531 00".replace(" ", "")
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_streams_hold_the_events_and_the_flushes_between_them(seed):
    for thread in ovni_trace(seed):
        *_, stream = files(thread)[0]
        found = events_of(stream)
        flushes = [n for n, (code, *_) in enumerate(found) if code.startswith("OF")]
        assert len(flushes) in {2 * (len(stream) // 4000) - less for less in (0, 2)} - {0}
        assert [found[n][0] for n in flushes] == ["OF[", "OF]"] * (len(flushes) // 2)
        assert stream == OVNI_HEADER + b"".join(
            (ovni_event if len(payload) < 17 and code != "VYc" else ovni_jumbo)(
                code, clock, payload
            ).data
            for code, clock, payload in found
        )
        own = [(code, clock) for code, clock, _ in found if not code.startswith("OF")]
        assert own == [(this.code, this.clock) for this in thread.events]
        assert all(a[1] <= b[1] for a, b in pairwise(found))


def test_every_end_has_its_begin_on_its_thread():
    codes = Counter()
    for thread in ovni_trace(1):
        open_ = []
        for code, _, payload in events_of(files(thread)[0][-1]):
            codes[code] += 1
            if code in ENDS:
                assert open_.pop() == (ENDS[code], payload)
            elif code in ENDS.values():
                open_.append((code, payload))
        assert open_ == []
        assert codes["OHx"] == codes["OHe"]
    assert codes.keys() >= ENDS.keys() | {"OHx", "OHC", "OM=", "VYc", "VTc", "VSr"}


def test_each_task_is_created_and_run_once_within_its_process():
    for process in ovni_trace(1)[:3], ovni_trace(1)[3:]:
        by_code = defaultdict(list)
        for thread in process:
            for code, clock, payload in events_of(files(thread)[0][-1]):
                if code[:2] in {"VT", "VY"}:
                    by_code[code].append((unpack_from("<I", payload)[0], clock, payload))
        created = {task: clock for task, clock, _ in by_code["VTc"]}
        assert sorted(created) == sorted(task for task, *_ in by_code["VTx"])
        assert len(created) == len(by_code["VTc"]) > 100
        assert all(created[task] < clock for task, clock, _ in by_code["VTx"])
        types = {type_: payload[4:] for type_, _, payload in by_code["VYc"]}
        assert {unpack_from("<I", payload, 4)[0] for *_, payload in by_code["VTc"]} == set(types)
        assert all(label.endswith(b"\0") and label[:-1].decode() for label in types.values())


def test_the_metadata_is_written_in_place_and_tells_all_only_at_the_end():
    threads = ovni_trace(1)
    for thread in threads:
        streams, documents = files(thread)
        first, flushed, empty, half, whole = documents
        loom, pid, tid = (part.partition(".")[2] for part in thread.path.split("/"))
        about = json.loads(first)["ovni"]
        assert (about["loom"], about["pid"], about["tid"]) == (loom, int(pid), int(tid))
        assert set(about) == {"lib", "part", "tid", "pid", "loom", "app_id"}
        assert "finished" not in json.loads(flushed)["ovni"]
        assert empty == b""
        with pytest.raises(ValueError, match=r"delimiter|Expecting|Unterminated|property"):
            json.loads(half)
        assert json.loads(whole)["ovni"]["finished"] == 1
        assert streams[0] == OVNI_HEADER
        order = [write.path.rpartition(".")[2] for write in ovni_writes(thread, 4000)]
        assert order[:2] == ["obs", "json"]
        assert order[-3:] == ["json"] * 3
    marks = [thread for thread in threads if "mark" in thread.metadata["ovni"]]
    assert [thread.path[-4:] for thread in marks] == ["4100", "5200"]


def test_blocks_end_within_events():
    thread = ovni_trace(1)[0]
    ends = [len(stream) for stream in files(thread, 2**21)[0]]
    assert (ends[1] - 8) % 4096 == 0
    *_, whole = files(thread, 2**21)[0]
    with pytest.raises((AssertionError, error)):
        events_of(whole[: ends[1]])


def test_the_offsets_bring_the_nodes_to_one_time():
    threads = ovni_trace(1)
    head, *lines = ovni_offsets(threads).decode().splitlines()
    assert head.split() == ["rank", "hostname", "offset_median", "offset_mean", "offset_std"]
    first = {}
    for line in lines:
        rank, node, median, mean, _ = line.split()
        assert float(mean) == int(median)
        begun = min(t.events[0].clock for t in threads if t.path.startswith(f"loom.{node}."))
        first[int(rank)] = begun + int(median)
    assert first[0] == first[1]
    assert threads[0].events[0].clock != threads[3].events[0].clock
