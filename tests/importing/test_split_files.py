"""Split every vector of JETS, ET3 and Heph into files, as people do with long traces. The files together lack nothing that the whole does not
lack, and each says that its beginning may be missing. (`test_dftracer_pieces` does so with DFTracer, whose pieces join.)
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from click.testing import CliRunner

from tailrace.cli.commands import tailrace
from tests.importing.test_kinds import EVENTS, counted, events, gaps, of, whole
from tests.ingest.log import Log, heph_epoch, heph_event, log_of_file, run
from tests.query.asking import ask

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
            if surplus > stray(vector, pieces) + 2 * inside + unended:
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
