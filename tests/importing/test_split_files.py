"""Split every vector of JETS, ET3 and Heph into files, as people do with long traces. The files together lack nothing that the whole does not
lack, and each says that its beginning may be missing. (`test_dftracer_pieces` does so with DFTracer, whose pieces join.)
Beside the file that they were cut from, they are copies.
"""

from __future__ import annotations

import gzip
import itertools
import random
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tailrace.cli.commands import tailrace
from tailrace.importing.choosing import choose
from tailrace.importing.readings import AsRead, Reading
from tailrace.sources.tail.content import fingerprint
from tailrace.spool.entry import LAST
from tailrace.spool.payloads import HEAD, FileFacts
from tests.forms import examples
from tests.importing.test_kinds import EVENTS, counted, events, gaps, of, readable, whole
from tests.ingest.log import Log, heph_epoch, heph_event, log_of_file, run
from tests.query.asking import ask
from tests.query.memory import Views

MISREAD = {
    # The file itself breaks the rule that shows a loss, and the other piece has the lines that show this.
    "jets/edge_event_before_record": "an event comes before its record",
    "jets/edge_footer_mid": "a footer counts lines that come after it",
    "jets/position": "lines before a header may be of its run, and its own piece does not have them",
    "heph/garbage": "the epoch comes after events",
    "heph/undecodable": "a number that comes too often is no counter",
    "et3/agent_kinds": "an entry is missing, and its exit seems to be that of a frame further out",
    "et3/agent_recursive": "the same",
    "et3/reordered_very_lossy": "later deaths contradict the earlier ones",
    "et3/agent_deaths_disordered": "the same",
    "et3/spec_losses": "a death is far ahead of the lines behind it",
    "et3/agent_then_spec": "lines of the other form",
    "et3/agent_then_late_spec": "lines of the other form",
    "et3/spec_then_agent": "lines of the other form",
}


def starts(vector):
    """Where records begin, but not the first."""
    decoder = vector.format.decoder(vector.limit, None)
    return sorted({r.offset for r in decoder.feed(vector.data) + decoder.end() if r.size} - {0})


def split(vector, places, rng):
    """The rows of each piece, which is a file of its own. The pieces come in any order."""
    log = Log()
    parts = [vector.data[a:b] for a, b in itertools.pairwise([0, *places, len(vector.data)])]
    beside = vector.beside or {"path": "/runs/a", "documents": []}
    sessions = {}
    for number in rng.sample(range(len(parts)), len(parts)):
        path, dialect = f"{beside['path']}.{number}", beside.get("dialect", "auto")
        file = log.open_file(vector.format.name, path, dialect=dialect, record_max=vector.limit)
        for name, text in beside["documents"]:
            log.document(file, name, text.encode(errors="surrogateescape"))
        log.data(file, parts[number])
        log.close(file)
        sessions[f"session{file}"] = number
    found = [[] for _ in parts]
    for row in run(log.entries)[1]:
        found[sessions[row["session"].partition(".")[0]]].append(row)
    return found


def stray(vector, pieces):
    """How many events lie in another piece than the numbers or times around them, since the file has them out of order."""
    if vector.format.name == "et3":
        return sum('"$flaw":"late"' in (row["attributes"] or "") for row in whole(vector))
    seqs = [Counter() for _ in pieces]
    seen = {(r["stream"], r["seq"]) for piece in pieces for r in piece if r["kind"] in EVENTS}
    for numbers, piece in zip(seqs, pieces, strict=True):
        for row in piece:
            if row["kind"] == "gap" and row["missing"] and row["seq"] is not None:
                last = row["seq"] + row["missing"]
                numbers.update((row["stream"], seq) in seen for seq in range(row["seq"], last))
    return sum(numbers[True] for numbers in seqs)


def same_events(vector, pieces):
    """Names may be known in another piece. A frame of ET3 has another number in a piece, and its times may begin anew."""
    found = [row for piece in pieces for row in piece]
    read = {"et3": lines_read, "heph": times, "jets": events}[vector.format.name]
    if vector.format.name == "et3":  # a piece may read a line that contradicts the lines before it
        return read(found) >= read(whole(vector))
    return read(found) == read(whole(vector))


