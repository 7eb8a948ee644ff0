"""Things that sessions of files have beyond others: a path, documents, losses, gaps their decoder knows of."""

from __future__ import annotations

import json
from zlib import crc32

import pytest
from msgspec import structs

from tailrace.decoding.formats import FORMATS
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import PAYLOAD_MAX, EntryKind
from tailrace.spool.payloads import HEAD, LAST, FileFacts, Member, Rest
from tests.decoding.dftracer_lines import end, event, start, text
from tests.decoding.ovni_bytes import HEADER, ends, starts
from tests.decoding.test_conformance import VECTORS
from tests.formats.toy import FORMAT as TOY
from tests.ingest.log import Log, applied, run
from tests.ingest.test_machine import assert_conserved, attributes, of
from tests.rows.columns import column


@pytest.fixture(autouse=True)
def toy_format(monkeypatch):
    monkeypatch.setitem(FORMATS, "toy", TOY)


@pytest.fixture
def log():
    return Log()


def names(rows, kind):
    return [row["name"] for row in of(rows, kind)]


def test_the_session_row_says_path_and_group(log):
    log.open_file("toy", "/runs/a", group="/runs")
    _, rows = run(log.entries)
    about = attributes(of(rows, "session")[0])
    assert (about["peer"], about["transport"], about["group"]) == ("/runs/a", "tail", "/runs")


def test_the_decoder_is_told_its_path_and_dialect_once_and_remembers_them(log):
    session = log.open_file("toy", "/runs/a", dialect="odd")
    first, _ = run(log.entries)
    log.data(session, b"e path\n")
    _, rows = run(log.entries[-1:], Ingest.restore(first.snapshot()))
    assert names(rows, "instant") == ["/runs/a odd"]


def test_a_name_is_a_row_like_any(log):
    session = log.open_file("toy")
    log.data(session, b"k 31\nn 31 main\n")
    ingest, rows = run(log.entries)
    (name,) = of(rows, "name")
    assert (name["name"], attributes(name)) == ("main", {"$key": "31", "$scope": "session"})
    assert_conserved(ingest)
    assert ingest.account("s").seen == 1


def test_a_documents_names_are_rows_where_the_stream_stands(log):
    session = log.open_file("toy")
    log.data(session, b"e one\n")
    log.document(session, "names", b"4 four\n5 five\n")
    log.data(session, b"e two\n")
    ingest, rows = run(log.entries)
    assert [(row["name"], row["offset"]) for row in of(rows, "name")] == [("four", 6), ("five", 6)]
    assert ingest.files([session])[session].documents == {"names": crc32(b"4 four\n5 five\n")}
    assert_conserved(ingest)


def test_a_long_document_goes_on_over_entries_and_a_checkpoint(log):
    session = log.open_file("toy")
    content = b"".join(b"%d name%d\n" % (n, n) for n in range(150_000))
    assert len(content) > 2 * PAYLOAD_MAX
    log.document(session, "names", content)
    assert len(log.entries) == 4
    first, rows = run(log.entries[:2])
    assert not of(rows, "name")
    ingest, rows = run(log.entries[2:], Ingest.restore(first.snapshot()))
    assert names(rows, "name") == [f"name{n}" for n in range(150_000)]
    assert ingest.files([session])[session].documents == {"names": crc32(content)}


def test_documents_of_a_format_without_any_are_passed_over(log):
    session = log.open_file("jets")
    log.document(session, "names", b"4 four\n")
    _, rows = run(log.entries)
    assert not of(rows, "name")


def test_what_the_decoder_knows_to_be_missing_is_a_gap_and_counts(log):
    session = log.open_file("toy")
    log.data(session, b"e one\nm 3\n")
    ingest, rows = run(log.entries)
    (gap,) = of(rows, "gap")
    assert (gap["name"], gap["seq"], gap["offset"]) == ("network", 7, 6)
    assert attributes(gap) == {"count": 3, "detail": "counted"}
    account = ingest.account("s")
    assert (account.expected, account.seen, account.missing) == (5, 2, 3)
    assert ingest.tally("s").gaps == {"network": 3}
    log.close(session)
    ingest, _ = run(log.entries)
    assert ingest.account("s").missing == 3
    assert_conserved(ingest)


