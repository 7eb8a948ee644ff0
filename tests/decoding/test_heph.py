"""Test Heph beyond the guarantees of the contract: the records have the meaning that the producer intended."""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from tailrace.decoding.contract import Acknowledgement
from tailrace.decoding.formats.heph import FORMAT, body as heph_body
from tailrace.decoding.formats.heph.session import stored_name
from tailrace.model.record import Announcement, Kind, Record, SessionFacts

VECTORS = Path(__file__).parent.parent / "vectors" / "heph"
LIMIT = 1 << 20
CODES = {"u64": (1, ">Q"), "i64": (2, ">q"), "f64": (3, ">d"), "string": (4, "")}

Attribute = tuple[str, str, object]
"""Name, type and value of an attribute. If the type ends in [], the value is a list."""


def string(text: bytes) -> bytes:
    return struct.pack(">H", len(text) % 65536) + text


def scalar(type_: str, value: object) -> bytes:
    return string(value.encode()) if isinstance(value, str) else struct.pack(CODES[type_][1], value)


def attribute(name: str, type_: str, value: object) -> bytes:
    code = CODES[type_.removesuffix("[]")][0]
    if not isinstance(value, list):
        return string(name.encode()) + bytes([code]) + scalar(type_, value)
    values = b"".join(scalar(type_[:-2], element) for element in value)
    return string(name.encode()) + bytes([0x80 | code]) + struct.pack(">H", len(value)) + values


def event(description: bytes, attributes: bytes = b"", **header: int) -> bytes:
    fields = {"stream": 1, "count": 0, "substream": 0, "start": 10, "end": 20} | header
    body = string(description) + attributes
    return struct.pack(">IIIIQQQ", 0xC1FC1FB7, 40 + len(body), *fields.values()) + body


def option(name: bytes, value: bytes) -> bytes:
    return struct.pack(">II", 0x75D11D4D, 10 + len(name) + len(value)) + string(name) + value


def decode(data: bytes, limit: int = LIMIT) -> list[Record]:
    decoder = FORMAT.decoder(limit, None)
    return decoder.feed(data) + decoder.end()


def only(data: bytes) -> Record:
    (record,) = decode(data)
    return record


def read_value(value: object) -> object:
    """Return the value that a reader gets from a JSON value, according to the docstring of the module `body`."""
    if isinstance(value, dict):
        return struct.unpack(">d", bytes.fromhex(value["$f64"]))[0]
    return [read_value(element) for element in value] if isinstance(value, list) else value


def type_of(value: object) -> str:
    if isinstance(value, list):
        types = [type_of(element) for element in value]
        return ("i64" if "i64" in types else types[0]) + "[]"
    if isinstance(value, int):
        return "i64" if value < 0 else "u64"
    return "string" if isinstance(value, str) else "f64"


def read_attributes(text: str | None) -> list[Attribute]:
    found = json.loads(text or "{}")
    if "$list" in found:
        return [(name, type_, read_value(value)) for name, type_, value in found["$list"]]
    types = found.pop("$types", {})
    values = {name: read_value(value) for name, value in found.items()}
    return [(name, types.get(name) or type_of(value), value) for name, value in values.items()]


def bits(value: object) -> object:
    """Return a value that compares by its bits: NaN equals itself, 1.0 differs from 1, and -0.0 differs from 0.0."""
    if isinstance(value, list):
        return [bits(element) for element in value]
    return ("f64", struct.pack(">d", value)) if isinstance(value, float) else value


u64, i64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
f64 = st.floats() | st.sampled_from([math.nan, -math.nan, math.inf, -0.0, 1e16, 5.0])
text = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.sampled_from(["n", "k", "", "a name", "$types"]) | text
scalars = {"u64": u64, "i64": i64, "f64": f64, "string": text}


def typed(name: str) -> st.SearchStrategy[tuple[str, object]]:
    values = scalars[name.removesuffix("[]")]
    return st.tuples(st.just(name), st.lists(values, max_size=5) if name.endswith("]") else values)


