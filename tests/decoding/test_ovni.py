"""Test ovni beyond the guarantees of the contract: compare real traces with the output of ovni's own ovnidump, and
check which events are reported as missing."""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.event import EventReader
from tailrace.decoding.formats.ovni.stack import OPEN_MAX
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind, Record
from tests.decoding.ovni_bytes import HEADER, ends, event, jumbo, mark, starts, u32
from tests.decoding.ovni_traces import NAMES, TRACES, Event, decode, dumped, streams

VECTORS = TRACES.parent
STREAMS = [stream for name in NAMES for stream in streams(name)]
every_stream = pytest.mark.parametrize(
    "stream", STREAMS, ids=lambda path: "/".join(path.relative_to(TRACES).parts[:-1])
)


def read(data: bytes) -> list[Record]:
    decoder = FORMAT.decoder(1 << 21, None)
    return decoder.feed(data) + decoder.end()


def events_of(records: list[Record]) -> list[Record]:
    """Return the records of events: all records with bytes, except the header and malformed records."""
    return [r for r in records if r.size and r.name != "header" and r.kind != Kind.MALFORMED]


def gaps(records: list[Record]) -> list[str]:
    return [record.detail.detail for record in records if record.kind == Kind.GAP]


# A record has all facts of its event


def rebuilt(records: list[Record]) -> list[bytes]:
    """Return the bytes of events (little-endian), computed from their records alone."""
    begun: dict[int, dict] = {}
    found = []
    for record in records:
        about = json.loads(record.attributes)
        if record.kind == Kind.BEGIN:
            begun[record.id] = about
        matched = record.kind == Kind.END and record.id
        found.append(_rebuild(record, about, begun[record.id] if matched else about))
    return found


def _rebuild(record: Record, about: dict, fields: dict) -> bytes:
    mcv = (about.get("mcv") or about["end_mcv"]).encode()
    known = EVENTS.get(mcv)
    data = b""
    if known:
        data = _fields(known, fields)
        if "deltas" in about:
            data = struct.pack(f"<{len(about['deltas'])}q", *about["deltas"])
        if record.kind == Kind.NAME and known.role == "type" and "payload" not in about:
            room = record.size - 16 - len(data)
            unnamed = room <= 1 and record.name == f"type {about['type']}"
            data += ((b"" if unnamed else record.name.encode()) + b"\0")[:room]
    data += bytes.fromhex(about.get("payload", ""))
    clock = struct.pack("<q", record.end if record.start is None else record.start)
    if record.size == 16 + len(data):
        return bytes([about.get("flags", 0x13)]) + mcv + clock + u32(len(data)) + data
    low = len(data) - 1 if data else 0
    return bytes([about.get("flags", 0) & 0xF0 | low]) + mcv + clock + data


def _fields(known, fields: dict) -> bytes:
    """Return the bytes of the fields in a payload. They must be exactly the fields in the table."""
    for layout in known.layouts["<"]:
        names = [part.split('"')[0] for part in layout.members.split(',"')[1:]]
        if all(name in fields for name in names):
            return layout.struct.pack(*(fields[name] for name in names))
    return b""


def as_dumped(event: bytes) -> Event:
    (clock,) = struct.unpack_from("<Q", event, 4)
    return Event(clock, event[1:4].decode(), event[12:])


@every_stream
def test_events_are_those_that_ovnidump_prints(stream: Path) -> None:
    records = events_of(decode(stream))
    assert [as_dumped(event) for event in rebuilt(records)] == dumped(stream)


PAYLOADS = st.binary(max_size=16).filter(lambda data: len(data) != 1)
CLOCKS = st.integers(0, 2**40)
UNKNOWN = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=3, max_size=3
).filter(lambda mcv: mcv.encode() not in EVENTS)
MCVS = st.sampled_from([mcv.decode() for mcv in EVENTS]) | UNKNOWN
JUMBOS = st.sampled_from(["VYc", "6Yc", "POc", "VWC"]) | UNKNOWN
ANY = (
    st.builds(event, MCVS, CLOCKS, PAYLOADS, flags=st.sampled_from([0, 0, 0x20, 0xE0]))
    | st.builds(jumbo, JUMBOS, CLOCKS, st.binary(max_size=40), flags=st.sampled_from([0x13, 0x10, 0xF0]))
    | st.builds(lambda type_, label: jumbo("VYc", 5, u32(type_) + label), st.integers(0, 3), st.binary())
    | st.builds(lambda task, body: event("VTx", 5, u32(task, body)), st.integers(0, 2), st.integers(0, 2))
    | st.builds(lambda task, body: event("VTe", 5, u32(task, body)), st.integers(0, 2), st.integers(0, 2))
    | st.builds(mark, st.sampled_from(["OM[", "OM]", "OM="]), CLOCKS, st.integers(0, 2), st.integers(-1, 1))
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(ANY, max_size=40))
def test_nothing_of_an_event_is_lost(events: list[bytes]) -> None:
    records = events_of(read(HEADER + b"".join(events)))
    assert rebuilt(records) == events


