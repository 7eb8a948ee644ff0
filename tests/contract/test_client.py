"""The collector's decoders read what the Python client writes. They share no code."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, strategies as st

import tailrace_client
from tailrace.decoding.formats import heph, jets
from tailrace_client import _wire

U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.one_of(
    st.booleans(), st.none(), st.lists(st.booleans(), min_size=1), st.integers(-(2**63), 2**64 - 1), NUMBER, TEXT,
    st.lists(U64), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(NUMBER), st.lists(TEXT),
)  # fmt: skip
# "$" begins the spellings that the decoder reserves for what JSON cannot hold.
NAME = TEXT.filter(lambda name: not name.startswith("$"))


def as_stored(value):
    """Heph has no booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    is_list = isinstance(value, list) and value and isinstance(value[0], bool)
    return [as_stored(item) for item in value] if is_list else value


def decode(format_, data):
    decoder = format_.decoder(2**20, None)
    records = decoder.feed(data)
    assert decoder.pending == 0
    assert {record.flaw for record in records} <= {None, "bad_time"}
    return records


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    U64,
    U64,
    TEXT,
    st.dictionaries(NAME, VALUE, max_size=5),
)
def test_an_event_is_read_back_as_it_was_written(stream, counter, start, end, name, attributes):
    packet = _wire.event(stream, counter, 0, start, end, _wire.body(name, attributes))
    (record,) = decode(heph.FORMAT, packet)
    assert (record.kind, record.stream, record.counter, record.name) == (
        "span",
        str(stream),
        counter,
        name,
    )
    read = json.loads(record.attributes or "{}")
    # A time for which its column has no number stands in the attributes.
    assert read.pop("$start", record.start) == start
    assert read.pop("$end", record.end) == end
    assert (record.flaw == "bad_time") == (max(start, end) >= 2**63)
    # An empty list does not show the type of its elements; the decoder says it beside.
    assert read.pop("$types", {}) == {n: "string[]" for n, v in attributes.items() if v == []}
    assert read == {n: as_stored(v) for n, v in attributes.items() if v is not None}


# An epoch that ends in a packet's magic, two in 2^32, is read as torn: where another packet seems to
# begin in a metadata packet, the decoder believes that one.
@given(U64.filter(lambda epoch: epoch % 2**32 not in {0x75D11D4D, 0xC1FC1FB7}))
def test_the_epoch_is_read_back_as_the_sessions_clock(nanoseconds):
    (record,) = decode(heph.FORMAT, _wire.epoch(nanoseconds))
    assert record.kind == "session"
    assert record.detail.epoch % 2**64 == nanoseconds


def test_an_emitters_file_is_read_back(tmp_path):
    emitter = tailrace_client.Emitter(f"file://{tmp_path}/trace")
    with emitter.span("step", cell=3):
        emitter.event("inside")
    emitter.close(20)
    epoch, session, inside, step, goodbye = decode(heph.FORMAT, (tmp_path / "trace").read_bytes())
    assert epoch.detail.epoch == emitter.epoch
    assert session.detail.announces.id
    assert goodbye.detail.goodbye.streams == {"1": 2}
    assert (inside.name, inside.counter, inside.start) == ("inside", 0, inside.end)
    assert (step.name, step.counter, step.attributes) == ("step", 1, '{"cell":3}')
    assert step.start <= inside.start <= step.end


def test_a_jets_trace_is_read_back_without_a_flaw():
    memory = io.BytesIO()
    with tailrace_client.JetsWriter(memory) as trace:
        trace.header(clock_frequency_mhz=1000)
        with trace.record(0, "core", "Core"):
            trace.event(3, "tick", "A tick", port=1)
            trace.annotation("cache", {"kib": 32})
    records = decode(jets.FORMAT, memory.getvalue())
    assert [record.kind for record in records] == [
        "session", "begin", "instant", "annotation", "end", "session",
    ]  # fmt: skip
    assert [(record.id, record.start, record.parent) for record in records[1:4]] == [
        (1, 0, None), (None, 3, 1), (None, None, 1),
    ]  # fmt: skip
    assert (records[4].id, records[4].end) == (1, 3)
    assert records[5].detail.totals == {"begin": 1, "instant": 1, "annotation": 1}


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_collector_has_what_the_client_sent_and_misses_what_it_says_it_dropped(
    collector, transport
):
    host, port = collector.address(transport)
    emitter = tailrace_client.Emitter(f"{transport}://{host}:{port}")
    for number in range(2_000):
        text = ["x" * 60_000] * 30 if number % 500 == 250 else "x"
        emitter.event("event", number=number, text=text)
    assert emitter.close(20)
    assert emitter.discarded["oversize"] == 4
    collector.stop()
    spans = {row["seq"]: row for row in collector.rows() if row["kind"] == "span"}
    assert sorted(spans) == [number for number in range(2_000) if number % 500 != 250]
    assert all(json.loads(row["attributes"])["number"] == seq for seq, row in spans.items())
    day = 86_400 * 10**9  # tick 0 is the import
    assert all(emitter.epoch <= row["time"] < emitter.epoch + day for row in spans.values())
    gaps = [row for row in collector.rows() if row["kind"] == "gap"]
    assert [(row["seq"], row["name"]) for row in gaps] == [
        (number, "sender") for number in (250, 750, 1250, 1750)
    ]


def test_the_client_knows_what_the_table_calls_its_session(tmp_path):
    path = tmp_path / "run.heph"
    emitter = tailrace_client.Emitter(f"file://{path}")
    emitter.event("one")
    assert emitter.close()
    announced = next(r for r in decode(heph.FORMAT, path.read_bytes()) if r.name != "epoch")
    assert json.loads(announced.attributes)["session"] == emitter.session
    assert tailrace_client.Emitter(None).session is None
