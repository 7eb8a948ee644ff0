"""Do to every vector what people do to traces: cut, join, filter, spell anew, rename, move, deal out, compress. The rows stay the same, nothing
is counted as lost where nothing was, and what is gone is never counted higher than it is.

Pieces of one run of DFTracer, names that are lost, and copies that Tailrace writes have tests of their own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import shutil
from collections import Counter
from copy import copy
from datetime import date
from functools import cache
from pathlib import Path
from time import process_time

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from msgspec.structs import replace

from benchmarks.spellings import COMMAS, SPELLINGS
from tailrace.cli.commands import tailrace
from tailrace.rows.schema import COLUMNS
from tailrace.spool.entry import LAST
from tailrace.spool.payloads import HEAD, FileFacts, Rest
from tests.decoding.test_conformance import ALL, LONG, VECTORS, Vector
from tests.ingest.log import Log, log_of_file, run
from tests.program import COMMAND, run as run_program
from tests.query.asking import ask
from tests.query.memory import Views
from tests.query.tables import rows_in
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
    beside = vector.beside or {"path": "/runs/a", "documents": []}
    documents = [
        (name, text.encode(errors="surrogateescape")) for name, text in beside["documents"]
    ]
    dialect = beside.get("dialect", "auto")
    log = log_of_file(
        vector.format.name,
        data,
        beside["path"],
        documents,
        dialect=dialect,
        record_max=vector.limit,
    )
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


def within_record(vector, half):
    """Return whether the lines end within a record that newlines split, or before the first line."""
    decoder = vector.format.decoder(vector.limit, None)
    decoder.feed(half)
    return not half.strip() or (vector.format.name == "dftracer" and decoder.pending)


@pytest.mark.parametrize("format_", sorted(LINES))
@pytest.mark.parametrize("mark", [b"\x1a", b"\x1a" * 100], ids=["one", "many"])
def test_ctrl_zs_before_a_line_lose_no_event(format_, mark):
    """As DOS' copy leaves them where it joins two files."""
    wrong = {}
    for vector in of(format_):
        lines = lines_of(vector)
        half = b"".join(lines[: len(lines) // 2])
        if vector.limit < 2**16 or b"\0" in vector.data or within_record(vector, half):
            continue
        if not vector.data[len(half) :].strip() or vector.name == "dftracer/strings":
            continue  # the next record has newlines
        found, old = rows(vector, half + mark + vector.data[len(half) :]), whole(vector)
        gaps = [sum(row["kind"] == "gap" for row in each) for each in (found, old)]
        surplus = 1 if format_ == "dftracer" else 2  # an unreadable line
        if events(found) != events(old) or gaps[0] > gaps[1] + surplus:
            wrong[vector.name] = gaps
    assert not wrong


ORDERS = {
    "tac": lambda lines, _: lines[::-1],
    "sort": lambda lines, _: sorted(lines),
    "sort -r": lambda lines, _: sorted(lines, reverse=True),
    "sort -R": lambda lines, rng: rng.sample(lines, len(lines)),
    "cat twice, sort": lambda lines, _: sorted(lines + lines),
}


def of_one_run(format_):
    """Vectors whose order of lines alone says nothing: each event is numbered, or has the time of its own trace."""
    for vector in of(format_):
        found = whole(vector)
        old = {row["name"] for row in found if row["kind"] in {"malformed", "gap"}}
        runs = max(vector.data.count(b'"name":"start"'), vector.data.count(b'"type":"header"'))
        numbered = format_ == "jets" or any(
            b'"form":"specification"' in row for row in texts(found)
        )
        if format_ == "dftracer":
            numbered = vector.data.count(b'"name":"end"') == 1 and b'"id"' in vector.data
        if numbered and runs <= 1 and not old and vector.data.endswith(b"\n"):
            yield vector


def texts(found):
    return [(row["attributes"] or "").encode() for row in found]


@pytest.mark.parametrize(
    ("format_", "order"),
    [(format_, order) for format_ in ("dftracer", "et3", "jets") for order in ORDERS],
)
def test_lines_in_another_order_are_all_there(format_, order):
    """No event of the file counts as missing, in whatever order its lines stand."""
    wrong, rng, seen = {}, random.Random(order), 0
    for vector in of_one_run(format_):
        lines = lines_of(vector)
        if format_ != "dftracer" and (order.startswith("cat") or "/et1" in vector.name):
            continue
        found = rows(vector, b"".join(ORDERS[order](lines, rng)))
        times = 2 if order.startswith("cat") else 1
        old = Counter({key: n * times for key, n in events(whole(vector)).items()})
        seen += 1
        if {*events(found)} != {*old} or counted(found):
            wrong[vector.name] = counted(found), events(found) - old, old - events(found)
    assert not wrong
    assert seen > 1 or order.startswith("cat")


@pytest.mark.parametrize("order", ORDERS)
def test_an_agents_lines_in_another_order_are_not_missing(order):
    """Only the order of lines matches exits with entries. No line counts as missing once the file rests, or has been
    read."""
    rng, seen = random.Random(order), 0
    for vector in of("et3"):
        if b'"form":"agent"' not in b"".join(texts(whole(vector))) or gaps(whole(vector)):
            continue
        if vector.name == "et3/marks" or not vector.data.endswith(b"\n"):
            continue  # a mark, or no newline, within a line
        log, seen = Log(), seen + 1
        file = log.open_file("et3", "/runs/a")
        log.data(file, b"".join(ORDERS[order](lines_of(vector), rng)))
        facts = FileFacts(path="/runs/a", device=1, inode=2, birth=3)
        log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))
        assert counted(run(log.entries)[1]) == 0, vector.name
        log.close(file)
        assert counted(run(log.entries)[1]) == 0, vector.name
    assert seen > 5