def test_how_far_a_file_is_read_is_known_to_the_byte(log):
    session = log.open_file("toy")
    content = b"".join(b"e %d\n" % n for n in range(200))
    for at in range(0, len(content), 33):
        log.data(session, content[at : at + 33])
    ingest, _ = run(log.entries)
    ingest = Ingest.restore(ingest.snapshot())
    file = ingest.files([session])[session]
    assert (file.offset, file.head, file.last) == (len(content), content[:HEAD], content[-LAST:])


def test_a_hole_moves_the_offsets_of_what_follows(log):
    session = log.open_file("toy")
    log.data(session, b"e one\n")
    log.loss(session, detail="hole", size=4096)
    log.data(session, b"e two\nbad\n")
    ingest, rows = run(log.entries)
    assert [row["offset"] for row in of(rows, "instant")] == [0, 6 + 4096]
    hole, bad = of(rows, "gap")
    assert (hole["name"], attributes(hole)) == (
        "truncated",
        {"count": 0, "bytes": 4096, "detail": "hole"},
    )
    assert bad["offset"] == 6 + 4096 + 6
    assert ingest.files([session])[session].offset == 6 + 4096 + 10
    assert ingest.tally("s").unknown_gaps == 1
    assert_conserved(ingest)


def test_bytes_that_cannot_be_inflated_are_kept(log):
    session = log.open_file("toy")
    log.data(session, b"e one\n")
    log.loss(session, detail="bad_member", size=5, data=b"\x1f\x8b\x08xx")
    ingest = applied(log.entries)
    batch = ingest.batch.take()
    (kept,) = batch.quarantined
    assert b"\x1f\x8b\x08xx" in kept.frame
    text = column(batch, "attributes")[-1]
    about = {"count": 0, "bytes": 5, "detail": "bad_member", "quarantine": 0}
    assert json.loads(text) == about
    assert ingest.tally("s").malformed_records == {"bad_member": 1}
    assert ingest.files([session])[session].offset == 6
    assert_conserved(ingest)


@pytest.mark.parametrize("detail", ["unread", "overwritten"])
def test_bytes_that_are_gone_are_named(log, detail):
    session = log.open_file("toy")
    log.data(session, b"e one\n")
    log.loss(session, detail=detail, size=9)
    ingest, rows = run(log.entries)
    (gap,) = of(rows, "gap")
    assert (gap["name"], gap["offset"]) == ("truncated", 6)
    assert attributes(gap) == {"count": 0, "bytes": 9, "detail": detail}
    assert_conserved(ingest)


def test_a_file_that_moves_says_where_to(log):
    session = log.open_file("toy", "/runs/a")
    facts = FileFacts(path="/runs/a.gz", device=1, inode=9, birth=0, member=Member(10, 20))
    log.file(session, facts)
    log.file(session, facts)
    ingest, rows = run(log.entries)
    assert names(rows, "session") == ["open", "moved"]
    assert attributes(rows[-1]) == {"peer": "/runs/a.gz"}
    assert ingest.files([session])[session].facts == facts


@pytest.mark.parametrize("cut", [50_000, 10**6])
def test_a_line_too_long_is_one_missing_event_in_however_many_pieces_it_comes(log, cut):
    session = log.open_file("toy")
    data = b"e one\n" + b"x" * (3 * 2**20) + b"\n" + b"y" * (3 * 2**20) + b"\ne two\n"
    for at in range(0, len(data), cut):
        log.data(session, data[at : at + cut])
    ingest, rows = run(log.entries)
    assert names(rows, "instant") == ["one", "two"]
    assert ingest.account("s").missing == 2
    assert sum(attributes(gap)["count"] for gap in of(rows, "gap")) == 2
    assert sum(gap["missing"] for gap in of(rows, "gap")) == 2, "no gap is of unknown size"
    assert ingest.tally("s").unknown_gaps == 0
    assert_conserved(ingest)


# Rest


RESTS = FileFacts(
    path="/runs/a", device=1, inode=2, birth=3, rest=Rest(why="process_gone", since=77)
)


def _rests(rows):
    return [attributes(row) for row in of(rows, "session") if row["name"] == "rest"]