def lines_read(found):
    return sum(1 + (row["kind"] == "span") for row in found if row["kind"] in {*EVENTS, "end"})


def times(found):
    return {(row["stream"], row["start"], row["end"]) for row in found if row["kind"] in EVENTS}


def begins_within(vector, piece):
    """Whether the rows of a piece show that it is not the beginning of a file."""
    about = [row["attributes"] or "" for row in piece]
    if vector.format.name == "jets":
        return any('"$flaw":"no_header"' in text for text in about)
    if vector.format.name == "et3":
        return any('"$flaw":"unmatched_end"' in text for text in about)
    rows_ = [row for row in piece if row["kind"] in EVENTS or row["name"] == "epoch"]
    return bool(rows_) and rows_[0]["name"] != "epoch" and (rows_[0]["seq"] or 0) > 0


@pytest.mark.parametrize("format_", ["et3", "heph", "jets"])
@pytest.mark.parametrize("torn", [False, True], ids=["between records", "anywhere"])
def test_pieces_of_a_file_lack_nothing_that_the_others_have(format_, torn):
    """Each piece is a file of its own, and says that its beginning may be missing."""
    wrong, said = {}, 0
    for vector in of(format_):
        places = range(1, len(vector.data)) if torn else starts(vector)
        rng = random.Random(vector.name)
        for count in (1, 1, 2, 3) if vector.name not in MISREAD and len(places) > 3 else ():
            cuts = sorted(rng.sample(places, count))
            pieces = split(vector, cuts, rng)
            surplus = counted(itertools.chain(*pieces)) - counted(whole(vector))
            inside = len({*cuts} - {*starts(vector)})
            unended = not vector.data.endswith(b"\n") and format_ == "et3"
            if surplus > stray(vector, pieces) + (1 + (format_ == "et3")) * inside + unended:
                wrong[vector.name, *cuts] = f"{surplus} too many counted"
            if not torn and not same_events(vector, pieces):
                wrong[vector.name, *cuts] = "other events"
            for piece in pieces[1:]:
                late = any(row["name"] == "late_join" for row in gaps(piece))
                said += late
                if begins_within(vector, piece) and not (late or counted(piece)):
                    wrong[vector.name, *cuts] = "a beginning is missing unsaid"
    assert not wrong
    assert said > 20


def test_a_record_of_dftracer_that_two_pieces_share_is_one_missing_event():
    """The half in the later piece may be all of what that piece lacks, so its gap is of unknown size."""
    (vector,) = (each for each in of("dftracer") if each.name == "dftracer/v220_preload_threads")
    events_at = [at for at in starts(vector) if vector.data.startswith(b'{"id":', at)][5:-5]
    rng = random.Random(1)
    for within in (4, 12, 60, 90):
        cuts = [at + within for at in sorted(rng.sample(events_at, 3))]
        pieces = split(vector, cuts, rng)
        assert counted(itertools.chain(*pieces)) == counted(whole(vector)) + len(cuts)
        for piece in pieces[1:]:
            assert ("malformed", None) in {(row["name"], row["missing"]) for row in gaps(piece)}


COUNTS = "SELECT kind, count(*) AS n FROM events WHERE kind IN ('span', 'instant', 'counter') GROUP BY 1 ORDER BY 1"
MISSING = "SELECT reason, sum(remaining) AS n, bool_or(remaining IS NULL) AS unknown FROM gaps GROUP BY 1 ORDER BY 1"


def beside(vector, parts, order, hidden, others):
    """Return the rows of files that a daemon follows in this order; -1 is the whole file. The daemon has found the
    content of the `hidden` files in the `others`."""
    log, files = Log(), {}
    for number in order:
        files[number] = log.open_file(
            vector.format.name, f"/runs/{number}", record_max=vector.limit
        )
        log.data(files[number], vector.data if number < 0 else parts[number])
        log.tick(3)
    for number in hidden:
        facts = FileFacts(path=f"/runs/{number}", device=1, inode=2, birth=3)
        found = tuple(f"session{files[other]}" for other in others)
        log.file(files[number], replace(facts, copied_in=found))
    log.tick(3)
    log.stop(LAST)
    return readable(run(log.entries)[1])