@settings(deadline=None)
@given(st.lists(ANY, max_size=40))
def test_the_quick_reader_says_what_the_other_does(events: list[bytes]) -> None:
    data = HEADER + b"".join(events)
    quick = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            EventReader, "read_usual", lambda self, buffer, at, offset, last, records: (at, last)
        )
        assert read(data) == quick


@every_stream
def test_the_quick_reader_says_of_real_traces_what_the_other_does(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = decode(stream)
    monkeypatch.setattr(
        EventReader, "read_usual", lambda self, buffer, at, offset, last, records: (at, last)
    )
    assert decode(stream) == quick


# Missing events

MISSING = {
    "finished-but-lost": ["finished_without_data"],
    "stale-tail-aligned": ["stale_tail"],
    "truncated-kill9": ["unfinished"],
}


@every_stream
def test_gaps_are_said_of_traces_that_lack_something_and_of_no_other(stream: Path) -> None:
    trace = stream.relative_to(TRACES).parts[0]
    assert gaps(decode(stream)) == MISSING.get(trace, [])
    without = MISSING.get(trace, [])
    assert gaps(decode(stream, told=False)) == [
        "unfinished" if detail == "finished_without_data" else detail for detail in without
    ]


@every_stream
def test_real_events_have_no_flaw_but_what_the_trace_was_made_for(stream: Path) -> None:
    trace = stream.relative_to(TRACES).parts[0]
    made_for = {"jumbo-len-0": {"bad_payload"}, "stale-tail-aligned": {"stale_tail"}}
    flaws = {record.flaw for record in events_of(decode(stream))} - {None}
    assert flaws == made_for.get(trace, set())


@every_stream
def test_every_real_span_that_began_ended_but_for_what_was_cut_off(stream: Path) -> None:
    records = [record for record in decode(stream) if record.flaw != "stale_tail"]
    begun = [record.id for record in records if record.kind == Kind.BEGIN]
    ended = [record.id for record in records if record.kind == Kind.END]
    assert begun == list(range(1, len(begun) + 1))
    assert len(ended) == len(set(ended))
    still_open = set(begun) - set(ended)
    assert len(still_open) == (1 if gaps(decode(stream)) == ["unfinished"] and begun else 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (HEADER + starts(5) + ends(9), []),
        (HEADER + starts(5), ["unfinished"]),
        (HEADER + starts(5) + ends(9) + event("OHx", 10), ["unfinished"]),
        (HEADER + starts(5) + ends(9) + event("OHC", 10) + event("OF[", 11), []),
        (HEADER, ["unfinished"]),
        (b"", ["unfinished"]),
        (b"no stream of ovni at all", []),
        (HEADER + starts(5) + ends(9) + event("VU]", 3) + event("VU[", 4), ["stale_tail"]),
    ],
)
def test_a_stream_lacks_its_end_unless_its_thread_ended(data: bytes, expected: list[str]) -> None:
    assert gaps(read(data)) == expected


def test_what_is_missing_at_the_end_is_said_once() -> None:
    decoder = FORMAT.decoder(4096, None)
    assert gaps(decoder.feed(HEADER) + decoder.end()) == ["unfinished"]
    assert gaps(decoder.feed(starts(5)) + decoder.end()) == []


def test_metadata_that_comes_before_the_last_bytes_makes_no_gap() -> None:
    decoder = FORMAT.decoder(4096, None)
    records = decoder.feed(HEADER) + decoder.document("stream.json", b'{"ovni":{"finished":1}}')
    records += decoder.feed(starts(5) + ends(6)) + decoder.end()
    assert gaps(records) == []