attributes_of_any_type = st.sampled_from([n + s for n in scalars for s in ("", "[]")]).flatmap(
    typed
)
attribute_lists = st.lists(
    st.tuples(names, attributes_of_any_type).map(lambda pair: (pair[0], *pair[1])), max_size=6
)


@given(attribute_lists)
def test_attributes_can_be_read_back_exactly(given_attributes: list[Attribute]) -> None:
    """The JSON loses nothing: neither names, order and types, nor bits of values."""
    record = only(event(b"d", b"".join(attribute(*one) for one in given_attributes)))
    assert record.flaw is None
    again = read_attributes(record.attributes)
    assert [(n, t, bits(v)) for n, t, v in again] == [
        (n, t, bits(v)) for n, t, v in given_attributes
    ]


@given(attribute_lists, st.integers(0, 400), st.integers(0, 255))
def test_the_quick_reader_says_what_the_full_one_says(
    given_attributes: list[Attribute], position: int, value: int
) -> None:
    body = string(b"d") + b"".join(attribute(*one) for one in given_attributes)
    place = 3 + position % (len(body) - 2)
    for data in (body, body[:place] + bytes([value]) + body[place + 1 :]):
        quick, _ = heph_body._usual(data, 3)
        if quick and len(data) > 3:
            assert heph_body._read_any(data) == (Kind.SPAN, "d", quick, None, ())


@given(attribute_lists, attribute_lists, st.integers(0, 400), st.integers(0, 255))
def test_a_layout_says_what_the_full_reader_says(
    learned: list[Attribute], asked: list[Attribute], position: int, value: int
) -> None:
    """A layout that was learned from one body is used for another body of the same call site, and for a damaged body."""
    given_types = [(name, type_) for name, type_, _ in learned]
    asked = [one for one in asked if (one[0], one[1]) in given_types] or learned
    bodies = [string(b"d") + b"".join(attribute(*one) for one in many) for many in (learned, asked)]
    place = 3 + position % max(1, len(bodies[1]) - 3)
    bodies.append(bodies[1][:place] + bytes([value]) + bodies[1][place + 1 :])
    for body in bodies:
        heph_body.read_body(body)
        known = heph_body.read_layout(body, 3)
        if known:
            assert heph_body._read_any(body) == (*known, None, ())


@given(
    st.fixed_dictionaries(
        {
            "stream": st.integers(0, 2**32 - 1),
            "count": st.integers(0, 2**32 - 1),
            "substream": u64,
            "start": u64,
            "end": u64,
        }
    )
)
def test_header_fields_are_what_the_producer_gave(header: dict[str, int]) -> None:
    record = only(event(b"name", **header))
    assert (record.kind, record.name) == (Kind.SPAN, "name")
    assert record.stream == str(header["stream"])
    assert record.counter == header["count"]
    assert record.substream % 2**64 == header["substream"]
    attributes = json.loads(record.attributes or "{}")
    for field in ("start", "end"):
        time = getattr(record, field)
        assert time is None or 0 <= time < 2**63, "a time has no sign"
        assert attributes.pop(f"${field}", time) == header[field]
    assert attributes == {}
    assert record.flaw == (None if None not in (record.start, record.end) else "bad_time")


@pytest.mark.parametrize("size", [0, 5000], ids=["short", "long"])
def test_a_time_without_a_place_leaves_all_else_as_it_is(size: int) -> None:
    given = attribute("a", "u64", 7) + attribute("b", "string", "x" * size)
    record = only(event(b"name", given, start=2**63, end=2**63 - 1))
    assert (record.start, record.end, record.flaw) == (None, 2**63 - 1, "bad_time")
    assert json.loads(record.attributes) == {"$start": 2**63, "a": 7, "b": "x" * size}
    broken = only(event(b"name", b"\0", start=5, end=2**64 - 1))
    assert (broken.start, broken.end, broken.flaw) == (5, None, "undecodable_body")
    assert json.loads(broken.attributes) == {"$end": 2**64 - 1, "$undecoded": "00"}


def independent(case: str) -> list[dict[str, object]]:
    lines = (VECTORS / f"{case}.decoded.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", ["epoch", "spec_examples", "types", "runtime"])
