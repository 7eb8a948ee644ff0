"""The collector's decoder reads what a C program emits: types, bits, times, numbers."""

from __future__ import annotations

import math
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.c.building import HERE, Program, build, play
from tests.c.listening import Heard, Stream, Udp, attributes, hear
from tests.decoding.test_heph import VECTORS, bits, decode, f64, i64, u64

PLAY = HERE / "play.c"
LETTERS = {"u64": "u", "i64": "i", "f64": "f", "string": "s"}
MAX = 65535

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
values = {"u64": u64, "i64": i64, "f64": f64, "string": texts}


def spelled(type_: str, value) -> str:
    if type_ == "f64":
        return struct.pack(">d", value).hex()
    return value.encode().hex() if type_ == "string" else str(value)


def attribute(name: str, type_: str, value) -> str:
    kind = type_.removesuffix("[]")
    letter = LETTERS[kind]
    if type_ == kind:
        return f"{name.encode().hex()}:{letter}:{spelled(kind, value)}"
    elements = "".join(f"{spelled(kind, element)}," for element in value)
    return f"{name.encode().hex()}:{letter.upper()}:{elements}"


def command(verb: str, *arguments, attributes=()) -> str:
    return " ".join([verb, *map(str, arguments), *(attribute(*one) for one in attributes)])


def name(text: str) -> str:
    return text.encode().hex()


def recorded(path: Path, *lines: str, options: str = "", compiler: str = "gcc") -> Heard:
    """Return what a script writes to a file."""
    path.unlink(missing_ok=True)
    said = play(build(PLAY, compiler=compiler), f"connect file://{path} {options}", *lines)
    assert said[0] == "connect 0 0"
    return hear(path.read_bytes())


EDGES = [
    ("u64", [0, 1, 2**63, 2**64 - 1]),
    ("i64", [0, -1, 2**63 - 1, -(2**63)]),
    ("f64", [0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]),
    ("string", ["", "a", "mit Umlaut ä", "\U0001f600", 'with\nlines\tand "quotes"', "x" * MAX]),
]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_every_type_with_its_edges(tmp_path, compiler):
    given = [[(type_, type_, value)] for type_, values in EDGES for value in values]
    given += [[("all", f"{type_}[]", values)] for type_, values in EDGES]
    given += [[("none", f"{type_}[]", [])] for type_, _ in EDGES]
    given += [[], [(type_, type_, values[-1]) for type_, values in EDGES], [("", "u64", 1)] * 3]
    lines = [command("event", name("edge"), attributes=one) for one in given]
    heard = recorded(tmp_path / "t.heph", *lines, compiler=compiler)
    assert [bits_of(event) for event in heard.events] == [as_bits(one) for one in given]
    assert {event.name for event in heard.events} == {"edge"}
    heard.check_complete()


def bits_of(event) -> list:
    return as_bits(attributes(event))


def as_bits(given) -> list:
    return [(name, type_, bits(value)) for name, type_, value in given]


def test_a_nan_keeps_its_bits(tmp_path):
    pattern = struct.unpack(">d", bytes.fromhex("fff80000deadbeef"))[0]
    heard = recorded(
        tmp_path / "t", command("event", name("n"), attributes=[("x", "f64", pattern)])
    )
    assert "fff80000deadbeef" in heard.events[0].attributes


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x" * 70_000, MAX),
        ("x" + "ä" * 35_000, MAX),  # 1 + 2 * 32767
        ("ä" * 35_000, MAX - 1),
        ("xx" + "\U0001f600" * 17_000, MAX - 1),
        ("€" * 22_000, MAX),
    ],
)
def test_a_long_text_is_cut_at_a_character(tmp_path, given, kept):
    cut = given.encode()[:kept].decode()
    for_all = [("s", "string", given), ("t", "string[]", [given]), (given, "u64", 1)]
    lines = [command("event", name("e"), attributes=[one]) for one in for_all]
    heard = recorded(tmp_path / "t", *lines, command("event", name(given)), options="threads=2")
    cut_all = [("s", "string", cut), ("t", "string[]", [cut]), (cut, "u64", 1)]
    assert [attributes(event) for event in heard.events[:3]] == [[one] for one in cut_all]
    assert heard.events[3].name == cut