TEXTS = (
    b"# A title\n\nSome words here.\n- item\n  more\n\n| a | b |\n|---|---|\nlast line",
    b"2026-11-30 12:00:00 INFO start\n[info] caf\xe9\n[x]: {y}\n",
)
DAMAGED = {
    "dftracer": b'{"id":1,"name":"open","ca\n',
    "et3": b"M 100\n",
    "jets": b'{"clk":5,"type":"ev\n',
}


@pytest.mark.parametrize("format_", sorted(LINES))
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_is_no_trace_counts_no_event(format_, text):
    """A source takes a README or a log for a trace. Nobody knows how many events the text replaces."""
    for log in (log_of_file(format_, text, "/runs/a"), Log()):
        if not log.entries:
            log.data(session := log.open(format_), text)
            log.close(session)
        found = gaps(run(log.entries)[1])
        assert {row["missing"] for row in found} == {None}
        assert {row["name"] for row in found} <= {"malformed", "truncated"}
        sizes = [json.loads(row["attributes"]).get("bytes", 0) for row in found]
        assert sum(sizes) >= len(text) - len(b"# A title\n")  # a comment of ET3


@pytest.mark.parametrize("format_", sorted(LINES))
def test_a_damaged_record_counts_wherever_it_stands(format_):
    """A text counts as one event behind the first record, and as an unknown number before it."""
    (vector, *_) = (v for v in of(format_) if not gaps(whole(v)) and events(whole(v)))
    damaged, text = DAMAGED[format_], b"what is this\n"
    assert counted(rows(vector, damaged)) == 1
    assert counted(rows(vector, vector.data + text)) == 1
    assert counted(rows(vector, text + vector.data)) == 0
    assert None in {row["missing"] for row in gaps(rows(vector, text + vector.data))}


def test_text_beside_a_damaged_record_stays_of_unknown_size():
    """The text may be a record, too, of which the damage left nothing."""
    log = Log()
    session = log.open("jets")
    log.data(session, b"what is this\n" + DAMAGED["jets"] + b"and this\n")
    log.close(session)
    found = [row["missing"] for row in gaps(run(log.entries)[1])]
    assert found == [None, 1, None]


