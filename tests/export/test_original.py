"""Sessions in their own formats again: what an encoder writes is what the decoder has read."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import QuarantineConfig
from tailrace.decoding.contract import Format
from tailrace.decoding.foreign import FOREIGN
from tailrace.decoding.formats import FORMATS
from tailrace.decoding.formats.ovni.encoder import _rank
from tailrace.export.original import (
    BAD,
    MAY_BE_WHOLE,
    OF_KERNEL,
    SIZE_LOST,
    Loss,
    Origin,
    PackedFile,
    _kept,
    beside,
    placed,
)
from tailrace.importing.discover import find
from tailrace.model.quarantine import frame
from tailrace.model.record import Kind
from tailrace.sources.tail.inflate import Content, Inflater, LostPart, statement
from tailrace.spool.payloads import Member
from tailrace.store.quarantine import Quarantine, file_name
from tests.cli.command import run
from tests.decoding import kernel_inputs
from tests.decoding.dftracer_lines import event
from tests.decoding.test_conformance import ALL
from tests.decoding.test_heph import option
from tests.export.again import play, rebuild, told
from tests.export.exports import export_original
from tests.forms import examples
from tests.ingest.log import Log, heph_event, heph_goodbye
from tests.ingest.vector_rows import as_file, over_a_connection
from tests.query.tables import ask, make

WRITABLE = [vector for vector in ALL if vector.format.encoder]
WAYS = [
    (way, vector)
    for vector in WRITABLE
    for way, transport in ((as_file, "tail"), (over_a_connection, "tcp"))
    if transport in vector.format.transports
]


AMENDED = {
    "et3/maps_agent",
    "et3/maps_specification",
    "ovni/documents_bad", "ovni/marks_again", "ovni/marks_known",
}  # fmt: skip
"""Vectors whose documents change while their streams are read; they are written as they are at last."""

_ID = re.compile(r'"session":"[0-9a-f]{24}"')


def _without_ids(rows):
    """Rows without the digests of sessions' ids: another id takes the place of one that is not stored."""
    return [
        {**row, "attributes": row["attributes"] and _ID.sub('"session":""', row["attributes"])}
        for row in rows
    ]


class _Made(NamedTuple):
    """An input like a vector: a format, a limit, documents, and an input."""

    format: Format
    limit: int
    beside: dict
    data: bytes


@pytest.mark.parametrize(("way", "vector"), WAYS, ids=[f"{v.name}-{w.__name__}" for w, v in WAYS])
def test_a_vector_gives_the_same_rows_when_it_is_written_again(way, vector):
    rows, files = play(way(vector))
    beside = vector.beside if way is as_file else None
    rebuilt = rebuild(vector.format, rows, files, path=beside and beside["path"])
    if vector.name in AMENDED:
        assert rebuilt.data == vector.data
        return
    again, _ = play(way(_Made(vector.format, vector.limit, _beside(beside, rebuilt), rebuilt.data)))
    assert _without_ids(told(again)) == _without_ids(told(rows))
    assert not rebuilt.left


def _beside(beside, rebuilt):
    """The path and dialect of a vector, with the documents that were written again, as they were at last."""
    if beside is None:
        return None
    documents = [(name, text.decode()) for name, text in rebuilt.documents.items()]
    return beside | {"documents": documents}


# Seeds that are known to pass: about one damaged input in a thousand does not come back (docs/export.md).
# Heph's 126 ends with a duplicate, which is not stored; its 133 announces a session, whose id the table does not keep.
# DFTracer's 9 mixes two spellings of `ph`, and its 89 has one record right behind another.
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        (name, seed)
        for name in sorted({vector.format.name for vector in WRITABLE})
        for seed in [*range(20), 89, 126, 133]
    ],
)
def test_damaged_input_gives_the_same_rows_when_it_is_written_again(name, seed):
    for data, _, limit in kernel_inputs.inputs(name, 4, seed):
        made = _Made(FORMATS[name], limit, None, data)
        rows, files = play(as_file(made))
        if any(row["kind"] in {Kind.SPAN, Kind.COUNTER} and _unnumbered(row) for row in rows):
            continue  # the number of such an event is not stored
        rebuilt = rebuild(made.format, rows, files)
        if name == "heph" and len(rebuilt.data) < len(data):
            continue  # duplicates are not stored, and so do not count when it is read again
        again, _ = play(as_file(made._replace(data=rebuilt.data)))
        assert _without_ids(told(again)) == _without_ids(told(rows))