def test_an_independent_decoding_says_the_same(case: str) -> None:
    """Another person has written the other program from the specification."""
    names = {code: name for name, (code, _) in CODES.items()}
    names |= {0x80 | code: name + "[]" for code, name in names.items()}
    for record, other in zip(
        decode((VECTORS / f"{case}.in").read_bytes()), independent(case), strict=True
    ):
        assert (record.offset, record.size) == (other["offset"], other["size"])
        if other["kind"] == "metadata":
            assert (record.kind, record.name) == (Kind.SESSION, other["option"])
            assert record.detail.epoch == other["epoch"]
            continue
        assert record.kind == Kind.SPAN
        assert (record.stream, record.counter) == (str(other["stream"]), other["count"])
        assert (record.start, record.end) == (other["start"], other["end"])
        assert record.substream % 2**64 == other["substream"]
        if "body_error" in other:
            assert record.flaw == "undecodable_body"
            continue
        assert (record.name, record.flaw) == (other["desc"], None)
        assert [(n, t, bits(v)) for n, t, v in read_attributes(record.attributes)] == [
            (name, names[code], bits(read_value(spelled_here(value))))
            for name, code, value in other["attrs"]
        ]


def spelled_here(value: object) -> object:
    """Return a NaN or infinity of the other program in Tailrace's spelling."""
    return {"$f64": value["f64bits"]} if isinstance(value, dict) else value


def test_events_dropped_from_a_trace_are_just_the_holes_in_its_counters() -> None:
    manifest = json.loads((VECTORS / "busy_lossy.manifest.json").read_text())
    seen = Counter(
        (int(record.stream), record.counter)
        for record in decode((VECTORS / "busy_lossy.in").read_bytes())
        if record.kind == Kind.SPAN
    )
    last = manifest["per_stream_last"]
    expected = {(int(stream), n) for stream in last for n in range(last[stream] + 1)}
    assert sorted(expected - set(seen)) == [tuple(pair) for pair in manifest["dropped"]]
    assert seen.total() == manifest["kept_events"]


def test_a_string_of_70_000_bytes_with_its_length_wrapped_costs_only_its_attributes() -> None:
    """Release builds of the producer write the length modulo 65536, but all bytes of the string."""
    numbers = attribute("n", "u64", 7)
    long = string(b"s") + b"\4" + string(b"x" * 70_000)
    records = decode(event(b"long", numbers + long, count=3) + event(b"next", count=4))
    assert [(record.name, record.counter, record.flaw) for record in records] == [
        ("long", 3, "undecodable_body"),
        ("next", 4, None),
    ]
    found = json.loads(records[0].attributes)
    assert found["n"] == 7
    assert bytes.fromhex(found["$undecoded"]) == long


def test_a_description_of_70_000_bytes_with_its_length_wrapped_is_kept() -> None:
    (record,) = decode(event(b"x" * 70_000))
    assert (record.name, record.flaw) == ("x" * (70_000 - 65_536), "undecodable_body")
    assert json.loads(record.attributes) == {"$undecoded": (b"x" * 65_536).hex()}


def test_text_cut_inside_a_character_is_kept_byte_for_byte() -> None:
    """The producer truncates formatted text at 65,535 bytes, even within a character."""
    raw = "é".encode() * 40_000
    record = only(event(b"cut", string(b"s") + b"\4" + string(raw[:65_535])))
    assert record.flaw == "invalid_utf8"
    assert bytes.fromhex(json.loads(record.attributes)["s"]["$bytes"]) == raw[:65_535]


def test_noise_is_handed_on_in_pieces_that_do_not_depend_on_arrival() -> None:
    noise = b"\x00" * 200_000
    records = decode(noise + event(b"d"))
    assert [record.size for record in records] == [65_533, 65_533, 65_533, 200_000 - 3 * 65_533, 43]
    assert {record.flaw for record in records[:-1]} == {"bad_magic"}


def test_a_packet_longer_than_the_limit_is_malformed_and_the_next_is_read() -> None:
    long = event(b"x" * 60_000)
    records = decode(long + event(b"next"), limit=4096)
    assert [record.name for record in records if record.kind != Kind.MALFORMED] == ["next"]
    assert {record.flaw for record in records[:-1]} == {"too_long"}
    assert sum(record.size for record in records[:-1]) == len(long)


