"""The generators write what producers write: our decoders read every record, and count what was made."""

from __future__ import annotations

import gzip
from collections import Counter

import pytest

from benchmarks.inputs.heph import packets
from benchmarks.inputs.trace import trace
from tailrace.decoding.formats import FORMATS
from tailrace.model.record import Kind

SHAPES = [
    ("heph", {}),
    ("heph", {"streams": 1}),
    ("heph", {"streams": 100}),
    ("jets", {}),
    ("ovni", {}),
    ("dftracer", {}),
    ("dftracer", {"varied": 0}),
    ("dftracer", {"gz": 1}),
    ("et3", {}),
    ("et3", {"varied": 0}),
]
NO_EVENTS = {Kind.SESSION, Kind.GAP, Kind.MALFORMED}


def content(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def decoded(made):
    """The records of all streams, each read as the file that it is."""
    records = []
    for path in made.paths:
        decoder = FORMATS[made.format].decoder(2**16, None)
        if hasattr(decoder, "begin"):
            decoder.begin(f"/runs/{path.relative_to(made.home)}", "auto")
        for name in FORMATS[made.format].files.documents(str(path)):
            if (path.parent / name).exists():
                decoder.document(name, (path.parent / name).read_bytes())
        records += [*decoder.feed(content(path)), *decoder.end()]
    return records


@pytest.mark.parametrize(("format_", "shape"), SHAPES)
@pytest.mark.parametrize("events", [100, 5003])
def test_decoders_read_every_record_and_count_the_events(tmp_path, format_, shape, events):
    made = trace(format_, events, cache=tmp_path, **shape)
    records = decoded(made)
    kinds = Counter(record.kind for record in records if record.size)
    assert {record.flaw for record in records} == {None}
    assert not any(record.kind in {Kind.MALFORMED, Kind.GAP} for record in records)
    assert sum(kinds.values()) - sum(kinds[kind] for kind in NO_EVENTS) == made.events == events
    assert sum(len(content(path)) for path in made.paths) == made.content


@pytest.mark.parametrize(("format_", "shape"), SHAPES)
def test_a_seed_is_a_trace(tmp_path, format_, shape):
    one, two = (trace(format_, 500, cache=tmp_path / name, **shape) for name in "ab")
    other = trace(format_, 500, cache=tmp_path / "a", seed=2, **shape)
    assert [path.read_bytes() for path in one.paths] == [path.read_bytes() for path in two.paths]
    if "varied" not in shape or format_ == "et3":
        assert [p.read_bytes() for p in one.paths] != [p.read_bytes() for p in other.paths]


def test_a_trace_is_made_once(tmp_path):
    made = trace("heph", 100, cache=tmp_path)
    made.path.write_bytes(b"kept")
    assert trace("heph", 100, cache=tmp_path).path.read_bytes() == b"kept"


def test_packets_are_the_trace_and_its_streams_share_the_events(tmp_path):
    made = trace("heph", 900, cache=tmp_path, streams=5)
    data = made.path.read_bytes()
    _, *events = packets(data)
    assert b"".join(packets(data)) == data
    streams = Counter(int.from_bytes(packet[8:12], "big") for packet in events)
    assert set(streams) == set(range(5))
    assert min(streams.values()) >= 90


@pytest.mark.parametrize(
    ("format_", "least", "most"),
    [("heph", 80, 96), ("jets", 110, 150), ("ovni", 12, 15), ("dftracer", 180, 240), ("et3", 22, 36)],
)  # fmt: skip
def test_records_are_as_long_as_those_of_producers(tmp_path, format_, least, most):
    made = trace(format_, 5000, cache=tmp_path)
    assert least <= made.content / made.events <= most