_NUMBER = re.compile(rb"(?<=[:,\[ ])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[,}\] \r\n])")
AWKWARD = [
    b"9" * 5000, b"-" + b"9" * 5000, b"0." + b"3" * 5000, b"1e999", b"-1e999", b"1e-999", b"-0", b"0e5",
    b"12345678901234567890", b'"' + b"9" * 5000 + b'"',
]  # fmt: skip
"""Numbers that JSON allows, and that Python, msgspec or the table's columns refuse."""
TEXTS = [
    vector for vector in WRITABLE if len(vector.data) < 30_000 and vector.format.name != "heph"
]


def _awkward(text, rng):
    """`text` with an awkward number in the place of one of its numbers; None if it has no number."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    place = rng.choice(found)
    return text[: place.start()] + rng.choice(AWKWARD) + text[place.end() :]


@pytest.mark.parametrize("vector", TEXTS, ids=lambda vector: vector.name)
def test_numbers_that_fit_in_no_type_come_back(vector):
    for seed in range(3):
        rng = random.Random(f"{vector.name} {seed}")
        data = vector.data if vector.format.name == "ovni" else _awkward(vector.data, rng)
        beside = vector.beside
        for index, (name, text) in enumerate((beside or {}).get("documents", ())):
            if text_of := _awkward(text.encode(errors="surrogateescape"), rng):
                documents = list(beside["documents"])
                documents[index] = (name, text_of.decode(errors="surrogateescape"))
                beside = {**beside, "documents": documents}
        made = _Made(vector.format, vector.limit, beside, data or vector.data)
        rows, files = play(as_file(made))
        path = beside and beside["path"]
        rebuild(vector.format, rows, files, path=path, repair=True)
        rebuilt = rebuild(vector.format, rows, files, path=path)
        if beside is None or beside == vector.beside:  # a bad line of a document is not stored
            again, _ = play(
                as_file(made._replace(beside=_beside(beside, rebuilt), data=rebuilt.data))
            )
            assert _without_ids(told(again)) == _without_ids(told(rows))


def test_a_statement_and_a_rank_with_awkward_numbers_come_back():
    session = json.dumps({"session": "0" * 32, "clock": "logical"})[:-1].encode()
    for number in AWKWARD:
        data = option(b"tailrace.session", session + b',"x":%b}' % number) + heph_event(1, 0)
        made = _Made(FORMATS["heph"], 1 << 20, None, data)
        rows, files = play(as_file(made))
        rebuilt = rebuild(made.format, rows, files)
        again, _ = play(as_file(made._replace(data=rebuilt.data)))
        assert _without_ids(told(again)) == _without_ids(told(rows))
    ranks = ["9" * 5000, "10", "9", "x"]
    lines = [f"{rank} node{rank[0]} 1 1.0 0.0" for rank in ranks]
    assert [line.split()[0] for line in sorted(lines, key=_rank)] == ["x", "9", "10", "9" * 5000]


@pytest.mark.parametrize("spaces", [0, 2, 4, 8, 12])
def test_a_jets_trace_with_spaces_before_its_lines_comes_back_with_all_records(spaces):
    """A line of another spelling without its newline is as long as one with spaces, and would be joined with the next."""
    (vector,) = [vector for vector in WRITABLE if vector.name == "jets/tracegen_tiny"]
    data = b"".join(b" " * spaces + line for line in vector.data.splitlines(keepends=True))
    rows, files = play(as_file(_Made(vector.format, vector.limit, None, data)))
    rebuilt = rebuild(vector.format, rows, files)
    again, _ = play(as_file(_Made(vector.format, vector.limit, None, rebuilt.data)))
    assert told(again) == told(rows)


def _unnumbered(row):
    return row["format"] == "heph" and row["seq"] is None


def exported(tmp_path, *paths, **options):
    """A store that has imported these files, and what it exports: facts by file, and the directory."""
    store, out = tmp_path / "store", tmp_path / "out"
    run("import", "--store", store, *paths)
    export_original(store, out, **options)
    facts = [json.loads(line) for line in (out / "sessions.jsonl").read_text().splitlines()]
    return {Path(each["file"]).name: each for each in facts}, out


def written(tmp_path, names):
    for name, data in names.items():
        path = tmp_path / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "traces"


def test_files_come_back_byte_for_byte_where_they_lay(tmp_path):
    data = {
        "import_jets/one.jets": vector("jets/tracegen_tiny"),
        "import_jets/b/two.jets": vector("jets/dialect_c"),
        "import_heph/run.trace": vector("heph/runtime"),
        "import_heph/torn.trace": vector("heph/torn_at_end"),
    }
    facts, out = exported(tmp_path, written(tmp_path, data))
    assert {name: (out / name).read_bytes() for name in data} == data
    assert all(not each["left_out"] for each in facts.values())
    assert len(facts) == 4
    assert b"truncated" in (out / "gaps.jsonl").read_bytes()


def vector(name):
    (found,) = (vector.data for vector in WRITABLE if vector.name == name)
    return found


def test_a_repair_ends_what_is_open_and_leaves_out_what_is_unreadable(tmp_path):
    lines = vector("jets/tracegen_tiny").splitlines(keepends=True)
    torn = b"".join(lines[:8]) + lines[8][:20]
    added = Counter()
    facts, out = exported(tmp_path, written(tmp_path, {"t.jets": torn}), added=added)
    whole = [json.loads(line) for line in (out / "import/t.jets").read_bytes().splitlines()]
    begun = [each["id"] for each in whole if each["type"] == "record"]
    ended = [each["record_id"] for each in whole if each["type"] == "record_end"]
    assert sorted(begun) == sorted(ended)
    assert whole[-1]["type"] == "footer"
    assert whole[-1]["total_records"] == len(begun)
    assert facts["t.jets"]["left_out"] == 20
    assert added == facts["t.jets"]["added"] == {"record_end": len(begun), "footer": 1}


def test_what_nobody_can_write_is_counted(tmp_path, monkeypatch):
    store = tmp_path / "store"
    run("import", "--store", store, written(tmp_path, {"t.jets": vector("jets/dialect_b")}))
    unwritable = msgspec.structs.replace(FORMATS["jets"], encoder=None)
    monkeypatch.setitem(FORMATS, "jets", unwritable)
    exported = export_original(store, tmp_path / "out")
    assert [what for what in exported.left if "jets" in what]
    assert "left out" in exported.text
    assert (tmp_path / "out/sessions.jsonl").read_bytes() == b""


def test_sessions_have_places_of_their_own():
    origins = [
        Origin("a", "s1", "jets", "/runs/x/one.jets"),
        Origin("a", "s2", "jets", "/runs/y/one.jets.gz"),
        Origin("a", "s3", "jets", "/runs/x/one.jets"),
        Origin("a", "[::1]:5/..", "jets", None),
        Origin("c", "s6", "dftracer", "/runs/one.pfw.gz"),
        Origin("c", "s7", "dftracer", "/runs/one.pfw"),
        Origin("b", "s4", "heph", None),
        Origin("b", "s5", "ovni", "/runs/t/loom.l/proc.1/thread.2/stream.obs"),
    ]
    names = {origin.session: str(name) for origin, name in placed(origins).items()}
    assert names == {
        "s1": "a/x/one.jets",
        "s2": "a/y/one.jets",
        "s3": "a/s3/x/one.jets",
        "[::1]:5/..": "a/%5B::1%5D:5%2F%2E%2E.jets",
        "s4": "b/s4.heph",
        "s6": "c/one.pfw.gz",
        "s7": "c/one.pfw",
        "s5": "b/loom.l/proc.1/thread.2/stream.obs",
    }


def test_a_document_stays_within_its_source():
    stream = PurePosixPath("b/loom.l/proc.1/thread.2/stream.obs")
    assert str(beside(stream, "stream.json")) == "b/loom.l/proc.1/thread.2/stream.json"
    assert str(beside(stream, "../../../clock-offsets.txt")) == "b/clock-offsets.txt"
    assert str(beside(PurePosixPath("b/stream.obs"), "../../../etc/x")) == "b/etc/x"


GAPS = """SELECT format, reason, detail, remaining, "offset", (attributes->>'bytes')::INT AS bytes FROM gaps ORDER BY ALL"""


def test_a_copy_of_damaged_files_lacks_what_they_lack(tmp_path):
    """Files whose writer was killed, and damage between members and in one: the copy's bytes show them again."""
    lines = [
        b"".join(event(n).encode() + b"\n" for n in range(k, k + 90)) for k in range(0, 720, 90)
    ]
    members = [gzip.compress(each, mtime=0) for each in lines]
    torn = [each[:-9] if n in {0, 2, 3, 7} else each for n, each in enumerate(members)]
    bad = [*members[:2], b"?" * 300, members[2][:99] + b"\xff" * 99 + members[2][99:], *members[3:]]
    heph = gzip.compress(vector("heph/runtime"), mtime=0)
    files = {"a.pfw.gz": b"".join(torn), "b.pfw.gz": b"".join(bad), "c.trace.gz": heph[:-30]}
    facts, out = exported(tmp_path, written(tmp_path, files))
    assert set(facts) == set(files)
    run("import", "--store", tmp_path / "again", out)
    wanted = ask(tmp_path / "store", GAPS)
    assert Counter(gap["detail"] for gap in wanted) >= Counter(torn_member=5, bad_member=2)
    assert ask(tmp_path / "again", GAPS) == wanted


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        ("hole", "truncated"),
        ("overwritten", "truncated"),
        ("unread", "truncated"),
        ("spool_damaged", "malformed"),
    ],
)
def test_a_copy_states_the_losses_that_no_bytes_show(tmp_path, detail, reason):
    """It has them again when it is imported, and its own copy does; a repeated import knows it."""
    lines = [event(n).encode() + b"\n" for n in range(1, 90)]
    file = tmp_path / "traces/a.pfw.gz"
    file.parent.mkdir()
    parts = [gzip.compress(b"".join(each), mtime=0) for each in (lines[:40], lines[40:])]
    file.write_bytes(parts[0] + statement(detail, 70) + parts[1])
    _, out = exported(tmp_path, file.parent)
    wanted = ask(tmp_path / "store", GAPS)
    assert [(gap["reason"], gap["detail"], gap["bytes"]) for gap in wanted].count(
        (reason, detail, 70)
    ) == 1
    run("import", "--store", tmp_path / "again", out)
    assert ask(tmp_path / "again", GAPS) == wanted
    assert b"nothing to import" in run("import", "--store", tmp_path / "again", out)
    assert ask(tmp_path / "again", GAPS) == wanted


