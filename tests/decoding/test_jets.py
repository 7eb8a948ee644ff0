"""Test JETS beyond the guarantees of the contract: the record of each kind of line, and that no part of a line is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from benchmarks.spellings import respelled
from tailrace.decoding.formats.jets import FORMAT
from tailrace.decoding.formats.jets.line import read_line, read_usual
from tailrace.decoding.lines import split_lines
from tailrace.model.record import Kind, Record

VECTORS = Path(__file__).parent.parent / "vectors" / "jets"
HEADER = b'{"type":"header","version":"2.0","metadata":{}}\n'


def decode(data: bytes, limit: int = 1 << 20) -> list[Record]:
    decoder = FORMAT.decoder(limit, None)
    return decoder.feed(data) + decoder.end()


def after_header(*lines: str) -> list[Record]:
    return decode(HEADER + "".join(line + "\n" for line in lines).encode())[1:]


def only(line: str) -> Record:
    (record,) = after_header(line)
    return record


# Lines that the reference reader accepts. The decoder must accept them, too (rjets, parser.rs;
# tests/vectors/jets/README.md).
TAKEN = (
    "blank_lines", "crlf", "end_before", "event_after_end", "extra_fields", "footer_mid",
    "footer_null", "no_end", "no_footer", "ok", "orphan_parent", "self_parent", "two_ends",
    "type_last", "version_3",
)  # fmt: skip
KEPT_WITH_FLAW = {"footer_mid": "after_footer", "version_3": "version"}

# Lines that the reference reader refuses, and the decoder's answer to each: the reason, or the flaw with which the line
# is kept. The answer is None if a rule about ids is broken, which a decoder cannot see, or if the line uses another
# dialect or spelling.
REFUSED = {
    "ann_unknown": None,
    "array_line": "not_an_object",
    "bad_utf8": "invalid_utf8",
    "bom": "byte_order_mark",
    "clk_float": None,
    "clk_u64": "bad_clk",
    "deep": "too_deep",
    "dup_id": None,
    "end_id_dialect": None,
    "event_before_record": None,
    "event_unknown": None,
    "id_float": None,
    "id_over_u64": "bad_id",
    "lone_surrogate": "lone_surrogate",
    "nan": "not_a_number",
    "no_description": None,
    "no_header": "no_header",
    "string_id": None,
    "torn_tail": "truncated",
    "two_headers": "header_not_first",
    "unknown_type": "unknown_type",
}


def test_every_edge_file_is_judged() -> None:
    cases = {path.stem.removeprefix("edge_") for path in VECTORS.glob("edge_*.in")}
    assert cases == {*TAKEN, *REFUSED}


@pytest.mark.parametrize("case", TAKEN)
def test_what_the_reference_reader_takes_is_read(case: str) -> None:
    records = decode((VECTORS / f"edge_{case}.in").read_bytes())
    assert Kind.MALFORMED not in {record.kind for record in records}
    assert {record.flaw for record in records} - {None} == {KEPT_WITH_FLAW.get(case)} - {None}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_reference_reader_refuses_is_named(case: str) -> None:
    records = decode((VECTORS / f"edge_{case}.in").read_bytes())
    flaws = [record.flaw for record in records if record.flaw]
    assert flaws == ([REFUSED[case]] if REFUSED[case] else [])


def test_lines_dropped_from_a_trace_are_what_the_footer_misses() -> None:
    manifest = json.loads((VECTORS / "tracegen_default_lossy.manifest.json").read_text())
    records = decode((VECTORS / "tracegen_default_lossy.in").read_bytes())
    seen = Counter(record.kind for record in records)
    totals = records[-1].detail.totals
    dropped = Counter(line["type"] for line in manifest["dropped_lines"])
    assert {kind: totals[kind] - seen[kind] for kind in totals} == {
        Kind.BEGIN: dropped["record"],
        Kind.ANNOTATION: dropped["annotation"],
        Kind.INSTANT: dropped["event"],
    }
    assert {record.flaw for record in records} == {None}


def test_the_totals_of_each_kind_of_line_are_what_the_dialect_writes() -> None:
    """Dialect A also counts the ends of records: if a line of any kind is missing, its total is too small by one."""
    lines = (VECTORS / "dialect_a.in").read_bytes().splitlines(keepends=True)
    totals = decode(b"".join(lines))[-1].detail.totals
    assert totals == Counter(
        record.kind for record in decode(b"".join(lines)) if record.kind != Kind.SESSION
    )
    for line in lines[1:-1]:
        left = Counter(r.kind for r in decode(b"".join(lines).replace(line, b"", 1)))
        assert sum(totals[kind] - left[kind] for kind in totals) == 1, line


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
def test_each_dialect_is_read_without_a_flaw(dialect: str) -> None:
    records = decode((VECTORS / f"dialect_{dialect}.in").read_bytes())
    assert {record.flaw for record in records} == {None}
    assert {Kind.SESSION, Kind.BEGIN, Kind.INSTANT, Kind.ANNOTATION, Kind.END} == {
        record.kind for record in records
    }


def test_string_ids_connect_records_as_numbers_do() -> None:
    records = after_header(
        '{"type":"record","clk":0,"name":"a","record_type":"T","id":"rec_1","parent_id":null}',
        '{"type":"record","clk":1,"name":"b","record_type":"T","id":"rec_2","parent_id":"rec_1"}',
        '{"type":"event","clk":2,"name":"e","record_id":"rec_2"}',
        '{"type":"record_end","clk":3,"id":"rec_2"}',
    )
    first, second, event, end = records
    assert (second.parent, event.parent, end.id) == (first.id, second.id, second.id)
    assert first.id != second.id
    assert all(0 <= value < 2**63 for value in (first.id, second.id))
    assert json.loads(second.attributes) == {"id": "rec_2", "parent_id": "rec_1"}


@pytest.mark.parametrize(
    ("metadata", "ticks"),
    [
        ({"clock_frequency_mhz": 2520}, 2.52e9),
        ({"clock_frequency_ghz": 1.5}, 1.5e9),
        ({"clock_frequency_hz": 32768}, 32768.0),
        ({"clock_period_ns": 0.5}, 2e9),
        ({"clock_period_ps": "500"}, 2e9),
        ({"clock_period_ns": 2, "clock_frequency_mhz": 500}, 5e8),
        ({"clock_period_ns": 2, "clock_frequency_mhz": 400}, None),
        ({"clock_period_ns": 0}, None),
        ({"clock_period_ns": 5e-324}, None),
        ({"clock_frequency_mhz": 0}, None),
        ({"clock_frequency_mhz": True}, None),
        ({"clock_frequency_mhz": "1000"}, 1e9),
        ({}, None),
    ],
)
def test_the_header_says_how_fast_the_clock_is(metadata: dict, ticks: float | None) -> None:
    (record,) = decode(
        json.dumps({"type": "header", "version": "2.0", "metadata": metadata}).encode()
    )
    assert (record.detail.clock, record.detail.ticks_per_second) == ("clk", ticks)
    assert record.detail.starts
    assert json.loads(record.attributes)["producer"] == {"version": "2.0", "metadata": metadata}


def test_a_header_after_a_footer_begins_anew() -> None:
    event = '{"clk":1,"type":"event","name":"e","record_id":1}'
    footer = '{"type":"footer"}'
    records = after_header(footer, event, HEADER.decode().strip(), event)
    assert [record.flaw for record in records] == [None, "after_footer", "header_not_first", None]


def test_the_text_of_data_is_not_touched() -> None:
    data = '{"b" : [1.50, 1E5,  -0.0], "a":12345678901234567890123, "a":"\\u00e9\\/"}'
    line = f'{{"clk":1,"type":"event","name":"e","record_id":1,"data":{data}}}'
    assert only(line).attributes == f'{{"data":{data}}}'


def test_a_line_that_is_too_long_is_malformed_and_the_next_is_read() -> None:
    long = b'{"clk":1,"type":"event","name":"' + b"x" * 200_000 + b'","record_id":1}\n'
    end = b'{"clk":1,"type":"record_end","record_id":1}\n'
    records = decode(HEADER + long + end, limit=100_000)
    assert [(r.size, r.flaw) for r in records[1:-1]] == [
        (65_536, "too_long"),
        (65_536, "too_long"),
        (65_536, "too_long"),
        (len(long) - 3 * 65_536, "too_long"),
    ]
    assert records[-1].kind == Kind.END


def test_numbers_of_any_length_take_no_time_to_refuse() -> None:
    digits = "9" * 500_000
    assert only(f'{{"clk":{digits},"type":"record_end","record_id":1}}').flaw == "bad_clk"
    assert only(f'{{"clk":1,"type":"record_end","record_id":1,"x":{digits}}}').attributes == (
        f'{{"x":{digits}}}'
    )


def test_quotes_and_brackets_without_end_take_no_time_to_refuse() -> None:
    for text in ('"\\"' * 100_000, "[" * 300_000, '{"a":' * 100_000, '\\"' * 100_000 + "[" * 200):
        assert only(text).flaw in {"bad_json", "too_deep"}


# Lines of all kinds, to compare the two readers and to search for lost fields

json_text = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from([", ", '": ', '", "', "\\", "é", "[{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2, alphabet="ab$"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def mostly(good: st.SearchStrategy, *odd: object) -> st.SearchStrategy:
    return st.integers(0, 19).flatmap(lambda n: good if n else st.sampled_from(odd))


ids = mostly(
    st.integers(0, 4) | st.just(2**63 - 1), 2**63, 2**64 - 1, 2**64, -1, 1.0, "rec_1", None
)
keys = {
    "clk": mostly(st.integers(-(2**63), 2**63 - 1), 2**63, -(2**63) - 1, 10.0, 1e2, None),
    "name": mostly(st.text(st.characters(codec="utf-8"), max_size=6), None, 5),
    "record_type": mostly(st.sampled_from(["T", ""]), 5),
    "id": ids,
    "record_id": ids,
    "parent_id": ids | st.none(),
    "description": mostly(st.sampled_from(["d", "", "a / b", "é", "\x7f", 'say ", "']), 5, None),
    "data": json_text,
    "extra": json_text,
    "$own": json_text,
    'od"d\\ \x00é': json_text,
}
escapes = st.lists(
    st.sampled_from([
        "\\ud800", "\\udc00", "\\uD83D\\uDE00", "\\u0041", "\\u001F", "\\u001f", "\\/", "\\n", "\\\\",
        "\\\\ud800", '\\"', "x", " ",
    ]),
    max_size=3,
).map(lambda tokens: '"' + "".join(tokens) + '"')  # fmt: skip
types = st.sampled_from(["record", "record_end", "event", "annotation"])
usual_keys = {
    "record": ["clk", "name", "record_type", "id", "parent_id", "description"],
    "record_end": ["clk", "record_id"],
    "event": ["clk", "name", "record_id", "description"],
    "annotation": ["name", "record_id", "description", "data"],
}


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return a line that is similar to a valid line: its keys are in any order, some are missing, added or repeated,
    and the spelling varies."""
    type_ = draw(types)
    others = draw(mostly(st.just(set()), *({key} for key in keys)))
    chosen = {*usual_keys[type_]} ^ others ^ draw(st.sampled_from([set(), {"data"}]))
    fields = [("type", type_)] + [(key, draw(keys[key])) for key in sorted(chosen)]
    if draw(st.integers(0, 9)) == 0:
        fields.append(draw(st.sampled_from(fields)))
    fields = draw(st.permutations(fields))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", "  :\t"), (",", ": ")]))
    ascii_ = draw(st.booleans())
    texts = []
    for key, value in fields:
        text = json.dumps(value, ensure_ascii=ascii_, separators=separators)
        if key in {"name", "description", "data"} and draw(st.integers(0, 5)) == 0:
            text = draw(escapes)
        texts.append(json.dumps(key) + separators[1] + text)
    return "{" + separators[0].join(texts) + "}" + draw(st.sampled_from(["", "", "\r", " "]))