def test_a_long_line_costs_no_more_than_its_bytes():
    """A pattern that is searched anew from each byte of such a line would take minutes."""
    log = Log()
    session = log.open("jets")
    log.data(session, b'":' * (500 * 2**10) + b"\n")
    log.close(session)
    began = process_time()
    assert counted(run(log.entries)[1]) == 0
    assert process_time() - began < 5


@pytest.mark.parametrize("mark", [b"\n", b"\x1a", b"\x1a\n", b"\n\x1a"])
def test_joined_traces_are_both_there_whatever_stands_between(mark):
    """As DOS' copy, or files without a last newline, leave them."""
    vectors = [v for v in joinable("dftracer") if objects(v)]
    for first, second in itertools.pairwise(vectors[::2]):
        found = rows(first, first.data.removesuffix(b"\n") + mark + second.data)
        assert events(found) == events(whole(first)) + events(whole(second))
        assert counted(found) <= counted(whole(first)) + counted(whole(second))


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
        if begin in {b"", b"\0", b"\xef"}:
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
    """The lines of a vector, if each is a JSON object with one reading and each key once; None if not.

    A fraction of 2**53 or more has two readings: whoever reads it as a double spells another number."""

    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key comes twice")
        return found

    def refuse(_):
        raise ValueError("no number")

    def double(text):
        value = float(text)
        return value if abs(value) < 2**53 else refuse(text)

    if vector.format.name == "dftracer" and b"\\" in vector.data:
        return None  # the tracer escapes nothing: a backslash is an escape or the program's own
    try:
        lines = vector.data.decode().removesuffix("\n").split("\n")
        hooks = {"object_pairs_hook": once, "parse_constant": refuse, "parse_float": double}
        values = [json.loads(line, **hooks) for line in lines]
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return lines if all(isinstance(value, dict) for value in values) else None


def as_read(found):
    """Rows without their places, and with the values of their attributes."""

    def attributes(row):
        of = json.loads(row["attributes"] or "{}")
        return {key: of[key] for key in of if key not in {"file", "bytes", "quarantine", "$line"}}

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


@cache
def unspelled(format_):
    """The vectors of a format that may be spelled anew, each with its lines and its rows as it is."""
    vectors = [vector for vector in of(format_) if vector.name not in SPACED]
    found = [
        (vector, lines, as_read(rows(vector, ("\n".join(lines) + "\n").encode())))
        for vector in vectors
        if (lines := objects(vector))
    ]
    assert len(found) > 15
    return found


@pytest.mark.parametrize(
    ("format_", "spelling"),
    [
        (format_, spelling)
        for format_ in sorted(OBJECTS)
        for spelling in (SPELLINGS if format_ == "jets" else SPELLINGS | COMMAS)
    ],
)  # JETS has no commas between lines
def test_another_spelling_gives_the_same_rows(format_, spelling):
    wrong = {}
    for vector, lines, old in unspelled(format_):
        found = as_read(rows(vector, (SPELLINGS | COMMAS)[spelling](lines)))
        if found != old:
            wrong[vector.name] = found
    assert not wrong, sorted(wrong)


@pytest.mark.parametrize("comma", [",", ", "], ids=["jq -c -s", "json.dump of a list"])
def test_an_array_on_one_line_is_read_while_its_file_grows(comma):
    """All but its last element before the file rests, and that one then, without a newline."""
    for vector, lines, _ in unspelled("dftracer"):
        data = f"[{comma.join(lines)}]".encode(errors="surrogatepass")
        old, log = events(whole(vector)), Log()
        for end in (b"", b"\n"):
            found = rows(vector, data + end)
            assert (events(found), counted(found)) == (old, counted(whole(vector)))
        file = log.open_file("dftracer", "/runs/a")
        for at in range(0, len(data), 1000):
            log.data(file, data[at : at + 1000])
        log.tick(1)
        assert events(run(log.entries)[1]).total() >= old.total() - 1
        facts = FileFacts(path="/runs/a", device=1, inode=2, birth=3)
        log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))
        log.tick(1)
        assert events(run(log.entries)[1]) == old