def test_a_hole_in_a_file_is_one_in_its_copy(tmp_path):
    lines = vector("jets/tracegen_tiny").splitlines(keepends=True)
    file = tmp_path / "traces/a.jets"
    file.parent.mkdir()
    with file.open("wb") as out:
        out.write(b"".join(lines[:9]))
        out.seek(2**20)
        out.write(b"".join(lines[9:]))
    _, out = exported(tmp_path, file.parent)
    run("import", "--store", tmp_path / "again", out)
    gaps = "SELECT reason, detail, remaining, (attributes->>'bytes')::INT AS bytes FROM gaps ORDER BY ALL"
    wanted = ask(tmp_path / "store", gaps)
    assert [gap["detail"] for gap in wanted].count("hole") == 1
    assert ask(tmp_path / "again", gaps) == wanted
    events = "SELECT kind, name, id, start, \"end\", attributes FROM events WHERE kind <> 'session' ORDER BY ALL"
    assert ask(tmp_path / "again", events) == ask(tmp_path / "store", events)


def test_a_copy_of_a_trace_that_begins_with_its_end_lacks_no_more(tmp_path):
    """The rows of a process stand before the record at the same place."""
    end = b'{"id":4,"name":"end","cat":"dftracer","pid":7,"tid":7,"ts":9,"dur":0,"ph":"X"}\n'
    files = {"a.pfw": end, "b.pfw": event(1).encode() + b"\n" + event(2).encode() + b"\n"}
    _, out = exported(tmp_path, written(tmp_path, files))
    assert (out / "import/a.pfw").read_bytes() == end
    run("import", "--store", tmp_path / "again", out)
    assert ask(tmp_path / "again", GAPS) == ask(tmp_path / "store", GAPS)


