"""Test ET3 beyond the guarantees of the contract: the record of each kind of line, and which lines are reported as
missing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from tailrace.decoding.formats.et3 import FORMAT, maps, stack
from tailrace.model.record import KEY, NAME_OF_ROW, NAMES_OF_MEMBERS, SCOPE, Kind, Record

VECTORS = Path(__file__).parent.parent / "vectors" / "et3"
MAIN, OTHER = 1766822961, 1191747167
STATED = ("spec_simple", "spec_threads_lossy")
CLEAN = (
    "agent_simple", "agent_simple_reordered", "agent_simple_with_deaths", "agent_threads",
    "agent_threads_reordered", "agent_threads_with_deaths", "spec_simple",
)  # fmt: skip
NAMES = {"N": "allocation", "A": "array_allocation", "U": "update", "W": "witness", "D": "death"}


def decode(data: bytes | str, path: str = "", dialect: str = "auto") -> list[Record]:
    decoder = FORMAT.decoder(1 << 20, None)
    decoder.begin(path, dialect)
    return decoder.feed(data if isinstance(data, bytes) else data.encode()) + decoder.end()


def vector(name: str) -> bytes:
    return (VECTORS / f"{name}.in").read_bytes()


def rows(records: list[Record]) -> list[Record]:
    """Return the records that have bytes."""
    return [record for record in records if record.size]


def missing(records: list[Record]) -> int:
    return sum(
        record.detail.count * (1 if record.kind == Kind.GAP else -1)
        for record in records
        if record.kind in {Kind.GAP, Kind.HEAL}
    )


def begins_late(records: list[Record]) -> int:
    """How many gaps say that the beginning may be missing, of which none has a number."""
    gaps = [each for each in records if each.kind == Kind.GAP and each.name == "late_join"]
    assert not any(gap.detail.count for gap in gaps)
    return len(gaps)


def attributes(record: Record) -> dict:
    return json.loads(record.attributes or "{}")


def form(records: list[Record]) -> str:
    return next(attributes(record)["form"] for record in records if record.name == "trace")


# Real traces, which the test reads a second time with nothing but split()


def read_again(data: bytes, *, stated: bool) -> list[tuple]:
    """Return the kind, stream, name, id, parent, start, end and attributes that each line must give."""
    expected = []
    stacks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    clock = begun = 0
    for line in data.decode().splitlines():
        letter, *fields = line.split()
        numbers = [int(field) for field in fields]
        stream = "" if stated or letter == "D" else fields[-1]
        stack = stacks[stream]
        clock = numbers[-1] if stated else clock + (letter in "ME")
        parent = stack[-1][1] if stack else None
        if letter == "M":
            begun += 1
            stack.append((numbers[0], begun))
            about = {"method_id": numbers[0], "receiver": numbers[1]}
            expected.append((Kind.BEGIN, stream, None, begun, parent, clock, None, about))
        elif letter == "E":
            at = max((i for i, (method, _) in enumerate(stack) if method == numbers[0]), default=-1)
            id_ = stack[at][1] if at >= 0 else None
            if at >= 0:
                del stack[at:]
            about = {"method_id": numbers[0]}
            expected.append((Kind.END, stream, None, id_, None, None, clock, about))
        else:
            about = {
                "N": lambda n: {"size": n[1], "class_id": n[2], "site_id": n[3]},
                "A": lambda n: {"size": n[1], "class_id": n[2], "site_id": n[3], "length": n[4]},
                "U": lambda n: {"value": n[1], "field_id": n[2]},
                "W": lambda n: {"class_id": n[1]},
                "D": lambda n: {"thread": n[1]},
            }[letter](numbers)
            start, parent = (numbers[-1], None) if letter == "D" else (clock, parent)
            name = NAMES[letter]
            expected.append((Kind.INSTANT, stream, name, numbers[0], parent, start, None, about))
    return expected


@pytest.mark.parametrize("name", [*CLEAN, "spec_threads_lossy"])
def test_a_second_reading_of_real_traces_says_the_same(name: str) -> None:
    records = rows(decode(vector(name)))
    said = []
    for r in records:
        about = attributes(r)
        keys = {about.pop(NAME_OF_ROW, None), *about.pop(NAMES_OF_MEMBERS, {}).values()} - {None}
        assert keys <= {f"{key[:-3]}:{about[key]}" for key in about if key.endswith("_id")}
        assert len(keys) == (r.name != "death")
        said.append((r.kind, r.stream, r.name, r.id, r.parent, r.start, r.end, about))
    assert said == read_again(vector(name), stated=name in STATED)


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("path", ["", "/run/trace", "/run/trace_reordered"])
def test_nothing_is_missing_from_a_clean_trace(name: str, path: str) -> None:
    records = decode(vector(name), path)
    assert {record.kind for record in records} == {
        Kind.SESSION, Kind.BEGIN, Kind.END, Kind.INSTANT,
    }  # fmt: skip
    assert {record.flaw for record in records} == {None}


def test_lines_dropped_from_a_trace_are_what_its_clock_misses() -> None:
    manifest = json.loads((VECTORS / "spec_threads_lossy.manifest.json").read_text())
    ticks = [line["text"].split() for line in manifest["dropped"] if line["text"][0] in "ME"]
    gaps = [r for r in decode(vector("spec_threads_lossy")) if r.kind == Kind.GAP]
    assert [(gap.counter, gap.detail.count) for gap in gaps] == [(int(t[-1]), 1) for t in ticks]
    assert len(gaps) == manifest["dropped_ME"]


# Determination of the form


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("M 1 0 1\nM 2 0 2\n", "specification"),
        ("M 1 0 1\nM 2 0 1\n", "agent"),  # threads may have small numbers
        ("M 1 0 2000000000\nE 1 2000000001\n", "specification"),  # a clock may have large numbers
        ("M 1 0 2000000000\nM 2 0 2000000001\nE 2 2000000001\n", "agent"),  # two threads
        ("M 1 0 2000000000\nM 2 0 2000000001\nM 3 0 2000000002\n", "specification"),
        ("M 1 0 7\nM 2 0 9\nM 3 0 3\n", "specification"),  # lines of a sorted file
        ("M 1 0 7\nM 2 0 9\nM 3 0 3\nM 3 0 3\n", "agent"),
        ("M 1 0 70000009\nM 2 0 70000008\n", "agent"),
        ("M 1 0 9\nM 2 0 8\n", "specification"),  # a reversed file
        ("M 1 0 7\nM 2 0 90000000\nM 3 0 90000001\n", "specification"),
        ("M 1 0 7\nM 2 0 9\n", "specification"),
        ("M 1 0 70000000\n", "agent"),
        ("N 1 2 3 4 0 70000000\n", "agent"),
        ("N 1 2 3 4 0 7\nD 1 70000000 9\n", "specification"),
        ("D 1 2 3\n", "agent"),
        ("M 1 0 7\nT 1 2 3 4\nM 1 0 8\n", "agent"),  # ET1 has threads in the last field
        ("M 1 0 7\nC 1 2 3 4 5\nE 1 8\n", "specification"),
        ("# M\n\n \nM 1 0 7 # 8\nU 0 0 0 7\nD 1 1 1\nE 1 8 # 7\n", "specification"),
        ("M 1 0 7\nM 1 0 7 7 7\nE 1 8\n", "specification"),
    ],
)
def test_the_first_entries_and_exits_tell_the_form(lines: str, expected: str) -> None:
    assert form(decode(lines)) == expected


def test_the_dialect_agent_says_the_form_at_once() -> None:
    for lines in ("M 1 0 1\n", f"M 1 0 {MAIN}\n"):
        decoder = FORMAT.decoder(1 << 20, None)
        decoder.begin("/run/trace", "agent")
        assert form(decoder.feed(lines.encode())) == "agent"


def test_the_dialect_specification_invents_no_loss_in_a_trace_of_an_agent() -> None:
    """Its threads would be clocks that are far ahead. Traces of which no line shows the form leave it to the dialect."""
    short = {"one_agent_line", "hexadecimal", "spec_late_lossy"}
    paths = [
        path
        for path in VECTORS.glob("*.in")
        if ".limit" not in path.name and path.stem not in short
    ]
    said = {path.stem: decode(path.read_bytes(), dialect="specification") for path in paths}
    told = {path.stem: decode(path.read_bytes()) for path in paths}
    assert {name for name in said if missing(said[name]) != missing(told[name])} == set()
    assert form(said["agent_threads"]) == "agent"
    assert form(said["spec_threads_lossy"]) == "specification"


@pytest.mark.parametrize(
    "lines", ["M 1 0 5\nM 2 0 1\nM 3 0 2\n", "M 1 0 5\nM 2 0 4\nE 2 6\nE 1 7\n"]
)
def test_a_clock_that_falls_is_a_clock(lines: str) -> None:
    """A run begins anew, and a line comes late."""
    assert form(decode(lines)) == "specification"
    assert form(decode(lines, dialect="specification")) == "specification"


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ("M 1 5 20000001\nM 2 5 20000005\nM 3 5 20000009\nE 3 20000010\n", 6),
        ("M 1 5 20000001\nN 1 8 1 1 0 5\n", 0),
        ("M 1 5 3\nM 1 5 3\nM 2 5 4\nE 2 5\n", 0),
    ],
)
def test_a_late_trace_with_losses_keeps_the_dialect_specification(lines: str, lost: int) -> None:
    records = decode(lines, dialect="specification")
    assert form(records) == "specification"
    assert (begins_late(records), missing(records)) == (1, lost)


@pytest.mark.parametrize("first", ["spec_simple", "agent_simple", "agent_threads_reordered"])
@pytest.mark.parametrize("second", ["spec_simple", "agent_simple", "agent_simple_reordered"])
@pytest.mark.parametrize("way", ["", "specification", "agent"])
def test_lines_of_the_other_form_are_no_losses_and_no_threads(
    first: str, second: str, way: str
) -> None:
    """Deaths look the same in both forms. All other lines of the second trace must be recognised as lines of the other
    form.
    """
    if (first in STATED) == (second in STATED) or way not in ("", form(decode(vector(first)))):
        return
    alone, other = decode(vector(first)), rows(decode(vector(second)))
    found = decode(vector(first) + vector(second), dialect=way or "auto")
    refused = [record for record in found if record.flaw == "other_form"]
    assert {record.kind for record in refused} == {Kind.MALFORMED}
    assert len(refused) == sum(record.name != "death" for record in other)
    assert missing(found) == 0
    assert {record.stream for record in found} == {record.stream for record in alone}


def test_a_thread_with_a_small_number_is_a_thread() -> None:
    lines = f"M 1 0 {MAIN}\nM 2 0 {MAIN}\nM 3 0 7\nM 4 0 9\nW 1 2 8\nE 4 9\nM 5 0 8\nE 5 8\n"
    assert {record.flaw for record in decode(lines)} == {None}


def test_a_clock_that_goes_on_behind_a_far_jump_has_lost_what_it_says() -> None:
    found = decode("M 1 0 1\nM 2 0 2\nM 3 0 30000000\nM 4 0 30000001\nM 5 0 30000002\n")
    assert [record.flaw for record in rows(found)] == [None, None, "other_form", None, None]
    assert missing(found) == 30_000_000 - 3


def test_no_more_lines_are_held_back_than_one_may_be_long() -> None:
    decoder = FORMAT.decoder(4096, None)
    fed = said = 0
    while not said:
        fed += 1
        said = len(decoder.feed(f"M 1 0 {7 * fed}\n".encode()))
        assert decoder.pending <= 4096
    assert 4096 // 10 > fed > 4096 // 16


# Missing events


def test_deaths_ahead_are_a_loss_where_they_were_added_to_the_file() -> None:
    """Lines that the first ones lack may lie before the file."""
    lines = f"M 1 0 {MAIN}\nE 1 {MAIN}\nD 5 {MAIN} 4\n"
    more = f"M 1 0 {MAIN}\nD 6 {MAIN} 5\nE 1 {MAIN}\nD 7 {MAIN} 9\n"
    for name in ("trace_reordered", "a.trace_with_deaths", "trace_reordered.gz"):
        gaps = [r for r in decode(lines + more, f"/run/{name}") if r.kind == Kind.GAP]
        said = [(gap.name, gap.detail.count, gap.detail.detail) for gap in gaps]
        assert said == [("late_join", 0, "no_start"), ("network", 3, "death_ahead")]
        assert missing(decode(lines, f"/run/{name}")) == 0
    assert not any(r.kind == Kind.GAP for r in decode(lines, "/reordered/trace"))


def test_a_running_agents_deaths_claim_nothing() -> None:
    assert missing(decode(vector("online"))) == 0
    for time in (-5, -(10**14)):
        lines = f"M 1 0 {MAIN}\nE 1 {MAIN}\nD 1 {MAIN} {time}\nD 2 {MAIN} 1388\n"
        assert missing(decode(lines)) == 0


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [("12333", (1, 0)), ("112333", (1, 2)), ("00333", (0, 3)), ("123444", (0, 0)), ("0123333", (0, 0))],
)  # fmt: skip
def test_deaths_that_change_their_mind_too_often_are_not_trusted(
    ahead: str, expected: tuple[int, int]
) -> None:
    lines = [f"M 1 0 {MAIN}\n"]
    for clock, by in enumerate(map(int, ahead), start=2):
        lines += [f"M 1 0 {MAIN}\n", f"D 5 {MAIN} {clock + by}\n"]
    records = decode("".join(lines))
    assert (begins_late(records), missing(records)) == expected


@pytest.mark.parametrize(
    ("name", "late", "expected"),
    [
        ("reordered_lossy", 0, 3),
        ("reordered_lossy_early", 1, 1),  # two before the first death, so perhaps before the file
        ("reordered_very_lossy", 0, 0),  # too few deaths have the same difference
        ("with_deaths_lossy", 1, 1),
        ("with_deaths_ahead_first", 1, 0),
        ("agent_kinds", 1, 0),
        ("agent_recursive", 1, 0),
        ("agent_unreadable", 0, 2),
        ("unreadable_in_clock", 0, 2),
        ("too_long.limit64", 0, 1),
        ("spec_losses", 0, 14),
    ],
)
def test_a_line_is_claimed_once_however_many_ways_it_shows(
    name: str, late: int, expected: int
) -> None:
    limit = int(name.partition(".limit")[2] or 65536)
    decoder = FORMAT.decoder(limit, None)
    records = decoder.feed(vector(name)) + decoder.end()
    assert (begins_late(records), missing(records)) == (late, expected)


def test_an_exit_without_entry_is_a_loss_once_a_frame_around_it_ends() -> None:
    """Else the entry may lie before the file, and what is open now was left by an exception."""
    around = f"M 1 0 {MAIN}\n"
    lost, ends = f"E 2 {MAIN}\nE 3 {MAIN}\n", f"E 1 {MAIN}\n"
    for lines, expected in (
        (lost + ends, (1, 0)),
        (around + lost, (1, 0)),
        (around + lost + ends, (0, 2)),
        (around + f"M 4 0 {MAIN}\n" + lost + f"M 5 0 {MAIN}\n" + f"E 5 {MAIN}\n" + ends, (0, 2)),
        (lost + around + lost + ends + lost, (1, 2)),
        (around + "M 2\n" + lost + ends, (0, 1)),  # a line that cannot be read explains one
    ):
        records = decode(lines, dialect="agent")
        assert (begins_late(records), missing(records)) == expected, lines
    assert [r.end for r in decode(around + lost + ends, dialect="agent")][-2:] == [6, None]


@pytest.mark.parametrize("drop", range(5, 700, 31))
def test_a_line_dropped_from_a_reordered_trace_is_missed(drop: int) -> None:
    """The loss is found unless no death follows the dropped line, and no exit shows that the line was an entry."""
    lines = vector("agent_threads_reordered").splitlines(keepends=True)
    lost = lines.pop(drop)
    assert missing(decode(b"".join(lines))) == (lost[:1] in b"ME")
    assert missing(decode(b"".join(lines), "/run/a.trace_reordered")) == (lost[:1] in b"ME")


def test_a_frame_takes_one_exits_loss_back_however_often_the_file_rests() -> None:
    decoder = FORMAT.decoder(1 << 20)
    decoder.begin("/run/trace", "agent")
    found = decoder.feed(b"".join(b"%s 7\n" % line for line in [b"M 1 0", *[b"E 5"] * 2, b"E 1"]))
    assert missing(found) == 2
    found += decoder.feed(b"M 9 0 7\nM 5 0 7\n") + decoder.settle()
    assert (missing(found), begins_late(found)) == (1, 1)
    assert decoder.settle() + decoder.end() == []


def test_one_damaged_time_of_a_death_does_not_make_later_losses_silent() -> None:
    lines = []
    for n in range(40):
        lines += [] if 20 <= n < 30 else [f"M {n} 0 70000007", f"E {n} 70000007"]
        lines.append(f"D {100 + n} 70000007 {9999 if n == 1 else 2 * n + 2}")
    found = decode("".join(f"{line}\n" for line in lines), "/run/trace", "agent")
    assert missing(found) or begins_late(found)


def test_what_came_before_a_hole_is_no_loss_of_the_network() -> None:
    for name in ("nul_hole", "nul_hole_long.limit64"):
        gaps = [r for r in decode(vector(name)) if r.kind == Kind.GAP]
        assert {gap.name for gap in gaps[:1]} == {"late_join"}


def test_a_hole_of_nuls_is_told_once_and_the_line_after_it_read() -> None:
    hole = bytes(300_000)
    decoder = FORMAT.decoder(1 << 20, None)
    records = []
    for at in range(0, len(hole), 4096):
        records += decoder.feed(hole[at : at + 4096])
    records += decoder.feed(f"M 1 0 {MAIN}\nE 1 {MAIN}\n".encode())
    assert [(r.kind, r.size, r.flaw) for r in rows(records)] == [
        (Kind.MALFORMED, 300_000, "nul_bytes"),
        (Kind.BEGIN, 19 - 2, None),
        (Kind.END, 17 - 2, None),
    ]


def test_a_last_line_cut_off_in_its_comment_has_all_its_fields() -> None:
    jump = decode("M 1 0 1\nE 1 2\nM 1 0 5 # cu")[-2:]
    assert [(r.kind, r.start) for r in jump] == [(Kind.BEGIN, 5), (Kind.GAP, None)]


# Frames


def test_frames_beyond_the_bound_are_given_up_and_claim_nothing() -> None:
    depth = stack.DEPTH_MAX + 1
    records = decode(f"M 1 0 {MAIN}\n" * depth + f"E 1 {MAIN}\n" * depth)
    ends = [record.id for record in records if record.kind == Kind.END]
    kept = depth - stack.DEPTH_MAX // 2
    assert ends == [*range(depth, depth - kept, -1), *[None] * (depth - kept)]
    assert missing(records) == 0


def test_an_exit_of_a_thread_beyond_the_bound_still_lacks_its_entry() -> None:
    threads = range(10**8, 10**8 + 2 * stack.THREADS_MAX + 2, 2)
    lines = [f"M 1 0 {thread}\n" for thread in threads]
    decoder = start()
    records = decoder.feed("".join([lines[0], f"E 2 {threads[0]}\n", *lines[1:]]).encode())
    assert (begins_late(records), missing(records)) == (0, 0)
    assert begins_late(decoder.end()) == 1


def test_threads_beyond_the_bound_are_given_up_and_claim_nothing() -> None:
    threads = range(10**8, 10**8 + 2 * stack.THREADS_MAX + 2, 2)
    lines = [f"M 1 0 {thread}\n" for thread in threads]
    records = decode("".join([*lines, f"E 1 {threads[-1]}\n", f"E 1 {threads[0]}\n"]), "", "agent")
    assert [record.id for record in records[-2:]] == [len(threads), None]
    assert missing(records) == 0
    decoder = start()
    for thread in threads:
        decoder.feed(f"M 1 0 {thread}\nM 2 0 {thread}\nE 1 {thread}\n".encode())
    assert len(decoder.state.form.stacks.passed) <= stack.THREADS_MAX


def test_methods_passed_over_beyond_the_bound_are_given_up_and_claim_nothing() -> None:
    methods = range(2, stack.PASSED_MAX + 3)
    entries = [f"M {method} 0 {MAIN}\n" for method in (0, 1, *methods)]
    exits = [f"E {method} {MAIN}\n" for method in (1, 2, 2, 0)]
    assert missing(decode("".join([*entries[:-1], *exits]))) == 1
    assert missing(decode("".join([*entries, *exits]))) == 0


def test_frames_passed_over_before_a_file_shows_to_be_et1_claim_nothing() -> None:
    lines = f"M 10 0 {MAIN}\nM 11 0 {MAIN}\nX 10 0 5 {MAIN}\nR 5 {MAIN}\nX 11 0 5 {MAIN}\n"
    assert missing(decode(lines)) == 0
    assert missing(decode(lines.replace("X 11", "X 12"))) == 0


def test_the_state_holds_no_more_than_the_open_frames() -> None:
    decoder = FORMAT.decoder(1 << 20, None)
    sizes = []
    for _ in range(3):
        decoder.feed(f"M 1 0 {MAIN}\nM 2 3 {MAIN}\nE 2 {MAIN}\nE 1 {MAIN}\n".encode() * 500)
        sizes.append(len(msgspec.msgpack.encode(decoder.state)))
    assert max(sizes) < 500


# ET1


def test_numbers_of_et1_are_hexadecimal_and_its_threads_keep_their_frames() -> None:
    records = rows(decode(f"M 31 0 {MAIN}\nM 10 0 {MAIN}\nE 10 1a {MAIN}\nE 31 {MAIN}\n"))
    assert [record.id for record in records] == [1, 2, 2, 1]
    assert attributes(records[2])["receiver"] == 0x1A
    assert attributes(records[3])["method_id"] == 0x31


def test_one_damaged_line_makes_no_file_et1() -> None:
    """In the damaged line, a zero became a space."""
    lines = [f"M 10 0 {MAIN}\n", f"E 10 {MAIN}\n", f"M 10 0 {MAIN}\n", f"E 1 1 {MAIN}\n"]
    for more in ([], ["# one by one\n"]):
        damaged, last = rows(decode("".join([*more, *lines, f"E 10 {MAIN}\n"])))[-2:]
        assert (damaged.kind, damaged.name, damaged.flaw) == (Kind.INSTANT, "leave", "et1_shape")
        assert attributes(damaged) == {"fields": ["1", "1", str(MAIN)]}
        assert (last.id, attributes(last)["method_id"]) == (2, 10)


def test_a_hole_that_is_explained_in_part_is_healed_in_part() -> None:
    lines = "M 1 0 1\nM 2 0 2\nM 3 0 x\nE 2 6\nE 3 4\n"
    assert missing(decode(lines)) == 1
    assert missing(decode(lines + "M 4 0 5\nM 3 0 3\n")) == 0
    assert {r.flaw for r in decode(lines) if r.end == 4} == {"late"}


# Names


AGENT_LINES = f"M 31 0 {MAIN}\nN 11 24 5 1 0 {MAIN}\nU 11 12 7 {MAIN}\nE 31 {MAIN}\n".encode()


def start() -> FORMAT.decoder:
    decoder = FORMAT.decoder(1 << 20, None)
    decoder.begin("/run/trace", "agent")
    return decoder


def keys(records: list[Record]) -> dict[str, str]:
    assert {(r.kind, r.size, attributes(r)[SCOPE]) for r in records} <= {(Kind.NAME, 0, "session")}
    return {attributes(record)[KEY]: record.name for record in records}


def test_names_known_before_an_event_are_written_into_it() -> None:
    decoder = start()
    decoder.document("methods.list", b"A$B#run,31\n")
    decoder.document("classs.list", b'p.A$B,5\nquo"te,6\n')
    decoder.document("fields.list", b"A$B#f,7\n")
    _, begin, new, update, end = decoder.feed(AGENT_LINES)
    assert (begin.name, attributes(begin)) == ("A$B#run", {"method_id": 31, "receiver": 0})
    assert attributes(new) == {"class": "p.A$B", "class_id": 5, "size": 24, "site_id": 1}
    assert attributes(update) == {"field": "A$B#f", "field_id": 7, "value": 12}
    assert (end.name, attributes(end)) == ("A$B#run", {"method_id": 31})
    assert attributes(decoder.feed(f"W 1 6 {MAIN}\n".encode())[0])["class"] == 'quo"te'


def test_names_known_later_are_asked_for() -> None:
    decoder = start()
    _, begin, new, update, end = decoder.feed(AGENT_LINES)
    assert begin.name is end.name is None
    assert attributes(begin)[NAME_OF_ROW] == attributes(end)[NAME_OF_ROW] == "method:31"
    assert attributes(new)[NAMES_OF_MEMBERS] == {"class": "class:5"}
    assert attributes(update)[NAMES_OF_MEMBERS] == {"field": "field:7"}
    records = decoder.document("methods.list", b"A#run,31\nA#walk,32\n")
    assert keys(records) == {"method:31": "A#run", "method:32": "A#walk"}
    assert {record.offset for record in records} == {len(AGENT_LINES)}


def test_a_span_whose_begin_had_no_name_asks_for_it_at_its_end() -> None:
    """The end gets the name of its begin, which was unknown when the begin was read."""
    decoder = start()
    decoder.feed(AGENT_LINES[:20])
    decoder.document("methods.list", b"A#run,31\n")
    end = decoder.feed(AGENT_LINES[20:])[-1]
    assert (end.name, attributes(end)) == ("A#run", {NAME_OF_ROW: "method:31", "method_id": 31})


def test_only_what_is_new_in_a_document_is_said() -> None:
    decoder = start()
    assert decoder.document("methods.list", b"") == []
    assert keys(decoder.document("methods.list", b"A#a,1\nA#b,")) == {"method:1": "A#a"}
    assert keys(decoder.document("methods.list", b"A#a,1\nA#b,2\nA#c,3")) == {"method:2": "A#b"}
    assert keys(decoder.document("methods.list", b"A#x,1\nA#b,2\nA#c,3\n")) == {
        "method:1": "A#x",
        "method:3": "A#c",
    }


def test_lines_that_are_no_names_are_counted() -> None:
    decoder = start()
    data = b"\n \nA#a,1\nA#b,\n,3\nA#c\nA#\xff,4\nA#d,-5\nA#e,0x6\n" + b"A#f," + b"9" * 5000 + b"\n"
    first, bad = decoder.document("a.methods.list", data)
    assert (first.name, attributes(first)[KEY]) == ("A#a", "method:1")
    assert (bad.kind, bad.size, bad.name) == (Kind.SESSION, 0, "bad_map_lines")
    assert attributes(bad) == {"document": "a.methods.list", "count": 7}


@pytest.mark.parametrize("classes_first", [True, False])
def test_a_method_of_the_specification_is_named_after_its_class(classes_first: bool) -> None:
    decoder = start()
    documents = [("class_list", b"4,p/A\n5,p/B,C\n"), ("method_list", b"31,4,<init>\n32,9,run\n")]
    said: dict[str, str] = {}
    for name, data in documents if classes_first else reversed(documents):
        said |= keys(decoder.document(f"spec.{name}", data))
    assert said == {
        "class:4": "p/A",
        "class:5": "p/B,C",
        "method:31": "p/A#<init>",
        "method:32": "run",
    }
    assert decoder.feed(AGENT_LINES)[1].name == "p/A#<init>"
    assert keys(decoder.document("class_list", b"4,q/A\n")) == {
        "class:4": "q/A",
        "method:31": "q/A#<init>",
    }


def test_of_a_document_with_too_many_names_it_is_said_how_many_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "READ_MAX", 2)
    *names, left_out = start().document("classs.list", b"A,1\nB,2\nC,5\nno line\nB,2\nD,6\n")[:4]
    assert [name.name for name in names[:2]] == ["A", "B"]
    assert left_out.name == "map_names_left_out"
    assert attributes(left_out) == {"document": "classs.list", "count": 2}


def test_names_too_long_to_remember_are_said_and_asked_for() -> None:
    decoder = start()
    long = "x" * 1025
    (name,) = decoder.document("methods.list", f"{long},7\n".encode())
    assert name.name == long
    assert decoder.state.names.names == {"method": {}}


def test_names_beyond_the_bound_are_said_and_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "NAMES_MAX", 2)
    monkeypatch.setattr(maps, "MADE_MAX", 2)
    decoder = start()
    data = b"A,1\nB,2\nC,5\n"
    assert len(decoder.document("classs.list", data)) == 3
    assert keys(decoder.document("classs.list", data)) == {"class:5": "C"}
    members = b"1,1,a\n2,1,b\n3,1,c\n"
    assert keys(decoder.document("method_list", members))["method:3"] == "A#c"
    lines = "".join(f"W 9 {class_} {MAIN}\n" for class_ in (1, 2, 5, 1, 6))
    late = [NAMES_OF_MEMBERS in attributes(r) for r in rows(decoder.feed(lines.encode()))]
    assert late == [False, False, True, False, True]
    assert len(decoder.state.names.members) == 2
    assert len(decoder._names.classes) <= 2
    assert len(msgspec.msgpack.encode(decoder.state)) < 1000


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("agent_simple", ("method:31", "sun.launcher.LauncherHelper#makePlatformString")),
        ("spec_simple", ("method:31", "sun/launcher/LauncherHelper#makePlatformString")),
    ],
)
def test_documents_of_real_traces_name_all_that_their_events_are_about(
    name: str, known: tuple[str, str]
) -> None:
    """The specification's form has no document of fields."""
    decoder = FORMAT.decoder(1 << 20, None)
    said: dict[str, str] = {}
    for document in FORMAT.files.documents(f"/run/{name}.trace"):
        if (path := VECTORS / document).exists():
            said |= keys(decoder.document(document, path.read_bytes()))
    assert said[known[0]] == known[1]
    for record in rows(decoder.feed(vector(name))):
        late = attributes(record).get(NAMES_OF_MEMBERS, {})
        assert NAME_OF_ROW not in attributes(record)
        assert record.kind not in {Kind.BEGIN, Kind.END} or "#" in record.name
        assert set(late) <= ({"field"} if name == "spec_simple" else set())