def followed(vector, rng, *paths, more=b""):
    """The rows of files that grow by the same bytes while a daemon follows them, which is then stopped. The last one has `more` by
    then."""
    log = Log()
    files = [log.open_file(vector.format.name, path, record_max=vector.limit) for path in paths]
    at = 0
    while at < len(vector.data):
        part = vector.data[at : at + rng.randrange(1, len(vector.data) + 1)]
        at += len(part)
        for file in rng.sample(files, len(files)):
            log.data(file, part)
    if more:
        log.data(files[-1], more)
    log.stop(LAST)
    return readable(run(log.entries)[1])


def readable(found):
    return [row | {"day": date(1970, 1, 1)} for row in found]


@pytest.mark.parametrize("format_", ["dftracer", "et3", "heph", "jets"])
def test_two_files_that_grow_together_are_one_unless_they_part(format_):
    """However they were read. The first bytes of the vector are what the second one may have beside it."""
    views, rng = Views(), random.Random(format_)
    events = "SELECT count(*) AS n FROM events WHERE kind IN ('span', 'instant', 'counter')"
    copies = "SELECT copies FROM sessions WHERE copies IS NOT NULL"
    seen = 0
    alone = [vector for vector in of(format_) if not vector.beside and not may_join(vector.data)]
    for vector in [each for each in alone if HEAD <= len(each.data) < 10**4][::3]:
        own = followed(vector, rng, "/runs/a")
        together = followed(vector, rng, "/runs/a", "/copies/a")
        parted = followed(vector, rng, "/runs/a", "/copies/a", more=vector.data[:40])
        seen += len(views.of(together, copies))
        assert views.of(together, events) == views.of(own, events), vector.name
        assert views.of(parted, copies) == [], vector.name
    assert seen > 3


def members(data):
    """Compress data as several members, which begin anywhere."""
    rng = random.Random(len(data))
    places = sorted(rng.choices(range(len(data) + 1), k=3))
    parts = zip([0, *places], [*places, len(data)], strict=True)
    return b"".join(gzip.compress(data[begin:end], mtime=0) for begin, end in parts)


def padded(data):
    """Compress data, and fill the last block as tar and `dd conv=sync` do."""
    packed = members(data)
    return packed + bytes(-len(packed) % 512)


PLACES = (
    ("split/{number}/{name}", bytes),
    (".cache/{number}/.{name}", bytes),
    ("old/{number}/{name}", bytes),
    ("{number}/{name}.gz", lambda data: gzip.compress(data, mtime=0)),
    ("{number}/{name}.gz", members),
    ("{number}/{name}.gz", padded),
)
"""Where a vector goes, and as which bytes."""
NAMES = {"dftracer": "a.pfw", "et3": "trace", "heph": "a.heph", "jets": "a.jets"}


def imported(directory, format_, places, chosen=None):
    """Import vectors as files, which go to these places in turn. Return by vector the rows without what depends on the file's name."""
    fair = [
        v
        for v in of(format_)
        if not v.beside
        and not may_join(v.data)
        and events(whole(v))
        and v.format.files.recognises("/a", v.data[:4096])
    ]
    chosen = chosen or fair[::2]
    for number, vector in enumerate(chosen):
        place, spelled = places[number % len(places)]
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
    table = rows_in(directory / "store")
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
    plain = imported(tmp_path / "plain", format_, [("{number}/{name}", bytes)])
    assert sum(map(Counter.total, plain.values())) > 30
    assert imported(tmp_path / "elsewhere", format_, PLACES) == plain


SINGLE = {"dftracer/dialect_2_0_3_by_id_alone"}
"""Alone, nothing shows that its ids count."""


def joinable(format_):
    """Vectors that are whole, so that another one may come behind them or before them: each begins a run of its own."""
    found = [
        vector
        for vector in of(format_)
        if not vector.beside
        and vector.limit == of(format_)[0].limit
        and len(vector.data) < 10**5
        and vector.name not in SINGLE
        and not any(
            row["kind"] == "malformed" or row["name"] in ("malformed", "late_join")
            for row in whole(vector)
        )
    ]
    if format_ in LINES:
        return [vector for vector in found if vector.data.endswith(b"\n")]
    return [vector for vector in found if vector.data.startswith(EPOCH)]