def test_a_file_that_rests_is_said_once_and_that_it_goes_on_by_its_next_bytes(log):
    session = log.open_file("jets")
    log.file(session, RESTS)
    log.file(session, RESTS)
    log.data(session, b"{")
    log.data(session, b"}")
    log.file(session, RESTS)
    now = log.now
    _, rows = run(log.entries)
    rests = _rests(rows)
    sizes = [about.pop("file", {}).get("size") for about in rests]
    assert sizes == [0, None, 2]
    assert rests == [
        {"rest": "process_gone", "since": 77},
        {"rest": "", "since": now},
        {"rest": "process_gone", "since": 77},
    ]


def test_a_file_with_another_path_goes_on_to_rest(log):
    session = log.open_file("jets")
    log.file(session, RESTS)
    log.file(session, structs.replace(RESTS, path="/runs/b"))
    _, rows = run(log.entries)
    assert len(_rests(rows)) == 1


def test_that_a_file_rests_is_known_after_a_restart(log):
    session = log.open_file("jets")
    log.file(session, RESTS)
    first, _ = run(log.entries)
    again = Ingest.restore(first.snapshot())
    assert again.files([session])[session].facts.rest == RESTS.rest
    log.data(session, b"{}\n")
    _, rows = run(log.entries[-1:], again)
    assert [about["rest"] for about in _rests(rows)] == [""]


OVNI = "/runs/loom.a/proc.1/thread.2/stream.obs"


def test_a_stream_that_says_its_end_says_at_rest_what_of_it_has_not_come(log):
    session = log.open_file("ovni", OVNI)
    log.data(session, HEADER + starts(5))
    log.file(session, structs.replace(RESTS, path=OVNI))
    log.data(session, ends(9))
    log.file(session, structs.replace(RESTS, path=OVNI))
    _, rows = run(log.entries)
    assert attributes(of(rows, "session")[0])["ends"] == "a/1/2"
    assert [(about["rest"], about["lacks"]) for about in _rests(rows)] == [
        ("process_gone", "unfinished"), ("", "unfinished"), ("", ""), ("process_gone", ""),
    ]  # fmt: skip


def test_late_events_are_spans_in_whatever_order_they_were_written(log):
    """An end may stand before its begin, and the file grows by an event at a time."""
    data = (VECTORS / "ovni/late_unsorted.in").read_bytes()
    session = log.open_file("ovni", OVNI)
    for at in range(0, len(data), 12):
        log.data(session, data[at : at + 12])
        log.tick(0.1)
    log.close(session)
    _, rows = run(log.entries)
    spans = {row["start"]: row["end"] for row in of(rows, "span")}
    assert not of(rows, "end")
    assert len(spans) == 12
    assert {start: spans[start] for start in (10801, 10815, 10840)} == {
        10801: 10802, 10815: 10820, 10840: 10841,
    }  # fmt: skip


def test_a_stop_tells_once_of_streams_that_have_ended(log):
    """The row of an end that is due came before: for ovni at the opening."""
    done, not_done, plain = (
        log.open_file("ovni", OVNI),
        log.open_file("ovni", OVNI.replace("thread.2", "thread.3")),
        log.open_file("jets"),
    )
    log.data(done, HEADER + starts(5) + ends(9))
    log.data(not_done, HEADER + starts(5))
    log.data(plain, b"{}\n")
    for _ in range(2):
        log.stop()
        log.add(EntryKind.START)
    _, rows = run(log.entries)
    told = [row for row in of(rows, "session") if row["name"] == "rest"]
    assert [(row["session"], attributes(row)["rest"]) for row in told] == [
        (f"session{done}", ""), (f"session{done}", "ended"),
    ]  # fmt: skip
    about = {"since": log.now, "lacks": "", "ends": "a/1/2"}
    assert attributes(told[1]).items() >= about.items()


def test_a_row_tells_that_the_end_of_a_file_is_due_and_another_one_that_it_has_come(log):
    """A file of JETS shows only by its header that it will state its end."""
    lines = (VECTORS / "jets/dialect_a.in").read_bytes().splitlines(keepends=True)
    file = log.open_file("jets")
    for part in (lines[:2], lines[2:-1], lines[-1:]):
        log.data(file, b"".join(part))
        log.stop()
        log.add(EntryKind.START)
    _, rows = run(log.entries)
    lacks = [(about["rest"], about["lacks"], about["ends"]) for about in _rests(rows)]
    assert lacks == [("", "no_end", ""), ("", "", ""), ("ended", "", "")]