def test_names_survive_a_restart_of_the_collector() -> None:
    decoder = start()
    decoder.document("methods.list", b"A#run,31\n")
    decoder.feed(AGENT_LINES[:30])
    saved = msgspec.msgpack.encode(decoder.state)
    again = FORMAT.decoder(1 << 20, msgspec.msgpack.decode(saved, type=FORMAT.state_type))
    assert again.document("methods.list", b"A#run,31\n") == []
    records = again.feed(AGENT_LINES[30:])
    assert records == decoder.feed(AGENT_LINES[30:])
    assert records[-1].name == "A#run"


def test_names_given_while_lines_are_held_back_are_at_their_place() -> None:
    decoder = FORMAT.decoder(1 << 20, None)
    comment = b"# one\n"
    assert [r.offset for r in decoder.feed(comment + b"M 1 0 1\n")] == [0]
    (record,) = decoder.document("class_list", b"1,A\n")
    assert record.offset == len(comment)


# Files


@pytest.mark.parametrize(
    ("name", "is_trace"),
    [
        ("trace", True), ("trace.gz", True), ("trace.1", True), ("run.trace", True),
        ("run.trace_reordered", True), ("trace_with_deaths", True), ("run.et3", True),
        ("run.et3.gz", True), ("run.trace.old", True), (".trace", False), ("traces", False),
        ("backtrace", False), ("methods.list", False), ("run.classs.list", False),
        ("trace.method_list", False), ("notes.txt", False),
    ],
)  # fmt: skip
def test_traces_are_known_by_their_names(name: str, is_trace: bool) -> None:
    assert FORMAT.files.stream(f"/run/trace/{name}") is is_trace


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/run/agent_Multi4.trace", "agent_Multi4.methods.list"),
        ("/run/agent_Multi4.trace_reordered", "agent_Multi4.classs.list"),
        ("/run/spec_SimpleTrace.et3.gz", "spec_SimpleTrace.method_list"),
        ("/run/a.b.trace.1", "a.b.fields.list"),
    ],
)
def test_documents_have_the_name_of_their_trace_or_none(path: str, own: str) -> None:
    names = FORMAT.files.documents(path)
    assert own in names
    assert {"methods.list", "classs.list", "fields.list", "class_list", "method_list"} < {*names}
    assert not any(name.startswith(".") for name in FORMAT.files.documents("/run/trace"))


@pytest.mark.parametrize("clock", [False, True])
def test_a_line_that_is_not_utf8_may_be_several_unless_a_clock_tells(clock: bool) -> None:
    times = [str(number if clock else MAIN) for number in range(1, 13)]
    lines = [f"{'E' if n % 2 else 'M'} 1{' 0' * (1 - n % 2)} {t}\n" for n, t in enumerate(times)]
    whole = "".join(lines).encode()
    begin = len("".join(lines[:4]))
    records = decode(whole[:begin] + b"\xff" * 50 + whole[begin + 50 :])
    (bad,) = (record for record in records if record.kind == Kind.MALFORMED)
    assert bad.name == (None if clock else "lines")


def test_traces_are_recognised_by_their_first_lines() -> None:
    recognises = FORMAT.files.recognises
    for name in (*CLEAN, "spec_example", "spec_kinds", "et1", "nul_hole", "unreadable_in_clock"):
        assert recognises(f"/run/{name}", vector(name)[:4096]), name
    for head in (
        b"",
        b"M 1 0 1",
        b"# only\n",
        b"\0" * 4096,
        b'{"type":"header"}\n',
        b"[\n",
        b"a b\n",
    ):
        assert not recognises("/run/trace", head), head