EPOCH = b"\x75\xd1\x1d\x4d"


def wrongly_joined(first, second):
    """Return what is wrong with two vectors one behind the other, beside the two apart."""
    found = rows(first, first.data + second.data)
    apart = [whole(first), whole(second)]
    wrong = []
    if first.format.name == "et3":  # its clock goes on
        same = records(found) == sum(map(records, apart))
    elif first.format.name == "heph":  # of two equal events, one is a duplicate
        same = {*events(found)} == {*events(apart[0]), *events(apart[1])}
    else:
        same = events(found) == events(apart[0]) + events(apart[1])
    if not same:
        wrong.append("other events")
    if counted(found) > sum(map(counted, apart)):
        wrong.append(f"{counted(found)} counted, not {list(map(counted, apart))}")
    return wrong


@pytest.mark.parametrize("format_", ["dftracer", "heph", "jets"])
@LONG
@given(st.data())
def test_two_traces_in_one_file_are_both_there(format_, data):
    vectors = st.sampled_from(joinable(format_))
    assert wrongly_joined(data.draw(vectors), data.draw(vectors)) == []


def test_two_traces_of_one_virtual_machine_in_one_file_are_both_there():
    vectors = joinable("et3")
    agents = [vector for vector in vectors if "/agent_" in vector.name]
    assert len(agents) > 5
    for pair in [*((v, v) for v in vectors), *itertools.product(agents, agents)]:
        assert wrongly_joined(*pair) == [], [vector.name for vector in pair]


@pytest.mark.parametrize("format_", ["dftracer", "jets"])
def test_joined_compressed_files_are_the_compressed_joined_files(format_, tmp_path):
    vectors = [vector for vector in joinable(format_) if not may_join(vector.data)][::4]
    chosen, halves = list[Vector](), {}
    for first, second in zip(vectors, vectors[1:] + vectors[:1], strict=True):
        chosen.append(copy(first))
        chosen[-1].data = first.data + second.data
        halves[chosen[-1].data] = first.data, second.data
    assert len(chosen) > 1
    place = "{number}/" + NAMES[format_]

    def packed(data):
        return b"".join(gzip.compress(half, mtime=0) for half in halves[data])

    plain = imported(tmp_path / "plain", format_, [(place, bytes)], chosen)
    assert sum(map(Counter.total, plain.values())) > 30
    found = imported(tmp_path / "packed", format_, [(place + ".gz", packed)], chosen)
    assert heals_together(found) == heals_together(plain)


def heals_together(found):
    """The rows by vector, without heals; and the heals of all. Files with the same vector heal each other's gaps."""
    heals = Counter()
    for rows_ in found.values():
        for key in [key for key in rows_ if key[1] == "heal"]:
            heals[key] += rows_.pop(key)
    return found, heals


TREES = sorted((VECTORS / "ovni/traces").glob("*/ovni"))


def import_tree(directory, *trees):
    """Copy trees of ovni to places in a directory and import it. Return the rows by stream, the losses, and the exit code."""
    for place, tree, kept in trees:
        shutil.copytree(tree, directory / "runs" / place)
        for stream in sorted((directory / "runs" / place).rglob("*.obs")):
            if not kept(stream):
                shutil.rmtree(stream.parent) if stream.name == "stream.obs" else stream.unlink()
    store = directory / "store"
    command = ["import", "--store", str(store), "--max-loss", "0", str(directory / "runs")]
    done = CliRunner().invoke(tailrace, command, catch_exceptions=False)
    found = {}
    for row in rows_in(store):
        if row["kind"] != "session":
            columns = ("kind", "name", "category", "id", "parent", "start", "end", "missing")
            found.setdefault(row["stream"], Counter())[tuple(row[c] for c in columns)] += 1
    lost = sorted(ask(store, "SELECT reason, detail, remaining FROM gaps"), key=str)
    return found, lost, done.exit_code