def test_a_packet_nobody_finishes_does_not_swallow_those_after_it() -> None:
    torn = event(b"x" * 500)[:100]
    whole = [event(b"whole", count=n) for n in range(3)]
    records = decode(torn + b"".join(whole))
    assert [(record.kind, record.flaw) for record in records[:1]] == [(Kind.MALFORMED, "torn")]
    assert [record.counter for record in records[1:]] == [0, 1, 2]


def test_datagrams_cut_off_do_not_touch_one_another() -> None:
    decoder = FORMAT.decoder(LIMIT, None)
    records: list[Record] = []
    for datagram in (event(b"a")[:-1], event(b"b"), b"\xc1", event(b"c") + b"x", event(b"d")):
        records += decoder.feed(datagram)
        if decoder.pending:
            records += decoder.end()
    assert [r.name for r in records if r.kind == Kind.SPAN] == ["b", "c", "d"]
    assert [r.flaw for r in records if r.kind == Kind.MALFORMED] == [
        "truncated",
        "truncated",
        "bad_magic",
    ]


def header(size: int) -> bytes:
    return struct.pack(">IIIIQQQH", 0xC1FC1FB7, size, 1, 0, 0, 0, 0, 0)


UNITS = {
    "long": header(LIMIT),
    "short": header(4096),
    "magic": header(0)[:4],
    "less": header(0)[:3],
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_million_bytes_made_to_cost_time_cost_little(unit: bytes) -> None:
    """The input has nested packets, and magics without packets. If the run time were quadratic, the test would take
    very long. It measures no time."""
    data = unit * (LIMIT // len(unit))
    records = decode(data)
    assert sum(record.size for record in records) == len(data)
    assert Kind.SPAN not in {record.kind for record in records[:-100]}


def test_a_number_that_looks_like_a_magic_does_not_tear_its_packet() -> None:
    magic = attribute("n", "u64", 0xC1FC1FB7)
    array = attribute("l", "u64[]", [0xC1FC1FB7, 50, 0xC1FC1FB7])
    for body in (magic * 6 + array, array + magic * 6, array):
        (record,) = decode(event(b"d", body))
        assert record.flaw is None


def test_a_packet_torn_in_an_array_does_not_swallow_those_that_complete_it() -> None:
    torn = event(b"torn", attribute("l", "u64[]", [7] * 40))[:120]
    whole = [event(b"whole", count=n) for n in range(8)]
    records = decode(torn + b"".join(whole))
    assert [(r.kind, r.flaw, r.size) for r in records[:1]] == [(Kind.MALFORMED, "torn", 120)]
    assert [record.counter for record in records[1:]] == list(range(8))


@pytest.mark.parametrize("size", [*range(245, 262), *range(1262, 1290)])
def test_a_packet_is_found_after_noise_of_any_length(size: int) -> None:
    records = decode(b"\xc1" * size + event(b"found"))
    assert [(record.size, record.name) for record in records] == [(size, None), (47, "found")]


def test_the_reason_of_noise_ends_with_the_datagram() -> None:
    decoder = FORMAT.decoder(128, None)
    records = decoder.feed(header(1000) + b"x" * 300) + decoder.end()
    assert {record.flaw for record in records} == {"too_long"}
    (record,) = decoder.feed(b"other noise") + decoder.end()
    assert record.flaw == "bad_magic"


def test_thousands_of_call_sites_are_read_like_one() -> None:
    """There are more call sites than layouts in the cache. A layout that was removed is learned again."""
    sites = [event(f"site {n}".encode(), attribute("n", "u64", n)) for n in range(5000)]
    records = decode(b"".join(sites) * 2)
    assert [(r.name, r.attributes) for r in records] == [
        (f"site {n}", f'{{"n":{n}}}') for n in range(5000)
    ] * 2


u32 = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        Acknowledgement,
        st.just("8c1f" * 8),
        u32,
        st.dictionaries(u32.map(str), u32),
        st.lists(st.tuples(u32.map(str), u32, u32)),
        st.booleans(),
        st.dictionaries(u32.map(str), st.integers(1, 2**40)),
        st.lists(u32.map(str)),
    )
)
def test_an_answer_is_one_packet_that_says_it_all(answer: Acknowledgement) -> None:
    packet = FORMAT.acknowledge(answer)
    (record,) = decode(packet)
    assert (record.kind, record.name, record.flaw) == (Kind.SESSION, "tailrace.ack", None)
    said = json.loads(packet[10 + len("tailrace.ack") :])
    holes = [[int(stream), first, count] for stream, first, count in answer.holes]
    fields = {**msgspec.structs.asdict(answer), "holes": holes}
    fields["uncounted"] = [int(stream) for stream in answer.uncounted]
    for name in ("given_up", "uncounted"):
        if not fields[name]:
            del fields[name]
    assert said == fields