def test_an_array_is_cut_at_what_its_length_holds(tmp_path):
    given = list(range(MAX + 10))
    line = command("event", name("e"), attributes=[("a", "u64[]", given)])
    heard = recorded(tmp_path / "t", line, options="threads=1")
    assert attributes(heard.events[0]) == [("a", "u64[]", given[:MAX])]


def test_times_are_the_clocks_readings(tmp_path):
    heard = recorded(
        tmp_path / "t",
        command("write", name("a"), 5, 9),
        command("write", name("b"), 2**62, 2**63 - 1),
        command("span", name("c")),
        options="logical=1000",
    )
    first, second, span = heard.events
    assert (first.start, first.end) == (5, 9)
    assert (second.start, second.end) == (2**62, 2**63 - 1)
    assert 0 < span.start <= span.end
    (session,) = heard.said("tailrace.session")
    assert (session["clock"], session["ticks_per_second"]) == ("logical", 1000)


@pytest.mark.parametrize("child", [False, True])
def test_times_count_from_the_load_so_that_spans_may_begin_before_connect(tmp_path, child):
    """A span from before the load has no place on the wire, and is named."""
    unloaded = time.monotonic_ns()
    program = Program(build(PLAY))
    loaded = (program.ask("say x"), time.monotonic_ns())[1]
    program.ask(f"connect file://{tmp_path}/t")
    now = (time.monotonic_ns(), time.time_ns())  # noqa: TID251 - the C program's clock, too
    script = [
        command("write", name("early"), unloaded, loaded),
        command("write", name("span"), loaded, loaded + 5),
    ]
    program.end(f"fork {';'.join(script)}" if child else "\n".join(script))
    (path,) = tmp_path.glob("t.*" if child else "t")
    data = path.read_bytes()
    assert data[8:15] == b"\0\5epoch"
    heard = hear(data)
    (span,) = heard.events
    assert span.end - span.start == 5
    began = int.from_bytes(data[15:23], "big") + span.start  # on the wall
    assert abs(began - (now[1] - (now[0] - loaded))) < 10**9
    assert heard.said("tailrace.goodbye")[-1]["discarded"] == {"encoding": 1}
    heard.check_complete()


def test_streams_substreams_and_counters(tmp_path):
    heard = recorded(
        tmp_path / "t",
        command("event", name("own")),
        "stream 4000000000",
        "substream 18446744073709551615",
        command("event", name("given")),
        command("counter", name("depth"), spelled("f64", 2.5), attributes=[("queue", "u64", 7)]),
        "own",
        "substream 0",
        command("counter", name("bare"), spelled("f64", math.inf)),
    )
    assert [(e.name, e.stream, e.counter, e.substream, e.kind) for e in heard.events] == [
        ("own", "1", 0, 0, "span"),
        ("bare", "1", 1, 0, "counter"),
        ("given", "4000000000", 0, -1, "span"),
        ("depth", "4000000000", 1, -1, "counter"),
    ]
    assert attributes(heard.events[3]) == [("tailrace.counter", "f64", 2.5), ("queue", "u64", 7)]
    heard.check_complete()


@pytest.mark.parametrize(
    "case", ["spec_examples", "types", "runtime", "busy", "call_site", "odd_attributes"]
)
def test_the_vectors_are_written_byte_for_byte(tmp_path, case):
    """Each event of a vector, emitted again, is the same packet but for its number."""
    data = (VECTORS / f"{case}.in").read_bytes()
    given = [r for r in decode(data) if r.kind in {"span", "counter"} and not r.flaw]
    given = [r for r in given if "$list" not in (r.attributes or "") and "\0" not in r.name][:400]
    lines = []
    for record in given:
        lines += [f"stream {record.stream}", f"substream {record.substream % 2**64}"]
        times = (record.start % 2**64, record.end % 2**64)
        lines.append(command("write", name(record.name), *times, attributes=attributes(record)))
    heard = recorded(tmp_path / "t", *lines, options="logical=1000000000")
    written = (tmp_path / "t").read_bytes()
    by_stream = {}
    for event in heard.events:
        by_stream.setdefault(event.stream, []).append(event)
    assert len(heard.events) == len(given) > 0
    for record in given:
        event = by_stream[record.stream].pop(0)
        packet, wanted = (
            source[r.offset : r.offset + r.size] for source, r in ((written, event), (data, record))
        )
        assert packet[:12] + packet[16:] == wanted[:12] + wanted[16:]