def test_a_repair_leaves_damage_out_and_says_what_it_ended(tmp_path):
    members = [gzip.compress(event(n).encode() + b"\n", mtime=0) for n in range(3)]
    files = {"a.pfw.gz": members[0] + members[1][:-9] + members[2]}
    added = Counter()
    _, out = exported(tmp_path, written(tmp_path, files), added=added)
    assert len(gzip.decompress((out / "import/a.pfw.gz").read_bytes()).splitlines()) == 3
    assert added["end of a compressed part"] == 1


def test_a_repair_counts_the_gaps_that_it_cannot_show(tmp_path):
    packed = gzip.compress(event(1).encode() + b"\n", mtime=0)
    files = {"a.pfw.gz": packed + statement("unread", 70) + packed[:-9] + packed}
    run("import", "--store", tmp_path / "store", written(tmp_path, files))
    added = Counter()
    left = export_original(tmp_path / "store", tmp_path / "out", added=added).left
    assert added["end of a compressed part"] == 1
    assert left == {"gap that no copy shows (truncated)": 1}
    assert export_original(tmp_path / "store", tmp_path / "copy").left == {}


@pytest.mark.parametrize("statements", [1, 3])
@pytest.mark.parametrize("size", [500, 10**18, 2**63 - 1])
def test_a_copy_of_nothing_but_losses_is_no_empty_file(tmp_path, statements, size):
    content = statement("unread", size) * statements
    files = {"a.pfw.gz": content, "b.pfw": event(1).encode() + b"\n"}
    run("import", "--store", tmp_path / "store", written(tmp_path, files))
    lost = "SELECT attributes->>'bytes' AS bytes FROM gaps WHERE detail = 'unread'"
    assert ask(tmp_path / "store", lost) == [{"bytes": str(size)}] * statements