ID = "8c1f0a5e8c1f0a5e8c1f0a5e8c1f0a5e"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"tailrace.session", f'{{"session":"{ID}"}}'),
        (b"tailrace.session", f'{{"session":"{ID}","session":"{ID.upper()}","process":"{ID}"}}'),
        (b"tailrace.session", f'{{"session":"\\u0038{ID[1:]}"}}'),
        (b"tailrace.session", f'{{"session":"{ID}","turn":-1}}'),
        (b"tailrace.session", f'{{"session":"{ID}"'),
        (b"tailrace.ack", f'{{"session":"{ID}"}}'),
        (b"tailrace.new", f"\xff{ID}"),
    ],
)
def test_no_record_holds_an_id_by_which_a_session_goes_on(name: bytes, value: str) -> None:
    """The records have the same name for the session each time. A client cannot announce this name as an id."""
    (record,) = decode(option(name, value.encode("latin-1")))
    assert record.attributes is not None
    for text in (record.attributes, bytes.fromhex("".join(re.findall(r'bytes":"(\w+)', record.attributes)))):  # fmt: skip
        shown = text if isinstance(text, str) else text.decode("latin-1")
        assert ID not in shown.lower()
        assert ID[1:] not in shown.lower()
    if record.flaw is None and name == b"tailrace.session":
        name_of = stored_name(ID.upper() if "C1F" in value else ID)
        assert json.loads(record.attributes)["session"] == name_of
        (again,) = decode(option(name, json.dumps({"session": name_of}).encode()))
        assert again.flaw == "bad_session"


@pytest.mark.parametrize(
    ("part", "flaw"),
    [("0", None), ("8191", None), ("8192", "bad_session"), ("-1", "bad_session"), ('"0"', "bad_session")],
)  # fmt: skip
def test_a_goodbye_has_so_many_parts_at_most(part: str, flaw: str | None) -> None:
    (record,) = decode(option(b"tailrace.goodbye", f'{{"part":{part}}}'.encode()))
    assert record.flaw == flaw


@pytest.mark.parametrize(
    ("now", "said", "flaw"),
    [("0", 0, None), (str(2**63 - 1), 2**63 - 1, None), (str(2**63), None, "bad_session"),
     ("-1", None, "bad_session"), ("1.5", None, "bad_session"), ("null", None, None)],
)  # fmt: skip
def test_an_announcement_may_say_when_it_was_made(
    now: str, said: int | None, flaw: str | None
) -> None:
    (record,) = decode(option(b"tailrace.session", f'{{"session":"{ID}","now":{now}}}'.encode()))
    assert record.flaw == flaw
    if flaw is None:
        assert record.detail == SessionFacts(announces=Announcement(ID, now=said))


def test_an_option_of_any_size_and_depth_is_read_or_kept_as_it_is() -> None:
    ranges = ",".join("[1,2,3]" for _ in range(100_000)).encode()
    for value, flaw in [
        (b'{"ranges":[' + ranges + b"]}", None),
        (b'{"ranges":' + b"[" * 500_000, "bad_session"),
        (b'{"x":' * 100_000, "bad_session"),
        (b'{"ranges":[[1,' + b"9" * 500_000 + b",1]]}", "bad_session"),
    ]:
        (record,) = decode(option(b"tailrace.report", value))
        assert record.flaw == flaw
        assert (record.detail is None) == (flaw is not None)