@pytest.mark.parametrize("rest", [jumbo("VYc", 6, b"x" * 4000)[:30], b"\xff" * 500, b"\xff"])
def test_after_the_end_events_are_read_as_soon_as_they_come(rest: bytes) -> None:
    decoder = FORMAT.decoder(1 << 16, None)
    decoder.feed(HEADER + starts(5) + rest)
    decoder.end()
    assert decoder.pending == 0
    records = decoder.feed(b"\xff" * 4 + event("VS@", 7))
    assert [(record.kind, record.size) for record in records] == [("malformed", 4), ("instant", 12)]


# A trace that grows

STEPS = TRACES / "live-growth" / "steps.txt"


@pytest.mark.parametrize("stream", streams("live-growth"), ids=lambda path: path.parent.name)
def test_a_trace_that_grows_gives_the_records_of_the_whole(stream: Path) -> None:
    """The decoder gets the trace step by step as it was copied while it was written, and each document at each step."""
    whole = stream.read_bytes()
    decoder = FORMAT.decoder(1 << 21, None)
    decoder.begin(str(stream), "auto")
    records: list[Record] = []
    at = 0
    for line in STEPS.read_text().splitlines():
        step, _, _, *sizes = line.split()
        known = dict(size.split("=") for size in sizes)
        size = int(known[f"{stream.parent.name}/stream.obs"])
        trace = TRACES / "live-growth"
        beside = trace / step / stream.relative_to(trace / "ovni").with_name("stream.json")
        records += decoder.document("stream.json", beside.read_bytes())
        records += decoder.feed(whole[at:size])
        at = size
        assert decoder.pending < 28
    assert at == len(whole)
    records += decoder.end()
    assert gaps(records) == []
    mine, others = events_of(records), events_of(decode(stream, told=False))
    assert [r.offset for r in mine] == [r.offset for r in others]
    assert [as_dumped(event) for event in rebuilt(mine)] == dumped(stream)
    told = [json.loads(r.attributes)["producer"] for r in records if r.name == "metadata"]
    assert told[-1] == json.loads(stream.with_name("stream.json").read_bytes())
    assert len(told) == len({json.dumps(each) for each in told})


# Damage


WHOLE = streams("nosv-inline-l4")[0].read_bytes()


@settings(deadline=None, max_examples=40)
@given(st.integers(8, len(WHOLE) - 1), st.binary(max_size=40), st.integers(0, 40))
@example(1342, b"", 20).via("what is left is the head of an unknown event of 272 bytes")
@example(1345, b"", 3).via("another size of a known event")
def test_damage_costs_what_it_hit_and_little_more(place: int, junk: bytes, gone: int) -> None:
    """All events that lie wholly before the damage are found, and all but a few of the events after it. The search
    continues after the event that the damaged bytes form, however long this event seems to be."""
    records = events_of(read(WHOLE[:place] + junk + WHOLE[place + gone :]))
    found = Counter(r.start if r.start is not None else r.end for r in records)
    hit = max((r.offset + r.size for r in records if r.offset < place + len(junk)), default=0)
    behind = max(place + gone, hit - len(junk) + gone)
    for record in events_of(read(WHOLE)):
        clock = record.start if record.start is not None else record.end
        if record.offset + record.size <= place or record.offset >= behind + 60:
            assert found[clock]


def test_an_event_in_the_middle_of_nothing_is_found() -> None:
    noise = bytes(range(256)) * 40
    data = HEADER + starts(1000) + b"\0" + noise + event("MS[", 2000) + noise + event("MS]", 3000)
    assert [r.start or r.end for r in events_of(read(data))] == [1000, 2000, 3000]


def test_memory_is_bounded_whatever_comes() -> None:
    """A long stream leaves no larger state than a short stream."""
    begins = b"".join(event("VU[", 10 + i) for i in range(5000))
    tasks = b"".join(event("VTc", 10**6 + i, u32(i, i)) for i in range(5000))
    types = b"".join(jumbo("VYc", 2 * 10**6 + i, u32(i) + b"x" * 250) for i in range(3000))
    marks = b"".join(mark("OM[", 3 * 10**6 + i, 1, i) for i in range(3000))
    flushes = b"".join(event("OF[", 4 * 10**6 + i) for i in range(3000))
    decoder = FORMAT.decoder(1 << 21, None)
    decoder.feed(HEADER + begins + tasks + types + marks + flushes)
    assert len(decoder.state.stack.nested) == OPEN_MAX
    assert len(decoder.state.stack.alone) <= OPEN_MAX
    assert len(msgspec.msgpack.encode(decoder.state)) < 300_000