def all_of(stream):
    return bool(stream)


CORE = {"flush-events", "nosv-l2", "threads-marks", "truncated-kill9"}
trees = pytest.mark.parametrize(
    "tree",
    [
        pytest.param(tree, marks=[] if tree.parent.name in CORE else pytest.mark.slow)
        for tree in TREES
    ],
    ids=lambda tree: tree.parent.name,
)


@trees
def test_ovni_is_the_same_wherever_its_directories_are(tree, tmp_path):
    """Marks have their titles in the directory of one thread. In another directory they are named as missing."""
    plain, known, code = import_tree(tmp_path / "plain", ("ovni", tree, all_of))
    assert sum(map(Counter.total, plain.values())) > 0
    place = "old/split/.ovni"
    assert import_tree(tmp_path / "moved", (place, tree, all_of)) == (plain, known, code)
    streams = sorted(path.relative_to(tree) for path in tree.rglob("*.obs"))
    if len(streams) == 1:
        return

    def dealt(hand, place):
        return lambda path: streams.index(path.relative_to(place)) % 2 == hand

    hands = [
        (name, tree, dealt(hand, tmp_path / "dealt/runs" / name)) for hand, name in enumerate("ab")
    ]
    found, lost, _ = import_tree(tmp_path / "dealt", *hands)
    assert found == plain
    assert all(row in known or row[1].startswith("mark:") for row in lost)
    one = (tmp_path / "removed", ("a", tree, dealt(0, tmp_path / "removed/runs/a")))
    found, lost, _ = import_tree(*one)
    assert found.items() <= plain.items()
    assert all(row in known or row[0] == "unresolved" for row in lost)


@trees
def test_ovni_that_is_cut_lacks_its_end(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "ovni")
    for stream in (tmp_path / "ovni").rglob("*.obs"):
        stream.write_bytes(stream.read_bytes()[: max(20, stream.stat().st_size // 2)])
    _, lost, code = import_tree(tmp_path / "cut", ("ovni", tmp_path / "ovni", all_of))
    assert code == 4
    assert "truncated" in {reason for reason, *_ in lost}
    assert {reason for reason, *_ in lost} <= {"truncated", "unresolved"}


def ended(format_):
    """Vectors whose lines end with an end that nothing comes behind, and that lack nothing."""
    last = {"jets": b'"footer"', "dftracer": b'"name":"end"'}[format_]
    return [
        vector
        for vector in of(format_)
        if not vector.beside
        and not gaps(whole(vector))
        and last in b"".join(lines_of(vector)[-2:])
        and vector.data.count(last) == 1
    ]


@pytest.mark.parametrize("format_", sorted(OBJECTS))
def test_a_file_that_is_cut_between_lines_lacks_its_end(format_):
    """Imported, and followed until it rests and is removed; the rest of the file takes it back."""
    vectors = ended(format_)
    assert len(vectors) >= 5
    for vector in vectors:
        lines = lines_of(vector)
        for cut in {2, len(lines) // 2, len(lines) - 2}:
            head = b"".join(lines[:cut])
            if not events(rows(vector, head)) or b'"id"' not in head:
                continue
            (gap,) = gaps(rows(vector, head))
            assert (gap["name"], gap["missing"], detail(gap)) == ("truncated", None, "no_end")
            log = Log()
            file = log.open_file(format_, "/runs/a")
            facts = FileFacts(path="/runs/a", device=1, inode=2, birth=3)
            log.data(file, head)
            log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))
            assert set(lacks(run(log.entries)[1])) == {"no_end"}, vector.name
            log.data(file, b"".join(lines[cut:]))
            log.file(file, replace(facts, rest=Rest(why="silent", since=log.now)))
            assert lacks(run(log.entries)[1])[-1] == ""
            log.close(file, "deleted")
            assert gaps(run(log.entries)[1]) == []


def detail(row):
    return json.loads(row["attributes"])["detail"]


def lacks(found):
    return [json.loads(row["attributes"])["lacks"] for row in found if row["name"] == "rest"]
