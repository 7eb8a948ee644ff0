"""Files lack exactly what the demonstration says that it leaves out."""

from __future__ import annotations

import gzip
import json
import posixpath
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tailrace.decoding.contract import FileDecoder
from tailrace.decoding.formats import FORMATS
from tailrace.demo.producers import dftracer_tail, et3_tail, ovni_tail

EPOCH_NS = 1_700_000_000_000_000_000


def decoded(traffic, format_):
    """The records of all streams, documents given first."""
    records = []
    files = files_of(traffic)
    streams = [name for name in files if format_.files.stream(f"/trace/{name}")]
    for name in streams:
        decoder = format_.decoder(2**20, None)
        if isinstance(decoder, FileDecoder):
            decoder.begin(f"/trace/{name}", "auto")
        for document in format_.files.documents(f"/trace/{name}"):
            path = posixpath.normpath(posixpath.join("/trace", posixpath.dirname(name), document))
            if path.removeprefix("/trace/") in files:
                records += decoder.document(document, files[path.removeprefix("/trace/")])
        data = files[name]
        records += decoder.feed(gzip.decompress(data) if name.endswith(".gz") else data)
        assert decoder.pending == 0
        assert decoder.end() == [], "nobody need wait for the end"
    return streams, records


def found(records):
    """How many events there are, and how many are said to be missing."""
    kinds = Counter(record.kind for record in records)
    gaps = [record for record in records if record.kind == "gap"]
    missing = {
        (record.stream, record.counter + n) for record in gaps for n in range(record.detail.count)
    }
    events = sum(kinds[kind] for kind in ("span", "begin", "instant", "counter", "annotation"))
    return events, missing


def files_of(traffic):
    """The files' contents when all is written."""
    files = defaultdict(bytes)
    for write in traffic.chunks:
        files[write.path] = write.data if write.anew else files[write.path] + write.data
    return dict(files)


@pytest.mark.parametrize("producer", [ovni_tail, dftracer_tail, et3_tail])
def test_each_is_repeatable(producer):
    assert producer(1, EPOCH_NS) == producer(1, EPOCH_NS)
    assert producer(1, EPOCH_NS).chunks != producer(2, EPOCH_NS).chunks
    paths = [write.path for write in producer(1, EPOCH_NS).chunks]
    changes = sum(a != b for a, b in pairwise(paths))
    assert changes > 2 * len(set(paths)), "the files grow together"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_numbers_that_the_processes_lack_are_those_left_out(seed):
    traffic = dftracer_tail(seed, EPOCH_NS)
    missing, events, compressed = [], 0, 0
    for name, data in files_of(traffic).items():
        packed = name.endswith(".gz")
        compressed += packed
        plain = gzip.decompress(data) if packed else data
        lines = [json.loads(line) for line in plain.splitlines()]
        numbers = [line["id"] for line in lines if "id" in line]
        last = max(numbers)
        assert [line["name"] for line in lines if line.get("id") in {1, last}] == ["start", "end"]
        holes = set(range(1, last + 1)) - set(numbers)
        assert len(holes) == 5
        missing += holes
        events += len(numbers) - 2
        assert all(line["ts"] >= EPOCH_NS // 1000 for line in lines if "ts" in line)
    assert compressed == 1
    assert traffic.lost == {"": len(missing)} == {"": 15}
    assert traffic.numbers == {("", number) for number in missing}
    assert traffic.events == events


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_ticks_that_the_clock_lacks_are_those_left_out(seed):
    traffic = et3_tail(seed, EPOCH_NS)
    files = files_of(traffic)
    assert set(files) == {
        "agent/trace", "agent/methods.list", "agent/fields.list", "agent/classs.list",
        "specification/trace.et3", "specification/class_list", "specification/method_list",
    }  # fmt: skip
    lines = [line.split() for line in files["specification/trace.et3"].decode().splitlines()]
    ticks = [int(line[-1]) for line in lines if line[0] in "ME"]
    missing = set(range(1, ticks[-1] + 1)) - set(ticks)
    assert traffic.numbers == {("", tick) for tick in missing}
    assert traffic.lost == {"": len(missing)} == {"": 9}
    lines += [line.split() for line in files["agent/trace"].decode().splitlines()]
    assert traffic.events == sum(line[0] != "E" for line in lines)


def test_map_files_and_offsets_come_when_all_is_over():
    *streams, last = [write.path for write in ovni_tail(1, EPOCH_NS).chunks]
    assert last == "clock-offsets.txt"
    assert last not in streams
    assert sum(path.endswith("stream.obs") for path in set(streams)) == 6
    paths = [write.path for write in et3_tail(1, EPOCH_NS).chunks]
    assert all(path.endswith("list") for path in paths[-5:])
    assert not any(path.endswith("list") for path in paths[:-5])


def test_the_trace_of_the_two_nodes_lacks_nothing():
    traffic = ovni_tail(1, EPOCH_NS)
    assert (traffic.lost, traffic.numbers) == ({}, set())
    assert traffic.events > 3000


@pytest.mark.parametrize(
    ("format_", "producer", "streams"),
    [("ovni", ovni_tail, 6), ("dftracer", dftracer_tail, 3), ("et3", et3_tail, 2)],
)
def test_the_decoders_find_all_events_and_what_is_missing(format_, producer, streams):
    traffic = producer(4, EPOCH_NS)
    names, records = decoded(traffic, FORMATS[format_])
    assert len(names) == streams
    assert found(records) == (traffic.events, traffic.numbers)
    flaws = Counter(record.flaw for record in records if record.flaw)
    if format_ == "et3":  # exits whose entries were left out
        assert flaws.pop("unmatched_end") > 0
    assert flaws == {}
