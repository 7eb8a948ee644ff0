"""Test DFTracer beyond the guarantees of the contract: compare real traces with a plain reading, and check which events
are reported as missing.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given, settings, strategies as st

from benchmarks.spellings import COMMAS
from tailrace.decoding.formats.dftracer import FORMAT
from tailrace.decoding.formats.dftracer.decoder import JOINS_MAX
from tailrace.decoding.formats.dftracer.elements import Element
from tailrace.decoding.formats.dftracer.names import NAMES_MAX
from tailrace.decoding.formats.dftracer.run import GAPS_MAX
from tailrace.decoding.lines import BYTE_ORDER_MARK
from tailrace.model.gap import Reason
from tailrace.model.holding import TEXT_MAX
from tailrace.model.record import KEY, SCOPE, Kind, Missing, Record, SessionFacts
from tests.decoding.dftracer_lines import end, event, metadata, start, text

TRACES = Path(__file__).parent.parent / "vectors" / "dftracer" / "traces"
LIMIT = 1 << 16


def decode(data: bytes, limit: int = LIMIT) -> list[Record]:
    decoder = FORMAT.decoder(limit, None)
    return decoder.feed(data) + decoder.end()


def trace(name: str) -> bytes:
    return gzip.decompress((TRACES / f"{name}.pfw.gz").read_bytes())


def of(records: list[Record], *kinds: Kind) -> list[Record]:
    return [record for record in records if record.kind in kinds]


def attributes(record: Record) -> dict[str, Any]:
    return json.loads(record.attributes or "{}")


def gaps(records: list[Record]) -> list[tuple[str | None, int | None, int, str | None]]:
    """Return the reason, the first number, the count and the detail of each gap record."""
    return [
        (r.name, r.counter, r.detail.count, r.detail.detail)
        for r in records
        if isinstance(r.detail, Missing)
    ]


# Compare real traces with a plain reading of their lines


class Plain(NamedTuple):
    spans: int
    counters: int
    incomplete: bool = False


CLEAN = {
    "v108_writer_clean": Plain(60, 0),
    "v200_py_brackets": Plain(98, 0),
    "v203_agg_phC": Plain(0, 46),
    "v210_py_brackets": Plain(98, 0),
    "v220_fork_undefined_hash": Plain(18, 0),
    "v220_fork_parent": Plain(38, 0),
    "v220_multiprocess_fork": Plain(25, 0),
    "v220_multiprocess_parent": Plain(59, 0),
    "v220_preload_threads": Plain(816, 0),
    "v220_py_gz_many_members": Plain(98, 0),
    "v220_py_plain": Plain(98, 0),
    "v220_reexec_child": Plain(5, 0),
    "v220_service_counters": Plain(0, 72),
    "v220dev_default_agg": Plain(25, 28),
}
DAMAGED = {
    "v108_writer_crash", "v220_bad_json", "v220_kill9_gz", "v220_kill9_partial_line", "v220_reexec_fork",
    "v220_reexec_gz_torn",
}  # fmt: skip


def test_every_trace_is_judged() -> None:
    assert {path.name.removesuffix(".pfw.gz") for path in TRACES.iterdir()} == {*CLEAN, *DAMAGED}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_trace_is_read_whole_and_nothing_is_missing(name: str) -> None:
    data = trace(name)
    records = decode(data)
    plain = [
        json.loads(line) for line in data.split(b"\n") if line.strip() not in {b"", b"[", b"]"}
    ]
    said = [r for r in records if r.size and r.name not in {"bracket", "blank_lines"}]
    assert len(said) == len(plain)
    assert {r.flaw for r in records} == {None}
    assert gaps(records) == []
    assert len(of(records, Kind.SPAN)) == CLEAN[name].spans
    assert len(of(records, Kind.COUNTER)) == CLEAN[name].counters
    for record, line in zip(said, plain, strict=True):
        check(record, line)


def check(record: Record, line: dict[str, Any]) -> None:
    """Compare a record with its line."""
    found = attributes(record)
    assert record.stream == f"{line['pid']}/{line['tid']}"
    assert record.category == line["cat"]
    assert found.get("id") == line.get("id")
    assert found.get("type") == line.get("type")
    assert record.start == line.get("ts")
    assert record.end == (line["ts"] + line["dur"] if "dur" in line else None)
    args = line["args"]
    if record.kind == Kind.NAME:
        assert record.name == args["name"]
        assert found[KEY] == f"{line['name']}:{args['value']}"
        assert found[SCOPE] == ("source" if isinstance(args["value"], str) else "group")
        return
    assert record.name == line["name"]
    if record.name in {"start", "end"}:
        assert found["producer"] == (args if record.name == "start" else {"end": args})
    else:
        assert found["args"] == args
    assert found.get("aggregate", False) == ("dft_cnt" in args)


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_names_stand_for_the_hashes_of_each_event(name: str) -> None:
    data = trace(name)
    names: dict[str, str] = {}
    for record in decode(data):
        found = attributes(record)
        args = found.get("args", {})
        for member, kind, arg in (("fname", "FH", "fhash"), ("hostname", "HH", "hhash")):
            if record.kind in {Kind.SPAN, Kind.COUNTER} and arg in args:
                key = f"{kind}:{args[arg]}"
                assert found.get(member) == names.get(key)
                assert found.get("$late", {}).get(member) == (None if key in names else key)
        if record.kind == Kind.NAME:
            names[found[KEY]] = record.name or ""


def test_ids_out_of_order_are_no_loss() -> None:
    ids = [attributes(r)["id"] for r in decode(trace("v220_preload_threads")) if r.start]
    assert ids != sorted(ids)
    assert sorted(ids) == list(range(1, 819))


def test_calls_that_were_aggregated_took_numbers() -> None:
    """The trace has events with 27 of 123 ids. The other 96 ids belong to calls that were aggregated, so no event is
    missing.
    """
    records = decode(trace("v220dev_default_agg"))
    ids = {attributes(r)["id"] for r in records if r.kind != Kind.COUNTER and r.start}
    folded = sum(attributes(r)["args"]["dft_cnt"] for r in of(records, Kind.COUNTER))
    assert (len(ids), max(ids), folded) == (27, 123, 96)
    assert {attributes(r)["aggregate"] for r in of(records, Kind.COUNTER)} == {True}


def test_the_service_s_counters_keep_their_padding_and_numbers() -> None:
    first = {r.name: r for r in reversed(of(decode(trace("v220_service_counters")), Kind.COUNTER))}
    assert first["net-    lo"].stream == "0/0"
    assert '"steal_pct":0.588128,"irq_pct":0,' in (first["cpu"].attributes or "")
    assert attributes(first["cpu"])["$late"] == {"hostname": "HH:6882804a826580cd"}


def test_a_forked_child_refers_to_names_of_its_parent() -> None:
    child, parent = decode(trace("v220_fork_undefined_hash")), decode(trace("v220_fork_parent"))
    late = {key for r in child for key in attributes(r).get("$late", {}).values()}
    given = {attributes(r)[KEY] for r in of(child, Kind.NAME)}
    assert late
    assert not late & given
    assert late <= {attributes(r)[KEY] for r in of(parent, Kind.NAME)}


def test_what_the_tracer_did_not_escape_is_read_all_the_same() -> None:
    """The trace has 46 lines. 18 of them are not valid JSON, and three records were truncated at 16,383 bytes."""
    records = decode(trace("v220_bad_json"))
    bad = of(records, Kind.MALFORMED)
    assert [(r.size, r.flaw) for r in bad] == [(16383, "cut")] * 3
    assert Counter(r.flaw for r in records if r.kind != Kind.MALFORMED) == {
        None: 27, "unescaped": 7, "split_line": 2, "bare_nan": 3, "glued": 3, "invalid_utf8": 1,
        "backslash": 1,
    }  # fmt: skip
    assert gaps(records) == []
    names = [r.name for r in of(records, Kind.SPAN)]
    assert names[:6] == [
        'quote"in name',
        "new\nline",
        "back\\slash",
        "tab\there",
        "ünïcode→✓",
        "ctl\1x",
    ]
    ids = {attributes(r)["id"] for r in records if r.start}
    assert ids == set(range(1, 36)) - {15, 17}


@pytest.mark.parametrize(
    ("name", "spans", "malformed"),
    [
        ("v108_writer_crash", 56, []),
        ("v220_kill9_gz", 896, ["truncated"]),
        ("v220_kill9_partial_line", 704, ["truncated"]),
        ("v220_reexec_fork", 3, ["truncated"]),
        ("v220_reexec_gz_torn", 25, ["bad_json", "bad_json", "cut"]),
    ],
)
def test_a_killed_process_leaves_an_unknown_tail(
    name: str, spans: int, malformed: list[str]
) -> None:
    records = decode(trace(name))
    assert len(of(records, Kind.SPAN)) == spans
    assert [r.flaw for r in of(records, Kind.MALFORMED)] == malformed
    assert gaps(records) == [(Reason.TRUNCATED, None, 0, "no_end")]


def test_an_exec_restarts_the_session_and_names_the_unknown_tail_before_it() -> None:
    records = decode(trace("v220_reexec_gz_torn"))
    facts = [r.detail for r in records if r.name == "start"]
    assert [f.starts for f in facts if isinstance(f, SessionFacts)] == [False, True]
    order = [r.name for r in records if r.kind == Kind.GAP or r.name in {"start", "end"}]
    assert order == ["start", Reason.TRUNCATED, "start", "end"]


# Missing events


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(2, 817), max_size=400))
def test_lost_lines_are_what_is_missing(lost: set[int]) -> None:
    lines = trace("v220_preload_threads").split(b"\n")
    kept = [line for line in lines if not line or json.loads(line).get("id") not in lost]
    records = decode(b"\n".join(kept))
    found = [
        number
        for reason, first, count, detail in gaps(records)
        for number in range(first or 0, (first or 0) + count)
        if (reason, detail) == (Reason.NETWORK, "ids")
    ]
    assert found == sorted(lost)


def test_the_last_of_many_holes_stands_for_the_rest() -> None:
    last = 2 * GAPS_MAX + 5
    records = decode(text(start(), *(event(i) for i in range(3, last, 2)), end(last)))
    found = gaps(records)
    assert len(found) == GAPS_MAX
    assert sum(count for _, _, count, _ in found) == GAPS_MAX + 2
    assert found[-1] == (Reason.NETWORK, 2 * GAPS_MAX, 3, "scattered_ids")


MISSING = [(Reason.NETWORK, 3, 2, "ids")]
AGAIN = (Reason.NETWORK, None, 0, "ids")
LATE, OPEN = (Reason.LATE_JOIN, None, 0, "no_start"), (Reason.TRUNCATED, None, 0, "no_end")
CUT = event(3)[:40]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([start(), event(2), event(5), end(6)], MISSING),
        ([start(), event(2), event(5), end(6, None)], MISSING),
        ([start(), event(2), event(5), end(6, 1)], MISSING),
        ([start(), event(2), event(5)], [OPEN]),
        ([event(2), event(5)], [LATE, OPEN]),
        ([event(2), event(5), end(9)], [LATE]),
        ([event(2), event(5), end(9, None), event(8)], [LATE]),
        ([event(2), event(3), event(2), end(4)], [LATE, OPEN]),
        ([event(2), event(3), end(4, None), event(2)], [LATE, OPEN]),
        ([event(1), event(2), event(1), event(2), end(3)], [LATE, OPEN]),
        ([event(2), event(2), event(5, ph=3), end(6)], [LATE, OPEN]),
        ([event(2), event(5, ph=3), event(2), end(6)], [LATE]),
        ([event(2), event(5), start(), event(2), event(5), end(6)], [LATE, OPEN, *MISSING]),
        ([event(2, ph='"X"'), event(5, ph='"X"')], []),
        ([event(1), event(2), event(5), end(6)], MISSING),
        ([start(), event(2), event(9), end(5)], MISSING),
        ([start(), event(2), event(9), event(4), event(3), end(5)], []),
        ([start(), "rest", event(2), event(9), end(4)], []),
        ([start(), event(5), event(5), end(6)], [AGAIN]),
        ([start(), event(2), event(3), event(0), event(1), event(2), end(3)], [AGAIN]),
        ([start(), event(2), end(3), event(0), event(1)], [AGAIN]),
        ([start(), event(5, ph=3), event(5), event(5), end(6)], []),
        ([start(), event(-1), event(5), end(6)], [AGAIN]),
        ([start(), event(2), event(2), end(3, None), start(), event(2), event(2), end(3)], [AGAIN, AGAIN]),
        ([start(), event(2), event(5, ph=3), end(6)], []),
        ([start(), event(2), end(6, None), event(5, ph=3)], []),
        ([start(), event(2), CUT + event(5), end(6)], [(Reason.NETWORK, 4, 1, "ids")]),
        ([start(), event(2), event(5), 'rest":0}}', end(6)], [(Reason.NETWORK, 4, 1, "ids")]),
        ([start(), event(2), "rest", event(5), "rest", "rest", end(6)], []),
        ([start(), event(2), '{"name":"FH', event(5), end(6)], MISSING),
        ([start(), event(2), event(5), end(6, None), start(), end(2)], MISSING),
        ([start(), event(2), start(), event(2), end(5)], [OPEN, *MISSING]),
    ],
)  # fmt: skip
def test_what_a_run_lacks(lines: list[str], expected: list[tuple[object, ...]]) -> None:
    assert gaps(decode(text(*lines))) == expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ('{"id":1,"name":"HH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{}}', []),
        ('{"name":"HH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{}}', MISSING),
        ("[", []),
    ],
)
def test_only_releases_that_count_events_are_believed(
    first: str, expected: list[tuple[object, ...]]
) -> None:
    """Releases up to 2.0.2 also give ids to metadata. Without metadata, the release is unknown."""
    lines = [line.replace('"ph":1', '"ph":"X"') for line in (start(), event(2), event(5), end(6))]
    assert gaps(decode(text(first, *lines, "]"))) == expected


@pytest.mark.parametrize("aggregation", [0, None])
def test_an_event_after_the_end_heals_its_gap(aggregation: int | None) -> None:
    """An event heals its gap once. If gaps are reported only at the end of the file, there is nothing to heal. A number
    that comes twice is named at the end."""
    late = [event(4), event(9), event(4)]
    records = decode(text(start(), event(2), event(6), end(7, aggregation), *late))
    found = of(records, Kind.GAP, Kind.HEAL)
    order = [
        (r.kind, r.name, r.counter, r.detail.count) for r in found if isinstance(r.detail, Missing)
    ]
    gap, heal = (Kind.GAP, Reason.NETWORK, 3, 3), (Kind.HEAL, Reason.NETWORK, 4, 1)
    again = (Kind.GAP, Reason.NETWORK, None, 0)
    assert order == ([gap, heal, again] if aggregation == 0 else [again])


@pytest.mark.parametrize("rest", [[], [event(3)], [start()]])
def test_blanks_at_the_beginning_are_of_a_trace_that_is_not_finished(rest: list[str]) -> None:
    assert gaps(decode(b"  " + text(event(1), *rest))) == [OPEN] * (1 + (start() in rest))
    ended = gaps(decode(b"  " + text(event(1), *rest, end(9, None))))
    assert ended.count(OPEN) == (start() in rest)
    assert gaps(decode(b"  " + text(event(1), *rest, "]"))) == [OPEN] * (1 + (start() in rest))
    first = event(1, ph='"X"')
    assert gaps(decode(b"  " + text(first))) == [OPEN]
    assert gaps(decode(BYTE_ORDER_MARK + b"  " + text(first))) == [OPEN]
    assert gaps(decode(b"[\r\n  " + text(first))) == []  # as many bytes as a byte order mark
    assert gaps(decode(b"  " + text(first, "]"))) == gaps(decode(text(first, "  " + first))) == []


def test_what_a_release_is_holds_for_all_runs_of_a_file() -> None:
    """Metadata is written before `start`, and therefore belongs to the run before."""
    known = '{"name":"HH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{}}'
    runs = [start(), end(2, None), start(), event(2), event(5), end(6)]
    lines = [line.replace('"ph":1', '"ph":"X"') for line in runs]
    assert gaps(decode(text(known, *lines))) == MISSING


def test_a_file_of_no_bytes_says_nothing() -> None:
    assert decode(b"") == []


# The clock


@pytest.mark.parametrize(("unit", "ticks"), [("SEC", 1), ("MS", 1e3), ("US", 1e6), ("NS", 1e9)])
def test_the_unit_is_told_before_the_first_time(unit: str, ticks: float) -> None:
    records = decode(text(metadata("CM", "time_metric", unit), start(), event(2), end(3)))
    facts = [r.detail for r in records if isinstance(r.detail, SessionFacts)]
    assert facts == [SessionFacts(clock="unix_ns", ticks_per_second=ticks, epoch=0)] * 2
    assert attributes(records[0])["ticks_per_second"] == ticks


def test_without_a_word_of_the_producer_the_unit_is_the_default() -> None:
    clock, record, *_ = decode(text(event(1)))
    assert (clock.name, clock.size, clock.offset) == ("clock", 0, 0)
    assert clock.detail == SessionFacts(clock="unix_ns", ticks_per_second=1e6, epoch=0)
    assert (record.start, record.end) == (1001, 1006)


def test_a_unit_before_the_next_start_is_of_the_next_run() -> None:
    first, second = metadata("CM", "time_metric", "NS"), metadata("CM", "time_metric", "MS")
    records = decode(text(first, start(), end(2), second, start(), end(2)))
    told = [
        (r.name, r.detail.ticks_per_second) for r in records if isinstance(r.detail, SessionFacts)
    ]
    assert told == [("CM", 1e9), ("start", 1e9), ("start", 1e3)]


# Names


def test_names_that_are_forgotten_or_too_long_are_late() -> None:
    files = [f"f{i}" for i in range(NAMES_MAX + 1)]
    lines = [metadata("FH", f"/{name}", name) for name in files]
    lines.append(metadata("FH", "x" * (TEXT_MAX + 1), "long"))
    lines += [event(i, args=f'"fhash":"{name}"') for i, name in enumerate(("f0", "f1", "long"), 1)]
    forgotten, known, long = map(attributes, of(decode(text(*lines)), Kind.SPAN))
    assert forgotten["$late"] == {"fname": "FH:f0"}
    assert known["fname"] == "/f1"
    assert long["$late"] == {"fname": "FH:long"}


def test_a_name_that_is_given_again_is_the_newest() -> None:
    files = [metadata("FH", f"/{i}", f"f{i}") for i in range(NAMES_MAX)]
    again = [metadata("FH", "/again", "f0"), metadata("FH", "/more", "more")]
    asking = [event(i, args=f'"fhash":"f{i}"') for i in range(3)]
    first, second, third = map(attributes, of(decode(text(*files, *again, *asking)), Kind.SPAN))
    assert first["fname"] == "/again"
    assert second["$late"] == {"fname": "FH:f1"}
    assert third["fname"] == "/2"


def test_a_name_too_long_replaces_another_all_the_same() -> None:
    lines = [metadata("FH", "/a", "f1"), metadata("FH", "x" * (TEXT_MAX + 1), "f1")]
    (asking,) = of(decode(text(*lines, event(1, args='"fhash":"f1"'))), Kind.SPAN)
    assert attributes(asking)["$late"] == {"fname": "FH:f1"}


def test_state_holds_what_was_said_before() -> None:
    """Names, the unit of time and ids must be in the state, because each of them is needed after a restart."""
    before = text(
        metadata("CM", "time_metric", "NS"), metadata("FH", "/a", "f1"), start(), event(3)
    )
    after = text(event(4, args='"fhash":"f1"'), end(6))
    first = FORMAT.decoder(LIMIT, None)
    records = first.feed(before)
    saved = msgspec.msgpack.encode(first.state)
    second = FORMAT.decoder(LIMIT, msgspec.msgpack.decode(saved, type=FORMAT.state_type))
    records += second.feed(after) + second.end()
    assert records == decode(before + after)
    assert attributes(of(records, Kind.SPAN)[1])["fname"] == "/a"
    assert [first for _, first, _, _ in gaps(records)] == [2, 5]


# Split records


@given(st.lists(st.sampled_from(["", "a", "b}", "c}}", " d", '"', "\t"]), min_size=1, max_size=6))
def test_a_split_record_is_one_again(parts: list[str]) -> None:
    """A name may have any number of newlines, if not too many of its lines look like the end of a record."""
    name = "x\n" + "\n".join(parts)
    assume(sum(part.endswith("}") for part in parts) < JOINS_MAX)
    (record,) = of(decode(text(event(2, name=name))), Kind.SPAN, Kind.MALFORMED)
    assert (record.name, record.flaw) == (name, "split_line")


@pytest.mark.parametrize("mark", [b"", b"\x1a", b"\x1a\x1a"])
def test_a_record_that_the_end_cuts_off_is_truncated_before_a_mark_too(mark: bytes) -> None:
    found = of(decode(b'{"id":1,"name":"a\n' + mark), Kind.MALFORMED)
    assert [(record.flaw, record.size) for record in found] == [("truncated", 18)]


def test_what_is_no_continuation_ends_the_wait() -> None:
    records = decode(text(event(1), '{"id":2,"name":"new', event(3), 'line","cat":"c"}}'))
    assert [(r.kind, r.flaw) for r in of(records, Kind.SPAN, Kind.MALFORMED)] == [
        (Kind.SPAN, None),
        (Kind.MALFORMED, "bad_json"),
        (Kind.SPAN, None),
        (Kind.MALFORMED, "bad_json"),
    ]


# Files


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/run/trace-0123-app.pfw", True),
        ("/run/trace-0123-fork.pfw.gz", True),
        ("/split/run/trace.pfw", True),
        ("/run/split/trace.pfw.gz", True),
        ("/run/.dftindex/a/trace.pfw", True),
        ("/run/trace.pfw.zindex", False),
        ("/run/.trace.pfw", False),
        ("/run/dft.log", False),
    ],
)
def test_which_files_are_traces(path: str, expected: bool) -> None:
    assert FORMAT.files.stream(path) == expected
    assert FORMAT.files.recognises(path, b'{"name":"HH"') == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", True),
        (b"[\n", True),
        (b'[\n {"id":"0","name"', True),
        (b'  {"id":1,"name"', True),
        (b'{"name":"HH"', True),
        (b'{"dur":3,"id":1,"name":"read"', True),
        (b'{"host":"n1", "id" :1,"name":"read"', True),
        (b'{"dur":3,\n"name":"read"', False),
        (b'{\n "name":"read"', True),
        (b'[\r\n{\r\n\t"id"\r\n:1', True),
        (b"[\n\x1a", True),
        (b"\x1a\x1a", True),
        (b"\x1aa", False),
        (b'{"traceEvents":[', False),
        (b'{"unit":"ms","traceEvents":[{"name":"read"', False),
        (b"OVNI", False),
        (b'ame":"read","dur":3}\n{"id":1,"name":"read","cat":"POSIX","pid":7,"tid":7,', True),
        (b'"traceEvents":[\n{"id":1,"name":"read","cat":"POSIX","pid":7,"tid":7,', False),
    ],
)
def test_a_trace_is_known_by_its_beginning(head: bytes, expected: bool) -> None:
    """The first line may be the rest of a record."""
    assert FORMAT.files.recognises("/a.pfw", head) == expected


def test_a_compressed_copy_is_the_same_stream() -> None:
    assert FORMAT.files.copy("/a/t.pfw.gz") == FORMAT.files.copy("/a/t.pfw")
    assert FORMAT.files.group("/a/t.pfw.gz") == "/a"


@pytest.mark.parametrize("first", ["[", ""])
def test_an_element_beyond_the_limit_costs_no_other_element(first: str) -> None:
    array = first + ",".join([start(), event(2), event(3)[:-1] + f',"x":"{"y" * 300}"}}', event(4)])
    decoder = FORMAT.decoder(256, None)
    records = [*decoder.feed(array.encode()), *decoder.feed(b"]\n")]
    assert [r.name for r in records if r.kind == Kind.SPAN] == ["read", "read"]
    assert {r.flaw for r in records if r.kind == Kind.MALFORMED} == {"too_long"}


SPELLED = [start(), *(event(n, args=f'"l":[{{"id":{n}}},{{"id":1}}]') for n in range(2, 9)), end(9)]


@pytest.mark.parametrize("spelling", [name for name in COMMAS if "line" in name])
def test_records_on_one_line_are_those_of_as_many_lines(spelling: str) -> None:
    """Wherever the bytes are cut, and however small the limit, which is that of a record."""
    plain = [r._replace(offset=0, size=0) for r in decode(text(*SPELLED))]
    data = COMMAS[spelling](SPELLED)
    expected = decode(data, 400)
    found = [r._replace(offset=0, size=0) for r in expected if r.name != "bracket"]
    if spelling == "json.dump of a list":
        found = [r._replace(attributes=(r.attributes or "").replace(" ", "")) for r in found]
        plain = [r._replace(attributes=r.attributes or "") for r in plain]
    assert found == plain
    for at in range(len(data)):
        decoder = FORMAT.decoder(400, None)
        records = decoder.feed(data[:at])
        decoder = FORMAT.decoder(400, decoder.state)
        assert [*records, *decoder.feed(data[at:]), *decoder.end()] == expected


@pytest.mark.parametrize(
    "byte", [b"[", b"{", b"}", b'"', b",", b" ", b"\\", b'{"a":', b"},", b"}{"]
)
def test_a_line_of_one_byte_over_and_over_is_linear_work(byte: bytes) -> None:
    """A decoder that read the waiting bytes again with each byte would take minutes."""
    decoder, line = FORMAT.decoder(LIMIT, None), byte * (70_000 // len(byte))
    records = [
        record for at in range(0, len(line), 4) for record in decoder.feed(line[at : at + 4])
    ]
    records += decoder.end()
    assert sum(record.size for record in records) == len(line)


@pytest.mark.parametrize("blank", [b"\n", b" \r\n"])
def test_blank_lines_are_read_many_at_once(blank: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each would take a third of the time of a record."""
    steps: list[int] = []
    search = Element.next

    def counted(element: Element, data: bytes, at: int, stop: int) -> int:
        steps.append(at)
        return search(element, data, at, stop)

    monkeypatch.setattr(Element, "next", counted)
    records = decode(text(start()) + blank * 100_000 + text(event(2)))
    assert [r.name for r in records if r.kind == Kind.SPAN] == ["read"]
    assert len(steps) < 10