def collected(tmp_path, log):
    """A store of what the ingest makes of a log."""
    rows, files = play(log)
    store = tmp_path / "store"
    make(store, rows)
    for session, data in files.items():
        file = store / "quarantine" / file_name(session)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    return store


def test_bytes_of_a_later_gap_are_not_written_in_place_of_lost_ones(tmp_path):
    quarantine = Quarantine(tmp_path, QuarantineConfig())
    assert quarantine.write("s", 100, frame(500, "garbage", b"later"))
    kept = _kept([tmp_path], "s")
    assert kept(None, 0, 2) == []
    assert [each.data for each in kept(None, 100, 1)] == [b"later"]


def test_a_record_that_was_too_long_is_counted_since_a_copy_may_have_it_whole(tmp_path):
    """Readers of the copy may have a higher limit."""
    log = Log()
    session = log.open("heph", record_max=1000)
    log.data(session, heph_event(1, 0) + heph_event(1, 1, name=b"n" * 5000) + heph_event(1, 2))
    log.close(session)
    store = collected(tmp_path, log)
    assert export_original(store, tmp_path / "out").left == {MAY_BE_WHOLE: 1}
    assert export_original(store, tmp_path / "repaired", added=Counter()).left == {}


def test_a_copy_of_what_was_compressed_on_a_connection_is_no_trace_either(tmp_path):
    """Readers inflate a file, and would find there the whole trace that the session lacks."""
    data = gzip.compress(vector("jets/tracegen_tiny"), mtime=0)
    log = Log()
    session = log.open("jets")
    log.data(session, data)
    log.close(session)
    other = log.open("jets", source="other")
    log.data(other, vector("jets/tracegen_tiny"))
    log.close(other)
    store, out = collected(tmp_path, log), tmp_path / "out"
    assert export_original(store, out).left == {}
    (file,) = (out / "s").iterdir()
    assert gzip.decompress(file.read_bytes()) == data
    (left,) = find([file], "jets").left_out
    assert left.content == FOREIGN["gzip"]