def cut_in_three(format_):
    rng = random.Random(format_)
    for vector in [v for v in of(format_) if not v.beside and HEAD <= len(v.data) < 10**4][::4]:
        if len(starts(vector)) > 2 and b"tailrace.session" not in vector.data:
            places = sorted(rng.sample(starts(vector), 2))
            ends = itertools.pairwise([0, *places, len(vector.data)])
            yield vector, [vector.data[a:b] for a, b in ends]


@pytest.mark.parametrize("format_", ["et3", "heph", "jets"])
@pytest.mark.parametrize("order", [(-1, 0, 1, 2), (0, -1, 1, 2), (0, 1, 2, -1)])
def test_followed_pieces_that_their_file_repeats_change_no_answer(format_, order):
    views, wrong = Views(), []
    for vector, parts in cut_in_three(format_):
        alone = beside(vector, parts, [-1], (), ())
        both = beside(vector, parts, order, (0, 1, 2), (-1,))
        answers = [[views.of(rows, sql) for sql in (COUNTS, MISSING)] for rows in (alone, both)]
        if answers[0] != answers[1]:
            wrong.append(vector.name)
    assert not wrong


@pytest.mark.parametrize("order", [(-1, 0, 1, 2), (0, 1, 2, -1)])
def test_a_followed_trace_that_others_repeat_is_there_if_it_has_gaps_of_its_run(order):
    """Pieces of DFTracer join, and the gaps of a run are in any of its sessions."""
    views, wrong, hidden = Views(), [], 0
    later, first = ((0, 1, 2), (-1,)) if order[0] < 0 else ((-1,), (0, 1, 2))
    own = "reason IN ('malformed', 'unresolved') OR detail = 'unfinished?'"  # of a cut record
    missing = MISSING.replace("GROUP", f"WHERE ({own}) IS NOT TRUE GROUP")
    for vector, parts in cut_in_three("dftracer"):
        all_ = beside(vector, parts, order, (), ())
        some = beside(vector, parts, order, later, first)
        if views.of(all_, missing) != views.of(some, missing):
            wrong.append(vector.name)
        hidden += views.of(all_, COUNTS) != views.of(some, COUNTS)
    assert not wrong
    assert hidden


REAL = ["et3/agent_threads", "et3/spec_simple", "heph/busy", "jets/tracegen_tiny"]


