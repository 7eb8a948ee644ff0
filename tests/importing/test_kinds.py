"""Do to every vector what people do to traces: cut, filter, spell anew, rename, move, compress. The rows stay the same, nothing
is counted as lost where nothing was, and what is gone is never counted higher than it is.

Pieces of one run, names that are lost, and copies that Tailrace writes have tests of their own.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, strategies as st

from benchmarks.spellings import COMMAS, SPELLINGS
from tailrace.model.columns import COLUMNS
from tests.decoding.test_conformance import ALL, LONG, VECTORS
from tests.ingest.log import Log, run
from tests.program import COMMAND, run as run_program
from tests.traffic.grow import may_join

FILES = [
    vector
    for vector in ALL
    if "tail" in vector.format.transports and ".limit" not in vector.expectation.name
]
LINES = {"dftracer", "jets", "et3"}
"""Formats of lines."""
OBJECTS = {"dftracer", "jets"}
"""Formats with a JSON object a line."""
LATE = {"et3/et1_late", "dftracer/ids_aggregated_after_end"}
"""The last lines decide what the first ones mean, or stand for many events."""
SPACED = {"dftracer/dialect_1_0_8"}
"""Only the white space of the first line says which release wrote the file, and that it would have written an end."""
EVENTS = {"span", "begin", "instant", "counter"}


def rows(vector, data):
    """The rows of a file with these bytes, beside what stands beside the vector."""
    log, beside = Log(), vector.beside or {"path": "/runs/a", "documents": []}
    session = log.open_file(
        vector.format.name,
        beside["path"],
        dialect=beside.get("dialect", "auto"),
        record_max=vector.limit,
    )
    for name, text in beside["documents"]:
        log.document(session, name, text.encode(errors="surrogateescape"))
    log.data(session, data)
    log.tick(0.1)
    log.close(session)
    return run(log.entries)[1]


@cache
def whole(vector):
    return rows(vector, vector.data)


def events(found):
    return Counter(
        (row["stream"], row["name"], row["start"]) for row in found if row["kind"] in EVENTS
    )


def gaps(found):
    return [row for row in found if row["kind"] == "gap"]


def counted(found):
    """How many events are counted as missing, for good."""
    signs = {"gap": 1, "heal": -1}
    return sum(signs.get(row["kind"], 0) * (row["missing"] or 0) for row in found)


def records(found):
    """How many records rows are of. A span may be of two, of which one is its end."""
    return sum(
        1 + (row["kind"] == "span")
        for row in found
        if row["kind"] not in {"gap", "heal", "session"}
    )


def lines_of(vector):
    return vector.data.splitlines(keepends=True)


def invented(vector, data):
    """Events of a part of a vector that the whole does not have, and how many more are counted as missing than were taken away."""
    found, old = rows(vector, data), whole(vector)
    more = events(found) - events(old)
    torn = vector.format.name not in LINES or not data.endswith(b"\n")
    surplus = counted(found) - counted(old) - max(0, records(old) - records(found)) - torn
    return [*more, *([f"{surplus} too many counted"] if surplus > 0 else [])]


@pytest.mark.parametrize("format_", sorted({vector.format.name for vector in FILES}))
def test_the_head_of_a_file_invents_nothing(format_):
    wrong = {}
    for vector in of(format_):
        size = len(vector.data)
        places = {size * part // 8 for part in range(1, 8)}
        if format_ in LINES:
            lines = lines_of(vector)
            places |= {len(b"".join(lines[: len(lines) * part // 4])) for part in range(1, 4)}
        for place in sorted(places):
            if found := invented(vector, vector.data[:place]):
                wrong[vector.name, place] = found[:3]
    assert not wrong


@pytest.mark.parametrize("format_", sorted(LINES))
def test_a_byte_order_mark_and_a_ctrl_z_change_nothing(format_):
    """As Windows' editors and DOS' copy leave them."""
    wrong = {}
    for vector in of(format_):
        begin = vector.data[:1]
        if vector.name in SPACED or begin in {b"", b"\0", b"\xef"}:
            continue  # nothing, a hole, or a mark
        found, old = rows(vector, b"\xef\xbb\xbf" + vector.data + b"\x1a\x1a"), whole(vector)
        if (events(found), counted(found)) != (events(old), counted(old)):
            wrong[vector.name] = counted(found), counted(old)
    assert not wrong


@pytest.mark.parametrize("format_", sorted(OBJECTS))
@LONG
@given(st.data())
def test_a_tail_and_a_filter_invent_nothing(format_, data):
    vector = data.draw(st.sampled_from(of(format_)))
    lines = lines_of(vector)
    first = data.draw(st.integers(0, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    kept = data.draw(st.sampled_from([lines[first:last], lines[:first] + lines[last:]]))
    assert invented(vector, b"".join(kept)) == []


def of(format_):
    return [vector for vector in FILES if vector.format.name == format_ and vector.name not in LATE]


REAL = VECTORS / "dftracer/traces/v220_py_plain.pfw.gz"


def numbered(line):
    try:
        return "id" in json.loads(line)
    except ValueError:
        return False


def test_each_event_that_is_cut_out_of_a_real_trace_is_counted_once():
    """Any line: an event, or one that only names what events refer to."""
    (vector,) = (v for v in FILES if v.name == "dftracer/v200_py_brackets")
    lines = gzip.decompress(REAL.read_bytes()).splitlines(keepends=True)
    assert counted(rows(vector, b"".join(lines))) == 0
    inside = [
        n for n, line in enumerate(lines) if numbered(line) and b'"cat":"dftracer"' not in line
    ]
    assert len(inside) > 50
    for number in inside[1:-1:7]:
        found = rows(vector, b"".join(lines[:number] + lines[number + 1 :]))
        assert counted(found) == 1, lines[number]
        (gap,) = [row for row in gaps(found) if row["missing"]]
        assert gap["name"] == "network"


def objects(vector):
    """The lines of a vector, if each is a JSON object with one reading and each key once; None if not."""

    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key comes twice")
        return found

    def refuse(_):
        raise ValueError("no number")

    try:
        lines = vector.data.decode().removesuffix("\n").split("\n")
        values = [json.loads(line, object_pairs_hook=once, parse_constant=refuse) for line in lines]
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return lines if all(isinstance(value, dict) for value in values) else None


def as_read(found):
    """Rows without their places, and with the values of their attributes."""

    def attributes(row):
        of = json.loads(row["attributes"] or "{}")
        return {key: of[key] for key in of if key not in {"file", "bytes", "$line"}}

    columns = [
        column.name
        for column in COLUMNS
        if column.name not in {"offset", "end_offset", "attributes"}
    ]
    return [
        [row[column] for column in columns] + [attributes(row)]
        for row in found
        if row["name"] != "bracket" or row["kind"] != "session"
    ]


@pytest.mark.parametrize(
    ("format_", "spelling"),
    [
        (format_, spelling)
        for format_ in sorted(OBJECTS)
        for spelling in (SPELLINGS if format_ == "jets" else SPELLINGS | COMMAS)
    ],
)  # JETS has no commas between lines
def test_another_spelling_gives_the_same_rows(format_, spelling):
    vectors = [vector for vector in of(format_) if vector.name not in SPACED]
    spelled = [(vector, lines) for vector in vectors if (lines := objects(vector))]
    assert len(spelled) > 15
    wrong = {}
    for vector, lines in spelled:
        found = as_read(rows(vector, (SPELLINGS | COMMAS)[spelling](lines)))
        if found != as_read(rows(vector, ("\n".join(lines) + "\n").encode())):
            wrong[vector.name] = found
    assert not wrong, sorted(wrong)


def members(data):
    """Compress data as several members, which begin anywhere."""
    rng = random.Random(len(data))
    places = sorted(rng.choices(range(len(data) + 1), k=3))
    parts = zip([0, *places], [*places, len(data)], strict=True)
    return b"".join(gzip.compress(data[begin:end], mtime=0) for begin, end in parts)


PLACES = {
    "moved": ("split/{number}/{name}", bytes),
    "compressed": ("{number}/{name}.gz", lambda data: gzip.compress(data, mtime=0)),
    "compressed in members": ("{number}/{name}.gz", members),
}
"""Where a vector goes, and as which bytes."""
NAMES = {"dftracer": "a.pfw", "et3": "trace", "heph": "a.heph", "jets": "a.jets"}


def imported(directory, format_, place, spelled):
    """Import vectors as files of these names. Return by vector the rows without what depends on the file's name."""
    fair = [v for v in of(format_) if not v.beside and not may_join(v.data) and events(whole(v))]
    chosen = fair[::3]
    for number, vector in enumerate(chosen):
        path = directory / "files" / place.format(number=number, name=NAMES[format_])
        path.parent.mkdir(parents=True)
        path.write_bytes(spelled(vector.data))
    command = [
        *COMMAND,
        "import",
        "--store",
        directory / "store",
        "--format",
        format_,
        directory / "files",
    ]
    done = run_program([*map(str, command)], capture_output=True, text=True, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    table = DeltaTable(directory / "store/events").to_pyarrow_table().to_pylist()
    of_session = {}
    for row in table:
        about = json.loads(row["attributes"] or "{}")
        path = about.get("peer") or about.get("file", {}).get("path")
        if row["kind"] == "session" and path:
            number = Path(path).relative_to(directory / "files").parts[-2]
            of_session[row["session"].partition(".")[0]] = chosen[int(number)].name
    found = {vector.name: Counter() for vector in chosen}
    once = (
        "malformed",
        "truncated",
    )  # gaps of one reason that follow one another: as many as there were reads
    for row in table:
        columns = ("stream", "kind", "name", "category", "id", "parent", "start", "end", "missing")
        if row["kind"] != "session":
            several = row["missing"] if row["name"] in once and row["missing"] else 0
            key = tuple(None if several and c == "missing" else row[c] for c in columns)
            found[of_session[row["session"].partition(".")[0]]][key] += several or 1
    return found


@pytest.mark.parametrize("format_", NAMES)
def test_name_place_and_compression_change_nothing(format_, tmp_path):
    plain = imported(tmp_path / "plain", format_, "{number}/{name}", bytes)
    assert sum(map(Counter.total, plain.values())) > 30
    for name, way in PLACES.items():
        assert imported(tmp_path / name, format_, *way) == plain, name