LINES = vector("jets/tracegen_tiny").splitlines(keepends=True)
BROKEN = {
    "heph": [heph_event(1, 0), heph_event(1, 1)],
    "heph within a packet": [heph_event(1, 0), heph_event(1, 1)[:-3]],
    "jets": LINES[:8],
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_copy_of_a_connection_that_broke_is_no_whole_trace(tmp_path, data):
    log = Log()
    session = log.open("jets" if data == LINES[:8] else "heph")
    log.data(session, b"".join(data))
    log.close(session, "reset")
    store, out = collected(tmp_path, log), tmp_path / "out"
    reasons = "SELECT reason, remaining FROM gaps ORDER BY ALL"
    wanted = ask(store, reasons)
    assert export_original(store, out).left == {}
    run("import", "--store", tmp_path / "again", out)
    found = ask(tmp_path / "again", reasons)
    assert [gap for gap in wanted if gap not in found or found.count(gap) < wanted.count(gap)] == []
    assert {gap["reason"] for gap in found} == {gap["reason"] for gap in wanted}
    export_original(tmp_path / "again", tmp_path / "copy")
    run("import", "--store", tmp_path / "third", tmp_path / "copy")
    assert ask(tmp_path / "third", reasons) == found
    left = export_original(store, tmp_path / "repaired", added=Counter()).left
    assert left == {"gap that no copy shows (truncated)": 1}


def test_what_a_copy_calls_by_another_reason_is_counted(tmp_path):
    log = Log()
    session = log.open("heph", transport="udp")
    log.datagrams(session, [heph_event(1, number) for number in range(5)])
    log.tick(0.1)
    log.drops(3)
    log.datagrams(session, [heph_event(1, number) for number in range(8, 20)])
    log.tick(5)
    log.close(session)
    store = collected(tmp_path, log)
    assert ask(store, "SELECT reason, remaining FROM gaps") == [
        {"reason": "kernel", "remaining": 3}
    ]
    assert export_original(store, tmp_path / "out").left == {OF_KERNEL: 1}


LATE = [heph_event(1, 3), heph_event(1, 4), heph_event(1, 6)]
IN_DATAGRAMS = {
    "a hole": ([heph_event(1, 0), heph_event(1, 4)], {}),
    "a late start": (LATE, {SIZE_LOST: 1}),
    "a stream of which nothing came": ([heph_event(1, 0), heph_goodbye({1: 1, 2: 7})], {SIZE_LOST: 1}),
    "parts and a late start": (
        [*LATE, heph_event(1, 9)[:30], heph_event(1, 9)[30:]],
        {SIZE_LOST: 1, MAY_BE_WHOLE: 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payloads", "left"), IN_DATAGRAMS.values(), ids=IN_DATAGRAMS)
def test_gaps_of_datagrams_that_an_import_of_the_copy_does_not_find_are_counted(
    tmp_path, payloads, left
):
    log = Log()
    session = log.open("heph", transport="udp")
    log.datagrams(session, payloads)
    log.tick(5)
    log.close(session)
    store, out = collected(tmp_path, log), tmp_path / "out"
    assert export_original(store, out).left == left
    known = 'SELECT reason, stream, first, "last", remaining FROM gaps WHERE remaining > 0'
    wanted = ask(store, known)
    run("import", "--store", tmp_path / "again", out)
    found = ask(tmp_path / "again", known)
    assert (found == wanted) == (SIZE_LOST not in left)
    unknown = "SELECT 1 FROM gaps WHERE remaining IS NULL"
    assert bool(ask(tmp_path / "again", unknown)) == (SIZE_LOST in left)


HOLE, GONE = Loss(0, "hole", 4096), Loss(0, "unread", 7)


@examples(100)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([Loss(0), Loss(0, BAD, 80, b"?" * 80), HOLE, GONE]),
        max_size=9,
    )
)
def test_a_compressed_copy_lacks_what_its_original_does(pieces):
    out = io.BytesIO()
    packed = PackedFile(out)
    for piece in pieces:
        if isinstance(piece, bytes):
            assert packed.write(piece) == len(piece)
        else:
            packed.lose(piece)
    packed.close()
    inflater, found = Inflater(Member(0, 0)), []
    for byte in out.getvalue():
        inflater.feed(bytes([byte]))
        found += _found(inflater, last=False)
    found += _found(inflater, last=True)
    assert _joined(found) == _joined(pieces)
    if not any(loss in pieces for loss in (Loss(0), Loss(0, BAD, 80, b"?" * 80))):
        assert gzip.decompress(out.getvalue()) == b"".join(
            each for each in pieces if isinstance(each, bytes)
        )


def _found(inflater, *, last):
    """The content and the losses that an inflater has found by now."""
    while (step := inflater.next(last=last)) is not None:
        match step:
            case Content(data):
                yield data
            case LostPart(detail, size, data):
                yield Loss(0, detail, size, data)


def _joined(pieces):
    """The pieces, with all bytes that stand side by side as one."""
    joined = [b""]
    for piece in pieces:
        bad = (
            isinstance(piece, Loss)
            and piece.data
            and isinstance(joined[-1], Loss)
            and joined[-1].data
        )
        if isinstance(piece, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += piece
        elif bad and joined[-1].size < 80:
            joined[-1] = Loss(0, BAD, joined[-1].size + piece.size, joined[-1].data + piece.data)
        else:
            joined.append(piece)
    return [piece for piece in joined if piece != b""]