@pytest.mark.parametrize("cut", [1, 0], ids=["unterminated", "terminated"])
def test_a_stop_tells_once_of_an_end_that_only_the_stop_reads(log, cut):
    """Readers take the latest row, so no two rows about the end of a run have the same place."""
    data = (VECTORS / "jets/dialect_a.in").read_bytes()
    file = log.open_file("jets")
    log.data(file, data[: data.index(b"\n") + 1])
    log.data(file, data[data.index(b"\n") + 1 : len(data) - cut])
    log.tick(0.1)
    log.stop()
    _, rows = run(log.entries)
    told = [row for row in of(rows, "session") if row["name"] == "rest"]
    said = [("", "no_end"), *([] if cut else [("", "")]), ("ended", "")]
    assert [(about["rest"], about["lacks"]) for about in map(attributes, told)] == said
    assert len({(row["offset"], row["time"]) for row in told}) == len(told)


def test_a_stop_tells_of_files_with_one_content_and_of_those_that_have_grown_since(log):
    """Only together do they show that one is a copy."""
    first, second, other = (log.open_file("heph", f"/runs/{name}") for name in "abc")
    data = (VECTORS / "heph/busy.in").read_bytes()
    log.data(other, (VECTORS / "heph/bad_time.in").read_bytes())
    for part in (data[:30], data[30:]):
        log.data(first, part)
        log.data(second, part)
    log.stop()
    log.add(EntryKind.START)
    _, rows = run(log.entries)
    told = [row for row in of(rows, "session") if row["name"] == "rest"]
    assert [row["session"] for row in told] == [f"session{first}", f"session{second}"]
    assert [attributes(row)["rest"] for row in told] == ["stopped", "stopped"]
    assert len({attributes(row)["file"]["crc"] for row in told}) == 1
    log.data(second, data)
    _, rows = run(log.entries)
    assert [about["rest"] for about in _rests(rows)] == ["stopped", "stopped", ""]


def test_of_a_file_that_no_source_follows_only_a_stated_end_is_known(log):
    """JETS says its end in a footer, a client in its goodbye; any other file may have grown."""
    footer = b'{"type":"footer","record_count":0,"event_count":0,"annotation_count":0}\n'
    whole, open_ = log.open_file("jets", "/runs/a.jets"), log.open_file("jets", "/runs/b.jets")
    log.data(whole, b"{}\n" + footer)
    log.data(open_, b"{}\n")
    for _ in range(2):  # the next life of the daemon says so, too
        for session in (whole, open_):
            log.add(EntryKind.FILE, session)
    _, rows = run(log.entries)
    told = {r["session"]: attributes(r) for r in of(rows, "session") if r["name"] == "rest"}
    assert {session: about["rest"] for session, about in told.items()} == {
        f"session{whole}": "unfollowed",
        f"session{open_}": "unfollowed",
    }
    assert [told[f"session{n}"].get("lacks") for n in (whole, open_)] == ["", None]
    followed = structs.replace(RESTS, rest=None)
    log.file(open_, followed)
    again, rows = run(log.entries)
    assert [attributes(r)["rest"] for r in of(rows, "session") if r["name"] == "rest"][-1] == ""
    assert again.files([open_])[open_].facts == followed


def test_dftracer_has_an_end_to_say_once_it_has_said_its_start(log):
    """Older ones say neither; of the others a `start` without an `end` is doubtful."""
    old, cut, whole = (log.open_file("dftracer", f"/runs/{name}.pfw") for name in "abc")
    log.data(old, text("[", event(1, ph='"X"')))
    log.data(cut, text("[", start(), event(2)))
    other = text("[", start(), event(2), end(3)).replace(b'"pid":7', b'"pid":9')
    log.data(whole, other)  # of the same process, it would show the end of the one before
    for session in (old, cut, whole):
        log.file(session, RESTS)
    _, rows = run(log.entries)
    about = {
        row["session"]: attributes(row) for row in of(rows, "session") if row["name"] == "rest"
    }
    assert [about[f"session{n}"].get("lacks") for n in (old, cut, whole)] == [None, "no_end", ""]
    assert [about[f"session{n}"].get("ends") for n in (old, cut, whole)] == [None, "", ""]