@given(st.lists(lines(), min_size=1, max_size=4))
@example(['{"type":"record_end","clk":1,"record_id":2}{"type":"record_end","clk":1,"record_id":2}'])
@example(['{"type":"record_end","clk":1,', '"record_id":2}'])
@example(['{"type":"record_end","clk":1,"record_id":2,"clk":3}', '{"type":"record_end","clk":1}'])
@example(["[" * 5000, "", " "])
@example(['{"type":"record_end","clk":0,"data":"","description":"","record_id":"rec_1"}'])
@example(
    [
        '{"type":"record_end","clk":0,"record_id":"r"}',
        '{"type":"event","clk":1,"name":"n","record_id":1,"id":2}',
    ]
)
@example(['{"type":"record_end","clk":1,"record_id":2,"e\\"x\\\\t\\u0000ra":3}'])
def test_the_quick_reader_says_what_the_full_one_says(some: list[str]) -> None:
    compare_readers("".join(line + "\n" for line in some).encode())


@given(st.lists(lines(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_quick_reader_says_what_the_full_one_says_of_other_spellings(
    some: list[str], rng: random.Random
) -> None:
    compare_readers(respelled("".join(line + "\n" for line in some).encode(), rng))


def compare_readers(data: bytes) -> None:
    offset = 100
    for quick, line in zip(read_usual(100, data), split_lines(data), strict=True):
        assert quick in (line, read_line(offset, line))
        offset += len(line)
    assert not data[offset - 100 :].strip()  # no piece ends with blank lines


def test_the_quick_reader_reads_what_the_known_writers_write() -> None:
    for case in ("tracegen_tiny", "tracegen_default_lossy"):
        inner = (VECTORS / f"{case}.in").read_bytes().splitlines(keepends=True)[1:-1]
        assert {type(each) for each in read_usual(0, b"".join(inner))} == {Record}
    for spaced in (", ", ": "), (",", ":"):
        fields = {"type": "event", "name": "a name", "record_id": 1, "clk": 5, "data": [1, "b c"]}
        line = json.dumps(fields, separators=spaced)
        for newline in ("\n", "\r\n"):
            assert isinstance(read_usual(0, (line + newline).encode())[0], Record)


COLUMNS = {"clk", "type", "name", "record_type", "id", "record_id", "parent_id"}


@given(lines())
def test_every_field_of_a_line_is_in_its_record(line: str) -> None:
    """The attributes have each key with exactly its value, unless a column has the value."""
    record = only(line)
    if record.kind == Kind.MALFORMED:
        assert record.detail == line.encode() + b"\n"
        return
    attributes = json.loads(record.attributes or "{}")
    if "$line" in attributes:
        assert attributes["$line"] == line.strip()
        return
    columns = {"clk": record.start if record.end is None else record.end, "name": record.name}
    columns |= {"type": json.loads(line)["type"], "record_type": record.category}
    columns |= {"id": record.id, "parent_id": record.parent}
    columns["record_id"] = record.id if record.kind == Kind.END else record.parent
    for key, value in json.loads(line).items():
        if key in attributes:
            assert json.dumps(attributes[key]) == json.dumps(value)
        elif isinstance(value, int) and key.endswith("id"):
            assert columns[key] % 2**64 == value
        else:
            assert key in COLUMNS
            assert columns[key] == value