@pytest.mark.parametrize("name", REAL)
def test_an_import_of_all_pieces_of_a_real_file_counts_nothing_as_missing(name, tmp_path):
    (vector,) = [vector for vector in of(name.partition("/")[0]) if vector.name == name]
    begins = starts(vector)
    places = [0, *(begins[len(begins) * part // 4] for part in (1, 2, 3)), len(vector.data)]
    for number, (begin, end) in enumerate(itertools.pairwise(places)):
        (tmp_path / "pieces").mkdir(exist_ok=True)
        (tmp_path / "pieces" / f"x{number}").write_bytes(vector.data[begin:end])
    command = ["import", "--store", str(tmp_path / "store")]
    CliRunner().invoke(tailrace, [*command, str(tmp_path / "pieces")], catch_exceptions=False)
    lacks = "SELECT reason, remaining FROM gaps WHERE reason <> 'unresolved' OR id IS NOT NULL"
    lost = ask(tmp_path / "store", lacks)
    assert ("late_join", None) in lost
    assert set(lost) <= {("late_join", None), ("truncated", None)}
    stored = "SELECT count(*) FROM events WHERE kind IN ('span', 'begin', 'instant', 'end', 'annotation')"
    ((rows_,),) = ask(tmp_path / "store", stored)
    kept = [row for row in whole(vector) if row["kind"] in {*EVENTS, "end"}]
    assert rows_ >= len(kept) > 20


def of_file(format_, data):
    log = log_of_file(format_, data, "/runs/a")
    return [
        (r["kind"], r["name"], r["missing"])
        for r in run(log.entries)[1]
        if r["kind"] in {"gap", "heal"}
    ]


def test_totals_that_agree_take_back_that_the_beginning_may_be_missing():
    (vector,) = [vector for vector in of("jets") if vector.name == "jets/tracegen_tiny"]
    lines = vector.data.splitlines(keepends=True)
    late = ("gap", "late_join", None)
    assert of_file("jets", b"".join(lines[1:])) == [late, ("heal", "late_join", None)]
    assert of_file("jets", b"".join(lines[2:])) == [late]
    assert of_file("jets", b"".join(lines[:1] + lines[2:]))[-1][1:] == ("unresolved", 1)


def test_a_run_behind_a_piece_of_another_one_keeps_its_counts():
    """The same streams begin again, and the second run has its epoch."""
    piece = b"".join(heph_event(1, n, 10**9 + n) for n in (105, 107, 103, 104, 108))
    second = heph_epoch(2) + b"".join(heph_event(1, n) for n in (2, 3, 5))
    lost = [("gap", "late_join", None), ("gap", "network", 1)]
    assert of_file("heph", piece) == lost
    assert of_file("heph", piece + second) == [
        *lost,
        ("gap", "late_join", 2),
        ("gap", "network", 1),
    ]
    assert of_file("heph", heph_epoch(1) + piece)[0] == ("gap", "late_join", 103)


def test_a_piece_that_begins_with_the_footer_counts_no_line_of_another_piece():
    """Nor does a reversed file, which begins with its footer, too."""
    (vector,) = [vector for vector in of("jets") if vector.name == "jets/tracegen_tiny"]
    lines = vector.data.splitlines(keepends=True)
    late, healed = ("gap", "late_join", None), ("heal", "late_join", None)
    assert of_file("jets", lines[-1]) == [late]
    assert of_file("jets", lines[-1] + vector.data) == [late]
    assert of_file("jets", b"".join(lines[::-1])) == [late, healed]
    assert of_file("jets", b"".join(lines[:4:-1])) == [late]
    assert of_file("jets", b"".join(lines[:5:-1] + lines[:1])) == [late]


def real(name):
    return next(v for v in of(name.partition("/")[0]) if v.name == name)


def quarters(vector):
    begins = starts(vector)
    places = [0, *(begins[len(begins) * part // 4] for part in (1, 2, 3)), len(vector.data)]
    return [vector.data[begin:end] for begin, end in itertools.pairwise(places)]


def spelled(name, data):
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


def chosen(directory, format_, files, readings=()):
    """Write `files`, which map names to contents. Return those that an import leaves out, each with its original."""
    for name, data in files.items():
        (directory / name).write_bytes(spelled(name, data))
    choice = choose({format_: [str(directory / name) for name in files]}, readings, again=False)
    below = len(str(directory)) + 1
    left = {left.path[below:]: left.of[below:] for left in choice.left_out}
    assert {taken.path[below:] for taken in choice.taken} == files.keys() - left.keys()
    return left


BESIDE = {
    "split": lambda parts: dict(zip("abcd", parts, strict=True)),
    "without the last": lambda parts: dict(zip("abc", parts[:3], strict=True)),
    "packed": lambda parts: {f"{n}.gz": part for n, part in enumerate(parts)},
    "tail": lambda parts: {"t": b"".join(parts[2:])},
    "split twice": lambda parts: {"a": b"".join(parts[:2]), "b": b"".join(parts[2:]), **dict(zip("cdef", parts, strict=True))},
    "within a record": lambda parts: {"a": parts[0] + parts[1][:99], "b": parts[1][99:], "c": b"".join(parts[2:])},
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("whole", ["whole", "whole.gz"])
@pytest.mark.parametrize("way", BESIDE)
def test_pieces_beside_their_file_are_copies_of_it(name, way, whole, tmp_path):
    vector = real(name)
    pieces = BESIDE[way](quarters(vector))
    left = chosen(tmp_path, vector.format.name, {**pieces, whole: vector.data})
    if way == "tail" and whole.endswith(".gz"):
        assert left == {}  # the last bytes of a packed file are not looked for
    else:
        assert left == dict.fromkeys(pieces, whole)


@pytest.mark.parametrize("name", REAL)
def test_an_import_of_a_file_and_its_pieces_has_the_events_of_the_file(name, tmp_path):
    vector = real(name)
    counts = []
    for way, files in {
        "alone": {},
        "beside": dict(zip("abcd", quarters(vector), strict=True)),
    }.items():
        (tmp_path / way).mkdir()
        for piece, data in {**files, "whole": vector.data}.items():
            (tmp_path / way / piece).write_bytes(data)
        store = str(tmp_path / f"{way}.store")
        said = CliRunner().invoke(tailrace, ["import", "--store", store, str(tmp_path / way)])
        counts.append(ask(store, "SELECT kind, count(*) FROM events GROUP BY 1 ORDER BY 1"))
    assert counts[0] == counts[1]
    assert "4 files are copies of other files, or of parts of others" in said.output


@pytest.mark.parametrize("name", REAL)
def test_a_file_with_other_bytes_than_the_whole_is_read(name, tmp_path):
    vector = real(name)
    parts = quarters(vector)
    other = parts[2][:-9] + b"?" + parts[2][-8:]
    left = chosen(
        tmp_path, vector.format.name, {**dict(zip("abcd", [*parts[:2], other, parts[3]], strict=True)), "w": vector.data}
    )  # fmt: skip
    assert left == {"a": "w", "b": "w", "d": "w"}


@pytest.mark.parametrize("name", REAL)
def test_the_beginning_of_a_file_is_a_copy_if_it_states_when_its_run_began(name, tmp_path):
    """Two runs of a simulator may write the same lines, and one of them may have been killed."""
    vector = real(name)
    left = chosen(
        tmp_path, vector.format.name, {"w": vector.data, "h": b"".join(quarters(vector)[:2])}
    )
    assert left == ({"h": "w"} if vector.format.name == "heph" else {})


@pytest.mark.parametrize("format_", ["et3", "heph", "jets"])
def test_files_beside_what_they_were_joined_to_are_copies_of_it(format_, tmp_path):
    one, two = [v for v in of(format_) if len(v.data) > 999 and not v.beside][:2]
    files = {"a": one.data, "b": two.data, "c": one.data + two.data, "d": two.data + one.data}
    left = chosen(tmp_path, format_, files)
    assert left.keys() in ({"a", "b"}, {"a", "b", "c"}, {"a", "b", "d"})


@pytest.mark.parametrize("name", REAL)
def test_a_file_of_which_an_earlier_import_has_all_pieces_is_a_copy(name, tmp_path):
    """If one piece was not imported before, the file is read, and the events of the other pieces are stored twice."""
    vector = real(name)
    parts = dict(zip("abcd", quarters(vector), strict=True))
    for count in (3, 4):
        readings = []
        for piece in [*parts][:count]:
            path = tmp_path / piece
            path.write_bytes(parts[piece])
            known, node = fingerprint(str(path)), path.stat()
            read = AsRead(str(path), node.st_ino, known.size, node.st_dev, known.crc)
            readings.append(Reading("import", vector.format.name, piece, read, closed=True))
        left = chosen(tmp_path, vector.format.name, {**parts, "w": vector.data}, readings)
        again = dict.fromkeys([*parts][:count], "")
        assert left == again | ({"w": "a"} if count == 4 else {"d": "w"})


DATA = random.Random(0).randbytes(3000)
cuts = st.lists(st.sampled_from(range(0, 3001, 250)), min_size=2, max_size=4).map(sorted)


@examples(100)
@given(st.lists(st.lists(cuts, min_size=1, max_size=3), min_size=1, max_size=6), st.randoms())
def test_what_is_left_out_is_in_a_file_that_is_read(tmp_path_factory, plan, rng):
    """Each file may have any parts of the data, in any order."""
    files = {}
    for number, ranges in enumerate(plan):
        data = b"".join(DATA[a:b] for places in ranges for a, b in itertools.pairwise(places))
        files[f"{number}" + rng.choice(["", ".gz"])] = data
    files = {name: data for name, data in files.items() if data}
    left = chosen(tmp_path_factory.mktemp("pieces"), "heph", files)
    for name, of_ in left.items():
        assert of_ not in left
        assert files[name] in files[of_]