scalars = st.sampled_from(list(values)).flatmap(lambda t: st.tuples(texts, st.just(t), values[t]))
arrays = st.sampled_from(list(values)).flatmap(
    lambda t: st.tuples(texts, st.just(f"{t}[]"), st.lists(values[t], max_size=5))
)
events = st.fixed_dictionaries(
    {
        "verb": st.sampled_from(["event", "span", "counter", "write"]),
        "name": texts.filter(bool),
        "attributes": st.lists(scalars | arrays, max_size=6),
        "value": f64,
        "start": st.integers(0, 2**63 - 1),
        "end": st.integers(0, 2**63 - 1),
        "stream": st.sampled_from([None, 7, 2**32 - 1]),
        "substream": st.sampled_from([0, 0, 2**64 - 1]),
    }
)


def script_of(event) -> list[str]:
    where = "own" if event["stream"] is None else f"stream {event['stream']}"
    arguments = {
        "counter": (spelled("f64", event["value"]),),
        "write": (event["start"], event["end"]),
    }.get(event["verb"], ())
    line = command(event["verb"], name(event["name"]), *arguments, attributes=event["attributes"])
    return [where, f"substream {event['substream']}", line]


def check(event, record) -> None:
    given = event["attributes"]
    if event["verb"] == "counter":
        given = [("tailrace.counter", "f64", event["value"]), *given]
    assert record.kind == ("counter" if event["verb"] == "counter" else "span")
    assert record.name == event["name"]
    assert bits_of(record) == as_bits(given)
    assert record.substream % 2**64 == event["substream"]
    if event["verb"] == "write":
        assert (record.start, record.end) == (event["start"], event["end"])
    if event["stream"] is not None:
        assert record.stream == str(event["stream"])


@settings(max_examples=60, deadline=None)
@given(
    emitted=st.lists(events, max_size=30), transport=st.sampled_from(["udp", "tcp", "unix", "file"])
)
def test_whatever_is_emitted_is_decoded(tmp_path_factory, emitted, transport):
    directory = tmp_path_factory.mktemp("t")
    lines = [line for event in emitted for line in script_of(event)]
    if transport == "file":
        heard = recorded(directory / "t", *lines, options="logical=1000000000")
    else:
        peer = (
            Udp()
            if transport == "udp"
            else Stream(directory / "s" if transport == "unix" else None)
        )
        play(build(PLAY), f"connect {peer.address} logical=1000000000", *lines)
        data = peer.close()
        heard = hear(data if transport == "udp" else data[0])
    heard.check_complete()
    left = [
        (event, record) for event, record in zip(emitted, by_number(emitted, heard), strict=True)
    ]
    for event, record in left:
        check(event, record)


def by_number(emitted, heard: Heard):
    """The records in the order their events were emitted: streams are sent one after the other."""
    waiting = {}
    for record in heard.events:
        waiting.setdefault(record.stream, []).append(record)
    own = {str(event["stream"]) for event in emitted if event["stream"] is not None}
    for event in emitted:
        key = str(event["stream"]) if event["stream"] is not None else (set(waiting) - own).pop()
        yield waiting[key].pop(0)


def test_the_forms_without_lists(tmp_path):
    """The macros (C) and templates and the guard (C++), each with none, one and 32 attributes."""
    for compiler in ("gcc", "g++"):
        path = tmp_path / compiler
        program = build(HERE / "forms.c", compiler=compiler)
        subprocess.run([program], env={"TAILRACE_ADDRESS": f"file://{path}"}, check=True)
        heard = hear(path.read_bytes())
        shapes = [(event.name, len(attributes(event))) for event in heard.events]
        calls = ["event", "end", "counter", "write"]
        expected = [(call, n + (call == "counter")) for n in (0, 1, 2, 32) for call in calls]
        assert shapes == expected + ([("guard", 2), ("bare guard", 0)] if compiler == "g++" else [])
        assert attributes(heard.events[15])[31] == ("a", "u64", 31)
        heard.check_complete(unnumbered=3)  # an event and two ends of a span begun before connect
