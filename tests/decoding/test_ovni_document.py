"""Test metadata and clock offsets that are rewritten in place, empty, incomplete, late or wrong."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.decoder import OvniDecoder
from tailrace.decoding.formats.ovni.names import MARKS_MAX
from tailrace.model.record import Kind, Record
from tests.decoding.ovni_bytes import HEADER, ends, mark, starts

PATH = "/scratch/ovni/loom.node1.job/proc.70/thread.71/stream.obs"
STREAM = "node1.job/70/71"
OFFSETS = "../../../clock-offsets.txt"
HEADING = "rank       hostname             offset_median  offset_mean  offset_std\n"
TITLES = {"1": {"title": "Phase", "labels": {"1": "compute", "2": "io"}}, "2": {"title": "Step"}}


def begun() -> OvniDecoder:
    decoder = FORMAT.decoder(1 << 20, None)
    decoder.begin(PATH, "auto")
    return decoder


def metadata(**ovni: object) -> bytes:
    return json.dumps({"version": 3, "ovni": ovni}).encode()


def names(records: list[Record]) -> dict[str, str]:
    return {
        json.loads(r.attributes)["$key"]: r.name
        for r in records
        if r.kind == Kind.NAME and not r.size
    }


def test_metadata_is_told_whole_when_it_changes_and_only_then() -> None:
    decoder = begun()
    (first,) = decoder.document("stream.json", b'{ "version": 3,\n "big": 123456789012345678901 }')
    assert (first.kind, first.name, first.size) == (Kind.SESSION, "metadata", 0)
    assert first.stream == STREAM
    assert first.attributes == '{"producer":{"version":3,"big":123456789012345678901}}'
    assert decoder.document("stream.json", b'{"version":3,"big":123456789012345678901}\n') == []
    (again,) = decoder.document("stream.json", b'{"version":3,"big":1}')
    assert json.loads(again.attributes)["producer"]["big"] == 1


def test_each_document_is_compared_with_itself() -> None:
    decoder = begun()
    assert len(decoder.document("thread.71.json", metadata(finished=1))) == 1
    (of_process,) = decoder.document("metadata.json", b'{"version":1,"app_id":1}')
    assert of_process.attributes == (
        '{"producer":{"version":1,"app_id":1},"document":"metadata.json"}'
    )
    assert decoder.document("thread.71.json", metadata(finished=1)) == []


def test_a_thread_that_has_finished_has_whatever_is_said_of_its_process() -> None:
    decoder = begun()
    decoder.document("thread.71.json", metadata(finished=1))
    decoder.document("metadata.json", b'{"version":2,"app_id":1}')
    (gap,) = decoder.end()
    assert gap.detail.detail == "finished_without_data"
    decoder.document("thread.71.json", metadata())
    assert not decoder.state.documents.finished


@pytest.mark.parametrize(
    "text",
    ['{"a":1e999}', '{"a":-0.0e-5}', '{"a":"\\u0000\\ud83d\\ude00"}', '{"a":1,"a":2}', '{"a":"\x7f/\\/"}',
     '{"a":' + "[" * 127 + "]" * 127 + "}", '{"\u00e9":"\u2028"}', "{}"],
)  # fmt: skip
def test_odd_json_is_told_as_it_is_spelled(text: str) -> None:
    (told,) = begun().document("stream.json", b" " + text.encode() + b"\r\n")
    assert told.attributes == f'{{"producer":{text}}}'


@pytest.mark.parametrize(
    "half", [b"", b"{", b'{"version": 3, "ovni": {"lib', b"[]", b"\xff", b'{"a":NaN}', b"null"]
)
def test_what_cannot_be_read_is_named_only_if_it_never_can_be(half: bytes) -> None:
    decoder = begun()
    decoder.feed(HEADER + starts(5) + ends(6))
    assert decoder.document("stream.json", half) == []
    (bad,) = decoder.end()
    assert (bad.name, bad.flaw, bad.size) == ("metadata", "bad_metadata", 0)
    assert json.loads(bad.attributes) == {"document": "stream.json", "bytes": len(half)}
    assert decoder.end() == []

    decoder = begun()
    decoder.feed(HEADER + starts(5) + ends(6))
    decoder.document("stream.json", half)
    assert len(decoder.document("stream.json", metadata())) == 1
    assert decoder.end() == []


def test_records_of_documents_stand_where_the_stream_is() -> None:
    decoder = begun()
    stream = HEADER + starts(5) + ends(6)
    records = decoder.document("stream.json", metadata(pid=1))
    records += decoder.feed(stream[:20])
    records += decoder.document("stream.json", metadata(pid=2))
    records += decoder.feed(stream[20:])
    records += decoder.document("stream.json", metadata(pid=3))
    assert [(r.offset, r.size) for r in records] == [
        (0, 0),
        (0, 8),
        (8, 0),
        (8, 28),
        (36, 12),
        (48, 0),
    ]


# Marks


def test_marks_are_named_for_the_whole_trace() -> None:
    records = begun().document("stream.json", metadata(mark=TITLES))
    assert names(records) == {
        "mark:1": "Phase", "mark:1:1": "compute", "mark:1:2": "io", "mark:2": "Step",
    }  # fmt: skip
    assert all(json.loads(r.attributes)["$scope"] == "group" for r in records[1:])


def test_marks_that_are_known_are_written_and_others_asked_for() -> None:
    decoder = begun()
    decoder.document("stream.json", metadata(mark=TITLES))
    events = [
        ("OM[", 1, 1),
        ("OM[", 1, 9),
        ("OM[", 3, 1),
        ("OM=", 2, 4),
        ("OM=", 1, 2),
        ("OM=", 3, 1),
    ]
    data = b"".join(mark(mcv, 10 + i, *rest) for i, (mcv, *rest) in enumerate(events))
    records = decoder.feed(HEADER + starts(5) + data)[2:]
    found = [(record.name, json.loads(record.attributes)) for record in records]
    for _, about in found:
        del about["mcv"]
    assert found == [
        ("compute", {"type": 1, "value": 1, "title": "Phase"}),
        (None, {"type": 1, "value": 9, "$name": "mark:1:9\nmark:1", "title": "Phase"}),
        (None, {"type": 3, "value": 1, "$name": "mark:3:1\nmark:3", "$late": {"title": "mark:3"}}),
        ("Step", {"type": 2, "value": 4, "$late": {"label": "mark:2:4"}}),
        ("Phase", {"type": 1, "value": 2, "label": "io"}),
        (None, {"type": 3, "value": 1, "$name": "mark:3", "$late": {"label": "mark:3:1"}}),
    ]


def test_marks_known_later_are_written_from_then_on() -> None:
    decoder = begun()
    (before,) = decoder.feed(HEADER + starts(5) + mark("OM[", 6, 1, 1))[2:]
    decoder.document("stream.json", metadata(mark=TITLES))
    (after,) = decoder.feed(mark("OM[", 7, 1, 1))
    assert (before.name, after.name) == (None, "compute")


def test_a_mark_described_in_two_ways_is_a_flaw_and_the_later_counts() -> None:
    decoder = begun()
    decoder.document("stream.json", metadata(mark=TITLES))
    told, named = decoder.document("stream.json", metadata(mark={"1": {"title": "Stage"}}))
    assert (told.flaw, named.name) == ("mark_conflict", "Stage")


def test_only_what_is_new_is_named_again() -> None:
    decoder = begun()
    decoder.document("stream.json", metadata(mark=TITLES))
    more = TITLES | {"2": {"title": "Step", "labels": {"-7": "seven"}}}
    assert names(decoder.document("stream.json", metadata(mark=more))) == {"mark:2:-7": "seven"}


def test_too_many_marks_are_named_and_not_all_remembered() -> None:
    labels = {str(value): f"label {value}" for value in range(1, MARKS_MAX + 100)}
    decoder = begun()
    records = decoder.document(
        "stream.json", metadata(mark={"1": {"title": "T", "labels": labels}})
    )
    assert len(names(records)) == len(labels) + 1
    assert len(decoder.state.names.marks) == MARKS_MAX


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ovni", "mark", "1", "title", "labels", "finished"]), inner
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(
    st.lists(JSON.map(lambda value: json.dumps({"ovni": value}).encode()) | st.binary(max_size=40))
)
def test_no_document_raises_and_what_it_says_is_json(documents: list[bytes]) -> None:
    decoder = begun()
    for data in documents:
        for name in ("stream.json", "metadata.json", OFFSETS):
            for record in decoder.document(name, data):
                assert record.size == 0
                if record.attributes:
                    json.loads(record.attributes)
    msgspec.msgpack.decode(msgspec.msgpack.encode(decoder.state), type=FORMAT.state_type)


# Clock offsets


def offsets(decoder: OvniDecoder, *lines: str) -> list[tuple[str | None, str | None]]:
    records = decoder.document(OFFSETS, (HEADING + "".join(lines)).encode())
    assert {record.name for record in records} <= {"clock_offset"}
    return [(record.attributes, record.flaw) for record in records]


def told(offset: int, line: str) -> str:
    return f'{{"clock_offset":{offset},"line":"{line}"}}'


def test_the_median_of_the_host_is_its_offset() -> None:
    lines = "0 node0 0 0.0 0.0\n", "1   node1   -123456789   -123456788.5   135.2\n", "\n"
    assert offsets(begun(), *lines) == [(told(-123456789, lines[1][:-1]), None)]


def test_offsets_come_late_and_are_amended() -> None:
    decoder = begun()
    decoder.feed(HEADER + starts(5))
    assert offsets(decoder) == []
    assert offsets(decoder, "0 node0 0 0 0\n") == []
    assert offsets(decoder, "0 node0 0 0 0\n", "1 node1 5 0 0\n") == [
        (told(5, "1 node1 5 0 0"), None)
    ]
    assert offsets(decoder, "1 node1 5 0 0\n") == []
    assert offsets(decoder, "1 node1 6.9 0 0\n") == [(told(6, "1 node1 6.9 0 0"), None)]


def test_half_a_table_is_no_flaw() -> None:
    decoder = begun()
    table = HEADING + "1 node1 -12 0 0\n"
    for end in range(len(table)):
        records = decoder.document(OFFSETS, table[:end].encode())
        assert records == []
    assert len(decoder.document(OFFSETS, table.encode())) == 1


@pytest.mark.parametrize(
    "line",
    ["1 node1 x 0 0", "0 node0 0 0", "1 node1 1 0 0 0", "1 node1 inf 0 0", "1 node1 5 0 ?",
     "1 node1 9223372036854775808 0 0", "0 node0 1 0 0\n0 node0 1 0 0"],
)  # fmt: skip
def test_a_table_that_is_none_is_a_flaw_said_once(line: str) -> None:
    decoder = begun()
    assert offsets(decoder, line + "\n") == [(None, "bad_clock_offsets")]
    assert offsets(decoder, line + "\n") == []
    assert offsets(decoder, "1 node1 7 0 0\n") == [(told(7, "1 node1 7 0 0"), None)]
    assert offsets(decoder, line + "\n") == [(None, "bad_clock_offsets")]


def test_nothing_is_known_of_a_stream_without_a_place() -> None:
    decoder = FORMAT.decoder(4096, None)
    assert offsets(decoder, "1 node1 7 0 0\n") == []


def test_of_a_table_for_other_hosts_little_is_kept() -> None:
    decoder = begun()
    names = [f"{n}" + "x" * 100_000 for n in range(10)]
    decoder.document(OFFSETS, (HEADING + "".join(f"0 {n} 1 1 1\n" for n in names)).encode())
    assert decoder.state.documents.others == [f"0 {name}"[:1024] for name in names[:8]]


def test_of_a_table_with_two_lines_for_a_host_these_come_first() -> None:
    """If a copy of the table had only one of these lines, the offset would seem certain."""
    decoder = begun()
    names = [*(f"other{n}" for n in range(9)), "node1.a", "node1.b"]
    decoder.document(OFFSETS, (HEADING + "".join(f"0 {n} 1 1 1\n" for n in names)).encode())
    hosts = [line.split()[1] for line in decoder.state.documents.others]
    assert hosts == ["node1.a", "node1.b", *names[:6]]
